"""Runs a reproducer: in a scratch database of both sides, or its statement alone against the live pair."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from migverify.errors import ReadError, UsageError
from migverify.model import Endpoint, Flavor, Side
from migverify.store.base import ResultStore
from migverify.workload.classify import classify
from migverify.workload.meaning import Meanings
from migverify.workload.private import private_folder, write_private
from migverify.workload.replay.compare import CompareOptions, judge
from migverify.workload.replay.model import Answer, Asked, Call, Judged, Judgement, Observation
from migverify.workload.replay.plans import explained
from migverify.workload.replay.reader import Limits
from migverify.workload.replay.render import lines
from migverify.workload.replay.reproducer import Reproducer, TableCopy, make
from migverify.workload.replay.restore import commands
from migverify.workload.replay.safety import Leave, refusal
from migverify.workload.replay.store import read_digests
from migverify.workload.replay.tally import DigestTally, Example
from migverify.workload.replay.wire import ServerWire, open_wire
from migverify.workload.shape import shape

DEFAULT_DATABASE = "migverify_reproduce"
SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z0-9_]{1,60}")


class Still(StrEnum):
    """Whether the difference is still there."""

    DIFFERENT = "still different"
    GONE = "gone"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came of it. ``answers`` are both sides' as text, source first, ``plans`` the shapes of their plans."""

    still: Still
    reason: str
    judged: Judged | None = None
    answers: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()


def reproduce(
    made: Reproducer,
    endpoints: Mapping[Side, Endpoint],
    passwords: Mapping[str, str],
    *,
    live: bool = False,
    database: str = DEFAULT_DATABASE,
) -> Reproduction:
    """Ask the statement on both sides, and judge as a replay does.

    Parameters
    ----------
    live
        Ask it where it was asked, on the tables that are there, and only if it reads. Otherwise a database of the
        given name is created on both sides, filled from the file, and dropped.

    Raises
    ------
    EndpointError
        A side cannot be reached.
    UsageError
        The database is there already, or its name is none.
    """
    why = _refused(made, live=live)
    if why:
        return Reproduction(Still.UNKNOWN, why)
    if not live and _NAME.fullmatch(database) is None:
        raise UsageError(f"{database!r} cannot be the scratch database", hint="Use letters, digits and _.")
    with ExitStack() as stack:
        wires = _open(endpoints, passwords, stack)
        if live:
            return _ask(made, wires, made.call.state.database, live=True)
        for wire in wires.values():
            _create(wire, database, stack)
        problem = "; ".join(filter(None, (_fill(wire, made) for wire in wires.values())))
        if problem:
            return Reproduction(Still.UNKNOWN, problem)
        # sessions of their own: what filling the tables needed must not be what the statement runs in
        return _ask(made, _open(endpoints, passwords, stack), database, live=False)


def _open(endpoints: Mapping[Side, Endpoint], passwords: Mapping[str, str], stack: ExitStack) -> dict[Side, ServerWire]:
    wires = {}
    for side in (Side.SOURCE, Side.TARGET):
        endpoint = endpoints[side]
        wires[side] = open_wire(endpoint, passwords.get(endpoint.name), side, Limits(seconds=SECONDS))
        stack.callback(wires[side].close)
    return wires


def _refused(made: Reproducer, *, live: bool) -> str:
    """Say why the statement must not be asked; empty when it may be."""
    does = classify(made.call.sql)
    if live:
        return refusal(made.call, does, Leave())
    tables = shape(made.call.sql).tables
    if tables is None and does.may_write:
        return (
            "it is not known which tables the statement writes: it may name others than those of the scratch database"
        )
    if any("." in name for name in tables or ()):
        return "the statement names a database, so it would not stay in the scratch database; --live asks it as it is"
    if does.effects & {"into file", "lock by name"} or does.kind.value in ("administrative", "ddl", "unknown"):
        return f"a statement that is {does.kind.value} or has effects beyond its tables is not asked here"
    return ""


def _flavor(wire: ServerWire) -> Flavor:
    answer = wire.command(b"SELECT VERSION()")
    text = (answer.rows or ((b"",),))[0][0] or b""
    return Flavor.TIDB if b"TiDB" in text else Flavor.MARIADB if b"MariaDB" in text else Flavor.MYSQL


