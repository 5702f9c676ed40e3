"""What a probe's step answered, and what it was expected to answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from migverify.config.fields import Many, Strict
from migverify.model import Flavor
from migverify.workload.catalogue.versions import Version, version_of

Item = TypeVar("Item")

Cells = tuple[str | None, ...]

CONTAINS = "~"
"""A cell that begins so must hold what follows."""

_SERVER = r"(mysql|mariadb|tidb)(?:\s*(<|>=)\s*(\d+(?:\.\d+){0,2}))?"


def _compiled(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return re.compile(value, re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


class _OneOrMany:
    """Makes a list of a single value; the JSON schema allows both forms."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._listed, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        listed = handler(schema)
        return {"anyOf": [listed.get("items", {}), listed]}

    @staticmethod
    def _listed(value: object) -> object:
        return [value] if isinstance(value, str | int) and not isinstance(value, bool) else value


def _row(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


def _outcomes(value: object) -> object:
    parts = value if isinstance(value, list) else [value]
    return [{} if part is None or part == "ok" else part for part in parts]


Regex = Annotated[re.Pattern[str], BeforeValidator(_compiled, json_schema_input_type=str)]
"""A regular expression; case does not matter."""
Several = Annotated[tuple[Item, ...], Field(strict=False), _OneOrMany()]
"""A list, or one alone."""
Code = Annotated[int, Field(ge=0, le=65535)]


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """What one step answered.

    ``failed`` says why there is no answer (time limit, connection lost); then nothing else holds. ``rows`` are texts,
    None is NULL; bytes that are no UTF-8 are written as escapes. ``columns`` describe the result's columns. ``waited``:
    the step had not ended when its limit for waiting was over; the rest tells how it ended afterwards.
    ``expected`` is the catalogue's expectation where the server was not asked.
    """

    sql: str
    failed: str = ""
    errno: int = 0
    sqlstate: str = ""
    message: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[Cells, ...] = ()
    affected: int = 0
    insert_id: int = 0
    warnings: tuple[int, ...] = ()
    info: str = ""
    waited: bool = False
    expected: str = ""

    def text(self) -> str:
        """Return the answer in a line: the errno and its message, or what came back."""
        if self.expected:
            return self.expected
        if self.failed:
            return self.failed
        waited = "waited; " if self.waited else ""
        if self.errno:
            return f"{waited}error {self.errno} ({self.sqlstate}): {self.message}"
        parts = []
        if self.columns:
            shown = "; ".join(", ".join("NULL" if cell is None else cell for cell in row) for row in self.rows[:5])
            more = f"; ... {len(self.rows)} rows" if len(self.rows) > 5 else ""
            parts.append(f"rows [{shown}{more}]" if self.rows else "no rows")
        else:
            parts.append(f"ok, {self.affected} affected")
            if self.insert_id:
                parts.append(f"insert id {self.insert_id}")
        if self.warnings:
            parts.append(f"warnings {', '.join(map(str, self.warnings))}")
        return waited + ", ".join(parts)


class Expected(Strict):
    """What one step should answer; only what is named is compared, and what is not named must not be an error."""

    errno: Annotated[Several[Code], Field(min_length=1)] = Field(
        default=(0,), description="The error's number, or one of several; 0 is success."
    )
    message: Regex | None = Field(default=None, description="Found in the error's words.")
    rows: (
        Many[Annotated[Many[str | None], BeforeValidator(_row, json_schema_input_type=list[str | None] | str | None)]]
        | None
    ) = Field(default=None, description="The rows; a cell of ~text holds the text.")
    row_count: int | None = Field(default=None, ge=0, description="How many rows.")
    affected: int | None = Field(default=None, ge=0, description="How many rows were affected.")
    insert_id: int | None = Field(default=None, ge=0, description="The generated id.")
    warnings: Several[Code] | None = Field(default=None, description="The codes of the warnings, in their order.")
    columns: Several[str] | None = Field(default=None, description="Texts in the descriptions of the columns.")
    info: Regex | None = Field(default=None, description="Found in the info text.")
    waits: bool = Field(default=False, description="The step had not ended when its limit for waiting was over.")

    def named(self) -> list[str]:
        """Return what is compared, besides the error's number."""
        fields = ("message", "rows", "row_count", "affected", "insert_id", "warnings", "columns", "info")
        return [name for name in fields if getattr(self, name) is not None]

    def differences(self, got: ProbeOutcome) -> list[str]:
        """Return in what an answer differs from what was expected; empty when it is as expected."""
        if got.failed:
            return [got.failed]
        found: list[str] = []
        if got.errno not in self.errno:
            wanted = " or ".join("success" if code == 0 else f"error {code}" for code in self.errno)
            return [f"{wanted} expected, {got.text()} came"]
        compared: tuple[tuple[str, object, object], ...] = (
            ("row count", self.row_count, len(got.rows)),
            ("affected rows", self.affected, got.affected), ("insert id", self.insert_id, got.insert_id),
            ("warnings", self.warnings, got.warnings), ("waiting", self.waits, got.waited),
        )  # fmt: skip
        if self.rows is not None and not _same_rows(self.rows, got.rows):
            found.append(f"rows: {_shown(self.rows)} expected, {_shown(got.rows)} came")
        for name, wanted_value, value in compared:
            if wanted_value is not None and wanted_value != value:
                found.append(f"{name}: {wanted_value} expected, {value} came")
        for name, pattern, value in (("message", self.message, got.message), ("info", self.info, got.info)):
            if pattern is not None and not pattern.search(value):
                found.append(f"{name}: {pattern.pattern!r} is not in {value!r}")
        if self.columns is not None:
            same = len(self.columns) == len(got.columns)
            for wanted_column, column in zip(self.columns, got.columns, strict=False):
                same = same and wanted_column in column
            if not same:
                found.append(f"columns: {', '.join(self.columns)} expected, {', '.join(got.columns)} came")
        return found

    def text(self) -> str:
        """Return the expectation in a line."""
        waits = "waits; " if self.waits else ""
        if self.errno != (0,):
            codes = " or ".join("success" if code == 0 else f"error {code}" for code in self.errno)
            return f"{waits}{codes}{f' ({self.message.pattern})' if self.message else ''}"
        parts = []
        if self.rows is not None:
            parts.append(f"rows [{_shown(self.rows)}]" if self.rows else "no rows")
        for name, value in (
            ("rows", self.row_count), ("affected", self.affected), ("insert id", self.insert_id),
        ):  # fmt: skip
            if value is not None:
                parts.append(f"{value} {name}" if name != "insert id" else f"insert id {value}")
        if self.columns is not None:
            parts.append("columns " + "; ".join(self.columns))
        if self.warnings is not None:
            parts.append(f"warnings {', '.join(map(str, self.warnings))}" if self.warnings else "no warning")
        return waits + (", ".join(parts) or "ok")


def _same_rows(expected: tuple[Cells, ...], got: tuple[Cells, ...]) -> bool:
    if len(expected) != len(got):
        return False
    for row, other in zip(expected, got, strict=True):
        if len(row) != len(other) or not all(_same_cell(one, cell) for one, cell in zip(row, other, strict=True)):
            return False
    return True


def _same_cell(expected: str | None, got: str | None) -> bool:
    if expected is not None and expected.startswith(CONTAINS):
        return got is not None and expected[len(CONTAINS) :] in got
    return expected == got


def _shown(rows: tuple[Cells, ...]) -> str:
    return "; ".join(", ".join("NULL" if cell is None else cell for cell in row) for row in rows) or "none"


@dataclass(frozen=True, slots=True)
class ExpectedAnswers:
    """The expected answers of all asked steps on one flavor, for some of its versions."""

    flavor: Flavor
    outcomes: tuple[Expected, ...]
    below: Version | None = None
    since: Version | None = None

    def fits(self, flavor: Flavor, version: Version | None) -> bool:
        """Tell whether they hold for a server. A bound that cannot be checked does not hold."""
        if flavor is not self.flavor:
            return False
        if self.below is not None and (version is None or version >= self.below):
            return False
        return self.since is None or (version is not None and version >= self.since)

    def label(self) -> str:
        """Return for which servers: ``tidb``, ``tidb < 6.6``."""
        if self.below is not None:
            return f"{self.flavor.value} < {'.'.join(map(str, self.below))}"
        if self.since is not None:
            return f"{self.flavor.value} >= {'.'.join(map(str, self.since))}"
        return self.flavor.value


Outcomes = Annotated[
    Many[Expected],
    BeforeValidator(_outcomes, json_schema_input_type=Literal["ok"] | Expected | list[Literal["ok"] | Expected] | None),
]
ExpectedByServer = dict[Annotated[str, Field(pattern=f"^{_SERVER}$")], Outcomes]


def expectations(answers: Mapping[str, tuple[Expected, ...]]) -> tuple[ExpectedAnswers, ...]:
    """Return the expected answers by server (``mysql``, ``tidb``, ``tidb < 6.6``), those with a bound first."""
    found = []
    for server, outcomes in answers.items():
        flavor, sign, version = re.fullmatch(_SERVER, server).groups()  # type: ignore[union-attr]  # validated
        bound = version_of(version) if version else None
        below, since = (bound, None) if sign == "<" else (None, bound)
        found.append(ExpectedAnswers(Flavor(flavor), outcomes, below, since))
    return tuple(sorted(found, key=lambda one: one.below is None and one.since is None))
