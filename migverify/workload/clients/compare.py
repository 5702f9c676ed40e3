"""What differs between what a client saw on both sides, and what that means for a cell.

Facts are compared leaf by leaf. A refusal on one side only is one difference, shown whole. Messages (``told``)
and times are shown, never compared: each engine words its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from migverify.model import Verdict
from migverify.workload.clients.model import CellResult, ClientCell, ClientDifference, Facts, Observed

TOLD = "told"
_ASKING = frozenset({"sql", "prepared", "run", "texts", "stream", "columns", "getters", "updatable"})
NOT_THERE = "NotThere"  # both harnesses: a step lacks what an earlier step could not make
_BY_PATH = {"warnings": ("show-warnings-001",)}  # what explains a difference wherever it is
_SHOWN = 300


def differences(cell: ClientCell, source: Observed, target: Observed) -> list[ClientDifference]:
    """Return what a client saw otherwise, by step."""
    found: list[ClientDifference] = []
    for number, (step, one, other) in enumerate(zip(cell.scenario.steps, source.steps, target.steps, strict=False), 1):
        known = _texts(step["explains"]) if "explains" in step else cell.scenario.explains
        ignored = set(_texts(step.get("ignore")))
        action = str(step.get("name") or step["do"])
        if found and (_not_there(one) or _not_there(other)):
            continue  # a consequence of an earlier difference
        for path, there, here in _differing(one, other, unordered=bool(step.get("unordered"))):
            if ignored.isdisjoint(path.split(".")):
                by_path = next((ids for part, ids in _BY_PATH.items() if part in path.split(".")), None)
                found.append(ClientDifference(number, action, path, there, here, by_path or known))
    return found


def _not_there(facts: Facts) -> bool:
    error = facts.get("error")
    return isinstance(error, Mapping) and str(error.get("class", "")).endswith(NOT_THERE)


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (str(value),) if isinstance(value, str | int) else tuple(str(one) for one in value)


def _differing(source: Facts, target: Facts, *, unordered: bool) -> Iterator[tuple[str, str, str]]:
    if unordered:
        source, target = _sorted_rows(source), _sorted_rows(target)
    yield from _leaves("", source, target)


def _sorted_rows(facts: Facts) -> Facts:
    """Rows in an order of their own, for a query whose order no server promises."""
    copy: dict[str, Any] = json.loads(json.dumps(facts))
    for result in copy.get("results", []):
        if "multiset" in result:  # which rows came first is of no meaning: their sum is compared
            del result["rows"], result["sequence"]
        elif "rows" in result:
            result["rows"].sort(key=json.dumps)
    return copy


def _leaves(path: str, source: Any, target: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(source, Mapping) and isinstance(target, Mapping):
        if ("error" in source) != ("error" in target):
            yield _joined(path, "outcome"), shown(source), shown(target)
            return
        if "error" in source:
            if _plain(source["error"]) != _plain(target["error"]):
                yield _joined(path, "error"), shown(source), shown(target)
            yield from _members(path, _without(source), _without(target))
            return
        yield from _members(path, source, target)
    elif isinstance(source, list) and isinstance(target, list) and len(source) == len(target):
        for number, (one, other) in enumerate(zip(source, target, strict=True)):
            yield from _leaves(_joined(path, _label(number, one)), one, other)
    elif _plain(source) != _plain(target):
        yield path or "value", shown(source), shown(target)


def _members(path: str, source: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if set(source) == {"class", "value"} or set(target) == {
        "class",
        "value",
    }:  # a value and its Java class are one thing
        if _plain(source) != _plain(target):
            yield path or "value", shown(source), shown(target)
        return
    for key in dict.fromkeys([*source, *target]):
        if key == TOLD:
            continue
        if key not in source or key not in target:
            yield _joined(path, key), shown(source.get(key, "absent")), shown(target.get(key, "absent"))
            continue
        yield from _leaves(_joined(path, key), source[key], target[key])


def _without(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key != "error"}


def _label(number: int, item: Any) -> str:
    return str(item["label"]) if isinstance(item, Mapping) and "label" in item else str(number)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _plain(value: Any) -> Any:
    """Remove what is shown and not compared."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items() if key != TOLD}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def shown(value: Any) -> str:
    """Return facts as a short text for people."""
    text = _shown(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 6] + " (cut)"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        if "error" in value:
            return _exception(value["error"])
        if "class" in value and set(value) <= {"class", "value"}:
            return "NULL" if value["class"] is None else f"{value.get('value')} ({value['class']})"
        if not _plain(value):
            return "done"
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items() if one != [] and key != TOLD) or "done"
    if isinstance(value, list):
        return "[" + "; ".join(_shown(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool) or value is None else str(value)


def _exception(error: Any) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    code = f" {error['code']}" if error.get("code") is not None else ""
    state = f"/{error['sqlstate']}" if error.get("sqlstate") else ""
    message = f": {error[TOLD]}" if error.get(TOLD) else ""
    return f"{error.get('class')}{code}{state}{message}"


def judge(cell: ClientCell, source: Observed, target: Observed, again: tuple[Observed, Observed] | None) -> CellResult:
    """Return the verdict of a cell.

    Parameters
    ----------
    again
        What a second run of both sides showed; only a difference that both runs show counts. None where the first run
        showed none.
    """
    reason = _incomplete(cell, source, target)
    first = differences(cell, source, target)
    held, unsteady = first, 0
    if not reason and again is not None:
        reason = _incomplete(cell, *again)
        repeated = {_same(one) for one in differences(cell, *again)}
        held = [one for one in first if _same(one) in repeated]
        unsteady = len(first) - len(held)
    if reason:
        verdict, held = Verdict.INCONCLUSIVE, []
    elif held:
        known = sum(1 for one in held if one.known)
        verdict, reason = Verdict.MISMATCH, f"{len(held)} differences, {known} known"
    elif unsteady:
        verdict, reason = Verdict.INCONCLUSIVE, f"{unsteady} differences were not there in a second run"
    else:
        verdict = Verdict.MATCH
    return CellResult(
        cell.driver.name, cell.pool.name, cell.scenario.name, cell.variant.name, verdict, reason, tuple(held), unsteady,
        sum(1 for one, other in zip(source.steps, target.steps, strict=False) if "error" in one and "error" in other),
        source=source, target=target,
    )  # fmt: skip


def _same(one: ClientDifference) -> tuple[int, str]:
    # Ids and positions inside a message change from run to run: the place of a difference says which one it is.
    return one.step, one.path


def _incomplete(cell: ClientCell, source: Observed, target: Observed) -> str:
    for side, seen in (("source", source), ("target", target)):
        if seen.failure:
            return f"{side}: {seen.failure}"
        if len(seen.steps) != len(cell.scenario.steps):
            return f"{side}: only {len(seen.steps)} of {len(cell.scenario.steps)} steps were run"
    for number, (step, seen_source, seen_target) in enumerate(
        zip(cell.scenario.steps, source.steps, target.steps, strict=True), start=1
    ):
        if _is_needed(step) and "error" in seen_source:
            return f"source: step {number} ({step['do']}) is needed and failed: {shown(seen_source)}"
        if step["do"] == "open" and "error" in seen_source and "error" in seen_target and not step.get("same"):
            return f"no connection on either side: {shown(seen_source)}"
    asked = [
        (one, other)
        for step, one, other in zip(cell.scenario.steps, source.steps, target.steps, strict=True)
        if step["do"] in _ASKING
    ]
    if asked and all("error" in one and "error" in other for one, other in asked):
        return f"every statement failed on both sides, so nothing was shown: {shown(asked[0][0])}"
    return ""


def _is_needed(step: Mapping[str, Any]) -> bool:
    """Without these a scenario shows nothing, however alike both sides are."""
    return bool(step.get("needs")) or step["do"] == "file" or (step["do"] == "set" and step["what"] == "autocommit")
