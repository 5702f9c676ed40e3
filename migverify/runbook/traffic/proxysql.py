"""ProxySQL: weights of the servers of a hostgroup, over the admin interface.

A weight moves connections and statements by chance, so no key has a side: writes can only be moved all at once. The
weights are whole numbers; ``weights_of`` finds the ones that give a share exactly. The generation of a change stands in
the comment of every server, so that what is configured (``mysql_servers``) and what is served
(``runtime_mysql_servers``) can be told apart by more than a number.

Counters (``stats_mysql_connection_pool``) count from ProxySQL's start, so those of the moment of a change are kept in
the state folder, and a measurement is what was added since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any, Protocol

from migverify.codec import parse_json
from migverify.errors import MigverifyError, TrafficError
from migverify.runbook.traffic.files import change_locks, replace_text
from migverify.runbook.traffic.model import FULL, Reading, Setting, is_generation, percent
from migverify.runbook.traffic.tally import SideTally, Tally

__all__ = ["Admin", "ProxysqlDriver", "weights_of"]

MOST_WEIGHT = 10_000_000
"""ProxySQL's own limit."""
_COMMENT = re.compile(
    r"migverify generation=(?P<generation>\S+) share=(?P<share>[0-9]+) was=(?P<was>[0-9]+)"
    r" previous=(?P<previous>\S*) at=(?P<at>[0-9.]+)"
)
_SELECT = "SELECT hostname, port, status, weight, comment FROM {table} WHERE hostgroup_id = {hostgroup}"
_POOL = "SELECT srv_host, srv_port, Queries, ConnERR FROM stats_mysql_connection_pool WHERE hostgroup = {hostgroup}"

Row = tuple[Any, ...]


class Admin(Protocol):
    """A session on the admin interface of one ProxySQL; both raise TrafficError."""

    def query(self, sql: str) -> list[Row]:
        """Return the rows of a statement."""

    def execute(self, sql: str) -> int:
        """Carry a statement out; returns how many rows it changed."""


def weights_of(share: int, old: int, new: int) -> tuple[int, int]:
    """Return the weights of each old and each new server that give a share exactly, as small as can be.

    Parameters
    ----------
    share
        Of all new servers together, in hundredths of a percent.
    old, new
        How many servers each side has.
    """
    if share in (0, FULL):
        return (1, 0) if share == 0 else (0, 1)
    mine, its = (FULL - share) * new, share * old
    divisor = gcd(mine, its)
    return mine // divisor, its // divisor


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    weight: int
    status: str
    comment: str


