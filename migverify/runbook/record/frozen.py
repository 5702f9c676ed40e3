"""A runbook as JSON and back: what a run is started with is written into its own journal.

So a journal says by itself what was to be done, another machine takes a run over without the file, and a file that
is edited while the run goes on changes nothing. Fields that have their default are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from migverify.errors import JournalError
from migverify.runbook.model import Runbook

__all__ = ["runbook_as_json", "runbook_from_json"]


def runbook_as_json(runbook: Runbook) -> dict[str, Any]:
    """Return the whole definition as JSON; secrets are names in it, as in the file."""
    return runbook.model_dump(mode="json", by_alias=False, exclude_defaults=True)


def runbook_from_json(body: Any) -> Runbook:
    """Return the definition of ``runbook_as_json``; raises JournalError when a field is missing, unknown, or wrong."""
    try:
        if isinstance(body, Mapping) and "version" not in body:
            body = _of_earlier_release(body)
        return Runbook.model_validate(body, strict=False, by_alias=False, by_name=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise JournalError(f"the runbook in the journal cannot be read: {where}: {first['msg']}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise JournalError(f"the runbook in the journal cannot be read: {error!r}") from None


# -- journals of earlier releases, whose definitions were flat ---------------------------------------------------------

_READINESS = {
    "drills_minimum": "drills_min", "clean_last": "clean_last", "same_runbook": "same_runbook",
    "same_schema": "same_schema", "full_cast_last": "full_cast_last", "fresh_eyes_one": "fresh_eyes_one",
    "rollback_drills": "rollback_drills_min", "rollback_runbooks": "rollback_runbooks",
}  # fmt: skip
_DAY = 86_400.0


def _of_earlier_release(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition of an earlier release in the form of this one; what is unknown stays, and is refused."""
    new = dict(body) | {"version": "runbook/v1"}
    production = new.pop("production", ())
    environments = new.pop("environments", ())
    # Definitions that knew no environments were never asked for one.
    new["environments"] = {name: {"production": name in production} for name in environments or [body["environment"]]}
    for key in ("people", "roles", "sinks"):
        if key in new:
            new[key] = {one["name"]: {name: value for name, value in one.items() if name != "name"} for one in new[key]}
    new["values"] = new.pop("parameters", {})
    if "policy" in new:
        new["policy"] = _policy(new["policy"])
    if "guards" in new:
        new["guards"] = [_unplaced({**one, **one["check"]}, "check") for one in new["guards"]]
    if "rollback_when" in new:
        new["rollback_when"] = [_unplaced(one) for one in new["rollback_when"]]
    steps = [_step(one) for one in new.pop("steps")]
    phases = dict.fromkeys((*new.pop("phases", ()), *(step["phase"] for step in steps)))
    new["phases"] = [{"id": id_, "steps": [step for step in steps if step["phase"] == id_]} for id_ in phases]
    return new


def _policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    ready = {new: policy[old] for old, new in _READINESS.items() if old in policy}
    cases = {"required": policy["dr_cases"]} if "dr_cases" in policy else {}
    cases |= {"max_age": policy["dr_max_age_days"] * _DAY} if "dr_max_age_days" in policy else {}
    gone = (*_READINESS, "dr_cases", "dr_max_age_days")
    kept = {key: value for key, value in policy.items() if key not in gone}
    return kept | {"readiness": ready | ({"dr_cases": cases} if cases else {})}


def _step(old: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(old)
    new["only"] = {"runs": new.pop("only_runs", ()), "environments": new.pop("only_environments", ())}
    times, backoff, goto = new.pop("retries", 0), new.pop("backoff", 0.0), new.pop("goto", None)
    if "on_fail" in new:
        bounded = {"goto": {"goto": goto, "at_most": times}, "retry": {"retry": times}}
        what = bounded.get(new["on_fail"], {"unbounded": new["on_fail"]})
        new["on_fail"] = what | {"backoff": backoff}
    for key in ("effect", "reconcile"):
        if new.get(key) is not None:
            new[key] = _unplaced(new[key])
    new["expect"] = [_unplaced(one) for one in new.get("expect", ())]
    if new.get("rollback") is not None:
        rollback = dict(new["rollback"])
        if rollback.get("effect") is not None:
            rollback["effect"] = _unplaced(rollback["effect"])
        new["rollback"] = rollback | {"verify": [_unplaced(one) for one in rollback.get("verify", ())]}
    return new


def _unplaced(part: Mapping[str, Any], *also: str) -> dict[str, Any]:
    """Return a check or an effect without its place, which is not recorded any more."""
    return {key: value for key, value in part.items() if key not in ("place", *also)}
