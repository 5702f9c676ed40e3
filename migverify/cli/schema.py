"""``migverify guard schema``: definitions as they are, how they differ, what changed, and what became stale by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, command_line, examples, say
from migverify.cli.guards import (
    AllOption,
    GuardOptions,
    MetricsFileOption,
    StoreOption,
    WatchOption,
    run_guards,
)
from migverify.cli.watching import MetricsAddressOption, period_seconds
from migverify.errors import ExitCode, UsageError
from migverify.files import write_whole
from migverify.model import StoredKind

if TYPE_CHECKING:
    from migverify.guards.model import GuardResult
    from migverify.guards.schema_drift import Drift
    from migverify.guards.schema_guard import SchemaGuard
    from migverify.guards.schema_model import DefinitionComparison, Snapshot
    from migverify.guards.scope import Scope
    from migverify.store.results import ResultStore

DIFF_EPILOG = examples(
    "migverify guard schema",
    "migverify guard schema --json | jq '.tables[] | select(.equal | not)'",
    "migverify guard schema --from staging.json --to source",
    "migverify guard schema --allow drift.yaml --strict",
    "migverify guard schema --snapshot --out staging.json",
    "migverify guard schema --baseline last",
)
SNAPSHOT_EPILOG = examples("migverify guard schema --snapshot", "migverify guard schema --snapshot --out s.json --json")
GUARD_EPILOG = examples(
    "migverify guard schema --baseline last",
    "migverify guard schema --watch --every 5s --metrics-port 9101",
    "migverify guard schema --baseline staging.json --allow drift.yaml --json",
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AllowOption = Annotated[
    Path | None, typer.Option("--allow", metavar="FILE", help="Allowed drift: entries with owner, reason and last day.")
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Fail on cosmetic differences too.")]
_DEFAULT_EVERY = 5.0


def snapshot(
    config: ConfigOption = DEFAULT_CONFIG,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it to a file too.")] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Keep the definitions of both sides as they are now: what later changes are compared with.

    Exit 0: kept. `guard schema` says whether they are equal.
    """
    from migverify.cli.report import open_run_store
    from migverify.guards.keep import GuardRecorder
    from migverify.guards.schema_keep import keep_side, kept_result
    from migverify.guards.schema_model import NAME, to_json
    from migverify.guards.schema_read import read_snapshot

    scope = _scope(config)
    with closing(open_run_store(store, config)) as opened:
        found = read_snapshot(scope)
        if not any(side.tables for side in found.sides):
            raise UsageError("no table is in scope on any side", hint="tables.include names what takes part.")
        prints = found.fingerprints()
        facts = {**scope.facts(), "fingerprints": prints}
        plan = {"guards": [NAME], "snapshot": True}
        run_id = opened.start_run(command_line(), "", plan, facts, kind=StoredKind.GUARDS)
        for side in found.sides:
            keep_side(opened, run_id, side)
        kept = GuardRecorder(opened, run_id)
        reported = kept_result(found)
        kept.add(reported)
        kept.finish([reported])
    if out is not None:
        _write(out, json.dumps(to_json(found), ensure_ascii=False, indent=1))
    if as_json:
        tables = {f"{s.endpoint}/{t.name}": t.fingerprint for s in found.sides for t in s.tables}
        typer.echo(json.dumps({"run": run_id, "taken": found.taken, "fingerprints": prints, "tables": tables},
                              ensure_ascii=False))  # fmt: skip
        return
    for side in found.sides:
        typer.echo(f"{side.endpoint:<12} {len(side.tables):>6} tables  {side.fingerprint}")
    typer.echo(f"kept as run {run_id}{f' and in {out}' if out else ''}")


