"""Kinds that look at order: sequences without gaps, legal transitions of a state; and rows that must not be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from migverify.recon.kinds.risk import risk_of_rows
from migverify.recon.kinds.scene import JudgeInputs, word
from migverify.recon.model import Class, Deviation, RuleFinding
from migverify.recon.relation import Pairing


@dataclass(frozen=True, slots=True)
class NoRows:
    """Every row that the SQL returns is a violation."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of a row; its columns are told where values may be shown."""
        held = pairing.source
        if held is None:
            return None
        names = [column.name for column in self.scene.source.values[: self.scene.source.compared]]
        shown = [n for n in (self.scene.rule.options.get("show") or ()) if n in names] or names
        texts = [(name, self.scene.text(held, pairing.key, name)) for name in shown]
        deviations = tuple(Deviation(name, text, None, "value") for name, text in texts)
        words = "must not be there"
        if self.scene.show and texts:
            words += f" ({', '.join(f'{name} {word(text)}' for name, text in texts)})"
        if held.count > 1:
            words += f", {held.count:,} rows"
        money, reason = risk_of_rows(self.scene, pairing)
        return self.scene.finding(pairing, Class.VIOLATION, words, deviations, money=money, reason=reason)


def in_words(state: str | None, known: Collection[str], *, show: bool) -> str:
    """Return a state as a message may tell it: those that the rule itself names are no secret."""
    if state is None:
        return "nothing"
    return state if show or state in known else "(a state that the rule does not know)"


OP = "_op"
BEFORE = "_before."


@dataclass(frozen=True, slots=True)
class Transitions:
    """Every change of a state is one that the rule allows; a row begins in an initial state and stays in a final one.

    Each pairing is one change: the state after it, the one before it (NULL for a row that begins), and the operation
    where a change stream tells it.
    """

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of an illegal change; None for a legal one and for a change that leaves the state."""
        held = pairing.source
        if held is None:
            return None
        options = self.scene.rule.options
        column = str(options["column"])
        after = self.scene.text(held, pairing.key, column)
        before = self.scene.text(held, pairing.key, BEFORE + column)
        operation = self.scene.text(held, pairing.key, OP) or ("insert" if before is None else "update")
        wrong = self._wrong(operation, before, after)
        if not wrong:
            return None
        times = [self.scene.text(held, pairing.key, name) for name in ("_time", str(options.get("order")))]
        when = next((text for text in times if text), None)
        words = wrong + (f" (at {when})" if when and self.scene.show else "")
        money, reason = risk_of_rows(self.scene, pairing)
        deviation = Deviation(column, before, after, "transition")
        about = self.scene.key_words(pairing.key[: max(1, len(self.scene.rule.key))])
        return self.scene.finding(
            pairing, Class.VIOLATION, words, (deviation,), money=money, reason=reason, about=about
        )

    def _wrong(self, operation: str, before: str | None, after: str | None) -> str:
        options = self.scene.rule.options
        allowed = {str(state): {str(n) for n in following} for state, following in dict(options["allowed"]).items()}
        initial, final = _texts(options.get("initial")), _texts(options.get("final"))
        known = {*allowed, *initial, *final, *(n for following in allowed.values() for n in following)}
        now = in_words(after, known, show=self.scene.show)
        if operation == "insert":
            return f"begins as {now}" if initial and after not in initial else ""
        if operation == "delete" or before == after:
            return ""
        was = in_words(before, known, show=self.scene.show)
        if before in final:
            return f"{was} is final, and became {now}"
        if before is None or after is None or after not in allowed.get(before, set()):
            return f"{was} became {now}, which is not allowed"
        return ""


def _texts(value: object) -> list[str]:
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else [str(value)]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Numbers without a gap, that rise with a time. Each pairing is one gap, or one number whose time fell."""

    scene: JudgeInputs

    def judge(self, pairing: Pairing) -> RuleFinding | None:
        """Return the finding of a gap (missing numbers, inclusive) or of a time that fell."""
        held = pairing.source
        if held is None:
            return None
        options = self.scene.rule.options
        names = ("gap_from", "gap_to", "fell_from", "fell_to")
        texts = {name: self.scene.text(held, pairing.key, name) for name in names}
        if texts["fell_to"] is not None:
            words = f"{options.get('increasing', 'the time')} falls as {options['column']} rises"
            if self.scene.show:
                words += f": {word(texts['fell_from'])}, then {word(texts['fell_to'])}"
            deviation = Deviation(str(options.get("increasing", "")), texts["fell_from"], texts["fell_to"], "order")
            return self.scene.finding(pairing, Class.VIOLATION, words, (deviation,))
        # The last part of the key is the end of the gap, which the words tell.
        about = self.scene.key_words(pairing.key[:-1]) if len(pairing.key) > 1 else self.scene.names[0]
        if options.get("gaps", "report") != "report":
            return None
        first, last = texts["gap_from"], texts["gap_to"]
        words = f"{options['column']} {word(first)} is missing"
        if first != last:
            words = f"{options['column']} {word(first)} to {word(last)} are missing"
        return self.scene.finding(pairing, Class.VIOLATION, words, about=about)
