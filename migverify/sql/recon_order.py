"""Statements that look at the order of rows: changes of a state, gaps of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

from migverify.sql.quoting import quote_bytes
from migverify.sql.recon import LARGEST, both, where_sql
from migverify.sql.union_text import bytes_sql


def transitions_sql(
    table: str, key: Sequence[tuple[str, str]], state: str, order: tuple[str, str], time: str, where: str, recent: str
) -> str:
    """Return, as it follows FROM, each row of a history with the state before it.

    ``key``: Per key column, (value, canonical text). ``state``: Canonical text of the state. ``order``: (value,
    canonical text) of the column that orders the rows of a key. ``time``: The time column's value, or ``NULL``.
    ``where``, ``recent``: Condition on all rows; and on those whose keys are looked at (empty: all keys).

    Returns
    -------
    str
        Columns k0, k1 ..., ``o`` (order), ``s`` (state), ``p`` (state before, NULL for the first), ``t`` (time).
    """
    inner = where
    if recent and key:
        values = ",".join(value for value, _ in key)
        inner = both(where, f"({values}) IN (SELECT {values} FROM {table}{where_sql(where, recent)})")
    keys = ",".join(f"{text} AS k{place}" for place, (_, text) in enumerate(key))
    partition = ",".join(bytes_sql(text) for _, text in key)
    window = f"OVER ({'PARTITION BY ' + partition if partition else ''} ORDER BY {order[0]})"
    return (f"(SELECT {keys}{',' if keys else ''}{order[1]} AS o,{state} AS s,LAG({state}) {window} AS p,{time} AS t "
            f"FROM {table}{where_sql(inner)}) AS h")  # fmt: skip


def illegal_condition(
    allowed: Sequence[tuple[str, Sequence[str]]], initial: Sequence[str] | None, final: Sequence[str]
) -> str:
    """Return the condition that a row of ``transitions_sql`` is no legal change of state.

    ``initial`` None lets a row begin in any state. A row that keeps its state is legal.
    """
    before, after = bytes_sql("h.p"), bytes_sql("h.s")

    def among(text: str, states: Sequence[str]) -> str:
        return f"{text} IN ({','.join(quote_bytes(state.encode()) for state in states)})" if states else "0"

    begins = f"(h.p IS NULL AND {'1' if initial is None else among(after, initial)})"
    steps = [
        f"({before}={quote_bytes(state.encode())} AND {among(after, following)})"
        for state, following in allowed if state not in final
    ]  # fmt: skip
    legal = " OR ".join([begins, f"{before}={after}", *steps])
    return f"NOT COALESCE({legal},0)"


def sequence_sql(tables: Sequence[tuple[str, str]], groups: Sequence[str], number: str, time: str) -> str:
    """Return, as it follows FROM, each number of a sequence with the one before it in its group.

    ``tables``: (what follows FROM, condition); several are one sequence. ``groups``: Canonical texts of the groups'
    columns. ``number``: The number's value. ``time``: The time column's value, or ``NULL``.

    Returns
    -------
    str
        Columns g0, g1 ..., ``c`` (number), ``p`` (number before), ``t``.
    """
    named = "".join(f"{text} AS g{place}," for place, text in enumerate(groups))
    wide = f"CAST({number} AS DECIMAL({LARGEST},0))"  # the difference of two unsigned numbers may be negative
    rows = " UNION ALL ".join(
        f"SELECT {named}{wide} AS c,{time} AS t FROM {table}{where_sql(where, f'{number} IS NOT NULL')}"
        for table, where in tables
    )
    shown = "".join(f"g{place}," for place in range(len(groups)))
    partition = ",".join(bytes_sql(f"g{place}") for place in range(len(groups)))
    over = f"OVER ({'PARTITION BY ' + partition if partition else ''} ORDER BY c)"
    return (f"(SELECT {shown}c,LAG(c) {over} AS p,t "
            f"FROM ({rows}) AS n) AS s")  # fmt: skip


def gap_parts(start: int | None) -> tuple[str, str, str]:
    """Return first and last missing number before a row of ``sequence_sql``, and the condition that there are any."""
    if start is None:
        return "s.p+1", "s.c-1", "s.c>s.p+1"
    before = f"COALESCE(s.p,{start - 1})"
    return f"{before}+1", "s.c-1", f"s.c>{before}+1"
