"""``migverify workload probe``: which known differences hold on this pair? ``waivers`` checks a file of waivers."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, StoreOption, examples, json_text, say
from migverify.cli.workload_clone import proved_clone
from migverify.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migverify.config import Config
    from migverify.model import Verdict
    from migverify.workload.catalogue.expected import ProbeOutcome
    from migverify.workload.catalogue.model import CatalogueEntry
    from migverify.workload.probe import ProbeResult
    from migverify.workload.probe_run import Prober, ProbeSide

EPILOG = examples(
    "migverify workload probe",
    "migverify workload probe --list --class blocker",
    "migverify workload probe --only gap-lock-001 --only skip-locked-001",
    "migverify workload probe --database rehearsal_probe --json > probe.json",
)
_COUNTED = {"holds": "hold", "does not hold": "do not hold", "changed": "changed", "not run": "not run"}
WAIVERS_EPILOG = examples("migverify config --waivers waivers.yaml")


def probe(
    config: ConfigOption = DEFAULT_CONFIG,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="ID", help="This entry; may be repeated.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--class", metavar="CLASS", help="Entries of this class; may be repeated.")
    ] = None,
    database: Annotated[
        str, typer.Option(metavar="NAME", help="The scratch database: created, and dropped at the end.")
    ] = "migverify_probe",
    accounts: Annotated[bool, typer.Option("--accounts", help="Run probes that create a user, too.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit of one statement.")] = 20.0,
    listing: Annotated[bool, typer.Option("--list", help="Only list the entries; ask no server.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Ask both sides what they really answer; exit 0 no blocker holds, 1 a blocker holds, 3 not all ran.

    Tables are made in the scratch database only: on the target, and on the source where it is proved to be a rehearsal
    clone. Elsewhere the source is not asked, and the catalogue's answer is used for it.
    """
    from migverify.workload.catalogue.load import load

    chosen = _chosen(load().entries, only or [], kind or [])
    if listing:
        _list(chosen, as_json=as_json)
        return
    entries = [entry for entry in chosen if entry.probe is not None]
    if not entries:
        raise UsageError("none of these entries has a probe", hint="`migverify workload probe --list` says why.")
    _probe(config, entries, database, store, accounts=accounts, seconds=seconds, as_json=as_json)


def _chosen(entries: Sequence[CatalogueEntry], only: list[str], kinds: list[str]) -> list[CatalogueEntry]:
    from migverify.workload.catalogue.load import load
    from migverify.workload.catalogue.model import EntryClass

    known = [one.value for one in EntryClass]
    for name in kinds:
        if name not in known:
            raise UsageError(f"--class {name}: there is no such class", hint=f"Classes: {', '.join(known)}.")
    for name in only:
        load().entry(name)
    return [
        entry for entry in entries if (not only or entry.id in only) and (not kinds or entry.kind.value in kinds)
    ]  # fmt: skip


def _list(entries: Sequence[CatalogueEntry], *, as_json: bool) -> None:
    if as_json:
        found = [
            {"id": e.id, "class": e.kind.value, "title": e.title, "needs": e.probe.needs.value if e.probe else None}
            for e in entries
        ]
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    for entry in entries:
        needs = entry.probe.needs.value if entry.probe else "no probe"
        typer.echo(f"{entry.id:<34} {entry.kind.value:<13} {needs:<9} {entry.title}")


def _probe(
    config: Path, entries: list[CatalogueEntry], database: str, url: str | None, *, accounts: bool, seconds: float,
    as_json: bool
) -> None:  # fmt: skip
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.workload.probe import verdict
    from migverify.workload.probe_run import ProbeOptions, Prober
    from migverify.workload.probe_store import add_probe, finish_probe, start_probe

    loaded = load_config(config)
    source, target = _sides(loaded)
    clone, why_not = proved_clone(loaded, source.endpoint, source.password)
    options = ProbeOptions(database, source_clone=clone, accounts=accounts, seconds=seconds)
    addresses = {end.side: f"{end.endpoint.host}:{end.endpoint.port}" for end in (source, target)}
    begun = time.monotonic()
    with closing(open_run_store(url, config)) as results, Prober(source, target, options) as prober:
        run_id = start_probe(results, addresses, prober.servers, [entry.id for entry in entries])
        if not as_json:
            _say_head(prober, run_id, why_not)

        def show(result: ProbeResult) -> None:
            add_probe(results, run_id, result)
            if not as_json:
                _print(result)

        found = prober.run(entries, show)
        answer, reasons = verdict(found)
        finish_probe(results, run_id, answer, reasons, time.monotonic() - begun)
    _end(answer, reasons, found, run_id, why_not, as_json=as_json)


