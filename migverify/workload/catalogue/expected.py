"""What a probe's step answered, and what it was expected to answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from migverify.model import Flavor
from migverify.workload.catalogue.reading import Node
from migverify.workload.catalogue.versions import Version, version_of

Cells = tuple[str | None, ...]

CONTAINS = "~"
"""A cell that begins so must hold what follows."""

_FLAVOR = re.compile(r"(mysql|mariadb|tidb)(?:\s*(<|>=)\s*(\d+(?:\.\d+){0,2}))?")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step answered.

    ``failed`` says why there is no answer (time limit, connection lost); then nothing else holds. ``rows`` are texts,
    None is NULL; bytes that are no UTF-8 are written as escapes. ``columns`` describe the result's columns. ``waited``:
    the step had not ended when its limit for waiting was over; the rest tells how it ended afterwards.
    ``told`` is the catalogue's expectation where the server was not asked.
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
    told: str = ""

    def text(self) -> str:
        """Return the answer in a line: the errno and its message, or what came back."""
        if self.told:
            return self.told
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


@dataclass(frozen=True, slots=True)
class Expected:
    """What one step should answer; only what is named is compared, and what is not named must not be an error.

    ``rows`` None: not compared. ``message`` and ``info`` are patterns that must be found; of ``columns``, each text
    must stand in the description of its column. ``warnings`` are exactly these codes, in this order.
    """

    errno: tuple[int, ...] = (0,)
    message: re.Pattern[str] | None = None
    rows: tuple[Cells, ...] | None = None
    row_count: int | None = None
    affected: int | None = None
    insert_id: int | None = None
    warnings: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None
    info: re.Pattern[str] | None = None
    waits: bool = False

    def named(self) -> list[str]:
        """Return what is compared, besides the error's number."""
        fields = ("message", "rows", "row_count", "affected", "insert_id", "warnings", "columns", "info")
        return [name for name in fields if getattr(self, name) is not None]

    def differences(self, got: Outcome) -> list[str]:
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
class Expectations:
    """The expected answers of all asked steps on one flavor, for some of its versions."""

    flavor: Flavor
    outcomes: tuple[Expected, ...]
    below: Version | None = None
    since: Version | None = None
    order: int = field(default=0, compare=False)

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


def read_expectations(node: Node, asked: int) -> tuple[Expectations, ...]:
    """Read ``expect``: a mapping from ``mysql``, ``tidb`` or ``tidb < 6.6`` to one outcome, or a list of them."""
    found: list[Expectations] = []
    for key in node.mapping("expect"):
        match = _FLAVOR.fullmatch(key)
        if match is None:
            node.refuse(f"expect: {key!r} is no server", "Use mysql, tidb, tidb < 6.6 or tidb >= 8.0.")
        place = node.mapping("expect")[key]
        parts = _parts(place)
        if len(parts) != asked:
            place.refuse(f"{len(parts)} outcomes for {asked} asked steps")
        bound = version_of(match[3]) if match[3] else None
        below, since = (bound, None) if match[2] == "<" else (None, bound)
        outcomes = tuple(_outcome(part) for part in parts)
        found.append(Expectations(Flavor(match[1]), outcomes, below, since, 0 if bound else 1))
    # those with a bound come first: the first that fits counts
    return tuple(sorted(found, key=lambda one: one.order))


def _parts(place: Node) -> list[Node]:
    if not isinstance(place.value, list):
        return [place]
    return [Node(place.file, place.document, (*place.steps, at), value) for at, value in enumerate(place.value)]


def _outcome(node: Node) -> Expected:
    if node.value is None or node.value == "ok":
        return Expected()
    node.only(
        "errno", "message", "rows", "row_count", "affected", "insert_id", "warnings", "columns", "info", "waits"
    )  # fmt: skip
    if node.has("errno") and not node.numbers("errno"):
        node.refuse("errno has no value")
    return Expected(
        errno=node.numbers("errno") or (0,),
        message=node.pattern("message") if node.has("message") else None,
        rows=tuple(_cells(row) for row in node.sequence("rows")) if node.has("rows") else None,
        row_count=node.number("row_count"),
        affected=node.number("affected"),
        insert_id=node.number("insert_id"),
        warnings=node.numbers("warnings") if node.has("warnings") else None,
        columns=node.texts("columns") if node.has("columns") else None,
        info=node.pattern("info") if node.has("info") else None,
        waits=node.flag("waits", False),
    )


def _cells(node: Node) -> Cells:
    values = node.value if isinstance(node.value, list) else [node.value]
    for value in values:
        if value is not None and not isinstance(value, str):
            node.refuse("a cell is text in quotes, or null")
    return tuple(values)
