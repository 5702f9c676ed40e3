"""Guards as checks of a runbook: settings, definitions, id spaces, monitors, capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from migverify.runbook.actions.action import Action, ActionKind, ActionResult, Argument, Context, Outcome, Registry
from migverify.runbook.actions.called import STORE, TIMEOUT, Road, call, road_action

__all__ = ["register"]

_ANSWERS = 20


def _guards(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what every guard's ``--json`` prints."""
    guards = document["guards"]
    bad = [answer for one in guards for answer in one["answers"] if answer["state"] in ("fail", "inconclusive")]
    reasons = [f"{one['subject']}: {one['name']}: {one['value']}" for one in bad]
    reasons += [words for one in guards for words in one["unasked"]]
    facts: dict[str, Any] = {"run": document["run"], "answers": bad[:_ANSWERS]}
    clocks = [a["server_time"] for one in guards for a in one["answers"] if a["server_time"] is not None]
    if clocks:
        facts["server_time"] = max(clocks)
    return str(document["verdict"]), reasons, facts


def _spaces(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``migverify ids --json`` prints: one object for each id space."""
    if not isinstance(document, list) or not document:
        raise ValueError("no id space")
    states = {space["verdict"] for space in document}
    if unknown := states - {"pass", "fail", "inconclusive"}:
        raise ValueError(f"no such verdict: {unknown}")
    verdict = "fail" if "fail" in states else "INCONCLUSIVE" if "inconclusive" in states else "pass"
    bad = [space for space in document if space["verdict"] != "pass"]
    reasons = [f"{s['endpoint']} {s['table']}.{s['column']}: {s['reason']}" for s in bad]
    days = [(s["days_left"], f"{s['endpoint']} {s['table']}.{s['column']}")
            for s in document if s["days_left"] is not None]  # fmt: skip
    facts: dict[str, Any] = {"spaces": len(document), "failing": bad[:_ANSWERS]}
    if days:
        left, where = min(days)
        facts |= {"fewest_days_left": left, "fewest_days_where": where}
    return verdict, reasons, facts


def _alike(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``migverify schema diff --json`` prints; cosmetic and allowed differences do not make it fail."""
    tables = document["tables"]
    if not tables:
        raise ValueError("no table")
    bad = [(one["table"], d) for one in tables for d in one["differences"]
           if not d.get("allowed") and d["class"] != "cosmetic"]  # fmt: skip
    reasons = [f"{table}: {d['message']}" for table, d in bad]
    unasked = document.get("unasked") or []
    verdict = "MISMATCH" if bad else "INCONCLUSIVE" if unasked else "MATCH"
    return verdict, [*reasons, *unasked], {"fingerprints": document["fingerprints"], "tables": len(tables)}


def _fingerprint(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    done = call(["schema", "diff"], context)
    endpoint = arguments.get("endpoint", "source")
    prints = done.document.get("fingerprints") if isinstance(done.document, dict) else None
    found = prints.get(endpoint) if isinstance(prints, dict) else None
    if done.code not in (0, 1, 3) or not isinstance(found, str) or not found:
        outcome = done.why if done.code is None else Outcome.NO_DATA
        words = done.words or "not to be read"
        return ActionResult(outcome, f"no fingerprint of {endpoint}: {words}", None, done.facts)
    return ActionResult(Outcome.OK, f"{endpoint} {found}", found, {**done.facts, "fingerprints": prints})


def _snapshot(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    done = call(["schema", "snapshot", *(["--store", arguments["store"]] if "store" in arguments else [])], context)
    prints = done.document.get("fingerprints") if isinstance(done.document, dict) else None
    if done.code != 0 or not prints:
        outcome = Outcome.FAILED if done.code is not None else done.why
        return ActionResult(outcome, f"schema snapshot: {done.words or done.why.value}", None, done.facts)
    text = ", ".join(f"{endpoint} {found[:16]}" for endpoint, found in sorted(prints.items()))
    return ActionResult(Outcome.OK, text, str(done.document["run"]), {**done.facts, "fingerprints": prints})


_WORK = Argument("work", "list", "What it is for: tables, changes, recon, workload, cutover.")
ROADS = (
    Road("check.settings", "Settings, versions, privileges and room: nothing fails, nothing is unknown.", ("check",),
         (_WORK, Argument("only", "list", "Only these questions."), Argument("skip", "list", "Not these questions."),
          Argument("hours", "number", "How long the longest verification will take."),
          Argument("ticdc", "list", "TiCDC servers to ask, http://host:8300."), STORE),
         (("work", "--for"), ("only", "--only"), ("skip", "--skip"), ("hours", "--hours"), ("ticdc", "--ticdc"),
          ("store", "--store")), _guards),
    Road("schema.unchanged", "Definitions on both sides are what they were in the baseline.", ("schema", "guard"),
         (Argument("baseline", "text", "A file or a run; default: the newest snapshot."),
          Argument("allow", "text", "File of allowed drift."), Argument("strict", "flag", "Cosmetic ones fail too."),
          STORE),
         (("baseline", "--baseline"), ("allow", "--allow"), ("strict", "--strict"), ("store", "--store")), _guards),
    Road("schema.alike", "Definitions of source and target are alike.", ("schema", "diff"),
         (Argument("allow", "text", "File of allowed drift."), STORE),
         (("allow", "--allow"), ("store", "--store")), _alike),
    Road("ids.headroom", "No id space of either side ends soon.", ("ids",),
         (Argument("min_days", "number", "Fail with fewer days left; default 180."),
          Argument("max_used", "number", "Fail with a larger share of a counter used; default 0.7."),
          Argument("javascript", "flag", "Fail on ids beyond 2^53."),
          Argument("layout", "list", "Layouts of columns: TABLE.COLUMN=LAYOUT."), STORE),
         (("min_days", "--min-days"), ("max_used", "--max-used"), ("javascript", "--javascript"),
          ("layout", "--layout"), ("store", "--store")), _spaces),
    Road("monitors.alive", "Monitoring sees every target and value that it must, and they are fine.", ("monitors",),
         (Argument("sql", "flag", "Ask the servers too."), Argument("no_sql", "flag", "Never ask the servers."), STORE),
         (("sql", "--sql"), ("no_sql", "--no-sql"), ("store", "--store")), _guards),
    Road("capacity.fits", "The work fits its window, and its data the room.", ("capacity",),
         (Argument("window", "text", "All the work has to fit in this: 4h.", required=True),
          Argument("engine", "text", "spark or local."),
          Argument("calibrate", "number", "Seconds of a calibrating verification; 0: none."),
          Argument("target_free", "text", "Free room on the target: 500G."),
          Argument("replicas", "number", "How often the target keeps each row."), STORE),
         (("window", "--window"), ("engine", "--engine"), ("calibrate", "--calibrate"),
          ("target_free", "--target-free"), ("replicas", "--replicas"), ("store", "--store")), _guards),
)  # fmt: skip


def register(registry: Registry) -> None:
    """Add the guards to a registry."""
    for road in ROADS:
        registry.register(road_action(road))
    registry.register(Action(
        "schema.snapshot", ActionKind.EFFECT, "Keeps the definitions of both sides in the store, as a baseline.",
        (STORE,), _snapshot,
    ))  # fmt: skip
    registry.register(Action(
        "schema.fingerprint", ActionKind.CHECK, "The fingerprint of an endpoint's definitions; needs `equals`.",
        (Argument("endpoint", "text", "source, source.<shard> or target; default source."), TIMEOUT), _fingerprint,
    ))  # fmt: skip
