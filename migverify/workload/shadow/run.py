"""A shadow replay from its beginning to its end in the store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from migverify.config.settings import ShadowSettings, WatchSettings
from migverify.db.retry import ReadLimits
from migverify.db.session import Session, open_session
from migverify.errors import MigverifyError, PlanError, UsageError
from migverify.model import Side, StoredKind, Verdict
from migverify.store.results import ResultStore
from migverify.watch.applied import Applied, SettleTime
from migverify.watch.loop import watch
from migverify.watch.run import WatchRun
from migverify.workload.capture import WITHOUT_CONNECTS
from migverify.workload.catalogue.waivers import Waiver
from migverify.workload.formats.reading import LogFormat
from migverify.workload.model import CaptureFormat
from migverify.workload.private import private_folder
from migverify.workload.replay.assumed import SessionFacts
from migverify.workload.replay.connections import EngineOptions, killer, openers
from migverify.workload.replay.keys import read_keys
from migverify.workload.replay.outcomes import alone
from migverify.workload.replay.safety import ReplayEndpoints
from migverify.workload.replay.store import write_replay
from migverify.workload.replay.tally import DigestTally, ReplayTally
from migverify.workload.replay.touches import Keys
from migverify.workload.replay.verdict import CatalogueLabels, verdict
from migverify.workload.replay.wire import ServerWire
from migverify.workload.shadow.again import AskedAgain
from migverify.workload.shadow.ask import ReadAsker
from migverify.workload.shadow.book import ShadowBook
from migverify.workload.shadow.budget import RateLimit, TargetGovernor
from migverify.workload.shadow.evidence import write_shadow
from migverify.workload.shadow.file import ShadowChanges, ShadowFile
from migverify.workload.shadow.log import LogPosition, LogTail
from migverify.workload.shadow.objects import ObjectFolder, ObjectPosition
from migverify.workload.shadow.progress import SettleClock, TargetProgress
from migverify.workload.shadow.reads import KnownKeys, LiveSessions, ReadChooser
from migverify.workload.shadow.status import ShadowStatus
from migverify.workload.shadow.watch import FollowedLog, ShadowOptions, ShadowWatch

SHADOW = "shadow"
"""Fact of a run that is a shadow replay."""
EVIDENCE_SECONDS = 600.0
"""How often a status is recorded in the store while a shadow replay goes on."""


@dataclass(frozen=True, slots=True)
class ShadowRequest:
    """What a shadow replay follows, and how it begins and ends.

    ``log`` is a file, or a folder or URL of objects where ``is_folder``. ``since`` is Unix microseconds, None for all.
    """

    command: str
    log: str
    form: CaptureFormat
    is_folder: bool = False
    since: int | None = None
    resume: str | None = None
    once: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ShadowTools:
    """What a shadow replay asks with. ``folder`` holds one folder for each run.

    ``inspected`` checks both sides and returns facts of them; ``labels`` and ``applied`` are made for a run by its id
    and those facts. ``basis`` returns what the run keeps of what it rests on. ``inspected`` and ``basis`` tell of each
    session before they ask over it: what they ask is in the log, too.
    """

    sides: ReplayEndpoints
    options: EngineOptions
    settings: ShadowSettings
    waits: WatchSettings
    limits: ReadLimits
    folder: Path
    facts: SessionFacts
    inspected: Callable[[Callable[[Session], None]], Mapping[str, Any]]
    labels: Callable[[Mapping[str, Any]], CatalogueLabels]
    applied: Callable[[str], Applied]
    waivers: Sequence[Waiver] = ()
    basis: Callable[[Callable[[Session], None]], Mapping[str, Any]] = lambda _: {}


def follow(
    request: ShadowRequest, tools: ShadowTools, store: ResultStore, *,
    on_start: Callable[[str], None] = lambda _: None, on_status: Callable[[ShadowStatus], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> ShadowStatus:  # fmt: skip
    """Follow a log until it is stopped, and return the last status.

    Raises UsageError or PlanError: the run to resume is another one, or its file cannot be read.
    """
    own: list[tuple[int, float]] = []
    source = tools.sides.endpoints[Side.SOURCE].name

    def opened(session: Session) -> None:
        if session.endpoint.name == source:
            own.append((session.thread_id, time.time()))

    facts = dict(tools.inspected(opened))
    plan = _plan(request, tools)
    digest = sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    run = WatchRun(store, StoredKind.REPLAY, SHADOW, digest, plan)
    if request.resume is not None:
        run.resume(request.resume)
    else:
        begun = {SHADOW: True, "endpoints": facts, **tools.settings.model_dump(mode="json"), **tools.basis(opened)}
        run.start(request.command, begun)
    folder = tools.folder / run.run_id
    if request.resume is None:
        private_folder(folder)
    elif not folder.is_dir():
        raise PlanError(f"{folder} of run {run.run_id} is not there", hint="Start a new shadow replay.")
    on_start(run.run_id)
    with run.interruptible(), alone(folder):
        file = ShadowFile(folder, create=request.resume is None)
        try:
            for thread, at in own:
                file.opened(thread, at)
            return _follow(request, tools, store, run, file, facts, on_status, stop)
        finally:
            file.closed(time.time())
            file.close()


def _follow(
    request: ShadowRequest, tools: ShadowTools, store: ResultStore, run: WatchRun, file: ShadowFile,
    facts: Mapping[str, Any], on_status: Callable[[ShadowStatus], None], stop: Callable[[], bool],
) -> ShadowStatus:  # fmt: skip
    labels = tools.labels(facts)
    made = _watch_of(request, tools, run.run_id, file, labels)
    recorded, wrong = time.monotonic(), -1

    def show(status: ShadowStatus) -> None:
        nonlocal recorded, wrong
        on_status(status)
        now_wrong = status.digests_by_verdict.get(Verdict.MISMATCH.value, 0)
        # What reads the store must not go by a verdict that is better than the one of now.
        if now_wrong > wrong >= 0 or time.monotonic() - recorded >= EVIDENCE_SECONDS:
            recorded = time.monotonic()
            write_shadow(store, run.run_id, status)
        wrong = now_wrong

    try:
        status = watch(made, stop=stop, time_limit=request.seconds, on_status=show, status_seconds=1.0)
    finally:
        made.close()
    found = conclude(made.book, status, labels, tools.waivers, store, run)
    run.end(found, {SHADOW: True})
    return found


def conclude(
    book: ShadowBook, status: ShadowStatus, labels: CatalogueLabels | None, waivers: Sequence[Waiver],
    store: ResultStore, run: WatchRun,
) -> ShadowStatus:  # fmt: skip
    """Record the digests of the kept hours and the last status; return it, never better than the whole is."""
    tally = ReplayTally()
    for digest, hours in book.by_digest():
        whole = tally.digests[digest] = DigestTally(digest)
        for hour, _ in hours:
            whole.merge(book.tally(hour, digest))
    found = verdict(tally, labels, waivers, unfinished=status.reasons)
    worst = Verdict.worst([found.verdict, status.verdict])
    if worst is not status.verdict:
        status = replace(status, verdict=worst, reasons=(*found.reasons, *status.reasons))
    found = replace(found, verdict=worst)
    facts = {"captures": [status.log], SHADOW: status.as_dict(), "slo": []}
    write_replay(store, run.run_id, tally, found, facts=facts, seconds=run.seconds)
    write_shadow(store, run.run_id, status)
    return status


def _watch_of(
    request: ShadowRequest, tools: ShadowTools, run_id: str, file: ShadowFile, labels: CatalogueLabels
) -> ShadowWatch:  # fmt: skip
    settings, waits = tools.settings, tools.waits
    own = SourceConnections(file)
    source, target = tools.sides.endpoints[Side.SOURCE], tools.sides.endpoints[Side.TARGET]

    def opened(side: Side) -> Session:
        endpoint = tools.sides.endpoints[side]
        session = open_session(endpoint, tools.sides.secrets.get(endpoint.name), side=side)
        if side is Side.SOURCE:
            file.opened(session.thread_id, time.time())
        return session

    def keys(database: str) -> Keys:
        try:
            with opened(Side.SOURCE) as session:
                return read_keys(session, [database])
        except MigverifyError:
            return {}  # without keys more answers are undecided, none is equal by mistake

    applied = tools.applied(run_id)
    if isinstance(applied, SettleTime):
        applied = SettleClock(waits.settle_seconds)
    file.closed(time.time())
    since = file.fact("since") if request.resume is not None else request.since
    unseen = request.form.name in WITHOUT_CONNECTS
    wires = openers({Side.SOURCE: source, Side.TARGET: target}, tools.sides.secrets, tools.options)
    made = ShadowWatch(
        ShadowOptions(run_id, request.log, settings.max_lag or None, request.once),
        _log_of(request, file), LiveSessions(connects=not unseen),
        ReadChooser(tools.facts, KnownKeys(keys), unseen, since, settings.share),
        ReadAsker(own.noting(wires), tools.options, killer(tools.sides.endpoints, tools.sides.secrets)),
        AskedAgain(waits.delay, waits.hot_seconds, applied.proof),
        ShadowBook(file, settings.keep_hours, labels, tools.waivers), file,
        TargetProgress(applied, lambda: opened(Side.SOURCE), lambda: opened(Side.TARGET), tools.limits),
        RateLimit(settings.rate), TargetGovernor(tools.options.connections, settings.target_seconds), own,
    )  # fmt: skip
    if request.resume is not None:
        made.restore()
    else:
        file.commit(ShadowChanges(facts={"since": since}))
    return made


def _log_of(request: ShadowRequest, file: ShadowFile) -> FollowedLog:
    body = file.fact("position")
    if request.is_folder:
        position = None if body is None else ObjectPosition.from_json(body)
        return ObjectFolder(request.log, request.form, position)
    if not isinstance(request.form, LogFormat):
        raise UsageError(
            f"a log of format {request.form.name} cannot be followed while it grows",
            hint="Follow a slow or general log, or a folder into which finished files are put.",
        )
    return LogTail(Path(request.log), request.form, None if body is None else LogPosition.from_json(body))


class SourceConnections:
    """The connections of this replay to the source, as the shadow file keeps them."""

    def __init__(self, file: ShadowFile) -> None:
        self._file = file
        self._wires: list[ServerWire] = []

    def noting(self, wires: Mapping[Side, Callable[[Side], ServerWire]]) -> dict[Side, Callable[[Side], ServerWire]]:
        """Return what opens wires and notes those to the source."""

        def connect(side: Side) -> ServerWire:
            wire = wires[side](side)
            if side is Side.SOURCE:
                self._file.opened(wire.thread_id, time.time())
                self._wires.append(wire)
            return wire

        return dict.fromkeys(wires, connect)

    def refresh(self, now: float) -> None:
        """Note which are closed by now."""
        closed = [wire for wire in self._wires if wire.closed]
        for wire in closed:
            self._file.closed(now, wire.thread_id)
            self._wires.remove(wire)

    def rows(self) -> list[tuple[int, float, float | None]]:
        """Return id, when it was opened, when it was closed."""
        return self._file.own()


def _plan(request: ShadowRequest, tools: ShadowTools) -> dict[str, Any]:
    """Return what is followed: a shadow replay goes on only with the same."""
    sides = {side.value: f"{one.host}:{one.port}" for side, one in tools.sides.endpoints.items()}
    return {
        "kind": StoredKind.REPLAY.value, "capture": request.log, "format": request.form.name, "sides": list(sides),
        "addresses": sides, "share": tools.settings.share,
    }  # fmt: skip
