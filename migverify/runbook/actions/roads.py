"""Roads as checks of a runbook: tables, the watch, rules between services."""

from __future__ import annotations

from typing import Any

from migverify.runbook.actions.action import Argument, Registry
from migverify.runbook.actions.called import STORE, Road, road_action

__all__ = ["register"]


def _tables(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``tables verify --json`` prints. A run over no table proves nothing."""
    tables = document["tables"]
    if not tables:
        raise ValueError("no table")
    bad = [one for one in tables if one["verdict"] != "MATCH"]
    reasons = [f"{one['pair']}: {one['verdict']}{''.join(f', {why}' for why in one['reasons'][:2])}" for one in bad]
    rows = {one["pair"]: [one["rows_source"], one["rows_target"]] for one in tables[:200]}
    return str(document["verdict"]), reasons, {"run": document["run_id"], "tables": len(tables), "rows": rows}


def _rules(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``recon run --json`` prints."""
    rules = document["rules"]
    if not rules:
        raise ValueError("no rule")
    reasons = [f"{one.get('pair') or one.get('rule') or one.get('name')}: {one['verdict']}"
               for one in rules if one["verdict"] != "MATCH"]  # fmt: skip
    return str(document["verdict"]), reasons, {"run": document["run_id"], "rules": len(rules)}


def _watched(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read the last line of ``tables watch --json``: the one that says ``final``."""
    if document["final"] is not True:
        raise ValueError("the watch did not end in order")
    tables = document["tables"]
    reasons = [*document["reasons"], *(f"{one['source'] or one['target']}: {why}" for one in tables
                                       for why in one["reasons"])]  # fmt: skip
    sources = [{"name": one["name"], "read": one["read"]} for one in document["sources"]]
    return str(document["verdict"]), reasons, {"run": document["run_id"], "sources": sources, "tables": len(tables)}


_TABLES = Argument("tables", "list", "Source tables, as database.table with *; default: all in scope.")
ROADS = (
    Road("tables.verify", "Source and target hold the same rows.", ("tables", "verify"),
         (_TABLES, Argument("engine", "text", "spark or local; default spark."),
          Argument("recheck", "text", "Only what was not equal in that run; `last`."),
          Argument("full", "flag", "Read immutable rows too."), STORE),
         (("tables", "--tables"), ("engine", "--engine"), ("recheck", "--recheck"), ("full", "--full"),
          ("store", "--store")), _tables, always=("--quiet",)),
    Road("tables.drained", "Everything written since a verification is on the target, and equal.", ("tables", "watch"),
         (_TABLES, Argument("since", "text", "The verification to go on from: a run or `last`.", required=True),
          Argument("at_position", "text", "Where to drain to, file:offset; default: the source's end now."),
          Argument("within", "number", "Seconds for draining, then it is inconclusive; default: watch.drain_seconds."),
          STORE),
         (("tables", "--tables"), ("since", "--since"), ("at_position", "--at-position"), ("within", "--timeout"),
          ("store", "--store")), _watched, always=("--until-drained",)),
    Road("recon.holds", "Rules between tables, shards and services hold.", ("recon", "run"),
         (Argument("rules", "text", "File or folder of rules.", required=True),
          Argument("rule", "list", "Only these rules."), Argument("from", "text", "First moment, UTC."),
          Argument("to", "text", "Last moment, UTC; default: now."),
          Argument("param", "list", "Parameters, NAME=VALUE."), Argument("engine", "text", "spark or local."), STORE),
         (("rule", "--rule"), ("from", "--from"), ("to", "--to"), ("param", "--param"), ("engine", "--engine"),
          ("store", "--store")), _rules, before=("rules",), always=("--quiet",)),
)  # fmt: skip


def register(registry: Registry) -> None:
    """Add the roads to a registry."""
    for road in ROADS:
        registry.register(road_action(road))
