"""The database that probes create their tables in: made, emptied after each probe, dropped; never somebody else's."""

from __future__ import annotations

from migverify.errors import ReadError, UsageError
from migverify.sql.gates import kill_sql
from migverify.workload.catalogue.expected import Outcome
from migverify.workload.probe_session import ProbeSession

MARKER = "migverify_probe_marker"
DEFAULT_DATABASE = "migverify_probe"
_SYSTEM = {"mysql", "sys", "information_schema", "performance_schema", "metrics_schema"}
_SECONDS = 60.0


class Scratch:
    """The scratch database of one side, through a control session of its own.

    A database of that name that holds tables and not the marker is somebody's: it is refused and left as it is.
    What an earlier run left behind (it has the marker, or is empty) is dropped first.
    """

    def __init__(self, control: ProbeSession, name: str, side: str) -> None:
        self.name = name
        self._control = control
        self._side = side
        self._made = False

    def make_once(self) -> None:
        """Make it, unless this run has made it already."""
        if not self._made:
            self.make()

    def make(self) -> None:
        """Drop what an earlier run left, and create the database with its marker.

        Raises
        ------
        UsageError
            the name is a system database's, the database is not a probe's, or another run uses it.
        ReadError
            the server refuses to create it.
        """
        if self.name.lower() in _SYSTEM or not self.name.replace("_", "").isalnum():
            raise UsageError(f"{self.name!r} cannot be the scratch database", hint="Use letters, digits and _.")
        # two runs that share a scratch database would drop each other's tables
        if self._must(f"SELECT GET_LOCK('migverify probe {self.name}', 0)").rows == (("0",),):
            raise UsageError(
                f"{self._side}: another run of probes uses the database {self.name}",
                hint="Wait for it, or name another one with --database.",
            )
        there = {name for name, _ in self._objects()}
        if there and MARKER not in there:
            raise UsageError(
                f"{self._side}: the database {self.name} is there already, and its tables are not of probes",
                hint="Name another one with --database.",
            )
        self._made = True  # from here on it is ours, also when the next statement is the last
        self._must(f"DROP DATABASE IF EXISTS `{self.name}`")
        self._must(f"CREATE DATABASE `{self.name}`")
        self._must(f"CREATE TABLE `{self.name}`.`{MARKER}` (made DATETIME PRIMARY KEY)")

    def clean(self) -> None:
        """Drop everything in it but the marker."""
        self._must("SET SESSION foreign_key_checks = 0")
        for name, kind in self._objects():
            if name != MARKER:
                self._must(f"DROP {kind} IF EXISTS `{self.name}`.`{name.replace('`', '``')}`")

    def attempt(self, sql: str) -> None:
        """Run a statement of a teardown: what it removes may never have been made, so a refusal is no failure."""
        outcome = self._control.run(sql.replace("{database}", self.name), _SECONDS)
        if outcome.failed:
            raise ReadError(f"{self._side}: {outcome.failed}\n  SQL: {sql}")

    def drop(self) -> None:
        """Drop it, if this run made it."""
        if self._made:
            self._must(f"DROP DATABASE IF EXISTS `{self.name}`")
            self._made = False

    def kill(self, session: ProbeSession) -> None:
        """Stop what a session's server thread still does; it may have ended meanwhile."""
        outcome = self._control.run(kill_sql(self._control.server.flavor, session.thread_id), _SECONDS)
        if outcome.failed:
            raise ReadError(f"{self._side}: {outcome.failed}\n  SQL: {outcome.sql}")

    def _objects(self) -> list[tuple[str, str]]:
        found = []
        for name, kind in self._rows(
            f"SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = '{self.name}'"  # noqa: S608
        ):
            word = "VIEW" if "VIEW" in kind else "SEQUENCE" if "SEQUENCE" in kind else "TABLE"
            found.append((name, word))
        # views and foreign keys lean on tables, not the other way round
        return sorted(found, key=lambda one: one[1] != "VIEW")

    def _rows(self, sql: str) -> list[tuple[str, ...]]:
        outcome = self._must(sql)
        return [tuple("" if cell is None else cell for cell in row) for row in outcome.rows]

    def _must(self, sql: str) -> Outcome:
        outcome = self._control.run(sql, _SECONDS)
        if outcome.failed or outcome.errno:
            raise ReadError(f"{self._side}: {outcome.text()}\n  SQL: {sql}")
        return outcome
