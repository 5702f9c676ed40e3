"""The files of a repair: scripts for the ``mysql`` client, the manifest beside them, and their execution on the target.

A script is one statement a line, in transactions of ``BATCH`` rows. The manifest is written last: where it exists,
the scripts are complete and may have been applied, so they are never written over but set aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migverify.db.retry import attempt
from migverify.db.session import Session, open_session
from migverify.errors import PrivilegeError, ReadError, RepairError, RetryableReadError, UsageError
from migverify.model import Endpoint
from migverify.secrets import scrub, scrub_sentence
from migverify.sql.repair import BEGIN, COMMIT
from migverify.tables.tasks import Rules

BATCH = 500
"""Rows a transaction."""
MANIFEST = "manifest.json"
REFUSED_AT_ONCE = 10_000
"""Up to so many refused statements are tried again; more would not be a matter of their order."""
_LONGEST = 200  # bytes of a file name's stem; file systems allow 255 in all


# --- writing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """One written script: its name in the folder, its digest and what it holds."""

    name: str
    sha256: str
    bytes: int
    statements: int


class SqlScript(AbstractContextManager["SqlScript"]):
    """A script while it is written. It gets its name at ``close``; an abandoned one leaves nothing behind."""

    def __init__(self, path: Path, header: Sequence[str], session: Sequence[str]) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._digest = hashlib.sha256()
        self._bytes = self._open_rows = self._statements = 0
        self._file = _private(self._part)
        for line in header:
            self._write("-- " + " ".join(scrub_sentence(line).split()))
        for statement in session:
            self._write(statement + ";")

    def add(self, statement: str) -> None:
        """Append a statement to the open transaction."""
        if self._open_rows == 0:
            self._write("BEGIN;")
        self._write(statement + ";")
        self._open_rows += 1
        self._statements += 1
        if self._open_rows == BATCH:
            self._commit()

    def close(self) -> ScriptFacts:
        """Finish the file, make it durable, give it its name."""
        self._commit()
        self._write(f"-- end of file: {self._statements} statements")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)
        return ScriptFacts(self._path.name, self._digest.hexdigest(), self._bytes, self._statements)

    def _commit(self) -> None:
        if self._open_rows:
            self._write("COMMIT;")
            self._open_rows = 0

    def _write(self, line: str) -> None:
        if "\n" in line:
            raise RepairError("a name with a line break cannot be part of a script")
        data = line.encode("utf-8") + b"\n"
        self._digest.update(data)
        self._bytes += len(data)
        self._file.write(data)

    def __exit__(self, *_: object) -> None:
        if not self._file.closed:
            self._file.close()
            self._part.unlink(missing_ok=True)


def _private(path: Path) -> Any:
    """Open a new file that only its owner can read: it holds values of rows.

    What has its name is removed, not written to: it may be a link to a file of somebody, or readable for all.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


class ScriptPair(AbstractContextManager["ScriptPair"]):
    """The two scripts of a table: the repair as it comes, and the inverse, which undoes the last change first.

    A value that one row gave up for another to take is free again then. Until the end what undoes the changes is in a
    file of its own, and memory holds eight bytes a statement. Abandoned scripts leave nothing behind.
    """

    def __init__(self, repair: SqlScript, inverse: SqlScript) -> None:
        self._repair, self._inverse = repair, inverse
        self._undo = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._ends = array("Q", [0])

    def add(self, forward: str, inverse: str) -> None:
        """Append what changes a row, and what restores it."""
        self._repair.add(forward)
        self._ends.append(self._ends[-1] + self._undo.write(inverse.encode("utf-8")))

    def close(self) -> tuple[ScriptFacts, ScriptFacts]:
        """Finish both files; returns the facts of the repair and of its inverse."""
        for number in reversed(range(1, len(self._ends))):
            start, end = self._ends[number - 1], self._ends[number]
            self._undo.seek(start)
            self._inverse.add(self._undo.read(end - start).decode("utf-8"))
        # The inverse first: a repair must not exist without one.
        inverse = self._inverse.close()
        return self._repair.close(), inverse

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        self._repair.__exit__()
        self._inverse.__exit__()


def file_stem(database: str, table: str) -> str:
    """Return ``<database>.<table>`` as a file name: what no file name can hold is written as ``%`` and hex.

    Different tables never share a stem: ``%`` and the dot inside of a name are escaped too; no stem looks like an
    option.
    """
    stem = ".".join(
        re.sub(r"^-|[^\w$@+=,-]", lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode("utf-8")), name)
        for name in (database, table)
    )
    if len(stem.encode("utf-8")) <= _LONGEST:
        return stem
    digest = hashlib.sha256(stem.encode("utf-8")).hexdigest()[:16]
    return stem.encode("utf-8")[: _LONGEST - 17].decode("utf-8", "ignore") + "%" + digest


