"""Windows and findings of recon rules: how they are kept, and how they are read by the page.

A rule of a run has a scope of its own, like a table pair. Windows and findings are only added: the body with the
highest number counts for a window, and ``finding_heads`` points from (window, key) to the last finding. A finding
without a kind withdraws the one before it: a window that is evaluated again starts so, and nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, func, insert, select, union_all

from migverify.errors import StoreError
from migverify.store import codec
from migverify.store import schema as t
from migverify.store.heads import insert_many, move_heads
from migverify.store.schema import IN_LIST, NAME_LENGTH

WITHDRAWN = ""
"""The kind of a finding that takes back the earlier one of its window and key."""


def encode_window(rule: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a window's body; ``StoreError`` for one without a window or a state."""
    window, state = body.get("window"), body.get("state")
    if not isinstance(window, str) or not isinstance(state, str):
        raise StoreError(f"a window of {rule} has no text for `window` or `state`: it cannot be stored")
    if len(window) > NAME_LENGTH:
        raise StoreError(f"a window of {rule} is named by {len(window)} characters; at most {NAME_LENGTH} can be kept")
    return {"window_text": window, "state": state, "body": codec.encode_json(dict(body), f"a window of {rule}")}


def encode_finding(rule: str, finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a finding; ``StoreError`` for one without key, window or kind."""
    key, window, kind = finding.get("key"), finding.get("window"), finding.get("kind")
    if not isinstance(key, list | tuple) or not isinstance(window, str) or not isinstance(kind, str):
        raise StoreError(f"a finding of {rule} has no `key`, `window` or `kind`: it cannot be stored")
    # Window and key together: the same key in another window is another finding.
    place = codec.encode_json([window, list(key)], f"the key of a finding of {rule}")
    return {
        "key_hash": codec.key_digest(place),
        "kind": kind,
        "body": codec.encode_json(dict(finding), f"a finding of {rule}"),
        "window_hash": codec.text_digest(window),
    }


def append_window(connection: Connection, scope: int, window: Mapping[str, Any]) -> None:
    """Add the body of a window; it counts from here on."""
    last = connection.scalar(select(func.max(t.rule_windows.c.number)).where(t.rule_windows.c.scope == scope))
    connection.execute(insert(t.rule_windows).values(scope=scope, number=(last or 0) + 1, **window))


def append_findings(connection: Connection, scope: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add findings; each is the last of its window and key from here on."""
    if not rows:
        return
    last = connection.scalar(select(func.max(t.findings.c.number)).where(t.findings.c.scope == scope)) or 0
    numbered = [{"scope": scope, "number": int(last) + n, **row} for n, row in enumerate(rows, 1)]
    for table in (t.findings, t.finding_windows):
        wanted = [column.name for column in table.columns]
        insert_many(connection, insert(table), [{name: row[name] for name in wanted} for row in numbered])
    names = [column.name for column in t.finding_heads.columns]
    heads = {row["key_hash"]: {name: row[name] for name in names} for row in numbered}
    move_heads(connection, scope, heads, table=t.finding_heads, changing=("number", "kind"))


def window_page(scope: int, after: str | None, limit: int) -> Select[Any]:
    """Return the query of the last bodies of the next windows, in the order of their text."""
    table, later = t.rule_windows, t.rule_windows.alias("later")
    same = and_(later.c.scope == table.c.scope, later.c.window_text == table.c.window_text)
    newer = select(later.c.number).where(same, later.c.number > table.c.number)
    query = select(table.c.window_text, table.c.body).where(table.c.scope == scope, ~exists(newer))
    if after is not None:
        query = query.where(table.c.window_text > after)
    return query.order_by(table.c.window_text).limit(limit)


def finding_numbers(
    connection: Connection, scope: int, kinds: Sequence[str] | None, after: int, limit: int
) -> list[int]:
    """Numbers of the next last findings, of these kinds only when given; withdrawn ones only when asked for."""
    heads = t.finding_heads.c
    if kinds is None:
        query = select(heads.number).where(heads.scope == scope, heads.number > after, heads.kind != WITHDRAWN)
        return [int(number) for number in connection.scalars(query.order_by(heads.number).limit(limit))]
    ranges = [
        select(heads.number)
        .where(heads.scope == scope, heads.kind == kind, heads.number > after)
        .order_by(heads.number)
        .limit(limit)
        .subquery()
        for kind in dict.fromkeys(kinds)
    ]
    if not ranges:
        return []
    together = union_all(*(select(part.c.number) for part in ranges)).subquery()
    return [int(n) for n in connection.scalars(select(together.c.number).order_by(together.c.number).limit(limit))]


def window_numbers(
    connection: Connection, scope: int, window: str, kinds: Sequence[str] | None, after: int, limit: int
) -> list[int]:
    """Numbers of the next last findings of one window; ``kinds`` as in ``finding_numbers``."""
    heads, places = t.finding_heads.c, t.finding_windows.c
    joined = t.finding_windows.join(
        t.finding_heads, and_(heads.scope == places.scope, heads.number == places.number)
    )  # fmt: skip
    kind = heads.kind != WITHDRAWN if kinds is None else heads.kind.in_(list(dict.fromkeys(kinds)))
    mine = and_(places.scope == scope, places.window_hash == codec.text_digest(window), places.number > after)
    query = select(places.number).select_from(joined).where(mine, kind).order_by(places.number).limit(limit)
    return [int(number) for number in connection.scalars(query)]


def windows_known(connection: Connection, scope: int) -> bool:
    """Whether the window of every finding is indexed: those of an older migverify are not."""
    first = [connection.scalar(select(func.min(table.c.number)).where(table.c.scope == scope))
             for table in (t.findings, t.finding_windows)]  # fmt: skip
    return bool(first[0] == first[1])


def walk(
    connection: Connection, rule: str, scope: int, window: str, kinds: Sequence[str] | None, after: int, limit: int
) -> list[tuple[int, dict[str, Any]]]:
    """Return the next last findings of one window by reading all that follow ``after``."""
    found: list[tuple[int, dict[str, Any]]] = []
    while numbers := finding_numbers(connection, scope, kinds, after, IN_LIST):
        after = numbers[-1]
        found += [one for one in finding_page(connection, rule, scope, numbers) if one[1]["window"] == window]
        if len(found) >= limit:
            break
    return found[:limit]


def finding_page(
    connection: Connection, rule: str, scope: int, numbers: Sequence[int]
) -> list[tuple[int, dict[str, Any]]]:
    """Return the findings of these numbers, by number."""
    found: list[tuple[int, dict[str, Any]]] = []
    table = t.findings
    for start in range(0, len(numbers), IN_LIST):
        some = numbers[start : start + IN_LIST]
        rows = connection.execute(select(table).where(table.c.scope == scope, table.c.number.in_(some)))
        found += [(row.number, codec.decode_object(row.body, f"a finding of {rule}")) for row in rows]
    return sorted(found, key=lambda item: item[0])


def finding_counts(connection: Connection, scope: int) -> dict[str, int]:
    """Exact counts of the last findings by kind, withdrawn ones left out."""
    heads = t.finding_heads.c
    query = select(heads.kind, func.count().label("n")).where(heads.scope == scope, heads.kind != WITHDRAWN)
    return {row.kind: int(row.n) for row in connection.execute(query.group_by(heads.kind))}
