"""The run that a command means: its id, or ``last``, the newest of its kind, as one store holds runs of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from migverify.errors import UsageError
from migverify.model import RunInfo
from migverify.store.base import ResultStore

RUNS_SEARCHED = 1000


class StoredKind(StrEnum):
    """What a run was about, in the words of messages."""

    TABLES = "of tables"
    RULES = "of rules"
    GUARDS = "of guards"
    REPLAY = "of a replay"
    CLIENTS = "of clients"
    PROBE = "of a probe"
    UNKNOWN = "of an unknown kind"


_STARTED_BY = {StoredKind.TABLES: "tables verify", StoredKind.RULES: "recon run", StoredKind.REPLAY: "workload replay"}


def kind_of(info: RunInfo) -> StoredKind:
    """Return the kind of a run by its plan, which ``ResultStore.runs`` leaves out."""
    plan = info.plan
    if plan.get("kind") in ("replay", "clients"):
        return StoredKind.REPLAY if plan["kind"] == "replay" else StoredKind.CLIENTS
    # A run of rules lists them as pairs too.
    keys = {
        "guards": StoredKind.GUARDS,
        "probe": StoredKind.PROBE,
        "rules": StoredKind.RULES,
        "pairs": StoredKind.TABLES,
    }
    return next((kind for key, kind in keys.items() if key in plan), StoredKind.UNKNOWN)


def named_run(
    store: ResultStore, name: str, kind: StoredKind, digest: str | None = None, *,
    suits: Callable[[RunInfo], bool] = lambda _: True,
) -> RunInfo:  # fmt: skip
    """Return a run of a kind by its id. ``last`` is the newest of the kind that suits and has the digest.

    Parameters
    ----------
    digest
        The hash of what is compared; None for any. Where no run has it, ``last`` is the newest with another one, and
        who compares digests tells what changed.
    suits
        A further condition for ``last``, on what ``ResultStore.runs`` tells.

    Raises
    ------
    UsageError
        there is no such run, or it is of another kind.
    """
    if name != "last":
        info = store.load_run(name)
        if kind_of(info) is not kind:
            raise UsageError(
                f"run {info.run_id} is one {_kind_words(info)}; a run {kind} is needed",
                hint=f"`last` names the newest run {kind}; `migverify report {info.run_id}` shows this one.",
            )
        return info
    fitting = [info for info in store.runs(RUNS_SEARCHED) if suits(info)]
    if digest is not None:
        fitting.sort(key=lambda info: info.plan_hash != digest)  # stable: the newest stays first
    for brief in fitting:
        info = store.load_run(brief.run_id)
        if kind_of(info) is kind:
            return info
    raise UsageError(
        f"the store holds no such run {kind} among its newest {RUNS_SEARCHED:,}",
        hint=f"Start one by `migverify {_STARTED_BY[kind]}`, or name a run by its id.",
    )


def _kind_words(info: RunInfo) -> str:
    names = info.plan.get("guards")
    return f"{kind_of(info)}" + (f" ({', '.join(map(str, names))})" if isinstance(names, list) else "")
