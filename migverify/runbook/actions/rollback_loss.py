"""The gate ``rollback.loss``: what going back would lose now, compared with limits.

Its evidence is the numbers, and the moment that they are as of; the page of the run shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from migverify.runbook.actions.action import (
    Action,
    ActionKind,
    ActionResult,
    Argument,
    Bounds,
    CheckOutcome,
    Context,
    Outcome,
    Registry,
)
from migverify.runbook.actions.commands import STORE, TIMEOUT, call

__all__ = ["ACCEPTABLE", "NAME", "PROOFS", "numbers_of", "register", "result_of"]

NAME = "rollback.loss"
PROOFS = ("rollback.proved", "rollback.armed")
"""Gates whose evidence names the place that a rollback is proved up to."""
ACCEPTABLE, TOO_LARGE = "acceptable", "too large"
_EXITS = {"MATCH": 0, "MISMATCH": 1, "INCONCLUSIVE": 3}
_NUMBERS = (
    "keys", "missing_on_source", "value_differs", "missing_on_target", "transactions_at_least", "oldest_seconds",
    "unread_seconds",
)  # fmt: skip
_LIMITS = ("max_keys", "max_seconds", "max_amount")
_SHOWN = 5
"""Lost keys in the evidence."""
_ARGUMENTS = (
    Argument("watch", "text", "Run of the reverse watch; default: the newest."),
    Argument("max_keys", "number", "So many keys may be lost; without any limit, none."),
    Argument("max_seconds", "number", "The oldest write that would be lost may be so old."),
    Argument("max_amount", "number", "So much may be at risk in each currency, by the amounts of `rules`."),
    Argument("rules", "text", "File or folder of rules that define amounts (money)."),
    Argument("rule", "list", "Only these rules."),
    Argument("max_unread", "number", "With more seconds of unread writes there is no value; default 10."),
    STORE, TIMEOUT,
)  # fmt: skip


def result_of(document: Mapping[str, Any], limits: Mapping[str, Any]) -> tuple[str | None, str, dict[str, Any]]:
    """Judge the JSON of ``tables loss``: the value (None: not known), a line for people, and the evidence.

    What exceeds a limit is too large also where more may be lost than is known. Acceptable is only what is known in
    full.

    Raises KeyError, TypeError, ValueError: the document is another one.
    """
    facts: dict[str, Any] = {name: document[name] for name in _NUMBERS}
    facts |= {
        "run": document["run"], "as_of": document["as_of"], "read_at": document["read_at"], "watch": document["watch"],
        "rows": list(document["rows"])[:_SHOWN], "at_risk": _at_risk(document),
        "amounts_unstated": list(document["amounts_unstated"]),
        "limits": {name: limits[name] for name in _LIMITS if name in limits},
    }  # fmt: skip
    facts["oldest"] = document["oldest"]
    text = _words(facts)
    if exceeded := list(_exceeded(facts, limits)):
        return TOO_LARGE, f"{text}: {'; '.join(exceeded)}", facts
    unknown = [*map(str, document["reasons"]), *_unknown(document, facts, limits)]
    if unknown or document["complete"] is not True:
        return None, f"{text}; not known: {'; '.join(unknown[:3])}"[:400], facts
    return ACCEPTABLE, text, facts


def _at_risk(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the largest amount at risk per currency: rules over the same rows are not added up."""
    found: dict[str, Decimal] = {}
    for one in document["amounts"]:
        for currency, sums in one["currencies"].items():
            found[currency] = max(found.get(currency, Decimal(0)), Decimal(sums["at_risk"]))
    return {currency: format(value, "f") for currency, value in sorted(found.items())}


def _words(facts: Mapping[str, Any]) -> str:
    keys, oldest = int(facts["keys"]), facts["oldest_seconds"]
    named = ", ".join(f"{row['table']} {'/'.join(map(str, row['key']))}" for row in facts["rows"])
    place = f"as of {facts['as_of']['text']}" if facts["as_of"] else "as of no place yet"
    age = "" if oldest is None else f", oldest {oldest:,.0f} s"
    money = "".join(f", {value} {currency}" for currency, value in facts["at_risk"].items())
    which = f" ({named}{', ...' if keys > len(facts['rows']) else ''})" if named else ""
    return f"{keys:,} {'key' if keys == 1 else 'keys'} would be lost{which}{age}{money} {place}"


def _exceeded(facts: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[str]:
    # Without any limit nothing may be lost.
    most = limits.get("max_keys", None if any(name in limits for name in _LIMITS) else 0)
    if most is not None and facts["keys"] > most:
        yield f"more than {most:g} keys"
    seconds, oldest = limits.get("max_seconds"), facts["oldest_seconds"]
    if seconds is not None and oldest is not None and oldest > seconds:
        yield f"older than {seconds:g} s"
    if "max_amount" in limits:
        most_money = Decimal(str(limits["max_amount"]))
        yield from (
            f"more than {most_money:f} {currency}"
            for currency, value in facts["at_risk"].items() if Decimal(value) > most_money
        )  # fmt: skip


def _unknown(document: Mapping[str, Any], facts: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[str]:
    if "max_seconds" in limits and facts["keys"] and facts["oldest_seconds"] is None:
        yield "how old the lost writes are"
    if "max_amount" in limits:
        yield from map(str, document["amounts_unstated"])
        if not document["amounts"]:
            yield "no rule defines an amount (rules)"
        if any(one["without_amount"] for one in document["amounts"]):
            yield "rows without an amount or currency"


def _ask(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    words = ["tables", "loss", *([str(arguments["watch"])] if "watch" in arguments else []), "--limit", str(_SHOWN)]
    for name, option in (("rules", "--rules"), ("max_unread", "--max-unread"), ("store", "--store")):
        if name in arguments:
            words += [option, str(arguments[name])]
    for rule in arguments.get("rule", ()):
        words += ["--rule", rule]
    done = call(words, context)
    if done.code is None:
        return ActionResult(done.why, f"tables loss: {done.why.value}", None, done.facts)
    try:
        if _EXITS.get(done.document["verdict"]) != done.code:
            raise ValueError("exit code")
        value, text, facts = result_of(done.document, arguments)
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
        text = f"tables loss: exit code {done.code}, and no answer: {done.words}"
        return ActionResult(Outcome.NO_DATA, text, None, done.facts)
    outcome = Outcome.OK if value is not None else Outcome.NO_DATA
    return ActionResult(outcome, text, value, {**done.facts, **facts})


def numbers_of(answer: CheckOutcome) -> dict[str, Any]:
    """Return what the journal keeps of a guard's answer beside its text: the numbers, where it is of this gate.

    Of the other gates of a rollback, the place that it is proved up to.
    """
    if answer.action in PROOFS and answer.evidence.get("as_of"):
        return {"as_of": answer.evidence["as_of"]}
    names = ("keys", "oldest_seconds", "at_risk", "as_of")
    if answer.action != NAME or not set(names) <= answer.evidence.keys():
        return {}
    return {"loss": {name: answer.evidence[name] for name in names}}


def register(registry: Registry) -> None:
    """Add the gate to a registry."""
    registry.register(Action(
        NAME, ActionKind.CHECK, "What would be lost by going back to the source now, within limits: `acceptable`.",
        _ARGUMENTS, _ask, Bounds(equals=ACCEPTABLE),
    ))  # fmt: skip
