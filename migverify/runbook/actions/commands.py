"""Commands of migverify as checks of a runbook: the same program, the same verdict, the same exit code.

Each runs in a process of its own: one code path for people and runbooks, and a time limit that really ends what takes
too long. What counts is a verdict that is the same in the JSON and in the exit code.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migverify.codec import parse_json
from migverify.errors import NOTHING_TO_RECHECK
from migverify.runbook.actions.action import (
    Action,
    ActionKind,
    ActionResult,
    Argument,
    Bounds,
    Context,
    Outcome,
    Registry,
)
from migverify.runbook.actions.builtin import run_program

__all__ = ["COMMAND_CHECKS", "MATCH", "STORE", "TIMEOUT", "Called", "CommandCheck", "call", "register"]

JSON_BYTES = 64 << 20
"""Of what a command prints as JSON; a longer one cannot be read, and is no data."""
_REASONS = 12
_ANSWERS = 20
_VERDICTS = {0: "MATCH", 1: "MISMATCH"}
_STATES = {"pass": "MATCH", "warn": "MATCH", "fail": "MISMATCH"}
MATCH = Bounds(equals="MATCH")
TIMEOUT = Argument("timeout", "number", "Seconds until the answer has to be there.")
STORE = Argument("store", "text", "Result store; default: the configuration's.")


@dataclass(frozen=True, slots=True)
class Called:
    """What a command answered. ``document`` is the last JSON value that it printed, None where there is none."""

    code: int | None
    why: Outcome
    document: Any
    words: str
    facts: dict[str, Any] = field(default_factory=dict)


def call(arguments: Sequence[str], context: Context) -> Called:
    """Run a command of migverify with ``--json`` and the context's configuration.

    Raises
    ------
    UsageError
        it cannot be started.
    """
    argv = [sys.executable, "-m", "migverify", *arguments, "--json"]
    if context.config is not None and not {"--config", "-c"} & set(arguments):
        argv += ["--config", str(context.config)]
    begun = time.time()
    done = run_program(argv, context, kept=JSON_BYTES, own=True)
    whole = done.facts["stdout_bytes"] <= JSON_BYTES
    facts = {"command": ["migverify", *argv[3:]], "exit": done.code, "seconds": done.facts["seconds"],
                     "local_time": begun}  # fmt: skip
    words = " ".join(line.strip() for line in done.errors.strip().splitlines()[-3:])[-400:]
    return Called(done.code, done.why, _document(done.output) if whole else None, words, facts)


def _document(output: str) -> Any:
    """Return the last JSON value of an output: the whole of it, or its last line."""
    for text in (output, output.strip().rpartition("\n")[2]):
        try:
            return parse_json(text)
        except ValueError:
            continue
    return None


Reading = Callable[[Any], tuple[str, list[str], dict[str, Any]]]
"""Document -> verdict in words of the command, reasons, evidence; raises KeyError or TypeError for another one."""


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """A command as a check: its words, its arguments, and how its JSON is read.

    An argument ``max_used`` is the option ``--max-used``; ``options`` has those with another name. The option of a
    flag has no value, that of a list is repeated. ``before`` are arguments without an option. Of ``one_of`` exactly one
    has to be given.
    """

    name: str
    about: str
    words: tuple[str, ...]
    arguments: tuple[Argument, ...]
    read: Reading
    options: tuple[tuple[str, str], ...] = ()
    before: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()


def options_of(check: CommandCheck) -> dict[str, str]:
    """Return the option of each argument that has one."""
    usual = {one.name: f"--{one.name.replace('_', '-')}" for one in check.arguments if one.name not in check.before}
    return usual | dict(check.options)


def command_of(check: CommandCheck, arguments: Mapping[str, Any]) -> list[str]:
    """Return the command of a check with its options."""
    words = [*check.words, *(str(arguments[name]) for name in check.before if name in arguments), *check.always]
    for name, option in options_of(check).items():
        value = arguments.get(name)
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [option, f"{one:g}" if isinstance(one, float) else str(one)]
    return words


def _asked(words: Sequence[str], shown: str, read: Reading, context: Context) -> ActionResult:
    done = call(words, context)
    if done.code is None:
        return ActionResult(done.why, f"{shown}: {done.why.value}", None, done.facts)
    verdict = _VERDICTS.get(done.code)
    try:
        said, reasons, more = read(done.document)
    except (KeyError, TypeError, AttributeError, ValueError):
        return ActionResult(Outcome.NO_DATA, f"{shown}: exit code {done.code}, and no answer: {done.words}", None,
                                    done.facts)  # fmt: skip
    facts = {**done.facts, **more, "reasons": reasons[:_REASONS], "reasons_in_all": len(reasons)}
    why = f": {'; '.join(reasons[:3])}"[:400] if reasons else ""
    if verdict is None or _STATES.get(said, said) != verdict:
        return ActionResult(Outcome.NO_DATA, f"{shown}: {said or 'no verdict'}, exit code {done.code}{why}", None,
                                    facts)  # fmt: skip
    return ActionResult(Outcome.OK, f"{verdict}{why}", verdict, facts)


def _action(check: CommandCheck) -> Action:
    """Return a check whose value is MATCH or MISMATCH; INCONCLUSIVE has no value."""

    def ask(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        if check.one_of and len(arguments.keys() & set(check.one_of)) != 1:
            return ActionResult(Outcome.NO_DATA, f"{check.name} needs one of: {', '.join(check.one_of)}")
        words = " ".join(check.words)
        result = _asked(command_of(check, arguments), words, check.read, context)
        if result.outcome is Outcome.NO_DATA and "recheck" in arguments and NOTHING_TO_RECHECK in result.text:
            # What that run proved is of its own time: a later attempt of a gate reads what was written since.
            given = {**arguments, "since": arguments["recheck"]}
            del given["recheck"]
            return _asked(command_of(check, given), words, check.read, context)
        return result

    return Action(check.name, ActionKind.CHECK, check.about, (*check.arguments, TIMEOUT), ask, MATCH)


def _migverify(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    words = list(arguments["arguments"])
    return _asked(words, " ".join(words), _verdict, context)


def _verdict(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what any command prints that has a verdict, or a state."""
    verdict = str(document.get("verdict") or document.get("state") or "")
    return verdict.upper() if verdict not in _STATES else verdict, list(map(str, document.get("reasons") or ())), {}


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