def _must(wire: ServerWire, sql: bytes) -> Answer:
    answer = wire.command(sql)
    if not answer.ok:
        told = answer.unanswered or f"({answer.errno}) {answer.message}"
        raise ReadError(f"{wire.side}: {told}\n  SQL: {sql[:300].decode('utf-8', 'replace')}")
    return answer


def _create(wire: ServerWire, database: str, stack: ExitStack) -> None:
    there = _must(wire, b"SHOW DATABASES LIKE '" + database.replace("_", "\\_").encode() + b"'")
    if there.row_count:
        raise UsageError(
            f"{wire.side}: the database {database} is there already", hint="Name another one with --database."
        )
    _must(wire, b"CREATE DATABASE " + database.encode() + b" CHARACTER SET utf8mb4")
    stack.callback(_must, wire, b"DROP DATABASE " + database.encode())
    _must(wire, b"USE " + database.encode())


def _fill(wire: ServerWire, made: Reproducer) -> str:
    """Create and fill the tables; return why that failed, empty when it did not."""
    _must(wire, b"SET NAMES utf8mb4")
    _must(wire, b"SET foreign_key_checks = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'")
    for table in made.tables:
        ddl = table.source_ddl if wire.side is Side.SOURCE else table.target_ddl
        if not ddl:
            continue
        answer = wire.command(ddl.encode())
        if not answer.ok:
            return f"{wire.side}: table {table.name} cannot be created: {answer.unanswered or answer.message}"
        for row in table.rows:
            answer = wire.command(_insert(table, row))
            if not answer.ok:
                return f"{wire.side}: a row of {table.name} cannot be inserted: {answer.unanswered or answer.message}"
    return ""


def _insert(table: TableCopy, row: tuple[bytes | None, ...]) -> bytes:
    names = b", ".join(_quoted(name) for name in table.columns)
    values = b", ".join(_literal(cell) for cell in row)
    return b"INSERT INTO " + _quoted(table.name) + b" (" + names + b") VALUES (" + values + b")"


def _quoted(name: str) -> bytes:
    return b"`" + name.replace("`", "``").encode() + b"`"


def _literal(cell: bytes | None) -> bytes:
    """Return a value as SQL: texts quoted, which every type but bits reads; other bytes as hex digits."""
    if cell is None:
        return b"NULL"
    try:
        cell.decode("utf-8")
    except UnicodeDecodeError:
        return b"x'" + cell.hex().encode() + b"'"
    if any(byte < 32 for byte in cell):
        return b"x'" + cell.hex().encode() + b"'"
    return b"'" + cell.replace(b"\\", b"\\\\").replace(b"'", b"''") + b"'"


def _ask(made: Reproducer, wires: Mapping[Side, ServerWire], database: str | None, *, live: bool) -> Reproduction:
    call = replace(made.call, state=replace(made.call.state, database=database))
    found: dict[Side, list[Asked]] = {side: [] for side in wires}
    times = 1 if classify(call.sql, call.state.modes).may_write else 2
    for side, wire in wires.items():
        for command in commands(call.state, _flavor(wire), read_only=live):
            _must(wire, command)
        if call.clock is not None:
            _must(wire, b"SET timestamp = %d.%06d" % divmod(call.clock, 1_000_000))
        found[side] = [Asked(_run(wire, call), 0, 0, 0) for _ in range(times)]
    meaning = Meanings("mysql", unique_keys=_keys(wires[Side.SOURCE], made)).meaning(call.sql, call.state.modes)
    seen = Observation(call, tuple(found[Side.SOURCE]), tuple(found[Side.TARGET]))
    judged = judge(seen, meaning, CompareOptions(clock_pinned=call.clock is not None))
    answers = tuple("\n".join(lines(found[side][0].answer, 20)) for side in (Side.SOURCE, Side.TARGET))
    still, reason = _still(made, judged, live=live)
    return Reproduction(still, reason, judged, answers, _plans(call, wires))


def _plans(call: Call, wires: Mapping[Side, ServerWire]) -> tuple[str, ...]:
    """Return both plans' shapes; empty for what is no plain SELECT, or where a side does not tell it."""
    does = classify(call.sql)
    if does.words != ("SELECT",) or does.may_write or call.parameters is not None:
        return ()
    shapes = explained(call.sql, wires[Side.SOURCE].command, wires[Side.TARGET].command)
    return () if shapes is None else (str(shapes[0]), str(shapes[1]))


def _run(wire: ServerWire, call: Call) -> Answer:
    return wire.run(call, prepared=call.command == "execute")


