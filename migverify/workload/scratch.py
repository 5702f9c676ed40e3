"""A database of migverify's own on a server: marked as its own, locked against other runs, dropped afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from migverify.db.session import Session
from migverify.errors import UsageError
from migverify.figures import amount
from migverify.sql.catalog import SERVER_DATABASES
from migverify.sql.quoting import quote_name, quote_path, quote_text

_LOCK_SECONDS = 5


@dataclass(frozen=True, slots=True)
class ScratchUse:
    """Whose databases they are: ``marker`` is a table in each that says so."""

    name: str
    marker: str
    charset: str = ""


PROBES = ScratchUse("probes", "migverify_probe_marker")
CLIENTS = ScratchUse("clients", "migverify_scratch", " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")


class ScratchDatabase:
    """The scratch database of one side, through a session of its own that may write.

    A database of that name that holds tables and not the marker is somebody's: it is refused and left as it is.
    What an earlier run left behind (it has the marker, or is empty) is dropped first.
    """

    def __init__(self, session: Session, name: str, side: str, use: ScratchUse) -> None:
        self.name = name
        self._session, self._side, self._use = session, side, use
        self._made = False

    def make_once(self) -> None:
        """Make it, unless this run has made it already.

        Raises
        ------
        UsageError
            the name cannot be used, the database is somebody's, or another run uses it.
        ReadError
            the server refuses to create it.
        """
        if self._made:
            return
        if not self.name or self.name.lower() in SERVER_DATABASES or "`" in self.name or len(self.name) > 64:
            raise UsageError(f"{self.name!r} cannot be the scratch database", hint="Name another one with --database.")
        lock = f"migverify {self._use.name} {self.name}"[:64]  # the most that a server takes
        if self._session.query(f"SELECT GET_LOCK({quote_text(lock)}, {_LOCK_SECONDS})") != [("1",)]:
            raise UsageError(
                f"{self._side}: another run of {self._use.name} uses the database {self.name}",
                hint="Wait for it, or name another one with --database.",
            )
        others = [name for name, _ in self._objects()]
        if others and self._use.marker not in {name.lower() for name in others}:
            raise UsageError(
                f"{self._side}: the database {self.name} holds {amount(len(others), 'table')} of others"
                f" ({', '.join(others[:3])} ...), not of {self._use.name}",
                hint="Tables are created and dropped there: name a --database that is empty or not there.",
            )
        self._made = True  # from here on it is ours, also when the next statement is the last
        self._session.execute(f"DROP DATABASE IF EXISTS {quote_name(self.name)}")
        self._session.execute(f"CREATE DATABASE {quote_name(self.name)}{self._use.charset}")
        self._session.execute(
            f"CREATE TABLE {quote_path(self.name, self._use.marker)} (made DATETIME PRIMARY KEY)"
        )  # fmt: skip

    def clean(self) -> None:
        """Drop everything in it but the marker."""
        self._session.execute("SET SESSION foreign_key_checks = 0")
        for name, kind in self._objects():
            if name != self._use.marker:
                self._session.execute(f"DROP {kind} IF EXISTS {quote_path(self.name, name)}")

    def drop(self) -> None:
        """Drop it, if this run made it."""
        if self._made:
            self._session.execute(f"DROP DATABASE IF EXISTS {quote_name(self.name)}")
            self._made = False

    def _objects(self) -> list[tuple[str, str]]:
        found = [
            (name or "", "VIEW" if "VIEW" in (kind or "") else "SEQUENCE" if "SEQUENCE" in (kind or "") else "TABLE")
            for name, kind in self._session.query(
                "SELECT table_name, table_type FROM information_schema.tables"  # noqa: S608
                f" WHERE table_schema = {quote_text(self.name)}"
            )
        ]
        # views and foreign keys lean on tables, not the other way round
        return sorted(found, key=lambda one: one[1] != "VIEW")