def clear_folder(folder: Path) -> str:
    """Make the folder ready for a new repair; returns where an earlier one was moved, ``""`` when there was none.

    Raises
    ------
    UsageError
        the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MANIFEST).exists():
            return ""
        numbers = [p.name.partition("-")[2] for p in folder.glob("earlier-[0-9]*") if p.is_dir()]
        aside = folder / f"earlier-{1 + max((int(n) for n in numbers if n.isdigit()), default=0)}"
        aside.mkdir()
        # The scripts first, the manifest last: stopped in between, the rest moves with the next attempt.
        for path in sorted((*folder.glob("*.repair.sql"), *folder.glob("*.inverse.sql"))):
            path.replace(aside / path.name)
        (folder / MANIFEST).replace(aside / MANIFEST)
    except OSError as error:
        raise UsageError(
            f"--out {folder}: {error.strerror or error}", hint="Name a folder that can be written."
        ) from error
    return str(aside)


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest at once; the scripts it names are durable by then."""
    part = folder / (MANIFEST + ".part")
    with _private(part) as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False).encode("utf-8") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / MANIFEST)


# --- executing -------------------------------------------------------------------------------------------------


def transactions(path: Path) -> Iterator[list[str]]:
    """Yield the transactions of a script, each as its statements; the session's statements come first, as one.

    Raises
    ------
    RepairError
        the file is cut off or was edited so that it is not one statement a line.
    """
    batch: list[str] = []
    ended = settings = False
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            ended = line.startswith("-- end of file: ") and line.endswith("\n")
            if line.startswith("--"):
                continue
            if not line.endswith(";\n"):
                raise RepairError(f"{path}, line {number}: a statement does not end on its line; write the repair anew")
            if line in ("BEGIN;\n", "COMMIT;\n"):
                if batch:
                    settings = True
                    yield batch
                batch = []
            else:
                batch.append(line[:-2])
    if not ended or (batch and settings):
        raise RepairError(f"{path}: the end of the file is missing; write the repair anew")
    if batch:  # a table without any statement
        yield batch


@dataclass(slots=True)
class AppliedScript:
    """What the statements of one table did: rows matched, rows changed meanwhile, statements the server refused."""

    matched: int = 0
    unmatched: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def execute_script(path: Path, endpoint: Endpoint, password: str | None, rules: Rules) -> AppliedScript:
    """Execute a script transaction by transaction.

    A transaction that the server refuses is undone and its statements are executed one by one, so that one row
    cannot hold back the others; the refused ones are tried again as long as that helps. A lost connection or a
    conflict is tried again too: a statement that had its effect finds nothing to do.

    Raises
    ------
    RepairError
        the user may not write.
    RetryableReadError
        the target cannot be reached any more; what was committed stays.
    """
    applied, refused = AppliedScript(), list[str]()
    batches = transactions(path)
    with closing(_ScriptWriter(endpoint, password, next(batches, []), rules, applied)) as writer:
        for batch in batches:
            if writer.refusal(batch):
                refused += writer.refused_of(batch)
        # A unique value that another row of the script held may be free by now.
        before = -1
        while 0 < len(refused) <= REFUSED_AT_ONCE and len(refused) != before:
            before = len(refused)
            applied.refused.clear()
            refused = writer.refused_of(refused)
    return applied


class _ScriptWriter:
    """The one session that writes, opened again when it is lost."""

    def __init__(
        self, endpoint: Endpoint, password: str | None, prepare: list[str], rules: Rules, applied: AppliedScript
    ) -> None:
        self._endpoint, self._password, self._prepare, self._rules = endpoint, password, prepare, rules
        self._applied = applied
        self._session: Session | None = None

    def refused_of(self, statements: Sequence[str]) -> list[str]:
        """Execute statements one by one and return those that the server refused; its reasons are counted."""
        refused = []
        for statement in statements:
            if reason := self.refusal([statement]):
                self._applied.refused[reason] += 1
                refused.append(statement)
        return refused

    def refusal(self, batch: Sequence[str]) -> str:
        """Execute one transaction and count its rows; returns why the server refused it, ``""`` when it did not."""
        try:
            matched = attempt(lambda: self._once(batch), self._rules, passing=(RetryableReadError,))
        except RetryableReadError:
            raise
        except ReadError as error:
            return scrub(_without_statement(error)) or "the server gave no reason"
        self._applied.matched += sum(1 for rows in matched if rows)
        self._applied.unmatched += sum(1 for rows in matched if not rows)
        return ""

    def _once(self, batch: Sequence[str]) -> list[int]:
        """Execute statements in one transaction; returns the rows each one matched."""
        done = False
        try:
            if self._session is None:
                self._session = open_session(self._endpoint, self._password)
                for statement in self._prepare:
                    self._session.execute(statement)
            self._session.execute(BEGIN)
            matched = [self._session.execute(statement) for statement in batch]
            self._session.execute(COMMIT)
            done = True
        except PrivilegeError as error:
            raise PrivilegeError(
                _without_statement(error),
                hint="All it needs, as statements: migverify config --grants --for 'tables repair --apply'",
            ) from error
        finally:
            if not done:
                self.close()
        return matched

    def close(self) -> None:
        """Close the session; an open transaction is undone by the server."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _without_statement(error: ReadError | PrivilegeError) -> str:
    """Return a server's message without the statement, which holds the row's values."""
    return error.message.split("\n  SQL: ")[0]