class ProxysqlDriver:
    """Drives ProxySQL instances; see ``traffic.Driver``.

    Parameters
    ----------
    admins
        Instance -> session on its admin interface.
    """

    sticky = False

    def __init__(
        self, name: str, hostgroup: int, old: Sequence[str], new: Sequence[str], admins: Mapping[str, Admin],
        state: Path,
    ) -> None:  # fmt: skip
        self._name, self._hostgroup, self._old, self._new = name, hostgroup, tuple(old), tuple(new)
        self._admins, self._state = admins, state

    @property
    def instances(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._admins)

    @property
    def holds(self) -> bool:
        """Keys are not refused by this driver."""
        return False

    @property
    def predicts(self) -> Callable[[bytes, int], bool] | None:
        """Chance decides."""
        return None

    def locked(self) -> AbstractContextManager[None]:
        """Hold a lock in the state folder, which all who change this traffic have to share."""
        return change_locks([self._state / f"{self._name}.lock"], own_folder=True)

    def configured(self, instance: str) -> Setting:
        """Return what ``mysql_servers`` says."""
        return self._setting(instance, "mysql_servers")

    def _setting(self, instance: str, table: str) -> Setting:
        servers = self._servers(instance, table)
        online = [one.name for one in servers if one.status == "ONLINE"]
        if sorted(online) != sorted((*self._old, *self._new)):
            raise TrafficError(
                f"{instance}: {table} has {', '.join(sorted(online)) or 'no server'} online in hostgroup"
                f" {self._hostgroup}, the traffic file {', '.join(sorted((*self._old, *self._new)))}"
            )
        comments = {one.comment for one in servers}
        found = _COMMENT.fullmatch(next(iter(comments))) if len(comments) == 1 else None
        if found is None or not is_generation(found["generation"]):
            raise TrafficError(f"{instance}: {table}: the servers' comments name no single generation",
                               hint="`traffic init` writes the first one.")  # fmt: skip
        setting = Setting(
            int(found["share"]), found["generation"], int(found["was"]), found["previous"], float(found["at"])
        )
        wanted = self._weights(setting.share)
        wrong = [f"{one.name} {one.weight}" for one in servers if one.weight != wanted[one.name]]
        if wrong:
            raise TrafficError(
                f"{instance}: {table}: weights are not of {percent(setting.share)} %: {', '.join(wrong)}"
            )
        return setting

    def _servers(self, instance: str, table: str) -> list[_Server]:
        rows = self._admins[instance].query(_SELECT.format(table=table, hostgroup=self._hostgroup))
        return [
            _Server(f"{host}:{port}", int(weight), str(status), str(comment))
            for host, port, status, weight, comment in rows
        ]

    def _weights(self, share: int) -> dict[str, int]:
        old, new = weights_of(share, len(self._old), len(self._new))
        if max(old, new) > MOST_WEIGHT:
            raise TrafficError(f"{percent(share)} % needs weights above {MOST_WEIGHT}")
        return dict.fromkeys(self._old, old) | dict.fromkeys(self._new, new)

    def write(self, instance: str, setting: Setting, expected: Setting | None) -> None:
        """Set weights and comment of every server; only a row that is still as expected is changed."""
        before = self.configured(instance) if expected is not None else None
        if before != expected:
            raise TrafficError(f"{instance} is not what was expected: another writer changed it")
        try:
            self._update(instance, setting, _comment(setting), expected)
        except MigverifyError as error:
            if expected is not None:
                self._update(instance, expected, _comment(expected), None)
            raise TrafficError(f"{instance}: {error.message}") from None

    def _update(self, instance: str, setting: Setting, comment: str, expected: Setting | None) -> None:
        for name, weight in self._weights(setting.share).items():
            host, _, port = name.rpartition(":")
            where = f"hostgroup_id = {self._hostgroup} AND hostname = {_text(host)} AND port = {int(port)}"
            if expected is not None:
                where += f" AND comment = {_text(_comment(expected))}"
            changed = self._admins[instance].execute(
                f"UPDATE mysql_servers SET weight = {weight}, comment = {_text(comment)} WHERE {where}"  # noqa: S608
            )
            if changed != 1:
                raise TrafficError(f"{changed} rows of {name} were changed where one was expected: another writer")

    def apply(self, instance: str) -> None:
        """Load what is configured to runtime, save it to disk, and keep the counters of this moment."""
        setting, admin = self.configured(instance), self._admins[instance]
        admin.execute("LOAD MYSQL SERVERS TO RUNTIME")
        admin.execute("SAVE MYSQL SERVERS TO DISK")
        self._keep(instance, setting.generation, self._counters(instance))

    def served(self, instance: str) -> Reading:
        """Return what ``runtime_mysql_servers`` says."""
        setting = self._setting(instance, "runtime_mysql_servers")
        return Reading(setting.share, setting.generation)

    def settled(self, instance: str, setting: Setting) -> Reading:  # noqa: ARG002 - LOAD ... TO RUNTIME returns when done
        """Return what is served: loading is over when its statement is."""
        return self.served(instance)

    def _counters(self, instance: str) -> dict[str, list[int]]:
        rows = self._admins[instance].query(_POOL.format(hostgroup=self._hostgroup))
        return {f"{host}:{port}": [int(queries), int(errors)] for host, port, queries, errors in rows}

    def _path(self, instance: str) -> Path:
        return self._state / f"{self._name}.{instance}.counters.json"

    def _keep(self, instance: str, generation: str, counters: dict[str, list[int]]) -> None:
        replace_text(self._path(instance), json.dumps({"generation": generation, "counters": counters}))

    def measure(self, instance: str, generations: Sequence[str], since: float) -> Mapping[str, Tally]:  # noqa: ARG002
        """Return what was added to the counters since the change; ``since`` is the change itself.

        Statements that began before the change count as its own: a few, and none of a key.
        """
        try:
            kept = parse_json(self._path(instance).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TrafficError(f"{instance}: no counters of the change: {type(error).__name__}") from None
        if kept["generation"] not in generations:
            raise TrafficError(f"{instance}: the counters that were kept are of {kept['generation']}")
        now, tally = self._counters(instance), Tally(unmeasured=frozenset({"latency", "keys"}))
        for names, side in ((self._old, tally.old), (self._new, tally.new)):
            for name in names:
                _add(side, kept["counters"].get(name, [0, 0]), now.get(name, [0, 0]), tally, f"{instance}: {name}")
        tally.lines = tally.requests
        return {kept["generation"]: tally}


def _comment(setting: Setting) -> str:
    return (
        f"migverify generation={setting.generation} share={setting.share} was={setting.was}"
        f" previous={setting.previous} at={setting.at!r}"
    )


def _add(side: SideTally, before: Sequence[int], now: Sequence[int], tally: Tally, where: str) -> None:
    if now[0] < before[0] or now[1] < before[1]:
        tally.lost = f"{where}: the counters were set back since the change"
        return
    side.requests += now[0] - before[0]
    side.errors += now[1] - before[1]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
