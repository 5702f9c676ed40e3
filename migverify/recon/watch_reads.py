"""What a watch reads, through an engine: windows, open keys again, checksums of windows, watermarks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from migverify.config import Config, route, shard_of
from migverify.db.pool import SessionPool
from migverify.errors import ConfigError, MigverifyError
from migverify.model import Endpoint, KeyText
from migverify.recon.build import Built
from migverify.recon.evaluate import Conditions, evaluate
from migverify.recon.exceptions import Exceptions
from migverify.recon.kinds import judge_of
from migverify.recon.model import (
    ChangesPart,
    Dataset,
    FilePart,
    Kind,
    QueryPart,
    Rule,
    RuleFinding,
    RuleResult,
    RuleSet,
    TablePart,
    Window,
)
from migverify.recon.part import ROW
from migverify.recon.relation import Engine, FileRead, KeyRows, Pairing, Relation, SqlRead
from migverify.recon.watch_judge import GROUPED, Sink
from migverify.recon.watermark import (
    AppliedTime,
    SampledTime,
    SyncpointTime,
    Watermark,
    applied_mark,
    archive_mark,
    files_mark,
    is_syncpoint,
    settled_mark,
    static_mark,
    stream_mark,
    writer_mark,
)
from migverify.recon.windows import moment_of
from migverify.sql.recon import signature_sql
from migverify.watch.applied import CheckpointTable, Marker

BY_KEY = GROUPED | {Kind.SAME_ROWS, Kind.ORPHANS, Kind.UNIQUE}
"""Kinds whose findings can be read again by their key."""

MARK_SECONDS = 1.0

Build = Callable[[Rule, Window | None], Built]
Suite = Callable[[Rule, Window | None, str, Sink], RuleResult]


@dataclass(slots=True)
class Marks:
    """Watermarks of endpoints and files, asked at most once in ``MARK_SECONDS``.

    Parameters
    ----------
    endpoints
        Those that the rules read, by name.
    pool
        One idle session for each endpoint at most.
    """

    config: Config
    endpoints: Mapping[str, Endpoint]
    pool: SessionPool
    clock: Callable[[], float] = time.monotonic
    _asked: dict[str, tuple[float, Watermark]] = field(default_factory=dict)
    _applied: dict[str, AppliedTime] = field(default_factory=dict)
    _how: str = ""

    def of(self, dataset: Dataset) -> list[Watermark]:
        """Return the watermarks of the parts of a dataset, one for each place they lie in."""
        if dataset.static:
            return [static_mark(dataset.name)]
        found: dict[str, Watermark] = {}
        for part in dataset.parts:
            if isinstance(part, FilePart):
                found[part.path] = self._once(part.path, lambda path=part.path: files_mark(path))  # type: ignore[misc]
            elif isinstance(part, ChangesPart) and part.path:
                found[part.path] = self._once(part.path, lambda path=part.path: archive_mark(path))  # type: ignore[misc]
            elif isinstance(part, ChangesPart):
                name = f"changes of {part.endpoint}"
                found[name] = self._once(name, lambda e=part.endpoint, n=name: self._stream(e, n))  # type: ignore[misc]
            else:
                found[part.endpoint] = self._once(part.endpoint, lambda e=part.endpoint: self._server(e))  # type: ignore[misc]
        return list(found.values())

    def _once(self, name: str, ask: Callable[[], Watermark]) -> Watermark:
        known = self._asked.get(name)
        if known is not None and self.clock() - known[0] < MARK_SECONDS:
            return known[1]
        try:
            mark = ask()
        except ConfigError:
            raise
        except MigverifyError as error:  # who does not answer holds windows open and stops no other source
            mark = Watermark(name, None, "no answer", error.line)
        self._asked[name] = (self.clock(), mark)
        return mark

    def _stream(self, endpoint: str, name: str) -> Watermark:
        with self.pool.session(self.endpoints[endpoint]) as session:
            return stream_mark(session, name)

    def _server(self, name: str) -> Watermark:
        settings = self.config.watch
        with ExitStack() as stack:
            session = stack.enter_context(self.pool.session(self.endpoints[name]))
            if name != self.config.target.name:
                return writer_mark(session, name)
            if settings.applied == "settle":
                return settled_mark(session, name, settings.settle_seconds)
            if not self._applied:
                table = settings.checkpoint
                points = settings.applied == "checkpoint" and table is not None and is_syncpoint(session, table)
                self._applied = dict(self._ways(syncpoints=points))
                self._how = f"applied by {settings.applied}"
            sources = {e.name: stack.enter_context(self.pool.session(e)) for e in self.config.sources}
            return applied_mark(session, name, self._how, self._applied, sources)

    def _ways(self, *, syncpoints: bool) -> Iterator[tuple[str, AppliedTime]]:
        settings = self.config.watch
        for source in self.config.sources:
            shard = shard_of(source)
            if settings.applied == "marker" and settings.marker is not None:
                database, _, table = settings.marker.partition(".")
                target = ".".join(route(self.config, shard, database, table))
                yield source.name, SampledTime(Marker(settings.marker, target, f"migverify recon {source.name}"))
            elif settings.checkpoint is not None and syncpoints:
                yield source.name, SyncpointTime(settings.checkpoint)
            elif settings.checkpoint is not None:
                row = (settings.checkpoint_id or {}).get(shard)
                yield source.name, SampledTime(CheckpointTable(settings.checkpoint, row))
            else:
                raise ConfigError(
                    f"watch.applied is {settings.applied}, and watch.{settings.applied} is missing",
                    hint="Name the table, or use applied: settle.",
                )


@dataclass(slots=True)
class EngineReads:
    """``migverify.recon.watch_judge.RuleReads`` over an engine."""

    rules: RuleSet
    engine: Engine
    build: Build
    marks: Marks
    conditions: Conditions
    run_id: str
    suite: Suite | None = None
    touches: Callable[[Rule], Sequence[Window]] = lambda _: ()

    def watermarks(self, rule: Rule) -> Sequence[Watermark]:
        """Return the watermarks of the rule's datasets."""
        found = {m.source: m for name in self._datasets(rule) for m in self.marks.of(self.rules.datasets[name])}
        return list(found.values())

    @staticmethod
    def _datasets(rule: Rule) -> list[str]:
        return [name for name in (rule.source, rule.target) if name is not None]

    def evaluate(self, rule: Rule, window: Window | None, sink: Sink) -> RuleResult:
        """Evaluate one window."""
        if rule.kind is Kind.EXPECTATIONS:
            if self.suite is None:
                raise ConfigError(f"{rule.place}: rule {rule.name}: expectations cannot be run here")
            return self.suite(rule, window, self.run_id, sink)
        return evaluate(rule, self.rules, window, self.engine, self.build(rule, window), sink, self.conditions)

    def look(
        self, rule: Rule, span: Window | None, findings: Sequence[RuleFinding]
    ) -> Sequence[RuleFinding | None] | None:
        """Read the keys of findings again over a span; None for kinds whose findings are not of one key."""
        if rule.kind not in BY_KEY:
            return None
        if span is not None and any(f.window != span for f in findings) and self._bound(rule):
            return list(findings)  # its SQL cuts the window itself: over a wider one it would answer another question
        built = self.build(rule, span)
        forms = [_forms(built, finding) for finding in findings]
        if built.more or not all(forms):
            return None
        now = self.conditions.now()
        exceptions = Exceptions.of(rule.name, self.rules.exceptions, moment_of(now))
        found: list[RuleFinding | None] = [None] * len(findings)
        for one in (built, *([built.drill] if built.drill is not None else [])):
            # Rows behind a group are judged as rows, whatever the rule's measures are.
            kind = rule if one is built else replace(rule, kind=Kind.SAME_ROWS, options={})
            judge = judge_of(kind, one, now, show=self.conditions.show)
            wanted = {n: key for n, form in enumerate(forms) for of, key in form if of is one}
            ours, theirs = self._held(one, list(wanted.values()))
            for n, key in wanted.items():
                pairing = Pairing(key, ours.get(key), theirs.get(key))
                gone = pairing.source is None and pairing.target is None
                differs = None if gone else judge.judge(pairing)
                if differs is not None:
                    found[n] = exceptions.apply(replace(differs, key=findings[n].key), key)
        return found

    def _held(self, built: Built, keys: Sequence[KeyText]) -> tuple[dict[KeyText, KeyRows], dict[KeyText, KeyRows]]:
        """Look on both sides, one after the other: what was written in between differs once, and is read again."""
        if not keys:
            return {}, {}
        ours = self.engine.lookup(built.source, keys)
        return ours, self.engine.lookup(built.target, keys) if built.target is not None else {}

    def _bound(self, rule: Rule) -> bool:
        parts = [part for name in self._datasets(rule) for part in self.rules.datasets[name].parts]
        texts = [p.sql if isinstance(p, QueryPart) else p.where for p in parts if isinstance(p, QueryPart | TablePart)]
        return rule.kind not in GROUPED and any(":window_" in text for text in texts)

    def near(self, rule: Rule, edge: Window, findings: Sequence[RuleFinding]) -> Sequence[bool]:
        """Say whether keys have a row in the last part of a window; where that cannot be told they may have one."""
        built = self.build(rule, edge)
        forms = [_forms(built, finding) for finding in findings]
        if self._bound(rule) or built.more or not all(forms):
            return [True] * len(findings)
        there: set[int] = set()
        for one in (built, *([built.drill] if built.drill is not None else [])):
            wanted = {n: key for n, form in enumerate(forms) for of, key in form if of is one}
            ours, theirs = self._held(one, list(wanted.values()))
            there |= {n for n, key in wanted.items() if key in ours or key in theirs}
        return [n in there for n in range(len(findings))]

    def signature(self, rule: Rule, window: Window) -> str | None:
        """Return a checksum of what databases hold of a window; None where a dataset is of files.

        What a binlog holds of a window does not change, so it does not count.
        """
        if rule.kind is Kind.EXPECTATIONS:
            return None
        parts = []
        for read in _reads(self.build(rule, window)):
            if isinstance(read, FileRead):
                return None
            if isinstance(read, SqlRead):
                # Not by the engine, which opens a session for each question: this one is asked all the time.
                with self.marks.pool.session(self.marks.endpoints[read.endpoint]) as session:
                    rows = session.query(signature_sql(read))
                parts.append("|".join([read.endpoint, read.shard, *(str(text) for text in rows[0])]))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def touched(self, rule: Rule) -> Sequence[Window]:
        """Return windows that a change stream saw written."""
        return self.touches(rule)


def _forms(built: Built, finding: RuleFinding) -> list[tuple[Built, KeyText]]:
    """Return what the key of a finding may mean: a key of the rule, or behind ``row`` that of a row of an unlike group.

    A group may be named ``row`` too: then both have to agree.
    """
    found = [(built, finding.key)] if len(finding.key) == len(built.source.key) else []
    rows = built.drill
    if rows is not None and finding.key[:1] == (ROW,) and len(finding.key) == 1 + len(rows.source.key):
        found.append((rows, finding.key[1:]))
    return found


def _reads(built: Built) -> Iterator[object]:
    for one in (built, *built.more):
        relations: tuple[Relation | None, ...] = (one.source, one.target)
        for relation in relations:
            if relation is not None:
                yield from relation.reads
