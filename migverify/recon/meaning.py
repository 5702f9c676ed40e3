"""The digest of a set of rules: equal where equal data gives an equal outcome."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from migverify.recon.model import RuleSet

_WORDS_ONLY = frozenset({"place", "owner", "description", "reason", "path", "digest"})
_LATER = frozenset({"by_shard"})
"""Options that came later: where they say nothing, rules keep the digest that earlier runs have in the store."""


def digest_of(rules: RuleSet) -> RuleSet:
    """Return the rules with their digest: sha256 as hex over all that decides an outcome.

    Owners, descriptions, reasons, the names of files and the places in them decide nothing and are left out. The path
    of a Parquet or change part is in: it is what is read.
    """
    view = {
        "rules": [_meaning(rule) for rule in rules.rules],
        "datasets": {name: _meaning(dataset) for name, dataset in rules.datasets.items()},
        "parameters": {name: _meaning(parameter) for name, parameter in rules.parameters.items()},
        "exceptions": [_meaning(entry) for entry in rules.exceptions],
    }
    text = json.dumps(view, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return replace(rules, digest=hashlib.sha256(text.encode()).hexdigest())


def _meaning(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        names = [f.name for f in fields(value) if f.name not in _WORDS_ONLY or (f.name == "path" and "Part" in kind)]
        names = [name for name in names if name not in _LATER or getattr(value, name)]
        return {"": kind} | {name: _meaning(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return [[str(key), _meaning(one)] for key, one in value.items()]
    if isinstance(value, tuple | list):
        return [_meaning(one) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)  # Decimal, date, float: their texts tell them apart
