"""The guard of definitions: whether source and target are alike, and each as it was when it was last looked at.

One asking looks at counters that cost a millisecond; where they stand still, nothing is read. A full reading comes
where they moved, once more after that (a counter moves when a long ALTER begins), when the binlog tells of DDL, and
every ``full_every`` seconds in any case, since a counter belongs to one server and a cluster has many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from migverify.db.server_state import ddl_counters
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, ReadError
from migverify.figures import amount
from migverify.guards.model import AnswerState, CheckResult, GuardQuestion, GuardResult, answered, passed, warned
from migverify.guards.schema_ddl import BinlogDdl, Ddl, tidb_jobs
from migverify.guards.schema_diff import compare_over_time, compare_snapshot, exact_texts
from migverify.guards.schema_drift import Drift
from migverify.guards.schema_keep import EarlierRuns
from migverify.guards.schema_model import (
    COMMAND,
    NAME,
    DefinitionComparison,
    DefinitionDifference,
    SideSchema,
    Snapshot,
    shortened,
    split_name,
)
from migverify.guards.schema_read import read_snapshot
from migverify.guards.scope import Scope
from migverify.model import Endpoint, Flavor, SchemaClass
from migverify.sql.fingerprint import digest
from migverify.sql.server import CLOCK

FULL_EVERY = 60.0
REMEMBERED = 200
"""How many statements are kept for each endpoint, to be shown with the change that they made."""
_SHOWN = 8
_SETTLE_SECONDS = 0.3
"""How long to wait for the binlog to tell of a change that the catalog shows already."""


_STALE = "What was verified, rehearsed and drilled on another definition proves nothing for this one."


@dataclass(frozen=True, slots=True)
class DriftLimits:
    """What fails: differences of these classes that nobody allowed. Cosmetic ones warn unless ``strict``."""

    strict: bool = False

    def fails(self, level: SchemaClass) -> bool:
        """Whether a difference of this class fails the guard."""
        return self.strict or level is not SchemaClass.COSMETIC


@dataclass(slots=True)
class _TableChange:
    """What an endpoint's table became, and who did it; kept while it is not what it was in the baseline."""

    number: int
    found: DefinitionComparison
    seen: float
    ddl: tuple[Ddl, ...]
    stale: tuple[str, ...]