def _plans(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``workload plans --json`` prints."""
    digests = document["digests"]
    if not digests:
        raise ValueError("no digest")
    bad = [one for one in digests if one["state"] != "fine"]
    reasons = [f"{one['digest'][:16]}: {finding['harm']}: {finding['reason']}"
               for one in bad for finding in one["findings"]]  # fmt: skip
    reasons += [f"{one['digest'][:16]}: {why}" for one in bad for why in one["doubts"]]
    changed = [one["digest"] for one in digests if one["changed"]]
    facts = {"run": document["run_id"], "digests": len(digests), "changed": changed[:_ANSWERS]}
    return str(document["verdict"]), reasons, facts


def _anomalies(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``workload anomalies --json`` prints; without usable reads nothing was looked at."""
    sides = {name: document[name]["usable"] for name in ("source", "target")}
    bad = [one for one in document["anomalies"] if one["permitted_by"] == "target only"]
    reasons = [*document["reasons"], *(f"{one['name']}: {', '.join(one['transactions'])}" for one in bad)]
    return str(document["verdict"]), reasons, {"run": document.get("run_id"), "usable": sides, "anomalies": len(bad)}


def _decided(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``workload decision --json`` prints."""
    parts = {one["part"]: {"decision": one["decision"], "run": one["run"]} for one in document["parts"]}
    if not parts:
        raise ValueError("no part")
    return str(document["verdict"]), list(document["reasons"]), {"decision": document["decision"], "parts": parts}


def _watched(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read the last line of ``tables watch --json``: the one that says ``final``."""
    if document["final"] is not True:
        raise ValueError("the watch did not end in order")
    tables = document["tables"]
    reasons = [*document["reasons"], *(f"{one['source'] or one['target']}: {why}" for one in tables
                                               for why in one["reasons"])]  # fmt: skip
    sources = [{"name": one["name"], "read": one["read"]} for one in document["sources"]]
    return str(document["verdict"]), reasons, {"run": document["run_id"], "sources": sources, "tables": len(tables)}


def _proved(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read the last line of ``tables watch --reverse --json``; that of a forward watch says nothing of a rollback."""
    if document["reverse"] is not True:
        raise ValueError("a forward watch")
    verdict, reasons, facts = _watched(document)
    return verdict, reasons, {**facts, "as_of": document["as_of"]}


def _armed(document: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Read what ``tables armed --json`` prints."""
    names = ("run", "forward", "as_of", "began", "unread_seconds", "unread_rows", "unread_statements", "watch")
    return str(document["verdict"]), list(document["reasons"]), {name: document[name] for name in names}


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
    """Read what ``migverify guard ids --json`` prints: one object for each id space."""
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
    """Read what ``migverify guard schema --json`` prints; cosmetic and allowed differences do not make it fail."""
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
    done = call(["guard", "schema"], context)
    endpoint = arguments.get("endpoint", "source")
    prints = done.document.get("fingerprints") if isinstance(done.document, dict) else None
    found = prints.get(endpoint) if isinstance(prints, dict) else None
    if done.code not in (0, 1, 3) or not isinstance(found, str) or not found:
        outcome = done.why if done.code is None else Outcome.NO_DATA
        words = done.words or "not to be read"
        return ActionResult(outcome, f"no fingerprint of {endpoint}: {words}", None, done.facts)
    return ActionResult(Outcome.OK, f"{endpoint} {found}", found, {**done.facts, "fingerprints": prints})


def _snapshot(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    done = call(
        ["guard", "schema", "--snapshot", *(["--store", arguments["store"]] if "store" in arguments else [])], context
    )
    prints = done.document.get("fingerprints") if isinstance(done.document, dict) else None
    if done.code != 0 or not prints:
        outcome = Outcome.FAILED if done.code is not None else done.why
        return ActionResult(outcome, f"guard schema --snapshot: {done.words or done.why.value}", None, done.facts)
    text = ", ".join(f"{endpoint} {found[:16]}" for endpoint, found in sorted(prints.items()))
    return ActionResult(Outcome.OK, text, str(done.document["run"]), {**done.facts, "fingerprints": prints})


_TABLES = Argument("tables", "list", "Source tables, as database.table with *; default: all in scope.")
_WORK = Argument("work", "list", "What it is for: tables, changes, recon, workload, cutover.")
COMMAND_CHECKS = (
    CommandCheck(
        "tables.verify", "Source and target hold the same rows.", ("tables", "verify"),
        (_TABLES, Argument("engine", "text", "spark or local; default local, or Spark where a master is configured."),
         Argument("recheck", "text", "Only what was not equal in that run (`last`); where all was, as `since`."),
         Argument("since", "text", "Rest on that run, read only rows written since; `last`."),
         Argument("full", "flag", "Read immutable rows too."), STORE),
        _tables, always=("--quiet",),
    ),
    CommandCheck(
        "tables.drained", "Everything written since a verification is on the target, and equal.",
        ("tables", "watch"),
        (_TABLES, Argument("since", "text", "The verification to go on from: a run or `last`.", required=True),
         Argument("at_position", "text", "Where to drain to, file:offset; default: the source's end now."),
         Argument("within", "number", "Seconds for draining, then it is inconclusive; default: watch.drain_seconds."),
         STORE),
        _watched, options=(("within", "--timeout"),), always=("--until-drained",),
    ),
    CommandCheck(
        "rollback.proved", "Everything written on the target up to a TSO is on the source, and equal. Not seen: later"
        " writes, and rows that others than the feed changed on the source since (reverse.old_side).",
        ("tables", "watch"),
        (Argument("watch", "text", "Run of the reverse watch to go on with, or `last`; it has to be ended before."),
         Argument("since", "text", "Or the run to rest on, by a second watch beside it; `last`: the newest proof."),
         Argument("at_position", "text", "Where to drain to, a TSO; default: the target's now."),
         Argument("within", "number", "Seconds for draining, then it is inconclusive; default: watch.drain_seconds."),
         STORE),
        _proved, options=(("watch", "--resume"), ("within", "--timeout")), always=("--reverse", "--until-drained"),
        one_of=("watch", "since"),
    ),
    CommandCheck(
        "rollback.armed", "The reverse watch took over from the forward watch, with nothing unread between them.",
        ("tables", "armed"),
        (Argument("watch", "text", "Run of the reverse watch; default: the newest."),
         Argument("forward", "text", "Run of the forward watch that it takes over from; default: the newest."),
         Argument("max_unread", "number", "Seconds of the target's writes that may be unread; default 10."), STORE),
        _armed, before=("watch",),
    ),
    CommandCheck(
        "recon.holds", "Rules between tables, shards and services hold.", ("recon", "run"),
        (Argument("rules", "text", "File or folder of rules.", required=True),
         Argument("rule", "list", "Only these rules."), Argument("from", "text", "First moment, UTC."),
         Argument("to", "text", "Last moment, UTC; default: now."),
         Argument("param", "list", "Parameters, NAME=VALUE."), Argument("engine", "text", "spark or local."), STORE),
        _rules, before=("rules",), always=("--quiet",),
    ),
    CommandCheck(
        "plans.fine", "No statement of a capture will hurt on the target by its plan, nor by a plan that changed.",
        ("workload", "plans"),
        (Argument("capture", "text", "Folder of a capture.", required=True),
         Argument("since", "text", "Compare with the plans of that run; `last`."),
         Argument("samples", "number", "Calls of each digest that are explained; default 3."),
         Argument("reads_only", "flag", "Leave writes out."), STORE),
        _plans, before=("capture",),
    ),
    CommandCheck(
        "anomalies.none", "The target permitted nothing to concurrent transactions that the source did not.",
        ("workload", "anomalies"),
        (Argument("source", "text", "The source's history, as a replay with anomalies wrote it.", required=True),
         Argument("target", "text", "The target's history of the same transactions.", required=True),
         Argument("usable", "number", "Percent of reads that must be usable; default 80."), STORE),
        _anomalies, before=("source", "target"),
    ),
    CommandCheck(
        "decision.go", "The evidence in the store says GO: answers, anomalies, latency, plans, hot spots, conflicts and"
        " clients are fine, fresh, and of this service as it is now.",
        ("workload", "decision"),
        (Argument("capture", "text", "Folder of the service's capture; default: decision.capture."), STORE),
        _decided, before=("capture",),
    ),
    CommandCheck(
        "check.settings", "Settings, versions, privileges and room: nothing fails, nothing is unknown.",
        ("guard", "settings"),
        (_WORK, Argument("only", "list", "Only these questions."), Argument("skip", "list", "Not these questions."),
         Argument("hours", "number", "How long the longest verification will take."),
         Argument("ticdc", "list", "TiCDC servers to ask, http://host:8300."), STORE),
        _guards, options=(("work", "--for"),),
    ),
    CommandCheck(
        "schema.unchanged", "Definitions on both sides are what they were in the baseline.",
        ("guard", "schema"),
        (Argument("baseline", "text", "A file or a run; default: the newest snapshot."),
         Argument("allow", "text", "File of allowed drift."), Argument("strict", "flag", "Cosmetic ones fail too."),
         STORE),
        _guards, always=("--baseline", "last"),
    ),
    CommandCheck(
        "schema.alike", "Definitions of source and target are alike.", ("guard", "schema"),
        (Argument("allow", "text", "File of allowed drift."), STORE),
        _alike,
    ),
    CommandCheck(
        "ids.headroom", "No id space of either side ends soon.", ("guard", "ids"),
        (Argument("min_days", "number", "Fail with fewer days left; default 180."),
         Argument("max_used", "number", "Fail with a larger share of a counter used; default 0.7."),
         Argument("javascript", "flag", "Fail on ids beyond 2^53."),
         Argument("layout", "list", "Layouts of columns: TABLE.COLUMN=LAYOUT."), STORE),
        _spaces,
    ),
    CommandCheck(
        "monitors.alive", "Monitoring sees every target and value that it must, and they are fine.",
        ("guard", "monitors"),
        (Argument("sql", "flag", "Ask the servers too."), Argument("no_sql", "flag", "Never ask the servers."), STORE),
        _guards,
    ),
    CommandCheck(
        "capacity.fits", "The work fits its window, and its data the room.", ("guard", "capacity"),
        (Argument("window", "text", "All the work has to fit in this: 4h.", required=True),
         Argument("engine", "text", "spark or local."),
         Argument("target_free", "text", "Free room on the target: 500G."),
         Argument("replicas", "number", "How often the target keeps each row."), STORE),
        _guards,
    ),
    CommandCheck(
        "hotspots.none", "No key, table, row or transaction of a capture will be hot on the target.",
        ("guard", "hotspots"),
        (Argument("capture", "text", "Folder of a capture.", required=True),
         Argument("warn_rate", "number", "Warn from so many writes of one region a second; default 1000."),
         Argument("fail_rate", "number", "Fail from so many writes of one region a second; default 2000."), STORE),
        _guards,
    ),
    CommandCheck(
        "plans.unchanged", "No statement of a capture has a plan on the target that reads more than the baseline's.",
        ("guard", "plans"),
        (Argument("capture", "text", "Folder of a capture.", required=True),
         Argument("baseline", "text", "Run of `workload plans` to compare with; default: the newest."),
         Argument("reads_only", "flag", "Leave writes out."), STORE),
        _guards,
    ),
)  # fmt: skip


def register(registry: Registry) -> None:
    """Add the commands to a registry."""
    for check in COMMAND_CHECKS:
        registry.register(_action(check))
    registry.register(Action(
        "migverify", ActionKind.CHECK, "The verdict of a command of migverify that has --json.",
        (Argument("arguments", "list", "Command and options, without --json.", required=True),), _migverify, MATCH,
    ))  # fmt: skip
    registry.register(Action(
        "schema.snapshot", ActionKind.EFFECT, "Keeps the definitions of both sides in the store, as a baseline.",
        (STORE,), _snapshot,
    ))  # fmt: skip
    registry.register(Action(
        "schema.fingerprint", ActionKind.CHECK, "The fingerprint of an endpoint's definitions; needs `equals`.",
        (Argument("endpoint", "text", "source, source.<shard> or target; default source."), TIMEOUT), _fingerprint,
    ))  # fmt: skip
