"""The result store on SQLAlchemy Core: one class for SQLite, MySQL, TiDB and what else SQLAlchemy reaches.

Each ``add_...`` is one transaction: when it returns, its rows are committed, and when it raises, none of them is
(unless the connection broke during the commit, which the message says). Reads page by key instead of holding a
cursor, so a long read keeps neither a transaction nor more than a page.

A run is written by one process. The one that started or last resumed it may write; an older one that is still
alive is refused, because its plan of what is left to do is out of date.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    Select,
    Table,
    and_,
    exists,
    func,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from migverify.errors import StoreError
from migverify.model import (
    ChunkResult,
    ChunkState,
    KeyRange,
    RowDiff,
    RunInfo,
    TableResult,
    Verdict,
    rows_of,
)
from migverify.store import codec
from migverify.store import findings as f
from migverify.store import schema as t
from migverify.store.failures import connection_lost, rolled_back, store_error
from migverify.store.heads import encode_diffs, head_numbers, insert_many, live_states, move_heads
from migverify.store.history import (
    add_event,
    events_of,
    lock_run,
    new_mark,
    new_run_id,
    next_event,
    no_run,
    refuse_if_taken_over,
    run_info,
    unpack_plan,
)
from migverify.store.schema import IN_LIST

T = TypeVar("T")

_ATTEMPTS = 6
_BACKOFF_SECONDS = 0.05
_PAGE = 1000
# What drivers raise in Python's words: a lone surrogate, an integer above 64 bits.
_NOT_STORABLE = (UnicodeError, OverflowError)
_PART_BYTES = 1 << 20  # TiDB refuses a row above 6 MiB, MySQL a packet above max_allowed_packet


class SqlStore:
    """Run results in an SQL database; see ``ResultStore`` for what each method promises.

    May be used by many threads: writes of one process wait for each other, reads do not.
    """

    def __init__(self, engine: Engine, label: str, *, secret: object = None) -> None:
        self.engine = engine
        self.label = label
        self._secret = secret
        self._writing = threading.Lock()
        self._marks: dict[str, str] = {}
        self._scopes: dict[tuple[str, str], int] = {}
        self._new_scopes: dict[tuple[str, str], int] = {}  # of the transaction that is open
        self._no_rules: bool | None = None
        self._no_windows: bool | None = None

    @property
    def secret(self) -> object:
        """What messages must not show; for others who write to the same database."""
        return self._secret

    # Runs

    def start_run(self, command: str, plan_hash: str, plan: dict[str, Any], facts: dict[str, Any]) -> str:
        """Begin a run and return its id; runs are ordered by when they were recorded here."""
        packed = zlib.compress(codec.encode_json(plan, "the plan").encode("ascii"), level=1)
        facts_text = codec.encode_json(facts, "the facts of a run")
        mark = new_mark()

        def work(connection: Connection) -> str:
            now = time.time()
            run_id = new_run_id(now)
            newest = connection.scalar(select(func.max(t.runs.c.position)))
            connection.execute(
                insert(t.runs).values(
                    run_id=run_id,
                    position=(newest or 0) + 1,
                    command=command,
                    plan_hash=plan_hash,
                    started=now,
                    facts=facts_text,
                )
            )
            parts = [{"run_id": run_id, "part": n, "content": c} for n, c in enumerate(_parts(packed))]
            connection.execute(insert(t.plan_parts), parts)
            add_event(connection, run_id, 0, "run_started", mark, at=now)
            return run_id

        run_id = self._write("cannot start a run in", work)
        self._marks[run_id] = mark
        return run_id

    def resume_run(self, run_id: str) -> RunInfo:
        """Mark that this process goes on with the run; the process that wrote it before is refused from here on."""
        run_id = self._resolve(run_id)
        mark = new_mark()

        def work(connection: Connection) -> None:
            lock_run(connection, run_id, self.label)
            add_event(connection, run_id, next_event(connection, run_id), "run_resumed", mark)

        self._write(f"cannot resume run {run_id} in", work)
        self._marks[run_id] = mark
        return self.load_run(run_id)

    def finish_run(self, run_id: str, verdict: Verdict, facts: dict[str, Any]) -> None:
        """End a run; ``facts`` are merged over those of ``start_run``."""
        facts_text = codec.encode_json(facts, "the facts of a run")

        def work(connection: Connection) -> None:
            number = next_event(connection, run_id)
            mark = self._marks.get(run_id, "")
            add_event(connection, run_id, number, "run_finished", mark, verdict=verdict, facts=facts_text)

        self._write_run(run_id, "cannot finish", work)

    def load_run(self, run_id: str) -> RunInfo:
        """One run with its plan; ``last`` names the newest. ``UsageError`` when there is none."""

        def work(connection: Connection) -> RunInfo:
            found = self._find(connection, run_id)
            row = connection.execute(select(t.runs).where(t.runs.c.run_id == found)).mappings().one()
            parts = connection.scalars(
                select(t.plan_parts.c.content).where(t.plan_parts.c.run_id == found).order_by(t.plan_parts.c.part)
            )
            return run_info(row, unpack_plan(found, b"".join(parts)), events_of(connection, [found])[found])

        return self._read(f"cannot load run {run_id} from", work)

    def runs(self, limit: int = 50) -> list[RunInfo]:
        """The newest runs first, without their plans."""

        def work(connection: Connection) -> list[RunInfo]:
            rows = connection.execute(select(t.runs).order_by(t.runs.c.position.desc()).limit(limit))
            found = list(rows.mappings())
            events = events_of(connection, [row["run_id"] for row in found])
            return [run_info(row, {}, events[row["run_id"]]) for row in found]

        return self._read("cannot list the runs of", work)

    # Spans and chunks

    def add_span(self, run_id: str, pair: str, span: int, key_range: KeyRange) -> None:
        """Record how the pair was cut. The same span again is accepted, another range for it is not."""

        def work(connection: Connection) -> None:
            scope = self._scope(connection, run_id, pair)
            where = and_(t.spans.c.scope == scope, t.spans.c.span == span)
            known = connection.scalar(select(t.spans.c.key_range).where(where))
            if known is None:
                values = {"scope": scope, "span": span, "key_range": codec.encode_range(key_range)}
                connection.execute(insert(t.spans).values(values))
            elif codec.decode_range(known) != key_range:
                raise StoreError(
                    f"run {run_id}: span {span} of {pair} is stored as {codec.decode_range(known)},"
                    f" and cannot become {key_range}",
                    hint="Start a new run: this one was cut in another way.",
                )

        self._write_run(run_id, "cannot record a span of", work)

    def spans(self, run_id: str, pair: str) -> list[tuple[int, KeyRange]]:
        """All spans of the pair, by number."""

        def work(connection: Connection) -> list[tuple[int, KeyRange]]:
            scope = self._known_scope(connection, run_id, pair)
            columns = select(t.spans.c.span, t.spans.c.key_range)
            rows = connection.execute(columns.where(t.spans.c.scope == scope).order_by(t.spans.c.span))
            return [(row.span, codec.decode_range(row.key_range)) for row in rows]

        return self._read(f"cannot read run {run_id} from", work)

    def add_chunks(self, run_id: str, results: Sequence[ChunkResult], diffs: Sequence[RowDiff]) -> None:
        """Record finished chunks and the row diffs found in them: both or neither."""
        by_pair: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for result in results:
            by_pair[result.pair].append(codec.encode_chunk(result))
        diffs_by_pair = encode_diffs(diffs)
        if not by_pair and not diffs_by_pair:
            return

        def work(connection: Connection) -> None:
            for pair, rows in by_pair.items():
                scope = self._scope(connection, run_id, pair)
                first = _next_number(connection, t.chunks, t.chunks.c.seq, scope)
                numbered = [{"scope": scope, "seq": first + n, **row} for n, row in enumerate(rows)]
                insert_many(connection, insert(t.chunks), numbered)
            self._append_diffs(connection, run_id, diffs_by_pair)

        self._write_run(run_id, "cannot record chunks of", work)

    def chunks(self, run_id: str, pair: str) -> Iterator[ChunkResult]:
        """Last attempt of every chunk of the pair, by span and number; a page at a time."""
        table = t.chunks
        last = self._last_attempts(run_id, pair)
        if last is None:
            return
        scope, is_last = last
        span, number = -1, -1
        while True:
            ordered = select(table).where(table.c.scope == scope, is_last)
            # Two plain ranges of the primary key: a row comparison is not a range to every optimizer.
            same = ordered.where(table.c.span == span, table.c.number > number)
            later = ordered.where(table.c.span > span)
            page = self._page(run_id, same.order_by(table.c.number).limit(_PAGE))
            if len(page) < _PAGE:
                rest = later.order_by(table.c.span, table.c.number).limit(_PAGE - len(page))
                page += self._page(run_id, rest)
            for row in page:
                yield codec.decode_chunk(pair, row)
            if len(page) < _PAGE:
                return
            span, number = page[-1]["span"], page[-1]["number"]

    def chunk_totals(self, run_id: str, pair: str) -> dict[str, int]:
        """Sums over the last attempt of every chunk of the pair, made by the database.

        Returns
        -------
        dict
            ``chunks``; ``equal``, ``different`` and ``failed`` (chunks by state); ``rows_source`` and
            ``rows_target`` (sums of the sides that answered); ``unread_source`` and ``unread_target`` (chunks in
            which that side gave no answer, so that its rows are in no sum).
        """
        table = t.chunks
        totals = dict.fromkeys(
            ("chunks", *ChunkState, "rows_source", "rows_target", "unread_source", "unread_target"), 0
        )
        last = self._last_attempts(run_id, pair)
        if last is None:
            return {str(name): count for name, count in totals.items()}
        scope, is_last = last
        query = (
            select(
                table.c.state,
                func.count().label("chunks"),
                func.count(table.c.source_rows).label("read_source"),
                func.count(table.c.target_rows).label("read_target"),
                func.coalesce(func.sum(table.c.source_rows), 0).label("rows_source"),
                func.coalesce(func.sum(table.c.target_rows), 0).label("rows_target"),
            )
            .where(table.c.scope == scope, is_last)
            .group_by(table.c.state)
        )
        for row in self._page(run_id, query):
            totals[row["state"]] += int(row["chunks"])
            totals["chunks"] += int(row["chunks"])
            for side in ("source", "target"):
                totals[f"rows_{side}"] += int(row[f"rows_{side}"])
                totals[f"unread_{side}"] += int(row["chunks"]) - int(row[f"read_{side}"])
        return {str(name): count for name, count in totals.items()}

    def _last_attempts(self, run_id: str, pair: str) -> tuple[int, ColumnElement[bool]] | None:
        scope = self._read(
            f"cannot read run {run_id} from", lambda connection: self._known_scope(connection, run_id, pair)
        )
        if scope is None:
            return None
        table, later = t.chunks, t.chunks.alias("later")
        newer = select(later.c.seq).where(
            later.c.scope == table.c.scope,
            later.c.span == table.c.span,
            later.c.number == table.c.number,
            later.c.seq > table.c.seq,
        )
        return scope, ~exists(newer)

    # Row diffs

    def add_row_diffs(self, run_id: str, diffs: Sequence[RowDiff]) -> None:
        """Append row diffs; the last one of a (pair, key) counts, also within one call."""
        by_pair = encode_diffs(diffs)
        if by_pair:
            self._write_run(
                run_id,
                "cannot record row diffs of",
                lambda connection: self._append_diffs(connection, run_id, by_pair),
            )

    def _append_diffs(self, connection: Connection, run_id: str, by_pair: dict[str, list[dict[str, Any]]]) -> None:
        for pair, rows in by_pair.items():
            scope = self._scope(connection, run_id, pair)
            first = _next_number(connection, t.row_diffs, t.row_diffs.c.number, scope)
            numbered = [{"scope": scope, "number": first + n, **row} for n, row in enumerate(rows)]
            insert_many(connection, insert(t.row_diffs), numbered)
            names = [column.name for column in t.row_diff_heads.columns]
            heads = {row["key_hash"]: {name: row[name] for name in names} for row in numbered}
            move_heads(connection, scope, heads)

    def row_diffs(
        self,
        run_id: str,
        pair: str,
        *,
        states: Sequence[str] | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[tuple[int, RowDiff]]:
        """Latest row diff per key, by number; of ``states`` only, when given.

        A key that is written again gets a higher number: a reader that pages while the run goes on sees it once
        more, with its new state, and takes the later one.
        """
        wanted = live_states(states)

        def work(connection: Connection) -> list[tuple[int, RowDiff]]:
            scope = self._known_scope(connection, run_id, pair)
            if scope is None or not wanted or limit < 1:
                return []
            numbers = head_numbers(connection, scope, wanted, after, limit)
            found: list[tuple[int, RowDiff]] = []
            for start in range(0, len(numbers), IN_LIST):
                table = t.row_diffs
                some = numbers[start : start + IN_LIST]
                rows = connection.execute(select(table).where(table.c.scope == scope, table.c.number.in_(some)))
                found += [(row["number"], codec.decode_diff(pair, row)) for row in rows.mappings()]
            return sorted(found, key=lambda item: item[0])

        return self._read(f"cannot read the row diffs of run {run_id} from", work)

    def count_row_diffs(self, run_id: str, pair: str, *, distinct: bool = False) -> dict[tuple[str, str], int]:
        """Exact counts by (kind, state) over the latest row diff per key: of rows, or of distinct ones."""
        heads, diffs = t.row_diff_heads.c, t.row_diffs.c

        def work(connection: Connection) -> dict[tuple[str, str], int]:
            scope = self._known_scope(connection, run_id, pair)
            counts = select(heads.kind, heads.state, func.count().label("n"))
            rows = connection.execute(counts.where(heads.scope == scope).group_by(heads.state, heads.kind))
            found = {(row.kind, row.state): int(row.n) for row in rows}
            if not distinct:
                several = select(heads.kind, heads.state, diffs.source_count, diffs.target_count).where(
                    heads.scope == scope, diffs.scope == scope, diffs.number == heads.number,
                    (diffs.source_count > 1) | (diffs.target_count > 1),
                )  # fmt: skip
                for kind, state, source, target in connection.execute(several):
                    found[kind, state] += rows_of(kind, source, target) - 1
            return found

        return self._read(f"cannot count the row diffs of run {run_id} in", work)

    # Table results, SQL, blobs

    def add_table_result(self, run_id: str, result: TableResult) -> None:
        """Record the end of one table pair; the last one counts."""
        body = codec.encode_table_result(result)

        def work(connection: Connection) -> None:
            table = t.table_results
            scope = self._scope(connection, run_id, result.pair)
            connection.execute(
                insert(table).values(
                    scope=scope,
                    number=_next_number(connection, table, table.c.number, scope),
                    at=time.time(),
                    verdict=result.verdict.value,
                    body=body,
                )
            )

        self._write_run(run_id, f"cannot record the result of {result.pair} of", work)

    def table_results(self, run_id: str) -> list[TableResult]:
        """The last result of each table pair, in the order of their names."""
        table, later = t.table_results, t.table_results.alias("later")
        newer = select(later.c.number).where(later.c.scope == table.c.scope, later.c.number > table.c.number)
        query = (
            select(table.c.body)
            .join(t.scopes, t.scopes.c.scope == table.c.scope)
            .where(t.scopes.c.run_id == run_id, ~exists(newer))
        )
        found = [codec.decode_table_result(row["body"]) for row in self._page(run_id, query)]
        return sorted(found, key=lambda result: (result.source, result.target, result.pair))

    def add_sql(self, run_id: str, pair: str, side: str, purpose: str, text: str) -> None:
        """Record the SQL of a purpose; what was recorded first for (pair, side, purpose) stays."""
        _check_name(side, "side")
        _check_name(purpose, "purpose")

        def work(connection: Connection) -> None:
            table = t.sql_texts
            scope = self._scope(connection, run_id, pair)
            where = (table.c.scope == scope, table.c.side == side, table.c.purpose == purpose)
            if connection.scalar(select(table.c.number).where(*where)) is None:
                number = _next_number(connection, table, table.c.number, scope)
                values = {
                    "scope": scope,
                    "side": side,
                    "purpose": purpose,
                    "number": number,
                    "sql_text": text,
                }
                connection.execute(insert(table).values(values))

        self._write_run(run_id, "cannot record the SQL of", work)

    def sql(self, run_id: str, pair: str) -> list[tuple[str, str, str]]:
        """Recorded (side, purpose, text), in the order they were recorded."""
        table = t.sql_texts

        def work(connection: Connection) -> list[tuple[str, str, str]]:
            scope = self._known_scope(connection, run_id, pair)
            rows = connection.execute(select(table).where(table.c.scope == scope).order_by(table.c.number))
            return [(row.side, row.purpose, row.sql_text) for row in rows]

        return self._read(f"cannot read run {run_id} from", work)

    def add_blob(self, run_id: str, pair: str, name: str, content: bytes) -> None:
        """Append one blob under a name; of any length, kept in parts."""
        _check_name(name, "blob name")

        def work(connection: Connection) -> None:
            table = t.blobs
            scope = self._scope(connection, run_id, pair)
            last = connection.scalar(
                select(func.max(table.c.number)).where(table.c.scope == scope, table.c.name == name)
            )
            key = {"scope": scope, "name": name, "number": (last or 0) + 1}
            connection.execute(
                insert(table), [{**key, "part": n, "content": part} for n, part in enumerate(_parts(content))]
            )

        # Not repeatable: after a lost commit a second try could append it twice, and sums would count it twice.
        self._write_run(run_id, f"cannot record {name} of", work, repeatable=False)

    def blobs(self, run_id: str, pair: str, name: str) -> Iterator[bytes]:
        """Stream what was appended under that name, in order; one blob in memory at a time."""
        table = t.blobs
        number = 0
        scope = self._read(
            f"cannot read run {run_id} from", lambda connection: self._known_scope(connection, run_id, pair)
        )
        while scope is not None:
            mine = and_(table.c.scope == scope, table.c.name == name)
            following = select(func.min(table.c.number)).where(mine, table.c.number > number).scalar_subquery()
            query = select(table.c.number, table.c.content).where(mine, table.c.number == following)
            parts = self._page(run_id, query.order_by(table.c.part))
            if not parts:
                return
            number = parts[0]["number"]
            yield b"".join(part["content"] for part in parts)

    # Windows and findings of rules

    def add_window(self, run_id: str, rule: str, body: dict[str, Any], findings: Sequence[dict[str, Any]]) -> None:
        """Record a window of a rule and findings in it: both or neither. A finding of kind "" withdraws the earlier."""
        window = f.encode_window(rule, body)
        rows = [f.encode_finding(rule, finding) for finding in findings]

        def work(connection: Connection) -> None:
            scope = self._scope(connection, run_id, rule)
            f.append_window(connection, scope, window)
            f.append_findings(connection, scope, rows)

        self._write_run(run_id, f"cannot record a window of {rule} of", work)

    def windows(self, run_id: str, rule: str) -> Iterator[dict[str, Any]]:
        """The last body of each window of a rule, in the order of their text; a page at a time."""
        after: str | None = None
        scope = self._read(
            f"cannot read run {run_id} from", lambda connection: self._rule_scope(connection, run_id, rule)
        )
        while scope is not None:
            page = self._page(run_id, f.window_page(scope, after, _PAGE))
            for row in page:
                after = row["window_text"]
                yield codec.decode_object(row["body"], f"a window of {rule}")
            if len(page) < _PAGE:
                return

    def findings(
        self, run_id: str, rule: str, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1000,
        window: str | None = None,
    ) -> list[tuple[int, dict[str, Any]]]:  # fmt: skip
        """Last state of each finding of a rule, by number; withdrawn ones (kind "") only when asked for by kind."""

        def work(connection: Connection) -> list[tuple[int, dict[str, Any]]]:
            scope = self._rule_scope(connection, run_id, rule)
            if scope is None or limit < 1:
                return []
            if window is not None:
                if not self._windows_known(connection, scope):
                    return f.walk(connection, rule, scope, window, kinds, after, limit)
                numbers = f.window_numbers(connection, scope, window, kinds, after, limit)
            else:
                numbers = f.finding_numbers(connection, scope, kinds, after, limit)
            return f.finding_page(connection, rule, scope, numbers)

        return self._read(f"cannot read the findings of run {run_id} from", work)

    def count_findings(self, run_id: str, rule: str) -> dict[str, int]:
        """Exact counts of the last findings of a rule by kind."""

        def work(connection: Connection) -> dict[str, int]:
            scope = self._rule_scope(connection, run_id, rule)
            return {} if scope is None else f.finding_counts(connection, scope)

        return self._read(f"cannot count the findings of run {run_id} in", work)

    def close(self) -> None:
        """Release connections."""
        self.engine.dispose()

    # Transactions

    def _read(self, action: str, work: Callable[[Connection], T]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                with self.engine.connect() as connection:
                    return work(connection)
            except SQLAlchemyError as exc:
                if attempt + 1 == _ATTEMPTS or not (connection_lost(exc) or rolled_back(exc)):
                    raise store_error(action, self.label, exc, secret=self._secret) from exc
            except _NOT_STORABLE as exc:
                raise store_error(action, self.label, exc, secret=self._secret) from exc
            time.sleep(_BACKOFF_SECONDS * 2**attempt)
        raise StoreError(f"{action} the store {self.label}: no attempt was made")

    def _page(self, run_id: str, query: Select[Any]) -> list[RowMapping]:
        return self._read(
            f"cannot read run {run_id} from", lambda connection: list(connection.execute(query).mappings())
        )

    def _write_run(self, run_id: str, action: str, work: Callable[[Connection], T], *, repeatable: bool = True) -> T:
        """Write to a run that exists and that no later process has taken over."""

        def guarded(connection: Connection) -> T:
            lock_run(connection, run_id, self.label)
            mark = self._marks.get(run_id)
            if mark is not None:
                refuse_if_taken_over(connection, run_id, mark)
            return work(connection)

        return self._write(f"{action} run {run_id} in", guarded, repeatable=repeatable)

    def _write(self, action: str, work: Callable[[Connection], T], *, repeatable: bool = True) -> T:
        with self._writing:
            for attempt in range(_ATTEMPTS):
                committing = False
                try:
                    with self.engine.execution_options(migverify_write=True).connect() as connection:
                        result = work(connection)
                        committing = True
                        connection.commit()
                        # Only now: a number given in a transaction that is undone may go to another process.
                        self._scopes.update(self._new_scopes)
                        return result
                except SQLAlchemyError as exc:
                    again = rolled_back(exc) or isinstance(exc, IntegrityError)
                    if connection_lost(exc):
                        again = repeatable or not committing
                        if committing and not again:
                            action += " (its commit may or may not have arrived)"
                    if attempt + 1 == _ATTEMPTS or not again:
                        raise store_error(action, self.label, exc, secret=self._secret) from exc
                except _NOT_STORABLE as exc:
                    raise store_error(action, self.label, exc, secret=self._secret) from exc
                finally:
                    self._new_scopes.clear()
                time.sleep(_BACKOFF_SECONDS * 2**attempt)
        raise StoreError(f"{action} the store {self.label}: no attempt was made")

    def _scope(self, connection: Connection, run_id: str, pair: str) -> int:
        """Return the scope of (run, pair) inside a write transaction, making it when it is new."""
        scope = self._new_scopes.get((run_id, pair)) or self._known_scope(connection, run_id, pair)
        if scope is None:
            values = {"run_id": run_id, "pair_hash": codec.text_digest(pair), "pair": pair}
            made = connection.execute(insert(t.scopes).values(values))
            scope = int(made.inserted_primary_key[0])  # type: ignore[index]
        self._new_scopes[run_id, pair] = scope
        return scope

    def _known_scope(self, connection: Connection, run_id: str, pair: str) -> int | None:
        cached = self._scopes.get((run_id, pair))
        if cached is not None:
            return cached
        columns = t.scopes.c
        where = (columns.run_id == run_id, columns.pair_hash == codec.text_digest(pair))
        found = connection.scalar(select(columns.scope).where(*where))
        return None if found is None else int(found)

    def _rule_scope(self, connection: Connection, run_id: str, rule: str) -> int | None:
        # A store from before there were rules, on a medium that cannot be written, has no tables for them.
        if self._no_rules is None:
            self._no_rules = bool(t.missing(connection, t.RULE_TABLES))
        return None if self._no_rules else self._known_scope(connection, run_id, rule)

    def _windows_known(self, connection: Connection, scope: int) -> bool:
        if self._no_windows is None:
            self._no_windows = bool(t.missing(connection, (t.finding_windows,)))
        return not self._no_windows and f.windows_known(connection, scope)

    def _resolve(self, run_id: str) -> str:
        return self._read(f"cannot load run {run_id} from", lambda connection: self._find(connection, run_id))

    def _find(self, connection: Connection, run_id: str) -> str:
        query = select(t.runs.c.run_id)
        if run_id == "last":
            query = query.order_by(t.runs.c.position.desc()).limit(1)
        else:
            query = query.where(t.runs.c.run_id == run_id)
        found = connection.scalar(query)
        if found is None:
            raise no_run(run_id, self.label)
        return str(found)


def _parts(content: bytes) -> list[bytes]:
    """Cut into parts that any server takes as one value; empty content is one empty part."""
    return [content[at : at + _PART_BYTES] for at in range(0, len(content), _PART_BYTES)] or [b""]


def _check_name(name: str, what: str) -> None:
    if len(name) > t.NAME_LENGTH:
        raise StoreError(f"a {what} of {len(name)} characters cannot be stored; at most {t.NAME_LENGTH} can")


def _next_number(connection: Connection, table: Table, column: ColumnElement[Any], scope: int) -> int:
    last = connection.scalar(select(func.max(column)).where(table.c.scope == scope))
    return 1 if last is None else int(last) + 1
