"""The shape of a rules file, as pydantic models; ``datasets`` and ``kinds`` have its two large parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from migverify.config.fields import NAME, Strict
from migverify.config.problems import FileProblem, problem_at
from migverify.config.yaml_text import Steps, YamlDocument, YamlPlace
from migverify.recon.datasets import DatasetPart, UnfitDatasetError
from migverify.recon.exceptions import KnownException
from migverify.recon.fields import Duration, RuleName, SeverityName, WindowPart
from migverify.recon.kinds import AnyRule
from migverify.recon.model import RulePlace, Severity
from migverify.recon.parameters import WINDOW_PARAMETERS, RuleParameter


class RuleDefaultsPart(Strict):
    """What rules of this file have where they say nothing."""

    owner: str = Field(default="", min_length=1, description="Who answers for findings.")
    severity: SeverityName = Field(default=Severity.CRITICAL, description="`critical`, `major` or `warning`.")
    settle: Duration | None = Field(default=None, description="Settle time.")
    window: WindowPart | None = Field(
        default=None, description="Windows. `unique`, `balance`, `sequence` and `freshness` look at all rows instead."
    )
    rereads: int = Field(default=2, ge=0, le=100, description="Re-reads of a difference.")
    delay: Duration = Field(default=1.0, description="Time between them.")


class RulesDocument(Strict):
    """Reconciliation rules."""

    version: Literal["recon/v1"] = Field(description="`recon/v1`.")
    defaults: RuleDefaultsPart = Field(
        default_factory=lambda: RuleDefaultsPart(), description="What rules have by default."
    )
    parameters: dict[
        str,
        Annotated[
            RuleParameter,
            BeforeValidator(
                lambda value: {"type": value} if isinstance(value, str) else value,
                json_schema_input_type=str | RuleParameter,
            ),
        ],
    ] = Field(default_factory=dict, description="Typed parameters, written `:name` in SQL; `name: type` is enough.")
    datasets: dict[RuleName, DatasetPart] = Field(default_factory=dict, description="Sets of rows, by name.")
    rules: list[AnyRule] = Field(default_factory=list, description="What has to hold.")
    exceptions: list[KnownException] = Field(default_factory=list, description="Findings that are known.")

    @model_validator(mode="after")
    def _names(self) -> RulesDocument:
        for name in self.parameters:
            if not NAME.fullmatch(name):
                raise ValueError("names of parameters hold letters, digits and _")
            if name in WINDOW_PARAMETERS:
                raise ValueError(f"`{name}` is given by the window; do not declare it")
        return self


@dataclass(frozen=True, slots=True)
class RulesFile:
    """One file: its document, and where each key is."""

    path: Path
    lines: tuple[str, ...]
    yaml: YamlDocument
    document: RulesDocument

    def place(self, steps: Steps) -> RulePlace:
        """Return file and line of a key."""
        found = self.yaml.place(steps)
        return RulePlace(str(self.path), found.line if found else 1)

    def problem(self, steps: Steps, text: str, hint: str = "") -> FileProblem:
        """Return a problem of a key, or of the nearest key above it that the file has."""
        return problem_at(self.path, self.yaml.place(steps), text, hint)

    def unfit(self, name: str, unfit: UnfitDatasetError) -> FileProblem:
        """Return the problem of a dataset; in a text of several lines it names the line."""
        steps: Steps = ("datasets", name, *unfit.steps)
        if unfit.line is None:
            return self.problem(steps, f"dataset {name}: {unfit}", unfit.hint)
        text = f"{'.'.join(map(str, steps))}: {unfit}"
        place = self.yaml.values.get(steps)
        if place is None or self.lines[place.line - 1][place.column - 1 : place.column] != "|":
            # A folded or quoted text has lines of its own: name where it begins.
            return problem_at(self.path, place or self.yaml.place(steps), text, unfit.hint)
        line = self.lines[place.line + unfit.line] if place.line + unfit.line < len(self.lines) else ""
        column = len(line) - len(line.lstrip()) + 1
        return problem_at(self.path, YamlPlace(place.line + 1 + unfit.line, column), text, unfit.hint)
