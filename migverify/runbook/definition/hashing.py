"""Hashes of a definition. What is written counts; wording, order of keys and place in the file do not."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from migverify.runbook.model import Step

COSMETIC = ("title", "instruction")
"""Keys of a step that may change without voiding drills; an instruction only where it is not what is carried out."""

_BY_HAND = ("manual", "decision")
_SUFFIXES = (".sh", ".bash", ".py", ".pl", ".rb", ".js", ".sql")
_LARGEST = 16 << 20
_QUOTED = re.compile(r"""["'\\]""")
_WORD = re.compile(r"[^ \t\r\n]+")

_COUNTED = ("version", "id", "kind", "policy", "budgets", "guards", "rollback_when", "case")
_NEVER = frozenset({*COSMETIC, "id", "needs"})


def canonical_json(value: Any) -> str:
    """Return one text for equal data: keys sorted, no spaces, ``5.0`` as ``5``.

    A number that JSON has not (NaN, infinity) becomes an object that no YAML value can be: it is hashed, so that
    ``lint`` is the one who refuses it.

    Raises TypeError: the value holds something that YAML has not.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha_of(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def step_sha(part: Mapping[str, Any], phase: str, needs: Iterable[str], scripts: Iterable[str] = ()) -> str:
    """Return the hash of a step as it is written, without its cosmetic keys.

    ``phase`` and ``needs`` are the effective ones: a step put in before this one changes what it waits for. The
    instruction of a step by hand, or of its rollback, counts where it is all there is: without ``do`` it is the effect.
    The contents of ``scripts`` count, wherever they lie.
    """
    kept = {key: value for key, value in part.items() if key not in _NEVER}
    rollback = kept.get("rollback")
    if isinstance(rollback, Mapping) and rollback.get("do") is not None:
        kept["rollback"] = {key: value for key, value in rollback.items() if key != "instruction"}
    if part.get("kind") in _BY_HAND and part.get("do") is None:
        kept["instruction"] = part.get("instruction", "")
    read = {"scripts": list(scripts)} if scripts else {}
    return sha_of({"id": part.get("id"), "phase": phase, "needs": sorted(needs), "step": kept} | read)


def script_shas(part: Any) -> tuple[str, ...]:
    """Return the hashes of the scripts that the commands of a part of a runbook name, sorted, each once.

    A script is a file, named by a word of ``run`` or ``argv`` as the command would find it, that begins with ``#!`` or
    has the suffix of one. A program that the PATH finds is installed software, and not read.
    """
    return tuple(sorted(set(_scripts(part))))


def changed_scripts(step: Step) -> str:
    """Return why a step is not what the run began with: a script that it names changed since; empty: it is."""
    checks = [*step.expect, *((step.reconcile,) if step.reconcile is not None else ())]
    effects = [step.effect]
    if step.rollback is not None:
        checks += step.rollback.verify
        effects.append(step.rollback.effect)
    now = script_shas([one.arguments for one in (*effects, *checks) if one is not None])
    if not step.scripts or now == step.scripts:
        return ""
    return "a script of it changed since the run began: what would be done is not what was drilled"


def _scripts(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        words, run = part.get("argv"), part.get("run")
        if isinstance(run, str):
            with suppress(ValueError):  # a quote that does not end: the shape of the file says so
                words = shlex.split(run) if _QUOTED.search(run) else _WORD.findall(run)  # ten times as fast
        if isinstance(words, list | tuple):
            folder = str(part.get("cwd") or ".")
            for word in words:
                # Most words are no file, and a Path of each costs more than the rest of a runbook's hashes.
                path = os.path.join(folder, str(word))  # noqa: PTH118
                if os.path.isfile(path) and (sha := _script_sha(Path(path))):  # noqa: PTH113
                    yield sha
        for one in part.values():
            yield from _scripts(one)
    elif isinstance(part, list | tuple):
        for one in part:
            yield from _scripts(one)


def _script_sha(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            return ""
        content = path.read_bytes()
    except (OSError, ValueError):  # not there, not readable: what cannot be read was not what was drilled
        return ""
    return hashlib.sha256(content).hexdigest() if content[:2] == b"#!" or path.suffix in _SUFFIXES else ""


def runbook_sha(data: Mapping[str, Any], steps: Iterable[tuple[str, str]], scripts: Iterable[str] = ()) -> str:
    """Return the hash of a whole definition: ids and hashes of its steps in their order, policy, budgets, guards.

    ``scripts`` are those of guards and rules. People, roles, sinks, window and environments are not in it: the cast of
    a drill is not that of the night. Where approvals are signed, the keys are in it: who may sign is part of the rules.
    """
    read: dict[str, Any] = {"scripts": list(scripts)} if scripts else {}
    read |= {"keys": _keys(data)} if _is_signed(data) else {}
    return sha_of({key: data[key] for key in _COUNTED if key in data} | {"steps": [list(one) for one in steps]} | read)


def _is_signed(data: Mapping[str, Any]) -> bool:
    policy = data.get("policy")
    return isinstance(policy, Mapping) and policy.get("signed_approvals") is True


def _keys(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the key of each person who has one, without its comment."""
    people = data.get("people")
    some = people.items() if isinstance(people, Mapping) else ()
    return {str(name): " ".join(str(one["ssh_key"]).split()[:2]) for name, one in some
            if isinstance(one, Mapping) and one.get("ssh_key")}  # fmt: skip


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
