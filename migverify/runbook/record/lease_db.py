"""A run's lease in a row of a database, whose one clock says for how long it was not renewed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from migverify.codec import parse_json
from migverify.runbook.record.lease_place import Lease, Seen, taken_over
from migverify.store.database import Connection, Database
from migverify.store.journals import put_lease, read_lease

__all__ = ["DbLease"]


class DbLease:
    """The lease of one run in a database."""

    def __init__(self, database: Database, run: str) -> None:
        self._database, self._run = database, run

    def read(self) -> Seen:
        """Look at the lease, and ask the database's clock how old it is."""
        action = f"cannot read the lease of run {self._run} from"
        row = self._database.read(action, lambda connection: read_lease(connection, self._run, locked=False))
        return Seen(_lease_of(row.body), row.age) if row is not None else Seen(None)

    def put(self, lease: Lease) -> None:
        """Write a lease that was taken; one of a newer epoch is left alone."""

        def work(connection: Connection) -> None:
            row = read_lease(connection, self._run, locked=True)
            if row is None or row.epoch <= lease.epoch:
                self._store(connection, lease, known=row is not None)

        self._database.write(f"cannot write the lease of run {self._run} in", work)

    def renew(self, lease: Lease) -> Lease:
        """Count the beat up."""
        fresh = replace(lease, beat=lease.beat + 1)

        def work(connection: Connection) -> None:
            row = read_lease(connection, self._run, locked=True)
            if row is not None and row.epoch > lease.epoch:
                raise taken_over(_lease_of(row.body) or replace(lease, epoch=row.epoch, executor="another executor"))
            self._store(connection, fresh, known=row is not None)

        self._database.write(f"cannot renew the lease of run {self._run} in", work)
        return fresh

    def _store(self, connection: Connection, lease: Lease, *, known: bool) -> None:
        put_lease(connection, self._run, lease.epoch, lease.beat, json.dumps(asdict(lease)), known=known)


def _lease_of(body: str) -> Lease | None:
    try:
        return Lease(**parse_json(body))
    except (ValueError, TypeError):
        return None  # as a file that cannot be read: it beats no more