@dataclass(slots=True)
class SchemaGuard:
    """Asks whether definitions are alike, and unchanged since the baseline.

    Parameters
    ----------
    baseline
        What each endpoint was: of a snapshot, a run or a file; None takes the first reading.
    earlier
        Gives the runs that a change may have made stale; None where there is no store.
    follow
        Follow the sources' binlogs and ask who sends DDL: for a watch.
    on_reading
        Called with each full reading that is another than the one before, to keep it.
    compare
        False leaves out the comparison of source and target.

    Attributes
    ----------
    comparisons, snapshot
        What the last full reading found.
    """

    scope: Scope
    drift: Drift = field(default_factory=Drift)
    limits: DriftLimits = field(default_factory=DriftLimits)
    baseline: Snapshot | None = None
    earlier: Callable[[], EarlierRuns] | None = None
    follow: bool = False
    watch_changes: bool = True
    on_reading: Callable[[SideSchema], object] = lambda _: None
    full_every: float = FULL_EVERY
    name: str = NAME
    comparisons: list[DefinitionComparison] = field(default_factory=list)
    snapshot: Snapshot | None = None
    readings: int = 0
    _probes: dict[str, object] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)
    _due: bool = True
    _read_with: int = 0
    _ddl_seen: int = 0
    _sessions: dict[str, Session] = field(default_factory=dict)
    _binlogs: dict[str, BinlogDdl] = field(default_factory=dict)
    _ddl: dict[str, list[Ddl]] = field(default_factory=dict)
    _changes: dict[tuple[str, str], list[_TableChange]] = field(default_factory=dict)
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _kept: dict[str, str] = field(default_factory=dict)
    _clocks: dict[str, float] = field(default_factory=dict)

    def ask(self) -> GuardResult:
        """Look, read where something may have changed, and answer."""
        started = time.time()
        self._begin_following()
        # Set before looking: a reading that fails stays due, however still the counters stand then.
        self._due = not self._unchanged() or self._due
        if self._due or self.snapshot is None or started - self.snapshot.taken >= self.full_every:
            self._due = True
            self._read()
            self._due = False
        self._take_ddl()
        answers = answered(NAME, QUESTIONS, self, self._clock)
        unasked = () if self.comparisons else ("no table in scope on any side",)
        return GuardResult(NAME, answers, started, time.time() - started, unasked, self._facts())

    def _read(self) -> None:
        before, reported = self.snapshot, self._ddl_seen
        found = read_snapshot(self.scope)
        comparisons = self.drift.apply(compare_snapshot(self.scope, found))
        for side in found.sides:
            self._clocks[side.endpoint] = side.server_time
            self._note_changes(side, before)
        self.snapshot, self.comparisons, self._read_with = found, comparisons, reported
        self.readings += 1

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def _endpoints(self) -> tuple[Endpoint, ...]:
        return (*self.scope.config.sources, self.scope.config.target)

    def _begin_following(self) -> None:
        if not self.follow or self._binlogs:
            return
        for endpoint in self.scope.config.sources:
            # Before the first reading: a change behind it is in the binlog, and must not fall between the two.
            self._binlogs[endpoint.name] = BinlogDdl.begun(endpoint, self.scope.password(endpoint))

    def _session(self, endpoint: Endpoint) -> Session:
        kept = self._sessions.get(endpoint.name)
        if kept is None or not kept.alive():
            kept = self._sessions[endpoint.name] = open_session(endpoint, self.scope.password(endpoint))
        return kept

    def _unchanged(self) -> bool:
        """Whether no counter moved on any side since the last look; a server that does not report has moved."""
        still = True
        for endpoint in self._endpoints:
            try:
                session = self._session(endpoint)
                seen = ddl_counters(session)
                ((reported,),) = session.query(CLOCK)
                self._clocks[endpoint.name] = float(reported or 0)
            except (EndpointError, ReadError):
                self._sessions.pop(endpoint.name, None)
                raise
            before = self._probes.get(endpoint.name)
            moved = before is None or not _same(before, seen)
            still = still and not moved and endpoint.name not in self._moved
            (self._moved.add if moved else self._moved.discard)(endpoint.name)
            self._probes[endpoint.name] = seen
        ddl = any(binlog.woken.is_set() and not binlog.failure for binlog in self._binlogs.values())
        return still and not ddl and self._read_with == self._ddl_seen

    # --- what changed ----------------------------------------------------------------------------------------

    def _note_changes(self, side: SideSchema, before: Snapshot | None) -> None:
        if self._kept.get(side.endpoint) != _exact(side):
            self._kept[side.endpoint] = _exact(side)
            self.on_reading(side)
        if not self.watch_changes:
            return
        if self.baseline is None:
            self.baseline = Snapshot(time.time(), (), "the first reading")
        base = self.baseline.side(side.endpoint)
        if base is None:
            self.baseline = Snapshot(self.baseline.taken, (*self.baseline.sides, side), self.baseline.label)
            return
        previous = (before.side(side.endpoint) if before is not None else None) or base
        drifted = {c.table for c in compare_over_time(base, side)}
        for key in [k for k in self._changes if k[0] == side.endpoint and k[1] not in drifted]:
            del self._changes[key]  # it is again what it was
        fresh = self.drift.apply(compare_over_time(previous, side))
        fresh = [c for c in fresh if c.table in drifted]
        if not fresh:
            return
        self._ddl_now(side.endpoint)
        stale = self.earlier() if self.earlier is not None else None
        now = side.by_name()
        for found in fresh:
            key = (side.endpoint, found.table)
            self._numbers[key] = self._numbers.get(key, 0) + 1
            layout = now[found.table].layout if found.table in now else None
            runs = () if stale is None else tuple(map(str, stale.stale(side.endpoint, found.table, layout)))
            reported = {one for change in self._changes.get(key, []) for one in change.ddl}
            sent = tuple(d for d in self._ddl[side.endpoint] if d.concerns(found.table) and d not in reported)
            change = _TableChange(self._numbers[key], found, side.server_time or time.time(), sent, runs)
            self._changes.setdefault(key, []).append(change)

    def _ddl_now(self, endpoint: str) -> None:
        """Remember the DDL that came since it was last requested, with who sent it."""
        session = self._session(next(e for e in self._endpoints if e.name == endpoint))
        if session.flavor is Flavor.TIDB:
            since = max((d.time for d in self._ddl.get(endpoint, [])), default=self._since(endpoint))
            found = tidb_jobs(session, endpoint, since)
        elif endpoint in self._binlogs:
            self._binlogs[endpoint].woken.wait(_SETTLE_SECONDS)
            found = self._binlogs[endpoint].take()
        else:
            found = []
        self._ddl_seen += len(found)
        self._ddl.setdefault(endpoint, []).extend(found)
        del self._ddl[endpoint][:-REMEMBERED]

    def _since(self, endpoint: str) -> float:
        base = self.baseline.side(endpoint) if self.baseline is not None else None
        return base.server_time if base is not None else 0.0

    def _take_ddl(self) -> None:
        for endpoint, binlog in self._binlogs.items():
            if binlog.woken.is_set() and not binlog.failure:
                self._ddl_now(endpoint)

    # --- answers ---------------------------------------------------------------------------------------------

    def alike(self) -> Iterator[CheckResult]:
        """Judge every table by how its definitions differ now."""
        for one in self.comparisons:
            state, shown = self._judged(one.differences)
            value = shown or f"equal ({next(iter(one.fingerprints.values()), '')[:12]})"
            numbers = {f"differences_{level.value}": float(n) for level, n in _counted(one.differences).items()}
            yield CheckResult(state, value, subject=f"tables/{one.table}", numbers=numbers)

    def not_seen(self) -> Iterator[CheckResult]:
        """Name what a server hides from the user."""
        for side in self.snapshot.sides if self.snapshot is not None else ():
            if side.hidden:
                yield warned(", ".join(side.hidden), subject=side.endpoint)

    def _judged(self, differences: Sequence[DefinitionDifference]) -> tuple[AnswerState, str]:
        """Return PASS for none or allowed ones, WARN for cosmetic ones, FAIL for what may lose data, and the words."""
        open_ones = [d for d in differences if not d.allowed]
        allowed = [d for d in differences if d.allowed]
        words = [
            f"{d.path} [{d.level.value}]: {shortened(d.source)} -> {shortened(d.target)}" for d in open_ones[:_SHOWN]
        ]
        if len(open_ones) > _SHOWN:
            words.append(f"and {len(open_ones) - _SHOWN} more")
        words += [f"{d.path}: allowed by {d.allowed}" for d in allowed[:_SHOWN]]
        words += [d.message for d in open_ones if "(allowed by" in d.message]
        text = "; ".join(words)
        if judged(open_ones, self.limits):
            return AnswerState.FAIL, text
        return (AnswerState.WARN if open_ones else AnswerState.PASS), text

    def unchanged(self) -> Iterator[CheckResult]:
        """Pass every endpoint that is as it was in the baseline."""
        if not self.watch_changes or self.snapshot is None or self.baseline is None:
            return
        changed = {endpoint for (endpoint, _), changes in self._changes.items() if changes}
        for side in self.snapshot.sides:
            if side.endpoint not in changed:
                value = f"{amount(len(side.tables), 'table')} as in {self.baseline.label} ({side.fingerprint[:12]})"
                yield passed(value, subject=side.endpoint, threshold=self.baseline.label)

    def changes(self) -> Iterator[CheckResult]:
        """Tell every change since the baseline: what it was, who made it, and which runs it made stale."""
        read = {side.endpoint for side in self.snapshot.sides} if self.snapshot is not None else set()
        label = self.baseline.label if self.baseline is not None else ""
        for (endpoint, table), changes in self._changes.items():
            for change in changes if endpoint in read and self.watch_changes else ():
                state, words = self._judged(change.found.differences)
                who = "; ".join(map(str, change.ddl)) or f"by unknown, before {_utc(change.seen)}"
                stale = f"; stale now: {', '.join(change.stale)}" if change.stale else "; no earlier run becomes stale"
                numbers = {
                    "stale_runs": float(len(change.stale)),
                    "changed_at": change.ddl[-1].time if change.ddl else change.seen,
                }
                yield CheckResult(
                    AnswerState.WARN if state is AnswerState.PASS else state, f"{words}; {who}{stale}",
                    part=str(change.number), threshold=label, subject=f"{endpoint}/{table}", numbers=numbers,
                )  # fmt: skip

    def allowed_drift(self) -> Iterator[CheckResult]:
        """Warn of entries that hold no more, and of those that cover nothing."""
        for one in self.drift.expired:
            value, todo = f"expired on {one.expires}: {one.owner}, {one.reason}", "Renew it or change the definitions."
            yield warned(value, todo, subject=one.where)
        for one in self.drift.unused(self.comparisons):
            value = f"covers nothing: {one.table.text} {one.path}"
            yield warned(value, "Take it out.", threshold="in use", subject=one.where)

    def binlogs(self) -> Iterator[CheckResult]:
        """Tell whether the sources' binlogs are followed."""
        for endpoint, binlog in self._binlogs.items():
            state = AnswerState.WARN if binlog.failure else AnswerState.PASS
            yield CheckResult(state, binlog.failure or "followed", subject=endpoint)

    def without_effect(self) -> Iterator[CheckResult]:
        """Report DDL after which the definition is what it was: TRUNCATE, or a change and its reversal."""
        if self._read_with != self._ddl_seen:
            return  # the next reading says whether it had an effect
        reported = {one for changes in self._changes.values() for change in changes for one in change.ddl}
        last: dict[tuple[str, str], Ddl] = {}
        for endpoint in self._binlogs:
            for one in self._ddl.get(endpoint, []):
                for table in one.tables if one not in reported else ():
                    if self.scope.wanted(*split_name(table)):
                        last[endpoint, table] = one
        for (endpoint, table), one in last.items():
            yield warned(str(one), subject=f"{endpoint}/{table}")

    def _clock(self, subject: str) -> float | None:
        sources = self.scope.config.sources
        return self._clocks.get(subject.partition("/")[0], self._clocks.get(sources[0].name))

    def _facts(self) -> dict[str, object]:
        if self.snapshot is None:
            return {}
        return {
            "fingerprints": self.snapshot.fingerprints(),
            "baseline": "" if self.baseline is None else self.baseline.label, "readings": self.readings,
        }  # fmt: skip


