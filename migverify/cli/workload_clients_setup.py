"""What ``workload clients`` sets up: endpoints or servers of its own, proofs, scratch databases, proxies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.cli.console import say
from migverify.errors import EndpointError, UsageError, wheel_hint
from migverify.model import Endpoint, Side, Tls

if TYPE_CHECKING:
    from migverify.db.session import Session
    from migverify.secrets import Secret
    from migverify.workload.clients.run import Tools


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What the options say."""

    config: Path
    database: str
    own_servers: bool
    source_is_scratch: bool
    keep: bool
    repository: str | None
    python: str
    shard: str | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything a run needs, and what the servers are."""

    tools: Tools
    facts: Mapping[str, str]


def _own_servers(say: Callable[[str], None]) -> AbstractContextManager[Mapping[str, Any]]:
    """Return the lab's servers for ``--own-servers``; the lab is a distribution of its own."""
    try:
        from migverify_lab.client_servers import own_servers
    except ImportError as missing:
        raise UsageError(
            "--own-servers starts servers of the lab, which is not installed",
            hint=f"{wheel_hint(lab=True)}.",
        ) from missing
    return own_servers(say)


@contextmanager
def set_up(options: ClientOptions) -> Iterator[Ready]:
    """Connect to both sides, take the scratch databases and start proxies; all is released afterwards.

    Raises
    ------
    ConfigError, UsageError, EndpointError, LabError
        an endpoint cannot be used so.
    """
    from migverify.workload.clients.proxy import NetworkController
    from migverify.workload.clients.run import ClientSide, Tools
    from migverify.workload.scratch import CLIENTS, ScratchDatabase

    with ExitStack() as stack:
        endpoints, secrets, marker = _endpoints(options)
        restart = None
        if options.own_servers:
            servers = stack.enter_context(_own_servers(say))
            endpoints = {
                side: Endpoint(side, one.server.host, one.server.port, one.server.user, tls=Tls("disabled"))
                for side, one in servers.items()
            }
            restart = {side: one.restart for side, one in servers.items()}
        sessions = {
            side: stack.enter_context(_session(endpoint, secrets[side])) for side, endpoint in endpoints.items()
        }
        if not options.own_servers and not options.source_is_scratch:
            _refuse_production(options, sessions, marker)
        for side, session in sessions.items():
            scratch = ScratchDatabase(session, options.database, side, CLIENTS)
            if not options.keep and not options.own_servers:
                stack.callback(scratch.drop)  # servers of our own go away with their data
            scratch.make_once()
        addresses = {side: (one.host, one.port) for side, one in endpoints.items()}
        controller = NetworkController(addresses, None if restart is None else lambda side: restart[side]())
        stack.callback(controller.close)
        sides = {
            side: ClientSide(
                _address(endpoint), controller.proxies[side].address, endpoint.user, options.database,
                secrets[side], _tls(endpoint, sessions[side]),
            )
            for side, endpoint in endpoints.items()
        }  # fmt: skip
        facts = {side: f"{one.flavor.value} {one.version}" for side, one in sessions.items()}
        yield Ready(Tools(sides, controller, options.repository, options.python, say), facts)


def _endpoints(options: ClientOptions) -> tuple[dict[str, Endpoint], dict[str, Secret], str | None]:
    from migverify.config import load_config
    from migverify.secrets import Secret, resolve_password

    if options.own_servers:
        return {}, {"source": Secret(""), "target": Secret("")}, None
    config = load_config(options.config)
    sources = {one.name.partition(".")[2]: one for one in config.sources}
    if options.shard is None and len(sources) > 1:
        raise UsageError(f"the configuration has {len(sources)} sources", hint=f"--shard {' | '.join(sources)}")
    source = next(iter(sources.values())) if options.shard is None else sources.get(options.shard)
    if source is None:
        raise UsageError(f"--shard {options.shard!r} is not in the configuration", hint=f"It has {', '.join(sources)}.")
    endpoints = {"source": source, "target": config.target}
    secrets = {side: resolve_password(endpoint) for side, endpoint in endpoints.items()}
    return endpoints, secrets, config.workload.clone_marker


@contextmanager
def _session(endpoint: Endpoint, secret: Secret) -> Iterator[Session]:
    from migverify.db.session import open_session

    # Not pinned read-only: this session makes the scratch database. A snapshot has no meaning for clients.
    with open_session(replace(endpoint, snapshot=None), secret.reveal(), side=Side.TARGET) as session:
        yield session


def _refuse_production(options: ClientOptions, sessions: Mapping[str, Session], marker: str | None) -> None:
    """Nothing is made on a source that did not prove to be a clone, unless the user says that it is no production."""
    from migverify.workload.replay.clone import prove

    try:
        prove(sessions["source"], marker)
    except EndpointError as error:
        raise UsageError(
            f"scenarios create tables in the database {options.database} of both sides. {error.message}",
            hint=f"{error.hint.rstrip('.')}. Or --own-servers; or --source-is-scratch when this source is no production"
            " server.",
        ) from error


def _address(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


def _tls(endpoint: Endpoint, session: Session) -> str:
    """``preferred`` becomes what the server offers; a mode that checks certificates is refused, never weakened."""
    mode = endpoint.tls.mode
    if mode in ("disabled", "required") and not endpoint.tls.cert:
        return mode
    if mode == "preferred":
        rows = session.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return "required" if rows and rows[0][1] else "disabled"
    raise UsageError(
        f"{endpoint.name}: tls mode {mode}{' with a client certificate' if endpoint.tls.cert else ''} is not available"
        " in `workload clients`: each driver wants its certificates in a form of its own",
        hint="Use an endpoint with tls mode required or disabled for these tests.",
    )