def diff(
    config: ConfigOption = DEFAULT_CONFIG,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="SNAPSHOT", help="A file, a run, `last`, `source` or `target`.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="SNAPSHOT", help="What to compare it with; default: as it is now.")
    ] = None,
    allow: AllowOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
    passed: AllOption = False,
    store: StoreOption = None,
) -> None:
    """Tell how the definitions differ: of source and target, or of one side with what it was in a snapshot.

    Exit 0: alike but for cosmetic or allowed differences, 1: not, 3: not known.
    """
    from migverify.cli.report import open_run_store
    from migverify.guards.schema_guard import DriftLimits, SchemaGuard
    from migverify.guards.schema_keep import keep_side

    scope, drift, limits = _scope(config), _drift(allow), DriftLimits(strict)
    opened = open_run_store(store, config)
    if from_ is not None or to is not None:
        with closing(opened):
            _diff_of_two(scope, opened, from_ or "source", to, drift, limits, as_json=as_json, passed=passed)
    run: list[str] = []
    guard = SchemaGuard(
        scope, drift, limits, watch_changes=False, on_reading=lambda side: keep_side(opened, run[0], side)
    )

    def render(results: Sequence[GuardResult]) -> dict[str, Any]:
        body = _rendered(guard.comparisons, guard.snapshot)
        unasked = [words for result in results for words in result.unasked]
        return {**body, "equal": body["equal"] and not unasked, "unasked": unasked}

    asking = GuardOptions(as_json=as_json, passed=passed, render=render, lines=_by_cause(guard, passed=passed))
    run_guards([guard], opened, asking, scope.facts(), run.append)