Ask = Callable[[SchemaGuard], Iterator[CheckResult]]


def _row(name: str, wanted: str, why: str, todo: str, ask: Ask) -> GuardQuestion[SchemaGuard]:
    return GuardQuestion(name, wanted, COMMAND, why, todo, ask)


QUESTIONS = (
    _row("alike", "no difference", "A table defined otherwise takes other values, refuses some, or cannot be compared.",
         "Change one side, or allow the difference with owner and day.", SchemaGuard.alike),
    _row("not seen", "everything", "What a server does not show looks as if it were not there: nothing is said of it.",
         "Grant TRIGGER, EVENT, SHOW VIEW and SHOW_ROUTINE (or EXECUTE) to the user.", SchemaGuard.not_seen),
    _row("unchanged", "", _STALE, "", SchemaGuard.unchanged),
    _row("change", "", _STALE,
         "Verify the table again; `migverify guard schema --snapshot` takes the definitions as they are now.",
         SchemaGuard.changes),
    _row("allowed drift", "not expired", "Allowed drift that nobody renews is a difference like any other.", "",
         SchemaGuard.allowed_drift),
    _row("binlog", "followed", "DDL in the binlog says who changed what, and when, within seconds.",
         "Changes are still seen by polling, without who sent them.", SchemaGuard.binlogs),
    _row("ddl without effect", "no DDL",
         "Rows may have been emptied or rewritten although the definition is what it was.",
         "Verify the table again.", SchemaGuard.without_effect),
)  # fmt: skip


def judged(differences: Sequence[DefinitionDifference], limits: DriftLimits) -> bool:
    """Whether a difference that nobody allowed fails."""
    return any(limits.fails(one.level) for one in differences if not one.allowed)


def _same(before: object, now: dict[str, str]) -> bool:
    if not isinstance(before, dict) or not now:
        return False
    restarted = int(now.get("Uptime", "0")) < int(before.get("Uptime", "0"))
    return not restarted and {**before, "Uptime": ""} == {**now, "Uptime": ""}


def _exact(side: SideSchema) -> str:
    """Return what tells two readings apart: the texts of views and of expressions included."""
    texts = {table.name: exact_texts(table) for table in side.tables}
    objects = sorted([o.kind, o.database, o.name, o.text] for o in side.objects)
    return digest([side.fingerprint, side.version, objects, texts])


def _counted(differences: Sequence[DefinitionDifference]) -> dict[SchemaClass, int]:
    return {level: sum(1 for d in differences if d.level is level) for level in SchemaClass}


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))
