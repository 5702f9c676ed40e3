"""What a watch reads, through an engine: windows, open keys again, checksums of windows, watermarks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from migverify.config import Config, route, shard_of
from migverify.config.reverse import ReverseSettings
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.errors import ConfigError, MigverifyError
from migverify.model import Endpoint, Flavor, KeyText
from migverify.recon.build import Built
from migverify.recon.changefeed import ChangefeedFollower, no_changefeed
from migverify.recon.evaluate import ROW, Sink
from migverify.recon.exceptions import Exceptions
from migverify.recon.model import ChangesPart, Dataset, FilePart, QueryPart, RuleFinding, RuleResult, TablePart, Window
from migverify.recon.relation import FileRead, KeyRows, Pairing, SqlRead
from migverify.recon.rule import Rule, RuleSet, judging
from migverify.recon.run import RuleTools, evaluate_step
from migverify.recon.steps import RuleStep
from migverify.recon.watermark import (
    AppliedTime,
    SourceWatermark,
    applied_mark,
    archive_mark,
    changefeed_mark,
    earlier_mark,
    files_mark,
    settled_mark,
    static_mark,
    stream_mark,
    writer_mark,
)
from migverify.recon.windows import moment_of
from migverify.sql.recon import signature_sql
from migverify.tables.watch_streams import marker_name, marker_row
from migverify.watch.applied import Applied, CheckpointTable, Marker, SyncPoints

MARK_SECONDS = 1.0
FIRST_SECONDS = 30.0
"""How long the first watermark of a changefeed is awaited: its files may be long."""


def changes_name(endpoint: str) -> str:
    """Return how the watermark of the changes of an endpoint is called."""
    return f"changes of {endpoint}"


@dataclass(slots=True)
class WatermarkCache:
    """Watermarks of endpoints and files, asked at most once in ``MARK_SECONDS``.

    ``endpoints``: Those that the rules read, by name. ``pool``: One idle session for each endpoint at most.
    ``followers``: Make what follows the changefeed of an endpoint; it is begun when it is needed first. Where there
    is one, the target is written, and a source is complete up to what the changefeed has brought there. ``reader``: The
    name of this watch in the marker table.
    """

    config: Config
    endpoints: Mapping[str, Endpoint]
    pool: SessionPool
    clock: Callable[[], float] = time.monotonic
    followers: Mapping[str, Callable[[], ChangefeedFollower]] = field(default_factory=dict)
    reader: str = ""
    _followed: dict[str, ChangefeedFollower] = field(default_factory=dict)
    _asked: dict[str, tuple[float, SourceWatermark]] = field(default_factory=dict)
    _applied: dict[str, AppliedTime] = field(default_factory=dict)
    _applied_back: dict[str, AppliedTime] = field(default_factory=dict)
    _how: str = ""

    def of(self, dataset: Dataset) -> list[SourceWatermark]:
        """Return the watermarks of the parts of a dataset, one for each place they lie in."""
        if dataset.static:
            return [static_mark(dataset.name)]
        found: dict[str, SourceWatermark] = {}
        for part in dataset.parts:
            if isinstance(part, FilePart):
                found[part.path] = self._once(part.path, lambda path=part.path: files_mark(path))  # type: ignore[misc]
            elif isinstance(part, ChangesPart) and part.path:
                found[part.path] = self._once(part.path, lambda path=part.path: archive_mark(path))  # type: ignore[misc]
            elif isinstance(part, ChangesPart):
                name = changes_name(part.endpoint)
                found[name] = self._once(name, lambda e=part.endpoint, n=name: self._stream(e, n))  # type: ignore[misc]
            else:
                found[part.endpoint] = self._once(part.endpoint, lambda e=part.endpoint: self._server(e))  # type: ignore[misc]
        return list(found.values())

    def _once(self, name: str, ask: Callable[[], SourceWatermark]) -> SourceWatermark:
        known = self._asked.get(name)
        if known is not None and self.clock() - known[0] < MARK_SECONDS:
            return known[1]
        try:
            mark = ask()
        except ConfigError:
            raise
        except MigverifyError as error:  # who does not answer holds windows open and stops no other source
            mark = SourceWatermark(name, None, "no answer", error.line)
        self._asked[name] = (self.clock(), mark)
        return mark

    def _stream(self, endpoint: str, name: str) -> SourceWatermark:
        with self.pool.session(self.endpoints[endpoint]) as session:
            if session.flavor is not Flavor.TIDB:
                return stream_mark(session, name)
        follower = self._follower(endpoint)
        with self.pool.session(self.endpoints[endpoint]) as session:
            return changefeed_mark(session, name, follower.reached, follower.broken or follower.failure)

    def _follower(self, endpoint: str) -> ChangefeedFollower:
        """Return what follows the changefeed of an endpoint; begins it, and awaits its first watermark."""
        follower = self._followed.get(endpoint)
        if follower is None:
            if endpoint not in self.followers:
                raise no_changefeed(endpoint)
            follower = self._followed[endpoint] = self.followers[endpoint]()
            follower.start()
            follower.wait(FIRST_SECONDS)
        return follower

    def close(self) -> None:
        """End what follows changefeeds."""
        for follower in self._followed.values():
            follower.stop()

    def _server(self, name: str) -> SourceWatermark:
        settings = self.config.watch
        with ExitStack() as stack:
            session = stack.enter_context(self.pool.session(self.endpoints[name]))
            if name != self.config.target.name:
                mark = writer_mark(session, name)
                is_fed = self.followers and any(source.name == name for source in self.config.sources)
                return earlier_mark(mark, self._fed_back(session, name, stack)) if is_fed else mark
            if settings.applied == "settle":
                return settled_mark(session, name, settings.settle_seconds)
            if not self._applied:
                table = settings.checkpoint
                points = (
                    settings.applied == "checkpoint" and table is not None and SyncPoints.is_kept_in(session, table)
                )
                self._applied = {source: AppliedTime(way) for source, way in self._ways(syncpoints=points)}
                self._how = f"applied by {settings.applied}"
            sources = {e.name: stack.enter_context(self.pool.session(e)) for e in self.config.sources}
            return applied_mark(session, name, self._how, self._applied, sources)

    def _fed_back(self, session: Session, name: str, stack: ExitStack) -> SourceWatermark:
        """Return up to when a source has what was written on the target."""
        settings, target = self.config.reverse or ReverseSettings(), self.config.target
        marker = marker_name(self.config, reverse=True)
        if marker is None:
            return settled_mark(session, name, settings.settle_seconds, "reverse.applied")
        if len(self.config.sources) > 1:
            raise ConfigError(
                "a marker reaches one source only, and there are several", hint="Set reverse.applied: settle."
            )
        if name not in self._applied_back:
            way = Marker(marker, marker, marker_row(target, self.reader))
            self._applied_back[name] = AppliedTime(way)
        written = stack.enter_context(self.pool.session(self.endpoints[target.name]))
        applied = {target.name: self._applied_back[name]}
        return applied_mark(session, name, "applied by reverse.applied: marker", applied, {target.name: written})

    def _ways(self, *, syncpoints: bool) -> Iterator[tuple[str, Applied]]:
        settings = self.config.watch
        for source in self.config.sources:
            shard = shard_of(source)
            if settings.applied == "marker" and settings.marker is not None:
                database, _, table = settings.marker.partition(".")
                target = ".".join(route(self.config, shard, database, table))
                yield source.name, Marker(settings.marker, target, marker_row(source, self.reader))
            elif settings.checkpoint is not None and syncpoints:
                yield source.name, SyncPoints(settings.checkpoint)
            elif settings.checkpoint is not None:
                row = (settings.checkpoint_id or {}).get(shard)
                yield source.name, CheckpointTable(settings.checkpoint, row)
            else:
                raise ConfigError(
                    f"watch.applied is {settings.applied}, and watch.{settings.applied} is missing",
                    hint="Name the table, or use applied: settle.",
                )


@dataclass(slots=True)
class EngineReads:
    """``migverify.recon.watch_judge.RuleReads`` over an engine."""

    rules: RuleSet
    tools: RuleTools
    marks: WatermarkCache

    def watermarks(self, rule: Rule) -> Sequence[SourceWatermark]:
        """Return the watermarks of the rule's datasets."""
        found = {m.source: m for name in rule.datasets for m in self.marks.of(self.rules.datasets[name])}
        return list(found.values())

    def evaluate(self, rule: Rule, window: Window | None, sink: Sink) -> RuleResult:
        """Evaluate one window, as a run does."""
        return evaluate_step(RuleStep(rule, window), self.rules, self.tools, sink)

    def look(
        self, rule: Rule, span: Window | None, findings: Sequence[RuleFinding]
    ) -> Sequence[RuleFinding | None] | None:
        """Read the keys of findings again over a span; None for kinds whose findings are not of one key."""
        if not rule.rereads_keys:
            return None
        if span is not None and any(f.window != span for f in findings) and self._bound(rule):
            return list(findings)  # its SQL cuts the window itself: over a wider one it would answer another question
        built = self.tools.build(rule, span)
        forms = [_forms(built, finding) for finding in findings]
        if not all(forms):
            return None
        now = self.tools.conditions.now()
        exceptions = Exceptions.of(rule.name, self.rules.exceptions, moment_of(now))
        found: list[RuleFinding | None] = [None] * len(findings)
        for one in (built, *([built.drill] if built.drill is not None else [])):
            # Rows behind a group are judged as rows, independent of the rule's measures.
            kind = rule if one is built else rule.rows_rule()
            inputs = judging(kind, one, now, show=self.tools.conditions.show)
            keys_by_form = {n: key for n, form in enumerate(forms) for of, key in form if of is one}
            ours, theirs = self._rows_of_keys(one, list(keys_by_form.values()))
            for n, key in keys_by_form.items():
                pairing = Pairing(key, ours.get(key), theirs.get(key))
                gone = pairing.source is None and pairing.target is None
                differs = None if gone else kind.judge(inputs, pairing)
                if differs is not None:
                    found[n] = exceptions.apply(replace(differs, key=findings[n].key), key)
        return found

    def _rows_of_keys(
        self, built: Built, keys: Sequence[KeyText]
    ) -> tuple[dict[KeyText, KeyRows], dict[KeyText, KeyRows]]:
        """Look on both sides, one after the other: what was written in between differs once, and is read again."""
        if not keys:
            return {}, {}
        ours = self.tools.engine.lookup(built.source, keys)
        return ours, self.tools.engine.lookup(built.target, keys) if built.target is not None else {}

    def _bound(self, rule: Rule) -> bool:
        parts = [part for name in rule.datasets for part in self.rules.datasets[name].parts]
        texts = [p.sql if isinstance(p, QueryPart) else p.where for p in parts if isinstance(p, QueryPart | TablePart)]
        return not rule.sums_groups and any(":window_" in text for text in texts)

    def signature(self, rule: Rule, window: Window) -> str | None:
        """Return a checksum of what databases hold of a window; None where a dataset is of files.

        What a binlog holds of a window does not change, so it does not count.
        """
        parts = []
        for read in _reads(self.tools.build(rule, window)):
            if isinstance(read, FileRead):
                return None
            if isinstance(read, SqlRead):
                # Not by the engine, which opens a session for each question: this one is asked all the time.
                with self.marks.pool.session(self.marks.endpoints[read.endpoint]) as session:
                    rows = session.query(signature_sql(read))
                parts.append("|".join([read.endpoint, read.shard, *(str(text) for text in rows[0])]))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _forms(built: Built, finding: RuleFinding) -> list[tuple[Built, KeyText]]:
    """Return what the key of a finding may mean: a key of the rule, or after ``row`` that of a row of a group.

    A group may be named ``row`` too: then both have to agree.
    """
    found = [(built, finding.key)] if len(finding.key) == len(built.source.key) else []
    rows = built.drill
    if rows is not None and finding.key[:1] == (ROW,) and len(finding.key) == 1 + len(rows.source.key):
        found.append((rows, finding.key[1:]))
    return found


def _reads(built: Built) -> Iterator[object]:
    for relation in (built.source, built.target):
        if relation is not None:
            yield from relation.reads