def guard(
    config: ConfigOption = DEFAULT_CONFIG,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="SNAPSHOT", help="What must not change: a file or a run; default: the newest snapshot."),
    ] = None,
    allow: AllowOption = None,
    strict: StrictOption = False,
    watch: WatchOption = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="TIME", parser=period_seconds, help="Time between two askings (5s, 2m); watches."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; with --watch one a turn.")] = False,
    passed: AllOption = False,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Tell what changed since the baseline on either side, who did it, when, and which runs became stale by it.

    Exit 0: nothing that matters, 1: something did, 3: not known.
    """
    from migverify.cli.report import open_run_store
    from migverify.guards.schema_guard import DriftLimits, SchemaGuard
    from migverify.guards.schema_keep import EarlierRuns, keep_side, newest_snapshot

    scope = _scope(config)
    opened = open_run_store(store, config)
    base = newest_snapshot(opened, scope.servers) if baseline in (None, "last") else _named(scope, opened, baseline)
    standing = watch or every is not None
    run: list[str] = []
    asked = SchemaGuard(
        scope, _drift(allow), DriftLimits(strict), base, lambda: EarlierRuns(opened, *run[:1]), standing,
        on_reading=lambda side: keep_side(opened, run[0], side),
    )  # fmt: skip
    asking = GuardOptions(
        as_json, standing, every or _DEFAULT_EVERY, metrics_port, metrics_file, passed,
        lines=_by_cause(asked, passed=passed),
    )  # fmt: skip
    run_guards([asked], opened, asking, scope.facts(), run.append)


def make_guard(config: Path, store: ResultStore, run: list[str]) -> SchemaGuard:
    """Return the guard that compares both sides; definitions are kept under the run whose id ``run`` will hold."""
    from migverify.guards.schema_drift import Drift
    from migverify.guards.schema_guard import DriftLimits, SchemaGuard
    from migverify.guards.schema_keep import keep_side

    return SchemaGuard(
        _scope(config), Drift(), DriftLimits(strict=False), watch_changes=False,
        on_reading=lambda side: keep_side(store, run[0], side),
    )  # fmt: skip


# --- what the commands share ---------------------------------------------------------------------------------


def _scope(config: Path) -> Scope:
    from migverify.config import load_config
    from migverify.guards.scope import Scope

    # The definitions of now, not those of a snapshot that a verification reads at.
    return Scope.of(load_config(config).at_snapshot(None))


def _drift(path: Path | None) -> Drift:
    from migverify.guards.schema_drift import Drift, load_drift

    drift = Drift() if path is None else load_drift(path)
    for one in drift.expired:
        say(f"{one.where}: allowed drift of {one.owner} expired on {one.expires}; it counts no more")
    return drift


def _named(scope: Scope, store: ResultStore, name: str) -> Snapshot:
    """Return a snapshot by its file or run, or the endpoints as they are now."""
    from migverify.guards.schema_keep import load_snapshot, newest_snapshot
    from migverify.guards.schema_model import from_json
    from migverify.guards.schema_read import read_snapshot

    names = {e.name for e in (*scope.config.sources, scope.config.target)}
    if name in names:
        found = read_snapshot(scope)
        side = found.side(name)
        if side is not None:
            return type(found)(found.taken, (side,), f"{name} now")
    path = Path(name)
    if path.is_file():
        return from_json(path.read_bytes(), str(path))
    if name == "last":
        newest = newest_snapshot(store, scope.servers)
        if newest is None:
            raise UsageError(
                "the store holds no snapshot of these servers", hint="`migverify guard schema --snapshot` keeps one."
            )
        return newest
    return load_snapshot(store, name)


def _diff_of_two(
    scope: Scope, store: ResultStore, from_: str, to: str | None, drift: Drift, limits: Any, *, as_json: bool,
    passed: bool,
) -> None:  # fmt: skip
    """Compare two snapshots and exit: of one endpoint over time, or the source of one with the target of the other."""
    from migverify.guards.schema_causes import cause_lines, causes_of, is_to_tidb
    from migverify.guards.schema_guard import judged
    from migverify.guards.schema_keep import compare_named
    from migverify.guards.schema_read import read_snapshot

    first = _named(scope, store, from_)
    second = read_snapshot(scope) if to is None else _named(scope, store, to)
    comparisons = compare_named(scope, first, second, drift)
    failing = [c for c in comparisons if judged(c.differences, limits)]
    if as_json:
        typer.echo(json.dumps({**_rendered(comparisons, None), "from": first.label, "to": second.label or "now"},
                              ensure_ascii=False))  # fmt: skip
    else:
        typer.echo(f"{first.label or from_} -> {second.label or 'now'}")
        for one in comparisons if passed else ():
            if one.equal:
                typer.echo(f"  {one.table}: equal")
        target = second.sides[0] if len(second.sides) == 1 else second.side(scope.config.target.name)
        for line in cause_lines(causes_of(comparisons, to_tidb=is_to_tidb(first.sides, target)), everything=passed):
            typer.echo(line)
        typer.echo(f"{sum(1 for c in comparisons if not c.equal)} tables differ")
    raise typer.Exit(int(ExitCode.MISMATCH if failing else ExitCode.MATCH))


def _by_cause(guard: SchemaGuard, *, passed: bool) -> Callable[[GuardResult], Iterator[str]]:
    """Return what gives the lines of a guard: what differs by its cause, then the other answers."""
    from migverify.guards.model import AnswerState
    from migverify.guards.schema_causes import cause_lines, causes_of, is_to_tidb
    from migverify.guards.text import answer_lines, headline, unasked_lines

    def lines(result: GuardResult) -> Iterator[str]:
        yield headline(result)
        if guard.snapshot is not None:
            target = guard.snapshot.side(guard.scope.config.target.name)
            causes = causes_of(guard.comparisons, to_tidb=is_to_tidb(guard.snapshot.sides, target))
            yield from cause_lines(causes, everything=passed)
            if causes:
                yield "  Change one side, or allow a difference with owner and day (--allow). Each one: --json."
        rest = [a for a in result.answers if a.name != "alike" or a.state is AnswerState.PASS]
        yield from answer_lines(rest, passed=passed)
        yield from unasked_lines(result)

    return lines


def _rendered(comparisons: Sequence[DefinitionComparison], snapshot: Snapshot | None) -> dict[str, Any]:
    prints = {} if snapshot is None else snapshot.fingerprints()
    return {
        "equal": bool(comparisons) and all(one.equal for one in comparisons), "fingerprints": prints,
        "not_seen": {} if snapshot is None else {s.endpoint: list(s.hidden) for s in snapshot.sides if s.hidden},
        "tables": [one.as_json() for one in comparisons],
    }  # fmt: skip


def _write(path: Path, text: str) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {path.name}", hint="Create it first.")
    write_whole(path, text.encode())
