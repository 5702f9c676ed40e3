"""The result store on SQLAlchemy Core: one class for SQLite, MySQL, TiDB and PostgreSQL.

A store is append-only: nothing written is changed, later rows say more. Each ``add_...`` is one transaction: when it
returns, its rows are committed, and when it raises, none of them is (unless the connection broke during the commit,
which the message says). Reads page by key instead of holding a cursor, so a long read keeps neither a transaction nor
more than a page.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, bindparam, exists, func, insert, select

from migverify.codec import encode
from migverify.errors import NoRunError, StoreError, UsageError
from migverify.model import (
    ChunkResult,
    ChunkState,
    KeyRange,
    LiveState,
    RowDiff,
    RunInfo,
    StoredKind,
    TableResult,
    Verdict,
    rows_of,
)
from migverify.store import codec, facts
from migverify.store import schema as t
from migverify.store.facts import FINDINGS, ROW_DIFFS, WITHDRAWN, FactTables, Page, insert_many, next_number
from migverify.store.runs import RunLog, parts_of

T = TypeVar("T")

RUNS_SEARCHED = 20_000
"""Newest runs of a store that are looked at: several hundred services may keep theirs in one."""
_PAGE = 1000
_STARTED_BY = {
    StoredKind.TABLES: "tables verify",
    StoredKind.RULES: "recon run",
    StoredKind.GUARDS: "check",
    StoredKind.REPLAY: "workload replay",
    StoredKind.CLIENTS: "workload clients",
    StoredKind.PROBE: "workload probe",
    StoredKind.PLANS: "workload plans",
    StoredKind.ANOMALIES: "workload anomalies",
    StoredKind.CONFLICTS: "workload explain-conflict",
    StoredKind.QUICK: "tables verify --level counts",
}


class ResultStore(RunLog):
    """Append-only run results. Every method raises ``StoreError`` when the store cannot be written or read.

    May be used by many threads: writes of one process wait for each other, reads do not. A run without ``finish_run``
    loads as INCONCLUSIVE.
    """

    # Spans and chunks

    def add_span(self, run_id: str, pair: str, span: int, key_range: KeyRange) -> None:
        """Record how the pair was cut, before any chunk of the span. Another range for the same span is refused."""

        def work(connection: Connection, scope: int) -> None:
            columns = t.spans.c
            known = connection.scalar(select(columns.key_range).where(columns.scope == scope, columns.span == span))
            if known is None:
                values = {"scope": scope, "span": span, "key_range": codec.encode_range(key_range)}
                connection.execute(insert(t.spans).values(values))
            elif codec.decode_range(known) != key_range:
                raise StoreError(
                    f"run {run_id}: span {span} of {pair} is stored as {codec.decode_range(known)},"
                    f" and cannot become {key_range}",
                    hint="Start a new run: this one was cut in another way.",
                )

        self._write_scope(run_id, pair, "cannot record a span of", work)

    def spans(self, run_id: str, pair: str) -> list[tuple[int, KeyRange]]:
        """All spans of the pair, by number."""
        table = t.spans
        rows = self._rows_of(run_id, pair, lambda scope: select(table).where(table.c.scope == scope), table.c.span)
        return [(row.span, codec.decode_range(row.key_range)) for row in rows]

    def add_chunks(self, run_id: str, results: Sequence[ChunkResult], diffs: Sequence[RowDiff]) -> None:
        """Record finished chunks and the row diffs found in them in one transaction: both or neither."""
        by_pair: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for result in results:
            by_pair[result.pair].append(codec.encode_chunk(result))
        diffs_by_pair = _encode_diffs(diffs)
        if not by_pair and not diffs_by_pair:
            return

        def work(connection: Connection) -> None:
            for pair, rows in by_pair.items():
                scope = self._scope(connection, run_id, pair)
                first = next_number(connection, t.chunks.c.seq, t.chunks.c.scope == scope)
                insert_many(connection, t.chunks, [{"scope": scope, "seq": first + n, **r} for n, r in enumerate(rows)])
            self._append_diffs(connection, run_id, diffs_by_pair)

        self._write_run(run_id, "cannot record chunks of", work)

    def chunks(self, run_id: str, pair: str) -> Iterator[ChunkResult]:
        """Last attempt of every chunk of the pair, by span and number; a page at a time."""
        table = t.chunks.c
        last = select(*(table[name] for name in codec.CHUNK_COLUMNS)).where(
            _is_last(t.chunks, ("span", "number"), "seq")
        )
        span, number, full = -1, -1, True
        while full:
            # Two plain ranges of the primary key: a row comparison is not a range to every optimizer.
            same = last.where(table.span == span, table.number > number).order_by(table.number).limit(_PAGE)
            page = [*self._rows_of(run_id, pair, lambda scope, q=same: q.where(table.scope == scope))]  # type: ignore[misc]
            if len(page) < _PAGE:
                later = last.where(table.span > span).order_by(table.span, table.number).limit(_PAGE - len(page))
                page += self._rows_of(run_id, pair, lambda scope, q=later: q.where(table.scope == scope))  # type: ignore[misc]
            for row in page:
                yield codec.decode_chunk(pair, row)
            full = len(page) == _PAGE
            if full:
                span, number = page[-1].span, page[-1].number

    def chunk_totals(self, run_id: str, pair: str) -> dict[str, int]:
        """Sums over the last attempt of every chunk of the pair, made by the database.

        ``chunks``, ``equal``, ``different``, ``failed``, ``rows_source``, ``rows_target``, ``unread_source``,
        ``unread_target``: chunks by state, rows of the sides that answered, chunks where a side did not.
        """
        columns = t.chunks.c
        totals = dict.fromkeys(("chunks", *map(str, ChunkState)), 0)
        totals |= {f"{what}_{side}": 0 for what in ("rows", "unread") for side in ("source", "target")}

        def query(scope: int) -> Select[Any]:
            sums = (
                counted
                for side, rows in (("source", columns.source_rows), ("target", columns.target_rows))
                for counted in (
                    func.coalesce(func.sum(rows), 0).label(f"rows_{side}"),
                    (func.count() - func.count(rows)).label(f"unread_{side}"),
                )
            )
            last = _is_last(t.chunks, ("span", "number"), "seq")
            by_state = select(columns.state, func.count().label("chunks"), *sums).where(columns.scope == scope, last)
            return by_state.group_by(columns.state)

        for row in self._rows_of(run_id, pair, query):
            totals[row.state] += int(row.chunks)
            for name, value in row._mapping.items():
                if name != "state":
                    totals[name] += int(value)
        return totals

    # Row diffs

    def add_row_diffs(self, run_id: str, diffs: Sequence[RowDiff]) -> None:
        """Append row diffs; the last one of a (pair, key) counts, also within one call."""
        by_pair = _encode_diffs(diffs)
        if by_pair:
            action = "cannot record row diffs of"
            self._write_run(run_id, action, lambda connection: self._append_diffs(connection, run_id, by_pair))

    def _append_diffs(self, connection: Connection, run_id: str, by_pair: dict[str, list[dict[str, Any]]]) -> None:
        for pair, rows in by_pair.items():
            facts.append(connection, ROW_DIFFS, self._scope(connection, run_id, pair), rows)

    def row_diffs(
        self, run_id: str, pair: str, *, states: Sequence[str] | None = None, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, RowDiff]]:
        """Latest row diff per key, paged: those with a number above ``after``; of ``states`` only, when given.

        A key that is written again gets a higher number: a reader that pages while the run goes on sees it once
        more, with its new state, and takes the later one.
        """
        selected = _live_states(states)
        rows = self._page(run_id, pair, ROW_DIFFS, selected, after, limit)
        return [(number, codec.decode_diff(pair, row)) for number, row in rows]

    def count_row_diffs(self, run_id: str, pair: str, *, distinct: bool = False) -> dict[tuple[str, str], int]:
        """Exact counts by (kind, state) over the latest row diff per key: of rows that differ, or of distinct ones."""
        heads, diffs = t.row_diff_heads.c, t.row_diffs.c

        def work(connection: Connection, scope: int) -> dict[tuple[str, str], int]:
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

        return self._read_scope(run_id, pair, work, {})

    # Table results, SQL, blobs

    def add_table_result(self, run_id: str, result: TableResult) -> None:
        """Record the end of one table pair; the last one counts."""
        body = codec.encode_json(encode(result), f"the result of {result.pair}")

        def work(connection: Connection, scope: int) -> None:
            number = next_number(connection, t.table_results.c.number, t.table_results.c.scope == scope)
            row = {"scope": scope, "number": number, "at": time.time(), "verdict": result.verdict.value, "body": body}
            connection.execute(insert(t.table_results), [row])

        self._write_scope(run_id, result.pair, f"cannot record the result of {result.pair} of", work)

    def table_results(self, run_id: str) -> list[TableResult]:
        """The last result of each table pair, in the order of their names."""
        action = f"cannot read run {run_id} from"
        bodies = self.database.read(action, lambda c: c.scalars(_RESULTS, {"run_id": run_id}).all())
        results = [codec.decode_json(TableResult, body, "a table result") for body in bodies]
        return sorted(results, key=lambda result: (result.source, result.target, result.pair))

    def verdict_counts(self, run_id: str) -> dict[Verdict, int]:
        """Return how many table pairs have each verdict, by the last result of each; made by the database."""
        action = f"cannot read run {run_id} from"
        rows = self.database.read(action, lambda c: c.execute(_VERDICTS, {"run_id": run_id}).all())
        try:
            return {Verdict(row.verdict): int(row.n) for row in rows}
        except ValueError as error:
            raise StoreError(f"run {run_id} has a result whose verdict does not exist: {error}",
                             hint="The store is damaged: verify again into another one.") from error  # fmt: skip

    def add_sql(self, run_id: str, pair: str, side: str, purpose: str, text: str) -> None:
        """Record the exact SQL of a purpose; what was recorded first for (pair, side, purpose) stays."""
        codec.check_name(side, "side")
        codec.check_name(purpose, "purpose")

        def work(connection: Connection, scope: int) -> None:
            table = t.sql_texts
            key = {"scope": scope, "side": side, "purpose": purpose}
            where = [table.c[name] == value for name, value in key.items()]
            if connection.scalar(select(table.c.number).where(*where)) is None:
                number = next_number(connection, table.c.number, table.c.scope == scope)
                connection.execute(insert(table), [{**key, "number": number, "sql_text": text}])

        self._write_scope(run_id, pair, "cannot record the SQL of", work)

    def sql(self, run_id: str, pair: str) -> list[tuple[str, str, str]]:
        """Recorded (side, purpose, text), in the order they were recorded."""
        table = t.sql_texts
        rows = self._rows_of(run_id, pair, lambda scope: select(table).where(table.c.scope == scope), table.c.number)
        return [(row.side, row.purpose, row.sql_text) for row in rows]

    def add_blob(self, run_id: str, pair: str, name: str, content: bytes) -> None:
        """Append one named intermediate result (bucket sums of a whole-table comparison); of any length."""
        codec.check_name(name, "blob name")
        table = t.blobs

        def work(connection: Connection, scope: int) -> None:
            number = next_number(connection, table.c.number, table.c.scope == scope, table.c.name == name)
            key = {"scope": scope, "name": name, "number": number}
            parts = [{**key, "part": number, "content": part} for number, part in enumerate(parts_of(content))]
            connection.execute(insert(table), parts)

        # Not repeatable: after a lost commit a second try could append it twice, and sums would count it twice.
        self._write_scope(run_id, pair, f"cannot record {name} of", work, repeatable=False)

    def blobs(self, run_id: str, pair: str, name: str) -> Iterator[bytes]:
        """Stream what was appended under that name, in order; one blob in memory at a time."""
        table = t.blobs
        number = 0

        def query(scope: int) -> Select[Any]:
            mine = and_(table.c.scope == scope, table.c.name == name)
            following = select(func.min(table.c.number)).where(mine, table.c.number > number).scalar_subquery()
            return select(table.c.number, table.c.content).where(mine, table.c.number == following)

        while parts := self._rows_of(run_id, pair, query, table.c.part):
            number = parts[0].number
            yield b"".join(part.content for part in parts)

    # Windows and findings of rules

    def add_window(self, run_id: str, rule: str, body: dict[str, Any], findings: Sequence[dict[str, Any]]) -> None:
        """Record the end of one rule in one window, and its findings, in one transaction: both or neither.

        ``body`` holds at least ``window`` (text, empty without windows) and ``state``; a later body of the same rule
        and window supersedes. A finding holds at least ``key`` (list of texts), ``window`` and ``kind``; a later one of
        the same rule, window and key supersedes; one of kind "" withdraws it, and is not listed.
        """
        window = codec.encode_window(rule, body)
        rows = [codec.encode_finding(rule, finding) for finding in findings]

        def work(connection: Connection, scope: int) -> None:
            number = next_number(connection, t.rule_windows.c.number, t.rule_windows.c.scope == scope)
            connection.execute(insert(t.rule_windows), [{"scope": scope, "number": number, **window}])
            facts.append(connection, FINDINGS, scope, rows)

        self._write_scope(run_id, rule, f"cannot record a window of {rule} of", work)

    def windows(self, run_id: str, rule: str) -> Iterator[dict[str, Any]]:
        """The last body of each window of a rule, in the order of their text; a page at a time."""
        after: str | None = None

        def work(connection: Connection, scope: int) -> Sequence[Row[Any]]:
            if after is None:
                return connection.execute(_WINDOWS, {"scope": scope, "most": _PAGE}).all()
            return connection.execute(_WINDOWS_AFTER, {"scope": scope, "most": _PAGE, "after": after}).all()

        nothing: Sequence[Row[Any]] = []
        while page := self._read_scope(run_id, rule, work, nothing):
            for row in page:
                yield codec.decode_object(row.body, f"a window of {rule}")
            if len(page) < _PAGE:
                return
            after = page[-1].window_text

    def findings(
        self, run_id: str, rule: str, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1000,
        window: str | None = None,
    ) -> list[tuple[int, dict[str, Any]]]:  # fmt: skip
        """Last state of each finding of a rule, paged: those with a number above ``after``, at most ``limit``.

        Withdrawn ones (kind "") only where ``kinds`` names them. ``window`` is the text of a window, empty for the one
        of all rows: only its findings; None for all windows.
        """
        rows = self._page(run_id, rule, FINDINGS, kinds, after, limit, window)
        return [(number, codec.decode_object(row[0], f"a finding of {rule}")) for number, row in rows]

    def count_findings(self, run_id: str, rule: str) -> dict[str, int]:
        """Exact counts of the last findings of a rule by kind."""
        heads = t.finding_heads.c

        def query(scope: int) -> Select[Any]:
            mine = select(heads.kind, func.count().label("n")).where(heads.scope == scope, heads.kind != WITHDRAWN)
            return mine.group_by(heads.kind)

        return {row.kind: int(row.n) for row in self._rows_of(run_id, rule, query)}

    def _rows_of(
        self, run_id: str, pair: str, query: Callable[[int], Select[Any]], *order: ColumnElement[Any]
    ) -> Sequence[Row[Any]]:
        def work(connection: Connection, scope: int) -> Sequence[Row[Any]]:
            return connection.execute(query(scope).order_by(*order)).all()

        return self._read_scope(run_id, pair, work, [])

    def _page(
        self, run_id: str, pair: str, of: FactTables, states: Sequence[str] | None, after: int, limit: int,
        window: str | None = None,
    ) -> Page:  # fmt: skip
        def work(connection: Connection, scope: int) -> Page:
            return facts.page(connection, of, scope, states, after, max(0, limit), window)

        return self._read_scope(run_id, pair, work, [])

    def _read_scope(self, run_id: str, pair: str, work: Callable[[Connection, int], T], nothing: T) -> T:
        def read(connection: Connection) -> T:
            scope = self._known_scope(connection, run_id, pair)
            if scope is None:
                return nothing
            self._scopes[run_id, pair] = scope  # what a reader sees is committed, and stays
            return work(connection, scope)

        return self.database.read(f"cannot read run {run_id} from", read)

    def _write_scope(
        self, run_id: str, pair: str, action: str, work: Callable[[Connection, int], None], *, repeatable: bool = True
    ) -> None:
        def write(connection: Connection) -> None:
            work(connection, self._scope(connection, run_id, pair))

        self._write_run(run_id, action, write, repeatable=repeatable)


def _is_last(table: Table, key: Sequence[str], number: str = "number") -> ColumnElement[bool]:
    """Return the condition that no later row of the same scope and key is there."""
    later = table.alias("later")
    same = [later.c[name] == table.c[name] for name in ("scope", *key)]
    return ~exists(select(later.c[number]).where(*same, later.c[number] > table.c[number]))


# Made once, as those of ``migverify.store.runs`` are.
_SCOPE = bindparam("scope", type_=t.scopes.c.scope.type)
_OF_RUN = t.scopes.c.run_id == bindparam("run_id")
_RESULTS = (
    select(t.table_results.c.body)
    .join(t.scopes, t.scopes.c.scope == t.table_results.c.scope)
    .where(_OF_RUN, _is_last(t.table_results, ()))
)
_VERDICTS = (
    select(t.table_results.c.verdict, func.count().label("n"))
    .join(t.scopes, t.scopes.c.scope == t.table_results.c.scope)
    .where(_OF_RUN, _is_last(t.table_results, ()))
    .group_by(t.table_results.c.verdict)
)
_WINDOWS = (
    select(t.rule_windows)
    .where(t.rule_windows.c.scope == _SCOPE, _is_last(t.rule_windows, ("window_text",)))
    .order_by(t.rule_windows.c.window_text)
    .limit(bindparam("most"))
)
_WINDOWS_AFTER = _WINDOWS.where(t.rule_windows.c.window_text > bindparam("after"))


def _encode_diffs(diffs: Sequence[RowDiff]) -> dict[str, list[dict[str, Any]]]:
    by_pair: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for diff in diffs:
        by_pair[diff.pair].append(codec.encode_diff(diff))
    return by_pair


def _live_states(states: Sequence[str] | None) -> list[str]:
    try:
        return [LiveState(state).value for state in (LiveState if states is None else states)]
    except ValueError as exc:
        known = ", ".join(LiveState)
        raise UsageError(f"there is no live state like this: {exc}", hint=f"The states are {known}.") from exc


def named_run(
    store: ResultStore, name: str, kind: StoredKind, digest: str | None = None, *,
    suits: Callable[[RunInfo], bool] = lambda _: True, is_own: Callable[[RunInfo], bool] = lambda _: True,
) -> RunInfo:  # fmt: skip
    """Return a run of a kind by its id. ``last`` is the newest of the kind that suits, is own and has the digest.

    Parameters
    ----------
    digest
        The hash of what is compared; None for any. Where no own run has it, ``last`` is the newest own one with another
        one, and whoever compares digests learns what changed.
    suits
        A further condition for ``last``, on what ``ResultStore.runs`` returns.
    is_own
        Whether a run is of the configuration that asks, as it is or as it was: others may share the store. It takes
        what ``ResultStore.runs`` returns and, where no run has the digest, also runs with their plans.

    Raises
    ------
    NoRunError
        there is none that ``last`` could mean.
    UsageError
        there is no such run, or it is of another kind.
    """
    if name != "last":
        info = store.load_run(name)
        if info.kind is not kind:
            guards = info.plan.get("guards")
            names = f" ({', '.join(map(str, guards))})" if isinstance(guards, list) else ""
            raise UsageError(
                f"run {info.run_id} is one {info.kind.words}{names}; a run {kind.words} is needed",
                hint=f"`last` names the newest run {kind.words}; `migverify report {info.run_id}` shows this one.",
            )
        return info
    fitting = [info for info in store.runs(RUNS_SEARCHED) if info.kind is kind and suits(info)]
    if not fitting:
        raise NoRunError(
            f"the store holds no such run {kind.words} among its newest {RUNS_SEARCHED:,}",
            hint=f"{_start_one(kind)} a run by its id.",
        )
    own = [info for info in fitting if is_own(info)]
    if same := [info for info in own if digest is None or info.plan_hash == digest]:
        return store.load_run(same[0].run_id)
    newest: dict[str, str] = {}
    for info in own:
        newest.setdefault(info.plan_hash, info.run_id)
    if earlier := next(filter(is_own, map(store.load_run, newest.values())), None):
        return earlier
    raise NoRunError(
        f"this configuration has no run {kind.words} yet that `last` could mean: those in the store, such as"
        f" {fitting[0].run_id}, are of other servers or other tables",
        hint=f"{_start_one(kind)} a run by its id, if its servers are these under other addresses.",
    )


def _start_one(kind: StoredKind) -> str:
    return f"Start one by `migverify {_STARTED_BY[kind]}`, or name" if kind in _STARTED_BY else "Name"