def _sides(config: Config) -> tuple[ProbeSide, ProbeSide]:
    from migverify.model import Side
    from migverify.secrets import resolve_password
    from migverify.workload.probe_run import ProbeSide

    sources = [endpoint for endpoint in config.all_endpoints if endpoint.name.split(".")[0] == "source"]
    targets = [endpoint for endpoint in config.all_endpoints if endpoint.name == "target"]
    if not sources or not targets:
        raise ConfigError("probes need a source and a target", hint="`migverify init` writes a configuration.")
    # shards are of one kind: the first answers for all
    ends = []
    for side, endpoint in ((Side.SOURCE, sources[0]), (Side.TARGET, targets[0])):
        has_secret = endpoint.password_env or endpoint.password_command
        ends.append(ProbeSide(side, endpoint, resolve_password(endpoint).reveal() if has_secret else None))
    return ends[0], ends[1]


def _say_head(prober: Prober, run_id: str, why_not: str) -> None:
    for side, server in prober.servers.items():
        say(f"{side.value}: {server.flavor.value} {server.text}")
    if why_not:
        say(f"the source gets no tables, its answers are the catalogue's where a probe needs some: {why_not}")
    say(f"run {run_id}")


def _print(result: ProbeResult) -> None:
    said = f": {result.reason}" if result.reason else ""
    only = " (target only)" if result.target_only else ""
    typer.echo(f"{result.state.value:<13} {result.entry.id:<34} {result.entry.kind.value}{only}{said}")
    if result.state.value == "not run":
        return
    for one, other in zip(result.source.outcomes, result.target.outcomes, strict=True):
        typer.echo(f"    {_short(one.sql, 110)}")
        typer.echo(f"      source{', expected' if one.expected else ''}: {_short(_answer(result, one), 110)}")
        typer.echo(f"      target: {_short(_answer(result, other), 110)}")


def _answer(result: ProbeResult, outcome: ProbeOutcome) -> str:
    """Return an answer, with its columns where the probe is about them."""
    if outcome.expected or not outcome.columns or result.entry.probe is None:
        return outcome.text()
    about = any(one.columns is not None for expected in result.entry.probe.expect for one in expected.outcomes)
    return f"{outcome.text()}; columns {'; '.join(outcome.columns)}" if about else outcome.text()


def _short(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."


def _end(
    answer: Verdict, reasons: list[str], found: list[ProbeResult], run_id: str, why_not: str, *, as_json: bool
) -> None:  # fmt: skip
    if as_json:
        body = {
            "run": run_id, "verdict": answer.value, "reasons": reasons, "source_not_asked": why_not,
            "results": [result.as_json() for result in found],
        }  # fmt: skip
        typer.echo(json_text(body))
    else:
        states = [result.state.value for result in found]
        counts = [f"{states.count(state)} {words}" for state, words in _COUNTED.items() if state in states]
        typer.echo(f"{len(found)} probes: {', '.join(counts)}")
        for reason in reasons:
            typer.echo(f"{answer.value}: {reason}")
    raise typer.Exit(int(answer.exit_code))


def waivers(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of waivers.")],
    as_json: JsonOption = False,
) -> None:
    """Read a file of waivers, refuse what is not whole (exit 2), and say which hold and which have expired."""
    from migverify.workload.catalogue.waivers import load_waivers

    found = load_waivers(file)
    for note in found.notes():
        say(f"note: {note}")
    if as_json:
        body = [
            {"entry": one.entry, "digest": one.digest, "owner": one.owner, "reason": one.reason,
             "expires": one.expires.isoformat(), "where": one.where, "holds": one in found.holding}
            for one in (*found.holding, *found.expired)
        ]  # fmt: skip
        typer.echo(json.dumps(body, ensure_ascii=False))
        return
    for one in found.holding:
        typer.echo(f"{one.entry or one.digest}  until {one.expires}  {one.owner}: {one.reason}")
    typer.echo(f"{file}: {len(found.holding)} hold, {len(found.expired)} have expired", err=not sys.stdout.isatty())
