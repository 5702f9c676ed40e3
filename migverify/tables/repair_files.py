"""The files of a repair: scripts for the ``mysql`` client, and the manifest beside them.

A script is one statement a line, in transactions of ``BATCH`` rows. The manifest is written last: where it stands,
the scripts are whole and may have been applied, so they are never written over but set aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migverify.errors import RepairError, UsageError
from migverify.secrets import scrub

BATCH = 500
"""Rows a transaction."""

TOGETHER = "-- rows that exchange unique values: all of the next transaction or nothing"

MANIFEST = "manifest.json"
_LONGEST = 200  # bytes of a file name's stem; file systems allow 255 in all


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One written script: its name in the folder, its digest and what it holds."""

    name: str
    sha256: str
    bytes: int
    statements: int


class Script(AbstractContextManager["Script"]):
    """A script while it is written. It gets its name at ``close``; an abandoned one leaves nothing behind."""

    def __init__(self, path: Path, header: Sequence[str], session: Sequence[str]) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._digest = hashlib.sha256()
        self._bytes = self._open_rows = self.statements = 0
        # Row values are for the owner's eyes only.
        self._file = os.fdopen(os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        for line in header:
            self._write("-- " + " ".join(scrub(line).split()))
        for statement in session:
            self._write(statement + ";")

    def add(self, *statements: str) -> None:
        """Append one statement to the open transaction, or several as a transaction of their own."""
        together = len(statements) > 1
        if together:
            self._commit()
            self._write(TOGETHER)
        if self._open_rows == 0:
            self._write("BEGIN;")
        for statement in statements:
            self._write(statement + ";")
        self._open_rows += len(statements)
        self.statements += len(statements)
        if together or self._open_rows == BATCH:
            self._commit()

    def close(self) -> FileFacts:
        """Finish the file, make it durable, give it its name."""
        self._commit()
        self._write(f"-- end of file: {self.statements} statements")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)
        return FileFacts(self._path.name, self._digest.hexdigest(), self._bytes, self.statements)

    def _commit(self) -> None:
        if self._open_rows:
            self._write("COMMIT;")
            self._open_rows = 0

    def _write(self, line: str) -> None:
        if "\n" in line:
            raise RepairError("a name with a line break cannot stand in a script")
        data = line.encode("utf-8") + b"\n"
        self._digest.update(data)
        self._bytes += len(data)
        self._file.write(data)

    def __exit__(self, *_: object) -> None:
        if not self._file.closed:
            self._file.close()
            self._part.unlink(missing_ok=True)


class Stack(AbstractContextManager["Stack"]):
    """Statements kept on disk until all are known, then given back last first.

    What undoes a list of changes undoes the last of them first: a value that one row gave up for another to take is
    free again when its turn comes. Memory holds eight bytes a statement.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._starts = array("Q")
        self._end = 0

    def push(self, statement: str) -> None:
        """Add a statement on top."""
        self._starts.append(self._end)
        self._file.seek(self._end)
        self._end += self._file.write(statement.encode("utf-8"))

    def statements(self) -> Iterator[str]:
        """Yield the statements, the last one first."""
        for number in reversed(range(len(self._starts))):
            yield self[number]

    def __getitem__(self, number: int) -> str:
        """Return the statement that was pushed as the ``number``-th, from 0."""
        start, end = self._starts[number], self._end
        if number + 1 < len(self._starts):
            end = self._starts[number + 1]
        self._file.seek(start)
        return self._file.read(end - start).decode("utf-8")

    def close(self) -> None:
        """Forget all statements."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class Scripts(AbstractContextManager["Scripts"]):
    """The two scripts of a table: the repair as it comes, and the inverse, which undoes the last change first.

    The caller opens both, so that an abandoned one leaves nothing behind.
    """

    def __init__(self, repair: Script, inverse: Script) -> None:
        self._repair, self._inverse, self._undo = repair, inverse, Stack()

    def add(self, forward: Sequence[str], inverse: Sequence[str]) -> None:
        """Append what changes a row, or several rows together, and keep what restores them."""
        self._repair.add(*forward)
        self._undo.push("\n".join(inverse))  # a statement holds no line break

    def close(self) -> tuple[FileFacts, FileFacts]:
        """Finish both files; returns the facts of the repair and of its inverse."""
        for statements in self._undo.statements():
            self._inverse.add(*statements.split("\n"))
        # The inverse first: a repair without one must not lie about.
        inverse = self._inverse.close()
        return self._repair.close(), inverse

    def __exit__(self, *_: object) -> None:
        self._undo.close()


class Transaction(list[str]):
    """The statements of a transaction; ``together`` when none of them may be executed without the others."""

    together = False


def transactions(path: Path) -> Iterator[Transaction]:
    """Yield the transactions of a script, each as its statements; the session's statements come first, as one.

    Raises
    ------
    RepairError
        the file is cut off or was edited so that it is not one statement a line.
    """
    batch = Transaction()
    ended = settings = together = False
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            ended = line.startswith("-- end of file: ") and line.endswith("\n")
            if line.startswith("--"):
                together = together or line == TOGETHER + "\n"
                continue
            if not line.endswith(";\n"):
                raise RepairError(f"{path}, line {number}: a statement does not end on its line; write the repair anew")
            if line in ("BEGIN;\n", "COMMIT;\n"):
                if batch:
                    settings = True
                    yield batch
                batch = Transaction()
                batch.together, together = together, False
            else:
                batch.append(line[:-2])
    if not ended or (batch and settings):
        raise RepairError(f"{path}: the end of the file is missing; write the repair anew")
    if batch:  # a table without any statement
        yield batch


def file_stem(database: str, table: str) -> str:
    """Return ``<database>.<table>`` as a file name: what no file name can hold is written as ``%`` and hex.

    Unlike tables never share a stem: ``%`` and the dot inside of a name are escaped too; no stem looks like an option.
    """
    stem = ".".join(re.sub(r"^-|[^\w$@+=,-]", _escape, name) for name in (database, table))
    if len(stem.encode("utf-8")) <= _LONGEST:
        return stem
    digest = hashlib.sha256(stem.encode("utf-8")).hexdigest()[:16]
    return stem.encode("utf-8")[: _LONGEST - 17].decode("utf-8", "ignore") + "%" + digest


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8"))


def clear_folder(folder: Path) -> str:
    """Make the folder ready for a new repair; returns where an earlier one went, ``""`` when there was none.

    Raises
    ------
    UsageError
        the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / MANIFEST
        if not manifest.exists():
            return ""
        number = 1 + max(
            (int(p.name.partition("-")[2]) for p in folder.glob("earlier-[0-9]*") if _numbered(p)), default=0
        )
        aside = folder / f"earlier-{number}"
        aside.mkdir()
        # The scripts first, the manifest last: stopped in between, the rest moves with the next attempt.
        for path in sorted((*folder.glob("*.repair.sql"), *folder.glob("*.inverse.sql"))):
            path.replace(aside / path.name)
        manifest.replace(aside / MANIFEST)
    except OSError as error:
        raise UsageError(
            f"--out {folder}: {error.strerror or error}", hint="Name a folder that can be written."
        ) from error
    return str(aside)


def _numbered(path: Path) -> bool:
    return path.is_dir() and path.name.partition("-")[2].isdigit()


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest at once; the scripts it names are durable by then."""
    part = folder / (MANIFEST + ".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / MANIFEST)