def _still(made: Reproducer, judged: Judged, *, live: bool) -> tuple[Still, str]:
    aspects = sorted({one.aspect for one in judged.differences})
    match judged.state:
        case Judgement.DIFFERENT:
            return Still.DIFFERENT, f"differs in {', '.join(aspects)}"
        case Judgement.SAME:
            left_out = [f"{one.name}: {one.left_out}" for one in made.tables if one.left_out]
            rows = set(made.aspects) - {"error"}
            if left_out and rows and not live:
                return Still.UNKNOWN, f"the same, but not on the rows it was found on: {'; '.join(left_out)}"
            if set(made.aspects) <= set(aspects) and aspects:
                return Still.DIFFERENT, f"the same values, described otherwise: {', '.join(aspects)}"
            return Still.GONE, "both sides answer alike"
        case _:
            return Still.UNKNOWN, judged.reason


def _keys(wire: ServerWire, made: Reproducer) -> dict[str, list[list[str]]]:
    """Return the unique keys over columns that are NOT NULL, by table: what makes an ORDER BY total."""
    found: dict[str, list[list[str]]] = {}
    for table in made.tables:
        answer = wire.command(b"SHOW INDEX FROM " + _quoted(table.name))
        parts: dict[bytes, list[str]] = {}
        broken: set[bytes] = set()
        for row in answer.rows or ():
            name = row[2] or b""
            if row[1] != b"0" or row[4] is None or row[7] is not None or row[9] == b"YES":
                broken.add(name)
            else:
                parts.setdefault(name, []).append(row[4].decode("utf-8", "replace"))
        found[table.name.lower()] = [columns for name, columns in parts.items() if name not in broken]
    return found


def write_reproducers(
    store: ResultStore,
    run: str,
    folder: Path,
    endpoints: Mapping[Side, Endpoint],
    passwords: Mapping[str, str],
    *,
    prefix: str = "",
    limit: int = 200,
) -> tuple[list[Path], list[str]]:
    """Write a file for each digest of a replay that differs, the heaviest first.

    Returns
    -------
    tuple
        The files, and why others could not be made.

    Raises
    ------
    UsageError
        There is no such run, or the folder cannot be written.
    """
    run_id = store.load_run(run).run_id
    written: list[Path] = []
    failed: list[str] = []
    with ExitStack() as stack:
        wires = list(_open(endpoints, passwords, stack).values())
        versions = (_version(wires[0]), _version(wires[1]))
        for one in read_digests(store, run_id, ("blocker", "review", "noise"), limit=None):
            if not one.tally.digest.startswith(prefix):
                continue
            if len(written) + len(failed) == limit:
                failed.append(f"more than {limit} digests differ: name one with --digest")
                break
            try:
                made = make(one.tally, _heaviest(one.tally), run_id, versions, _askers(wires, one.tally))
            except UsageError as error:
                failed.append(error.message)
                continue
            path = folder / f"{one.tally.digest[:16]}.json"
            try:
                if not folder.exists():
                    private_folder(folder)
                text = json.dumps(made.as_json(), indent=2, ensure_ascii=False) + "\n"
                write_private(path, text.encode("utf-8"))
            except OSError as error:
                raise UsageError(
                    f"cannot write {path}: {error.strerror or error}", hint="Name another folder."
                ) from error
            written.append(path)
    return written, failed


def _heaviest(tally: DigestTally) -> Example:
    examples = [one for kept in tally.examples.values() for one in kept]
    if not examples:
        raise UsageError(f"the run kept no example of digest {tally.digest[:16]}")
    return min(examples, key=lambda one: (one.state is not Judgement.DIFFERENT, not one.detail("statement")))


def _askers(
    wires: Sequence[ServerWire], tally: DigestTally
) -> tuple[Callable[[bytes], Answer], Callable[[bytes], Answer]]:
    database = json.loads(_heaviest(tally).detail("session_state") or "{}").get("database")
    for wire in wires:
        if database:
            _must(wire, b"USE " + _quoted(database))
        _must(wire, b"SET NAMES utf8mb4")
        _must(wire, b"SET time_zone = '+00:00'")
    return wires[0].command, wires[1].command


def _version(wire: ServerWire) -> str:
    rows = _must(wire, b"SELECT VERSION()").rows
    return (rows[0][0] or b"").decode() if rows else ""
