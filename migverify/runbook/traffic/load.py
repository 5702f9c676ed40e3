"""A traffic file -> its plan and its driver, or one ConfigError that names file, line and key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import ConfigError, UsageError
from migverify.runbook.actions.action import Context
from migverify.runbook.traffic.access_log import Sides
from migverify.runbook.traffic.model import Driver, check_ladder, hundredths

if TYPE_CHECKING:
    from migverify.runbook.traffic.document import CommandPart, NginxPart, ProxysqlPart, TrafficDocument
    from migverify.runbook.traffic.nginx import NginxInstance, Split

__all__ = ["Traffic", "load_traffic", "nginx_parts"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a traffic file says.

    Parameters
    ----------
    ladder
        Shares in hundredths of a percent.
    tolerance
        Points of percent; None: by the share.
    least_seconds
        What a change and its way back may take.
    """

    id: str
    writes: bool
    ladder: tuple[int, ...]
    tolerance: float | None
    confidence: float
    min_sample: int
    least_seconds: float
    document: TrafficDocument

    @contextmanager
    def driver(self, context: Context) -> Iterator[Driver]:
        """Give the driver, for as long as it is needed.

        Raises
        ------
        EndpointError
            an admin interface does not answer.
        """
        with ExitStack() as stack:
            yield _DRIVERS[self.document.driver.kind](self, context, stack)


def load_traffic(path: Path) -> Traffic:
    """Read a traffic file; relative paths in it are taken from its own folder.

    Raises
    ------
    ConfigError
        it is missing, is not YAML, has a wrong key, or asks for what no driver may do.
    """
    from migverify.config.problems import at, read_document, validate
    from migverify.runbook.traffic.document import TrafficDocument

    _, yaml = read_document(path, "traffic file", "docs/traffic.md shows one.")
    document = validate(path, yaml, TrafficDocument)
    driver = document.driver
    ladder = tuple(hundredths(rung) for rung in document.ladder)
    try:
        sticky = driver.kind == "nginx" or (driver.kind == "command" and driver.sticky)
        check_ladder(ladder, sticky=sticky, writes=document.carries == "writes")
    except UsageError as error:
        raise ConfigError(f"{at(path, yaml.place(('ladder',)))}: {error.message}", hint=error.hint) from None
    if driver.kind == "proxysql" and any(rung % 100 for rung in ladder):
        raise ConfigError(f"{at(path, yaml.place(('ladder',)))}: weights of ProxySQL take whole percents here")
    if driver.kind == "nginx" and document.carries == "writes" and driver.held is None:
        raise ConfigError(
            f"{at(path, yaml.place(('driver',)))}: writes without `held`: while instances change one after the other, a"
            " key would be written on both sides",
            hint="Add `held: held`, and `if ($..._side = held) { return 503; }` to the location.",
        )
    rounds = 2 if driver.kind == "nginx" and driver.held is not None else 1
    least = (rounds + 1) * len(driver.instances) * driver.settle
    return Traffic(
        document.id, document.carries == "writes", ladder, document.tolerance, document.confidence,
        document.min_sample, least, document,
    )  # fmt: skip


def nginx_parts(part: NginxPart) -> tuple[Split, tuple[NginxInstance, ...]]:
    """Return the split and the instances of a traffic file for nginx."""
    from migverify.runbook.traffic.nginx import NginxInstance, Split

    sides = Sides(part.old.value, part.new.value, frozenset(part.old.addresses), frozenset(part.new.addresses))
    instances = tuple(
        NginxInstance(
            one.name, Path(one.include), tuple(one.test), tuple(one.reload), one.status, Path(one.access_log),
            None if one.pid is None else Path(one.pid),
        )
        for one in part.instances
    )  # fmt: skip
    return Split(part.variable, part.key, sides, part.held or ""), instances


def _nginx(traffic: Traffic, context: Context, _stack: ExitStack) -> Driver:
    from migverify.runbook.traffic.nginx import NginxDriver

    part: NginxPart = traffic.document.driver  # type: ignore[assignment]
    split, instances = nginx_parts(part)
    return NginxDriver(split, instances, context, settle=part.settle, command_timeout=part.command_timeout)


def _proxysql(traffic: Traffic, _context: Context, stack: ExitStack) -> Driver:
    from migverify.db.session import open_unpinned
    from migverify.model import Endpoint
    from migverify.runbook.traffic.proxysql import ProxysqlDriver
    from migverify.secrets import resolve_variable

    part: ProxysqlPart = traffic.document.driver  # type: ignore[assignment]
    admins = {}
    for one in part.instances:
        password = resolve_variable(one.password_env, f"password_env of {one.name}").reveal()
        endpoint = Endpoint(
            f"admin interface {one.name}", one.host, one.port, one.user, one.password_env,
            tls=one.tls.for_host(one.host),
        )  # fmt: skip
        admins[one.name] = open_unpinned(endpoint, password, seconds=part.settle)
        stack.callback(admins[one.name].close)
    return ProxysqlDriver(traffic.id, part.hostgroup, part.old, part.new, admins, Path(part.state))


def _command(traffic: Traffic, context: Context, _stack: ExitStack) -> Driver:
    from migverify.runbook.traffic.command import CommandDriver, CommandInstance

    part: CommandPart = traffic.document.driver  # type: ignore[assignment]
    instances = [
        CommandInstance(one.name, tuple(one.set), tuple(one.read), tuple(one.measure)) for one in part.instances
    ]
    return CommandDriver(
        traffic.id, instances, context, sticky=part.sticky, state=Path(part.state), settle=part.settle,
        command_timeout=part.command_timeout,
    )  # fmt: skip


_DRIVERS: dict[str, Callable[[Traffic, Context, ExitStack], Any]] = {
    "nginx": _nginx, "proxysql": _proxysql, "command": _command,
}  # fmt: skip
