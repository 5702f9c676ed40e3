"""``migverify changes check``: says whether the binlog of a source is fit to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, SourceOption, examples, json_text
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migverify.config import Config
    from migverify.guards.check import BinlogCheck
    from migverify.model import Endpoint

EPILOG = examples(
    "migverify changes check", "migverify changes check --json", "migverify changes check --server-id 4711"
)

ServerIdOption = Annotated[
    int | None,
    typer.Option("--server-id", min=1, max=4294967295, help="The server_id a reader is going to use: is it free?"),
]


def check(
    config: ConfigOption = DEFAULT_CONFIG,
    source: SourceOption = None,
    server_id: ServerIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the source whether its binlog can be read exactly; writes nothing. Exit 0: fit, 3: not fit, or not known."""
    from migverify.config import load_config
    from migverify.model import Verdict

    loaded = load_config(config)
    found = [check_source(loaded, endpoint, server_id) for endpoint in chosen_sources(loaded, source)]
    verdict = Verdict.worst([one.verdict for one in found])
    if as_json:
        sources = [preflight_as_dict(one) for one in found]
        typer.echo(json_text({"verdict": verdict.value, "sources": sources}))
    else:
        for one in found:
            for line in preflight_as_text(one):
                typer.echo(line)
    raise typer.Exit(int(ExitCode.MATCH if verdict is Verdict.MATCH else ExitCode.INCONCLUSIVE))


def chosen_sources(config: Config, name: str | None) -> list[Endpoint]:
    """Return the sources a command speaks of: all, or the one of this name (``eu`` or ``source.eu``).

    Raises
    ------
    UsageError
        no source has the name.
    """
    if name is None:
        return list(config.sources)
    found = [e for e in config.sources if name in (e.name, e.name.partition(".")[2])]
    if not found:
        names = ", ".join(e.name for e in config.sources)
        raise UsageError(f"no source is named {name!r}", hint=f"{config.path} has {names}.")
    return found


def one_source(config: Config, name: str | None) -> Endpoint:
    """Return the source that a command reads: each of several has a binlog and sessions of its own.

    Raises
    ------
    UsageError
        no source has the name, or there are several and none is named.
    """
    sources = chosen_sources(config, name)
    if len(sources) > 1:
        names = ", ".join(e.name for e in sources)
        raise UsageError(
            f"{len(sources)} sources are configured: {names}", hint=f"Choose one: --source {sources[0].name}"
        )
    return sources[0]


def check_source(config: Config, endpoint: Endpoint, server_id: int | None) -> BinlogCheck:
    """Ask one source."""
    from migverify.changes.server import log_begun
    from migverify.config import includes
    from migverify.db.session import open_session
    from migverify.guards.check import preflight
    from migverify.guards.check_read import Cached, CheckedServer, CheckPlan
    from migverify.secrets import resolve_password

    password = resolve_password(endpoint).reveal() or None
    with open_session(endpoint, password) as session:
        server = CheckedServer(
            endpoint, Cached(session), lambda d, t: includes(config, d, t), lambda _, d, t: (d, t),
            CheckPlan(reader_id=server_id),
            begun=lambda name: log_begun(endpoint, password, name),
        )  # fmt: skip
        return preflight(server)


def preflight_as_dict(found: BinlogCheck) -> dict[str, Any]:
    """Return what ``--json`` prints of one source."""
    return {
        "source": found.endpoint, "version": found.version, "platform": found.platform.value,
        "verdict": found.verdict.value, "reasons": list(found.reasons),
        "findings": [
            {"name": a.name, "state": a.state.value, "value": a.value, "wanted": a.threshold, "query": a.query,
             "why": a.why, "todo": a.todo}
            for a in found.answers
        ],
        "blind_spots": list(found.blind_spots),
    }  # fmt: skip


def preflight_as_text(found: BinlogCheck) -> Iterator[str]:
    """Yield the lines for a reader: what is wrong comes with the reason and the remedy, what passes is one line."""
    from migverify.guards.text import answer_lines

    yield f"{found.endpoint}: {found.version} ({found.platform.value})"
    yield from answer_lines(found.answers, passed=True)
    for spot in found.blind_spots:
        yield f"  blind spot   {spot}"
    fit = "fit to be read" if found.verdict.value == "MATCH" else "not fit to be read, or not proved to be"
    yield f"{found.endpoint}: {fit}"
    yield from (f"  {reason}" for reason in found.reasons)
