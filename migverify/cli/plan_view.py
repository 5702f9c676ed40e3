"""A plan as text and as JSON: the same values the run walks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from migverify.codec import encode
from migverify.db.session import Session, open_session
from migverify.figures import amount
from migverify.report.tables import schema_lines
from migverify.tables.explain import SideExplain, explain_side
from migverify.tables.run_facts import EXCLUDED_REASON
from migverify.tables.tasks import PairPlan

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.tables.prepare import PreparedTables


_EXCLUDED = 20
"""How many of the tables that the configuration leaves out are named."""


def plan_as_dicts(prepared: PreparedTables, config: Config, secrets: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield one object per table pair."""
    for pair, explains in _explained(prepared, config, secrets):
        yield {
            "id": pair.id, "source": pair.source, "target": pair.target, "rows": pair.rows, "bytes": pair.bytes,
            "key": [c.name for c in _sql_key(pair)], "range_key": _range_key(pair),
            "strategy": _strategy(pair), "hash": pair.hash,
            "columns": [encode(column) for column in pair.columns],
            "schema": encode(pair.schema), "not_covered": encode(pair.not_covered),
            "blind_spots": list(pair.blind_spots), "explain": [encode(e) for e in explains],
        }  # fmt: skip


def plan_as_text(prepared: PreparedTables, config: Config, secrets: dict[str, str]) -> Iterator[str]:
    """Yield the lines of the plan."""
    for name, facts in prepared.facts.items():
        yield f"{name:<10} {facts['flavor']} {facts['version']} at {facts['host']}:{facts['port']}, {facts['position']}"
    yield f"hash       {prepared.hash}, 60 bits of it a row, summed a chunk"
    yield f"tables     {len(prepared.names)}, about {amount(prepared.rows, 'row')}"
    for skipped in prepared.skipped:
        yield f"skipped    {skipped}: it holds no rows of its own"
    for name in prepared.excluded[:_EXCLUDED]:
        yield f"excluded   {name}: {EXCLUDED_REASON}"
    if len(prepared.excluded) > _EXCLUDED:
        yield f"excluded   {len(prepared.excluded) - _EXCLUDED:,} more"
    for pair, explains in _explained(prepared, config, secrets):
        yield ""
        yield from _pair_lines(pair, explains)


def _explained(
    prepared: PreparedTables, config: Config, secrets: dict[str, str]
) -> Iterator[tuple[PairPlan, list[SideExplain]]]:
    with ExitStack() as stack:
        sessions: dict[str, Session] = {
            e.name: stack.enter_context(open_session(e, secrets.get(e.name))) for e in config.endpoints
        }
        for pair in prepared.pairs():
            yield pair, [explain_side(sessions[side.endpoint.name], pair, side) for side in pair.sides if pair.readable]


def _pair_lines(pair: PairPlan, explains: list[SideExplain]) -> Iterator[str]:
    yield f"{pair.source or '(none)'} -> {pair.target or '(none)'}"
    yield f"  rows     about {pair.rows:,}, {pair.bytes / 1e6:,.1f} MB"
    if pair.readable:
        yield f"  key      {', '.join(c.name for c in _sql_key(pair)) or 'none: rows are compared as a multiset'}"
        yield f"  chunks   {_strategy(pair)}"
        for lane in dict.fromkeys(column.lane for column in pair.columns):
            names = [f"{c.name} ({c.family})" for c in pair.columns if c.lane is lane]
            yield f"  lane     {lane}: {', '.join(names)}"
    for explain in explains:
        pushed = {True: ", aggregate in cop[tikv]", False: ", aggregate NOT in cop[tikv]", None: ""}[explain.pushed]
        yield f"  explain  {explain.endpoint}: {explain.access}{pushed}"
        yield from (f"  warning  {explain.endpoint}: {text}" for text in explain.warnings)
    yield from (f"  schema   {line}" for line in schema_lines([("", d) for d in pair.schema]))
    yield from (f"  not compared: {gap.what}: {gap.reason}" for gap in pair.not_covered)
    yield from (f"  blind to {spot}" for spot in pair.blind_spots)


def _sql_key(pair: PairPlan) -> list[Any]:
    return list(pair.sides[0].sql.key) if pair.readable else []


def _range_key(pair: PairPlan) -> list[str]:
    return [c.name for c in pair.sides[0].sql.range_key] if pair.readable else []


def _strategy(pair: PairPlan) -> str:
    if not pair.readable:
        return "none"
    if pair.whole:
        return f"whole table by bucket: {pair.whole_reason}"
    start = "cut into spans first" if pair.spread else "walked in one go"
    return f"ranges of {', '.join(_range_key(pair))}, {start}, found from both sides while the run goes on"
