"""One run of the matrix on a pair of the lab: untouched tables, faults, blind spots."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import UsageError
from migverify.model import Verdict
from migverify.store.open import open_store
from migverify.tables.engine import LocalTaskEngine
from migverify_lab.cache import Progress, file_lock, make_directory
from migverify_lab.faults import BY_NAME, FAULTS
from migverify_lab.matrix.competitors import COMPETITORS
from migverify_lab.matrix.examine import Examiner, Sight, Trial
from migverify_lab.matrix.gallery import Gallery, homes, tables_of
from migverify_lab.museum import UTF8, MuseumTable
from migverify_lab.museum_loader import choose
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect

if TYPE_CHECKING:
    from migverify_lab.museum import MuseumTable

TOOLS = ("row count", "migverify", *(tool.name for tool in COMPETITORS))
DATABASE = "fault_matrix"


@dataclass(frozen=True, slots=True)
class Untouched:
    """One table without a fault: its verdict, and what is wrong with it ("" when it matches without a row diff)."""

    table: str
    rows: int
    problem: str


@dataclass(frozen=True, slots=True)
class Blind:
    """One pair of values that is equal by rule: tool -> whether it says that the sides differ."""

    name: str
    note: str
    cells: dict[str, Sight]


@dataclass(frozen=True, slots=True)
class Matrix:
    """What one run found. ``versions`` are those of source and target, ``md5`` the hash used where tools use MD5."""

    versions: tuple[str, str]
    md5: str
    untouched: tuple[Untouched, ...]
    trials: tuple[Trial, ...]
    blind: tuple[Blind, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What migverify got wrong; empty when it got everything right."""
        return (
            *(f"{one.table} without a fault: {one.problem}" for one in self.untouched if one.problem),
            *(f"{trial.fault}: {trial.problem}" for trial in self.trials if trial.problem),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "problems": list(self.problems)}


@contextmanager
def examiner(
    servers: LabServers, tables: Sequence[str], directory: Path, on_progress: Progress, database: str = DATABASE
) -> Iterator[Examiner]:
    """Load tables into ``database`` and ``<database>_before`` on a pair, and drop these at the end.

    Raises
    ------
    LabError
        When a server refuses a table, or a tool that makes data is missing.
    """
    md5 = "MD5" if all(_has_md5(server) for server in (servers.source, servers.target)) else "SHA2"
    make_directory(directory)
    with (
        file_lock(directory / "matrix.lock", on_progress),  # a second run would drop the databases of the first
        tempfile.TemporaryDirectory(prefix="matrix-", dir=directory) as folder,
        Gallery(servers, database, Path(folder)) as gallery,
    ):
        gallery.load(tuple(tables), on_progress)
        engine = LocalTaskEngine({}, 1)
        store = open_store(f"sqlite:///{folder}/runs.db")
        try:
            yield Examiner(gallery, engine, store, md5)
        finally:
            engine.close()
            store.close()


def run(
    servers: LabServers,
    directory: Path,
    on_progress: Progress,
    faults: Sequence[str] = (),
    database: str = DATABASE,
) -> Matrix:
    """Try every fault (or some) in each of its tables.

    Parameters
    ----------
    servers
        A pair of the lab.
    directory
        Where files lie for as long as the run takes.
    faults
        Names of ``FAULTS``; empty means all, and also the untouched museum and the blind spots.
    database
        Made and dropped, and with it ``<database>_before``.

    Raises
    ------
    UsageError
        For a name that is no fault.
    LabError
        When a fault does not fit a table it is to be shown in, or the servers fail.
    """
    unknown = [name for name in faults if name not in BY_NAME]
    if unknown:
        raise UsageError(f"no fault is called {', '.join(unknown)}", hint="See `migverify lab fault --list`.")
    names = tuple(faults) or tuple(fault.name for fault in FAULTS)
    tables = tables_of(names)
    museum = () if faults else tuple(table.name for table in choose(()) if table.name not in tables)
    with examiner(servers, (*tables, *museum), directory, on_progress, database) as tools:
        untouched = tuple(_untouched(tools, table) for table in (*tables, *museum))
        on_progress(f"{len(untouched)} tables without a fault: {sum(1 for u in untouched if u.problem)} reported")
        trials: list[Trial] = []
        for name in names:
            trials += [tools.try_fault(name, table) for table in homes(name)]
            on_progress(f"{name}: {_sum(trials, name)}")
        blind = () if faults else tuple(_blind(tools, *pair) for pair in BLIND)
    versions = (servers.source.version, servers.target.version)
    return Matrix(versions, tools.md5, untouched, tuple(trials), blind)


