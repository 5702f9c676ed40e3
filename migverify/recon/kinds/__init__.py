"""What a rule says of the rows of one key: pure functions from pairings to findings, one class a kind.

A judge sees one pairing at a time and remembers nothing: what it says does not depend on the order of the pairings, on
batches, or on which engine joined them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from migverify.errors import ConfigError
from migverify.recon.kinds.groups import Balance, Coverage, Freshness, SameGroups, ZeroSum
from migverify.recon.kinds.order import NoRows, Sequence, Transitions
from migverify.recon.kinds.rows import Orphans, SameRows, Unique
from migverify.recon.kinds.scene import JudgeInputs
from migverify.recon.model import Class, Kind, Rule, RuleFinding
from migverify.recon.relation import Pairing, Relation


class PairJudge(Protocol):
    """What a kind is: a verdict on one pairing."""

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return what is wrong with a key; None where nothing is."""
        ...


class Sides(Protocol):
    """The relations that a rule reads, and the names of their time columns; ``migverify.recon.build.Built`` is one."""

    @property
    def source(self) -> Relation: ...  # noqa: D102
    @property
    def target(self) -> Relation | None: ...  # noqa: D102
    @property
    def times(self) -> tuple[str | None, str | None]: ...  # noqa: D102


_KINDS: Mapping[Kind, Callable[[JudgeInputs], PairJudge]] = {
    Kind.SAME_ROWS: SameRows, Kind.SAME_GROUPS: SameGroups, Kind.ZERO_SUM: ZeroSum, Kind.BALANCE: Balance,
    Kind.TRANSITIONS: Transitions, Kind.ORPHANS: Orphans, Kind.UNIQUE: Unique, Kind.SEQUENCE: Sequence,
    Kind.NO_ROWS: NoRows,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judge:
    """A kind with its rule: judges pairings, and tells what time their rows bear."""

    scene: JudgeInputs
    kind: PairJudge

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return what is wrong with a key; None where nothing is."""
        return self.kind.judge(pairing)

    def moment(self, pairing: Pairing) -> datetime | None:
        """Return the latest time of the rows of a key, UTC; None where it is not known."""
        return self.scene.moment(pairing)


def judge_of(rule: Rule, sides: Sides, now: float, *, show: bool, hashed_keys: bool = False) -> Judge:
    """Return the judge of a rule over its relations.

    Parameters
    ----------
    now
        Unix time of the judgment, for what must not be older than a limit.
    show
        Values may stand in messages; keys always do, but for ``hashed_keys``.

    Raises
    ------
    ConfigError
        the kind judges no pairings (``expectations`` is evaluated by ``migverify.recon.expectations``).
    """
    scene = JudgeInputs(rule, sides.source, sides.target, sides.times, show, hashed_keys)
    if rule.kind is Kind.FRESHNESS:
        moment = datetime(1970, 1, 1) + timedelta(seconds=now)
        return Judge(scene, Freshness(scene, moment, float(rule.options["limit"])))
    if rule.kind is Kind.COVERAGE:
        return Judge(scene, Orphans(scene, Class.VIOLATION) if sides.target is not None else Coverage(scene))
    make = _KINDS.get(rule.kind)
    if make is None:
        raise ConfigError(f"{rule.place}: rule {rule.name}: {rule.kind} is not a rule over rows")
    return Judge(scene, make(scene))
