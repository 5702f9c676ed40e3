"""Where the lease of a run is kept: a file in its folder, or a row of a database (``lease_db``)."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from migverify.codec import parse_json
from migverify.errors import FencedError, StoreError
from migverify.runbook.record.locks import locked, open_own

__all__ = ["FolderLease", "Lease", "LeasePlace", "Seen", "read_lease"]

_FILE = "lease.json"


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lease says. ``process`` names one process of one boot of one machine, for a look at it."""

    epoch: int
    executor: str
    person: str
    host: str
    boot: str
    process: str
    beat: int
    life: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as it was seen. ``age``: seconds since it was renewed by the place's own clock; None: it has none."""

    lease: Lease | None
    age: float | None = None


class LeasePlace(Protocol):
    """A place of one lease. Every method raises ``StoreError`` when it cannot be read or written."""

    def read(self) -> Seen:
        """Look at the lease."""
        ...

    def put(self, lease: Lease) -> None:
        """Write a lease that was taken; one of a newer epoch is left alone."""
        ...

    def renew(self, lease: Lease) -> Lease:
        """Count the beat of a lease up, and return it; raises ``FencedError`` when another one holds it."""
        ...


def read_lease(folder: Path) -> Lease | None:
    """Return the lease in a run's folder; None: there is none, or it cannot be read."""
    try:
        return Lease(**parse_json((folder / _FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None  # a lease that cannot be read beats no more: a Watch waits for its life as for any other


class FolderLease:
    """A lease in a file of a run's folder, which several machines may share. It compares no clocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> Seen:
        """Look at the lease."""
        return Seen(read_lease(self._folder))

    def put(self, lease: Lease) -> None:
        """Write a lease that was taken."""
        with locked(self._folder / "lease.lock"):
            found = read_lease(self._folder)
            if found is None or found.epoch <= lease.epoch:
                self._write(lease)

    def renew(self, lease: Lease) -> Lease:
        """Count the beat up."""
        with locked(self._folder / "lease.lock"):
            found = read_lease(self._folder)
            if found is not None and found.epoch > lease.epoch:
                raise taken_over(found)
            fresh = replace(lease, beat=lease.beat + 1)
            self._write(fresh)
            return fresh

    def _write(self, lease: Lease) -> None:
        fresh = self._folder / f"{_FILE}.{os.getpid()}.{threading.get_ident()}"
        try:
            fresh.unlink(missing_ok=True)  # of a process that was killed
            with os.fdopen(open_own(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
                json.dump(asdict(lease), file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._folder / _FILE)
        except OSError as error:
            raise StoreError(f"{self._folder / _FILE} cannot be written: {error.strerror}") from error


def taken_over(found: Lease) -> FencedError:
    """Return what is said to an executor whose lease is another one's now."""
    return FencedError(f"the run was taken over by {found.executor} (epoch {found.epoch})")