def _sum(trials: list[Trial], fault: str) -> str:
    own = [trial for trial in trials if trial.fault == fault]
    return f"found in {sum(1 for trial in own if not trial.problem)} of {len(own)} tables"


def _untouched(tools: Examiner, table: str) -> Untouched:
    before = tools.baseline(table)
    wrong = "; ".join(before.verdict.reasons) or str(before.verdict.verdict)
    clean = before.verdict.verdict is Verdict.MATCH and not before.diffs
    return Untouched(table, len(before.rows), "" if clean else wrong)


def _blind(tools: Examiner, source: MuseumTable, target: MuseumTable) -> Blind:
    tools.gallery.hang_unlike(source, target)
    before = tools.baseline(source.name)
    says = {Verdict.MATCH: Sight.MISSED, Verdict.MISMATCH: Sight.SEEN, Verdict.INCONCLUSIVE: Sight.INCONCLUSIVE}
    rows = before.verdict.rows_source != before.verdict.rows_target
    cells = {"row count": Sight.SEEN if rows else Sight.MISSED, "migverify": says[before.verdict.verdict]}
    for tool, (one, other) in before.answers.items():
        failed = isinstance(one, Exception) or isinstance(other, Exception)
        cells[tool] = Sight.ERROR if failed else Sight.MISSED if one == other else Sight.SEEN
    return Blind(source.name, source.note, cells)


def _has_md5(server: LabServer) -> bool:
    """Whether a server computes MD5: MySQL 9.6 and newer need a component for it."""
    import pymysql

    with connect(server) as connection, connection.cursor() as cursor:
        try:
            cursor.execute("SELECT MD5('a') FROM (SELECT 1) AS one")
        except pymysql.err.OperationalError as error:
            if error.args[0] in {1046, 1305}:  # no such function, in two spellings
                return False
            raise
        return True


def install_md5(server: LabServer) -> None:
    """Give a server of the lab MD5 back, where it has it as a component. Elsewhere SHA2 replaces MD5.

    This changes the server for good, so it is for the lab's own servers only.
    """
    import pymysql

    if _has_md5(server):
        return
    with connect(server) as connection, connection.cursor() as cursor:
        try:
            cursor.execute("INSTALL COMPONENT 'file://component_classic_hashing'")
        except pymysql.err.MySQLError as error:
            if error.args[0] not in {1126, 3529, 3530}:  # there is no such component
                raise


# Pairs of values that migverify calls equal on purpose or cannot tell apart: put on both sides, and every tool asked.
#
# The page shows them beside the faults, so that nobody takes MATCH for more than it says.

_BODY = "(id INT NOT NULL PRIMARY KEY, v {kind} NULL) " + UTF8


def _unlike(name: str, note: str, source: tuple[str, str], target: tuple[str, str]) -> tuple[MuseumTable, MuseumTable]:
    """Return the table as each side holds it: a type and a value per side."""
    made = []
    for kind, value in (source, target):
        ddl = _BODY.format(kind=kind)
        made.append(MuseumTable(name, ddl, ddl, ("id", "v"), (("1", value), ("2", "NULL")), note))
    return made[0], made[1]


BLIND: tuple[tuple[MuseumTable, MuseumTable], ...] = (
    _unlike(
        "sign_of_zero", "DOUBLE: -0.0 on the source, 0.0 on the target, which TiDB makes of it",
        ("DOUBLE", "-0e0"), ("DOUBLE", "0e0"),
    ),
    _unlike(
        "number_in_json", "JSON: 1.0 on the source, 1 on the target",
        ("JSON", "'{\"a\": 1.0}'"), ("JSON", "'{\"a\": 1}'"),
    ),
    _unlike(
        "space_in_char", "CHAR(5): 'a' with spaces on the source, without on the target; no server returns them",
        ("CHAR(5)", "'a  '"), ("CHAR(5)", "'a'"),
    ),
    _unlike(
        "key_twice_in_json", "JSON: a key given twice on the source; both servers keep the last of them",
        ("JSON", "'{\"a\": 1, \"a\": 2}'"), ("JSON", "'{\"a\": 2}'"),
    ),
    _unlike(
        "scale", "DECIMAL: 1.5 with one digit on the source, 1.50 with two on the target",
        ("DECIMAL(6,1)", "1.5"), ("DECIMAL(6,2)", "1.50"),
    ),
    _unlike(
        "instant", "TIMESTAMP on the source, the DATETIME of the same moment in UTC on the target",
        ("TIMESTAMP", "'2024-02-29 12:00:00'"), ("DATETIME", "'2024-02-29 12:00:00'"),
    ),
)  # fmt: skip
"""(the source's table, the target's), each with one row that differs in its spelling and one that is NULL."""
