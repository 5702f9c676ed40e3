"""What is wrong with a runbook: one finding for each thing, with its rule, its place and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from migverify.config.yaml_text import Steps, YamlDocument
from migverify.runbook.definition.lint_rules import RULES_BY_ID
from migverify.runbook.model import Place


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One thing that is wrong; ``rule`` is an id of ``lint_rules.RULES``."""

    rule: str
    place: Place
    text: str
    hint: str

    @property
    def refused(self) -> bool:
        """Whether a runbook with it does not run; otherwise it is a warning."""
        return RULES_BY_ID[self.rule].refused


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a runbook stand in its file; ``steps`` and ``guards`` in the order of the runbook."""

    file: str
    document: YamlDocument = field(default_factory=YamlDocument)
    steps: tuple[Steps, ...] = ()

    def at(self, *way: str | int) -> Place:
        """Return the place of a key, or of the nearest one above it that the file has."""
        found = self.document.place(way)
        return Place(self.file, found.line if found else 1)

    def in_step(self, number: int, *way: str | int) -> Place:
        """Return the place of a key of a step, by its number in the runbook."""
        return self.at(*(self.steps[number] if number < len(self.steps) else ()), *way)


def finding(rule: str, place: Place, text: str, hint: str = "") -> LintFinding:
    """Return a finding; without a hint it has that of its rule.

    Raises
    ------
    KeyError
        there is no such rule.
    """
    return LintFinding(rule, place, text, hint or RULES_BY_ID[rule].todo)


def counts(findings: tuple[LintFinding, ...]) -> Mapping[str, int]:
    """Return how many refusals and warnings there are."""
    refused = sum(one.refused for one in findings)
    return {"refused": refused, "warnings": len(findings) - refused}
