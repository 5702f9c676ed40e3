"""A watch in the store: a new run, or one that goes on; and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from migverify.errors import MigverifyError, PlanError, StoreError, UsageError
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.store.results import ResultStore, named_run
from migverify.watch.status import WatchStatus

DRAIN = "drain"
"""Fact of a watch: it was begun to end when it is drained, so it is not the one that runs all the time."""


@dataclass(slots=True)
class WatchRun:
    """One watch in the store.

    Parameters
    ----------
    kind, fact
        The kind of its run, and the fact of a run that says that it is such a watch.
    digest, plan
        What is watched: a watch goes on only with the same.
    reverse
        The target is written, and the source follows: places of the two directions are not alike.
    is_own
        Whether a run is of the configuration that asks: others may share the store.
    """

    store: ResultStore
    kind: StoredKind
    fact: str
    digest: str
    plan: dict[str, Any]
    reverse: bool = False
    is_own: Callable[[RunInfo], bool] = lambda _: True
    run_id: str = ""
    began: float = field(default_factory=time.time)

    def resume(self, name: str) -> RunInfo:
        """Go on with a watch; ``last`` is the newest one of what is watched here, in reverse none that was to drain.

        Raises
        ------
        UsageError
            the run is no such watch.
        PlanError
            it watched something else.
        """

        def suits(run: RunInfo) -> bool:
            if not run.facts.get(self.fact) or bool(run.facts.get("reverse")) is not self.reverse:
                return False
            return not (self.reverse and run.facts.get(DRAIN))

        info = named_run(self.store, name, self.kind, self.digest, suits=suits, is_own=self.is_own)
        if not info.facts.get(self.fact):
            raise UsageError(
                f"run {info.run_id} is no watch {self.kind.words}", hint="`--resume last` takes the newest."
            )
        if bool(info.facts.get("reverse")) is not self.reverse:
            this, that = ("reverse", "forward") if self.reverse else ("forward", "reverse")
            raise UsageError(
                f"watch {info.run_id} is a {that} one and cannot go on as a {this} one",
                hint="Resume it without --reverse." if self.reverse else "Resume it with --reverse.",
            )
        if info.plan_hash != self.digest:
            raise PlanError(
                f"watch {info.run_id} was of other tables, rules or parameters",
                hint="Put the configuration back as it was, or start a new watch.",
            )
        if not self.is_own(info):
            raise PlanError(
                f"watch {info.run_id} was of other servers", hint="Put the configuration back, or start a new watch."
            )
        self.store.resume_run(info.run_id)
        self.run_id = info.run_id
        return info

    def start(self, command: str, facts: Mapping[str, Any]) -> None:
        """Begin a new watch; ``facts`` hold that which says so."""
        self.run_id = self.store.start_run(command, self.digest, self.plan, dict(facts), kind=self.kind)

    def end(self, status: WatchStatus, facts: Mapping[str, Any]) -> None:
        """Record the last status, and facts beside it."""
        self.store.finish_run(
            self.run_id, status.verdict, {"seconds": self.seconds, "reasons": list(status.reasons), **facts}
        )  # fmt: skip

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Record an interrupt or an error as INCONCLUSIVE and pass it on: a refused watch is not one that may run."""
        try:
            yield
        except KeyboardInterrupt:
            self._end_with("interrupted; go on with --resume")
            raise
        except MigverifyError as error:
            if not isinstance(error, StoreError):  # of the store itself, it takes no more
                self._end_with(f"ended by an error: {error.message}")
            raise

    def _end_with(self, reason: str) -> None:
        self.store.finish_run(self.run_id, Verdict.INCONCLUSIVE, {"reasons": [reason]})

    @property
    def seconds(self) -> float:
        """How long this process has watched."""
        return time.time() - self.began
