"""Hashes of a definition. What is written counts; wording, order of keys and place in the file do not."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

COSMETIC = ("title", "instruction")
"""Keys of a step that may be mended without voiding drills."""

_COUNTED = ("version", "id", "kind", "policy", "budgets", "guards", "rollback_when", "case")
_NEVER = frozenset({*COSMETIC, "id", "needs"})


def canonical_json(value: Any) -> str:
    """Return one text for equal data: keys sorted, no spaces, ``5.0`` as ``5``.

    A number that JSON has not (NaN, infinity) becomes an object that no YAML value can be: it is hashed, so that
    ``lint`` is the one who refuses it.

    Raises
    ------
    TypeError
        the value holds something that YAML has not.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha_of(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def step_sha(part: Mapping[str, Any], phase: str, needs: Iterable[str]) -> str:
    """Return the hash of a step as it is written, without its cosmetic keys.

    ``phase`` and ``needs`` are the effective ones: a step put in before this one changes what it waits for. The
    instruction of a rollback counts where it is all there is: without ``do`` it is the effect.
    """
    kept = {key: value for key, value in part.items() if key not in _NEVER}
    rollback = kept.get("rollback")
    if isinstance(rollback, Mapping) and rollback.get("do") is not None:
        kept["rollback"] = {key: value for key, value in rollback.items() if key != "instruction"}
    return sha_of({"id": part.get("id"), "phase": phase, "needs": sorted(needs), "step": kept})


def runbook_sha(data: Mapping[str, Any], steps: Iterable[tuple[str, str]]) -> str:
    """Return the hash of a whole definition: ids and hashes of its steps in their order, policy, budgets, guards.

    People, roles, sinks, window and environments are not in it: the cast of a drill is not that of the night.
    """
    return sha_of({key: data[key] for key in _COUNTED if key in data} | {"steps": [list(one) for one in steps]})


def text_sha(data: bytes) -> str:
    """SHA-256 of the file as it is, in hex."""
    return hashlib.sha256(data).hexdigest()


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"": repr(value)}
        return int(value) if value.is_integer() else value
    raise TypeError(f"{kind.__name__} is no value of a YAML file")
