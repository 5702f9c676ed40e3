"""Kinds that look at rows: same rows by key, unique keys, parents and children."""

from __future__ import annotations

from dataclasses import dataclass, replace

from migverify.recon.kinds.risk import risk_of_extra, risk_of_rows
from migverify.recon.kinds.scene import JudgeInputs, rows
from migverify.recon.model import Class, RuleFinding
from migverify.recon.relation import Pairing


@dataclass(frozen=True, slots=True)
class SameRows:
    """Every key once on both sides, with equal compared columns."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return what is wrong with the rows of one key; None where they agree within the tolerances."""
        source, target = pairing.source, pairing.target
        if source is None or target is None:
            return missing(self.scene, pairing)
        if self._reports_duplicates and max(source.count, target.count) > 1:
            return self._duplicate(pairing)
        deviations = self.scene.deviations(pairing, self.compared)
        words = self.scene.tell(deviations)
        if not deviations and (source.unlike or target.unlike):
            words = f"rows of this key hold unlike values on {self.scene.names[not source.unlike]}"
        if not words:
            return None
        money, reason = risk_of_rows(self.scene, pairing)
        return self.scene.finding(pairing, Class.VALUE_MISMATCH, words, deviations, money=money, reason=reason)

    @property
    def compared(self) -> tuple[str, ...]:
        """The compared columns: those of the rule, or all but the ones that are only read along."""
        if self.scene.rule.compare:
            return self.scene.rule.compare
        return tuple(column.name for column in self.scene.source.values[: self.scene.source.compared])

    @property
    def _reports_duplicates(self) -> bool:
        return bool(self.scene.rule.options.get("duplicates", "report") == "report")

    def _duplicate(self, pairing: Pairing) -> RuleFinding:
        counts = [held.count if held is not None else 0 for held in (pairing.source, pairing.target)]
        source, target = self.scene.names
        words = f"{rows(counts[0])} on {source}, {counts[1]:,} on {target}"
        deviations = self.scene.deviations(pairing, self.compared)
        if deviations:
            words += f"; {self.scene.tell(deviations)}"
        money, reason = risk_of_extra(self.scene, pairing)
        return self.scene.finding(pairing, Class.DUPLICATE, words, deviations, money=money, reason=reason)


def missing(scene: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
    """Return the finding of a key that one side lacks; None where both lack it by now."""
    held = pairing.source or pairing.target
    if held is None:
        return None
    on_source = pairing.source is None
    source, target = scene.names
    have, lack = (target, source) if on_source else (source, target)
    words = f"on {have}, missing on {lack}" if held.count == 1 else f"{rows(held.count)} on {have}, none on {lack}"
    money, reason = risk_of_rows(scene, pairing)
    of = Class.MISSING_ON_SOURCE if on_source else Class.MISSING_ON_TARGET
    return scene.finding(pairing, of, words, money=money, reason=reason)


@dataclass(frozen=True, slots=True)
class Unique:
    """A key stands once, over all shards."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of a repeated key. A key that holds NULL repeats only with ``ignore_null: false``."""
        held = pairing.source
        if held is None or held.count < 2:
            return None
        if any(part is None for part in pairing.key) and self.scene.rule.options.get("ignore_null", True):
            return None
        words = f"{rows(held.count)} on {self.scene.names[0]}"
        shards = [shard for shard in held.shards if shard]
        if len(shards) > 1:
            words += f" (shards {', '.join(shards)})"
        money, reason = risk_of_extra(self.scene, pairing)
        return self.scene.finding(pairing, Class.DUPLICATE, words, money=money, reason=reason)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Every child has its parent; with ``both`` every parent has a child. Source are parents, target children.

    ``of`` is the class of a child without a parent.
    """

    scene: JudgeInputs
    of: Class = Class.MISSING_ON_SOURCE

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of a reference without parent, or of a parent without child where that is asked."""
        parents, children = self.scene.names
        if pairing.target is None:
            if pairing.source is None or not self.scene.rule.options.get("both", False):
                return None
            words = f"on {parents}, without {children}"
            return self._finding(pairing, Class.MISSING_ON_TARGET, words)
        if any(part is None for part in pairing.key):
            return self._null(pairing, pairing.target.count)
        if pairing.source is not None:
            return None
        words = f"{rows(pairing.target.count)} of {children} without {parents}"
        return self._finding(pairing, self.of, words)

    def _null(self, pairing: Pairing, count: int) -> RuleFinding | None:
        # A reference that is NULL in part refers to nothing, as in a foreign key of the database (MATCH SIMPLE).
        if self.scene.rule.options.get("optional", False):
            return None
        words = f"{rows(count)} of {self.scene.names[1]} whose reference is NULL"
        return self._finding(pairing, Class.VIOLATION, words)

    def _finding(self, pairing: Pairing, of: Class, words: str) -> RuleFinding:
        # Only one side tells what is at risk: the children without a parent, or the parent without children.
        alone = replace(pairing, source=None) if pairing.target is not None else pairing
        money, reason = risk_of_rows(self.scene, alone)
        return self.scene.finding(pairing, of, words, money=money, reason=reason)
