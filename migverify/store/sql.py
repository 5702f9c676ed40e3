"""The result store on SQLAlchemy Core: one class for SQLite, MySQL, TiDB and what else SQLAlchemy reaches.

Each ``add_...`` is one transaction: when it returns, its rows are committed, and when it raises, none of them is
(unless the connection broke during the commit, which the message says). Reads page by key instead of holding a
cursor, so a long read keeps neither a transaction nor more than a page.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, and_, exists, func, insert, select

from migverify.errors import StoreError, UsageError
from migverify.model import (
    ChunkResult,
    ChunkState,
    KeyRange,
    LiveState,
    RowDiff,
    TableResult,
    rows_of,
)
from migverify.store import codec, facts
from migverify.store import schema as t
from migverify.store.facts import FINDINGS, ROW_DIFFS, WITHDRAWN, insert_many, next_number
from migverify.store.runs import RunLog, parts_of

T = TypeVar("T")

_PAGE = 1000


class SqlStore(RunLog):
    """Run results in an SQL database; see ``ResultStore`` for what each method promises.

    May be used by many threads: writes of one process wait for each other, reads do not.
    """

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
        table = t.spans
        rows = self._rows_of(run_id, pair, lambda scope: select(table).where(table.c.scope == scope), table.c.span)
        return [(row["span"], codec.decode_range(row["key_range"])) for row in rows]

    def add_chunks(self, run_id: str, results: Sequence[ChunkResult], diffs: Sequence[RowDiff]) -> None:
        """Record finished chunks and the row diffs found in them: both or neither."""
        by_pair: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for result in results:
            by_pair[result.pair].append(codec.encode_chunk(result))
        diffs_by_pair = _encode_diffs(diffs)
        if not by_pair and not diffs_by_pair:
            return

        def work(connection: Connection) -> None:
            for pair, rows in by_pair.items():
                scope = self._scope(connection, run_id, pair)
                first = next_number(connection, t.chunks, scope, "seq")
                numbered = [{"scope": scope, "seq": first + n, **row} for n, row in enumerate(rows)]
                insert_many(connection, insert(t.chunks), numbered)
            self._append_diffs(connection, run_id, diffs_by_pair)

        self._write_run(run_id, "cannot record chunks of", work)

    def chunks(self, run_id: str, pair: str) -> Iterator[ChunkResult]:
        """Last attempt of every chunk of the pair, by span and number; a page at a time."""
        scope = self._scope_of(run_id, pair)
        columns = t.chunks.c
        span, number = -1, -1
        while scope is not None:
            ordered = select(t.chunks).where(columns.scope == scope, _is_last(t.chunks, ("span", "number"), "seq"))
            # Two plain ranges of the primary key: a row comparison is not a range to every optimizer.
            same = ordered.where(columns.span == span, columns.number > number).order_by(columns.number)
            page = self._page(run_id, same.limit(_PAGE))
            if len(page) < _PAGE:
                later = ordered.where(columns.span > span).order_by(columns.span, columns.number)
                page += self._page(run_id, later.limit(_PAGE - len(page)))
            for row in page:
                yield codec.decode_chunk(pair, row)
            if len(page) < _PAGE:
                return
            span, number = page[-1]["span"], page[-1]["number"]

    def chunk_totals(self, run_id: str, pair: str) -> dict[str, int]:
        """Sums over the last attempt of every chunk of the pair, made by the database."""
        columns = t.chunks.c
        totals = dict.fromkeys(("chunks", *map(str, ChunkState)), 0)
        totals |= {f"{what}_{side}": 0 for what in ("rows", "unread") for side in ("source", "target")}

        def query(scope: int) -> Select[Any]:
            return (
                select(
                    columns.state,
                    func.count().label("chunks"),
                    func.count(columns.source_rows).label("read_source"),
                    func.count(columns.target_rows).label("read_target"),
                    func.coalesce(func.sum(columns.source_rows), 0).label("rows_source"),
                    func.coalesce(func.sum(columns.target_rows), 0).label("rows_target"),
                )
                .where(columns.scope == scope, _is_last(t.chunks, ("span", "number"), "seq"))
                .group_by(columns.state)
            )

        for row in self._rows_of(run_id, pair, query):
            totals[row["state"]] += int(row["chunks"])
            totals["chunks"] += int(row["chunks"])
            for side in ("source", "target"):
                totals[f"rows_{side}"] += int(row[f"rows_{side}"])
                totals[f"unread_{side}"] += int(row["chunks"]) - int(row[f"read_{side}"])
        return totals

    # Row diffs

    def add_row_diffs(self, run_id: str, diffs: Sequence[RowDiff]) -> None:
        """Append row diffs; the last one of a (pair, key) counts, also within one call."""
        by_pair = _encode_diffs(diffs)
        if by_pair:
            self._write_run(
                run_id,
                "cannot record row diffs of",
                lambda connection: self._append_diffs(connection, run_id, by_pair),
            )

    def _append_diffs(self, connection: Connection, run_id: str, by_pair: dict[str, list[dict[str, Any]]]) -> None:
        for pair, rows in by_pair.items():
            facts.append(connection, ROW_DIFFS, self._scope(connection, run_id, pair), rows)

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
        selected = _live_states(states)

        def work(connection: Connection) -> list[RowMapping]:
            scope = self._known_scope(connection, run_id, pair)
            if scope is None or limit < 1:
                return []
            return facts.page(connection, ROW_DIFFS, scope, selected, after, limit)

        rows = self.database.read(f"cannot read the row diffs of run {run_id} from", work)
        return [(row["number"], codec.decode_diff(pair, row)) for row in rows]

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

        return self.database.read(f"cannot count the row diffs of run {run_id} in", work)

    # Table results, SQL, blobs

    def add_table_result(self, run_id: str, result: TableResult) -> None:
        """Record the end of one table pair; the last one counts."""
        body = codec.encode_table_result(result)

        def work(connection: Connection) -> None:
            scope = self._scope(connection, run_id, result.pair)
            number = next_number(connection, t.table_results, scope)
            row = {"scope": scope, "number": number, "at": time.time(), "verdict": result.verdict.value, "body": body}
            connection.execute(insert(t.table_results), [row])

        self._write_run(run_id, f"cannot record the result of {result.pair} of", work)

    def table_results(self, run_id: str) -> list[TableResult]:
        """The last result of each table pair, in the order of their names."""
        table = t.table_results
        joined = select(table.c.body).join(t.scopes, t.scopes.c.scope == table.c.scope)
        rows = self._page(run_id, joined.where(t.scopes.c.run_id == run_id, _is_last(table, ())))
        found = [codec.decode_table_result(row["body"]) for row in rows]
        return sorted(found, key=lambda result: (result.source, result.target, result.pair))

    def add_sql(self, run_id: str, pair: str, side: str, purpose: str, text: str) -> None:
        """Record the SQL of a purpose; what was recorded first for (pair, side, purpose) stays."""
        _check_name(side, "side")
        _check_name(purpose, "purpose")

        def work(connection: Connection) -> None:
            table = t.sql_texts
            scope = self._scope(connection, run_id, pair)
            key = {"scope": scope, "side": side, "purpose": purpose}
            where = [table.c[name] == value for name, value in key.items()]
            if connection.scalar(select(table.c.number).where(*where)) is None:
                number = next_number(connection, table, scope)
                connection.execute(insert(table), [{**key, "number": number, "sql_text": text}])

        self._write_run(run_id, "cannot record the SQL of", work)

    def sql(self, run_id: str, pair: str) -> list[tuple[str, str, str]]:
        """Recorded (side, purpose, text), in the order they were recorded."""
        table = t.sql_texts
        rows = self._rows_of(run_id, pair, lambda scope: select(table).where(table.c.scope == scope), table.c.number)
        return [(row["side"], row["purpose"], row["sql_text"]) for row in rows]

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
                insert(table), [{**key, "part": n, "content": part} for n, part in enumerate(parts_of(content))]
            )

        # Not repeatable: after a lost commit a second try could append it twice, and sums would count it twice.
        self._write_run(run_id, f"cannot record {name} of", work, repeatable=False)

    def blobs(self, run_id: str, pair: str, name: str) -> Iterator[bytes]:
        """Stream what was appended under that name, in order; one blob in memory at a time."""
        table = t.blobs
        number = 0
        scope = self._scope_of(run_id, pair)
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
        window = _encode_window(rule, body)
        rows = [facts.encode_finding(rule, finding) for finding in findings]

        def work(connection: Connection) -> None:
            scope = self._scope(connection, run_id, rule)
            number = next_number(connection, t.rule_windows, scope)
            connection.execute(insert(t.rule_windows), [{"scope": scope, "number": number, **window}])
            facts.append(connection, FINDINGS, scope, rows)

        self._write_run(run_id, f"cannot record a window of {rule} of", work)

    def windows(self, run_id: str, rule: str) -> Iterator[dict[str, Any]]:
        """The last body of each window of a rule, in the order of their text; a page at a time."""
        table = t.rule_windows
        scope = self._scope_of(run_id, rule, of_rules=True)
        query = select(table).where(table.c.scope == scope, _is_last(table, ("window_text",)))
        ordered = query.order_by(table.c.window_text).limit(_PAGE)
        page = self._page(run_id, ordered) if scope is not None else []
        while page:
            for row in page:
                yield codec.decode_object(row["body"], f"a window of {rule}")
            if len(page) < _PAGE:
                return
            page = self._page(run_id, ordered.where(table.c.window_text > page[-1]["window_text"]))

    def findings(
        self, run_id: str, rule: str, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1000,
        window: str | None = None,
    ) -> list[tuple[int, dict[str, Any]]]:  # fmt: skip
        """Last state of each finding of a rule, by number; withdrawn ones (kind "") only when asked for by kind."""

        def work(connection: Connection) -> list[tuple[int, dict[str, Any]]]:
            scope = self._rule_scope(connection, run_id, rule)
            if scope is None or limit < 1:
                return []
            if window is None:
                return _bodies(rule, facts.page(connection, FINDINGS, scope, kinds, after, limit))
            if self._has(connection, t.finding_windows) and facts.has_all_windows(connection, scope):
                return _bodies(rule, facts.window_page(connection, scope, window, kinds, after, limit))
            found: list[tuple[int, dict[str, Any]]] = []
            position = after
            while len(found) < limit and (rows := facts.page(connection, FINDINGS, scope, kinds, position, _PAGE)):
                position = rows[-1]["number"]
                found += [item for item in _bodies(rule, rows) if item[1]["window"] == window]
            return found[:limit]

        return self.database.read(f"cannot read the findings of run {run_id} from", work)

    def count_findings(self, run_id: str, rule: str) -> dict[str, int]:
        """Exact counts of the last findings of a rule by kind."""
        heads = t.finding_heads.c

        def query(scope: int) -> Select[Any]:
            mine = select(heads.kind, func.count().label("n")).where(heads.scope == scope, heads.kind != WITHDRAWN)
            return mine.group_by(heads.kind)

        return {row["kind"]: int(row["n"]) for row in self._rows_of(run_id, rule, query, of_rules=True)}

    def _rows_of(
        self, run_id: str, pair: str, query: Callable[[int], Select[Any]], order: ColumnElement[Any] | None = None,
        *, of_rules: bool = False,
    ) -> list[RowMapping]:  # fmt: skip
        scope = self._scope_of(run_id, pair, of_rules=of_rules)
        return [] if scope is None else self._page(run_id, query(scope).order_by(order))

    def _scope_of(self, run_id: str, pair: str, *, of_rules: bool = False) -> int | None:
        find = self._rule_scope if of_rules else self._known_scope
        return self.database.read(f"cannot read run {run_id} from", lambda connection: find(connection, run_id, pair))

    def _rule_scope(self, connection: Connection, run_id: str, rule: str) -> int | None:
        return self._known_scope(connection, run_id, rule) if self._has(connection, *t.RULE_TABLES) else None


def _is_last(table: Table, key: Sequence[str], number: str = "number") -> ColumnElement[bool]:
    """Return the condition that no later row of the same scope and key is there."""
    later = table.alias("later")
    same = [later.c[name] == table.c[name] for name in ("scope", *key)]
    return ~exists(select(later.c[number]).where(*same, later.c[number] > table.c[number]))


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


def _encode_window(rule: str, body: dict[str, Any]) -> dict[str, Any]:
    window, state = body.get("window"), body.get("state")
    if not isinstance(window, str) or not isinstance(state, str):
        raise StoreError(f"a window of {rule} has no text for `window` or `state`: it cannot be stored")
    if len(window) > t.NAME_LENGTH:
        raise StoreError(
            f"a window of {rule} is named by {len(window)} characters; at most {t.NAME_LENGTH} can be kept"
        )
    return {"window_text": window, "state": state, "body": codec.encode_json(dict(body), f"a window of {rule}")}


def _bodies(rule: str, rows: Sequence[RowMapping]) -> list[tuple[int, dict[str, Any]]]:
    return [(row["number"], codec.decode_object(row["body"], f"a finding of {rule}")) for row in rows]


def _check_name(name: str, what: str) -> None:
    if len(name) > t.NAME_LENGTH:
        raise StoreError(f"a {what} of {len(name)} characters cannot be stored; at most {t.NAME_LENGTH} can")
