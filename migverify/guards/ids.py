"""The guard of ids: how much of every id space is used on both sides, and when it ends."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from migverify.db.session import open_session
from migverify.errors import EndpointError, ReadError
from migverify.guards.ids_model import NAME, IdKind, IdLimits, IdReading, IdSpace, judged, projected
from migverify.guards.ids_read import Given, Spaces, read_spaces
from migverify.guards.ids_snowflake import overlapping
from migverify.guards.layouts import Layout, moment_text
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.guards.scope import Scope
from migverify.guards.unseen import VisibleTables, unseen
from migverify.model import Endpoint
from migverify.sql import ids as sql

WITHOUT_IDS = "no table in scope has an id"


@dataclass(slots=True)
class IdsGuard:
    """Asks every endpoint for its id spaces.

    Parameters
    ----------
    scope
        Where to look. On the target the tables that sources lead to are looked at too.
    now
        Unix milliseconds to judge by, None for each server's own clock.
    history
        Earlier readings by subject.
    layouts
        What the user says, by ``database.table.column``.

    Attributes
    ----------
    spaces, clock
        What the last asking found, and the moment it was judged by.
    """

    scope: Scope
    limits: IdLimits = field(default_factory=IdLimits)
    now: float | None = None
    history: Mapping[str, Sequence[IdReading]] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    name: str = NAME
    spaces: list[IdSpace] = field(default_factory=list)
    clock: float = 0.0

    def ask(self) -> GuardResult:
        """Read every side and judge every space."""
        started = time.time()
        sources, target = self.scope.config.sources, self.scope.config.target
        with ThreadPoolExecutor(len(sources)) as pool:
            read = list(pool.map(lambda endpoint: self._read(endpoint, self.scope.wanted), sources))
        routes = {
            (endpoint.name, *name): self.scope.route(endpoint.name, *name)
            for endpoint, (found, _) in zip(sources, read, strict=True)
            for name in found.tables
        }
        led_to = self.scope.led_to(routes)
        read.append(self._read(target, lambda d, t: led_to(d, t) or self.scope.wanted(d, t)))
        endpoints = self.scope.endpoints
        unasked = [words for found, _ in read for words in found.unread]
        unasked += [
            f"{endpoint.name}: {WITHOUT_IDS}"
            for endpoint, (found, _) in zip(endpoints, read, strict=True)
            if not found.spaces and not found.unread
        ]
        unasked += unseen(self.scope, [
            VisibleTables(endpoint, found.tables, found.grants)
            for endpoint, (found, _) in zip(endpoints, read, strict=True) if found.grants is not None
        ])  # fmt: skip
        moments = {endpoint.name: moment for endpoint, (_, moment) in zip(endpoints, read, strict=True)}
        self.clock = max(moments.values())
        spaces = [
            projected(replace(space, history=(*space.history, *self.history.get(space.subject, ()))), moment)
            for found, moment in read
            for space in found.spaces
        ]
        twins = {(e, f"{d}.{t}"): ".".join(name) for (e, d, t), name in routes.items()}
        self.spaces = _with_overlaps(spaces, [found for found, _ in read], twins)
        answers = tuple(_answer(space, self.limits, moments[space.endpoint]) for space in self.spaces)
        return GuardResult(NAME, answers, started, time.time() - started, tuple(unasked))

    def _read(self, endpoint: Endpoint, wanted: Callable[[str, str], bool]) -> tuple[Spaces, float]:
        try:
            with open_session(endpoint, self.scope.password(endpoint)) as session:
                ((reported,),) = session.query(sql.CLOCK)
                moment = float(reported or 0) if self.now is None else self.now
                return read_spaces(session, endpoint.name, wanted, moment, self._given), moment
        except (EndpointError, ReadError) as error:
            moment = time.time() * 1000 if self.now is None else self.now
            return Spaces(unread=[f"{endpoint.name}: {' '.join(str(error).split())}"]), moment

    @property
    def _given(self) -> Given:
        return lambda table, column: self.layouts.get(f"{table}.{column}")


def _with_overlaps(
    spaces: Sequence[IdSpace], read: Sequence[Spaces], twins: Mapping[tuple[str, str], str]
) -> list[IdSpace]:
    """Add what only both sides together tell: two generators that give out ids of the same workers."""
    samples = {subject: ids for found in read for subject, ids in found.samples.items()}
    targets = {(s.table, s.column): s for s in spaces if s.endpoint == "target" and s.kind is IdKind.SNOWFLAKE}
    reported = []
    for space in spaces:
        other = targets.get((twins.get((space.endpoint, space.table), ""), space.column))
        words = ""
        if space.kind is IdKind.SNOWFLAKE and other is not None:
            words = overlapping(space, other, samples[space.subject], samples[other.subject])
        reported.append(replace(space, problems=(*space.problems, words)) if words else space)
    return reported


def _answer(space: IdSpace, limits: IdLimits, now: float) -> GuardAnswer:
    state, reason = judged(space, limits, now)
    used = "unknown" if space.used is None else f"{space.used:,}"
    limit = "unknown" if space.limit is None else f"{space.limit:,}"
    value = f"{space.kind.value}: {used} of {limit}; {reason}"
    numbers = {
        name: float(number)
        for name, number in (
            ("used", space.used), ("limit", space.limit), ("used_ratio", space.used_ratio),
            ("days_left", None if space.exhausts_at is None else (space.exhausts_at - now) / 86_400_000),
            ("workers_used", space.workers_used), ("sequence_peak", space.sequence_peak),
        )
        if number is not None
    }  # fmt: skip
    return GuardAnswer(
        NAME, "headroom", space.subject, state, value,
        f"at least {limits.days:g} days left, at most {limits.used:.0%} used", space.query,
        "An id space that ends stops every insert into the table, from one second to the next.",
        "" if state is AnswerState.PASS else _todo(space), now / 1000, now / 1000, numbers,
    )  # fmt: skip


def _todo(space: IdSpace) -> str:
    if space.kind is IdKind.SNOWFLAKE and space.layout is not None and not space.doubts:
        end = moment_text(space.layout.end)[:10]
        return (
            f"Move to a generator whose epoch or bits last beyond {end}, with ids above all there are; plan it early."
        )
    if space.doubts:
        layout = shlex.quote(f"{space.table}.{space.column}=41/10/12:ms:2020-01-01")
        return f"Say the layout: --layout {layout}, or add a creation time."
    if space.narrowed:
        return f"Widen {space.narrowed} first."
    if space.cache is not None:
        return "Widen the column to BIGINT UNSIGNED, or make the table anew with AUTO_ID_CACHE 1."
    return "Widen the column (BIGINT UNSIGNED) and every column that refers to it, before the cutover."
