"""What the commands of guards share: options, one asking or a standing watch, output, store, exit codes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from migverify.cli.console import command_line, json_text, say
from migverify.cli.watching import ListenAddress, Publish, metrics_page, period_seconds, stop_on_signals
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.guards.keep import GuardRecorder
    from migverify.guards.model import GuardResult, StandingGuard
    from migverify.guards.watch import GuardsStatus
    from migverify.store.results import ResultStore

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object; with --watch one a turn.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Ask again and again until Ctrl-C; tell what changes.")]
EveryOption = Annotated[
    float, typer.Option("--every", metavar="TIME", parser=period_seconds, help="Time between two askings (30s, 5m).")
]
MetricsFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep the metrics in a file, for a textfile collector.")
]
StoreOption = Annotated[str | None, typer.Option(metavar="URL", help="Result store; default: the configuration's.")]
AllOption = Annotated[bool, typer.Option("--all", help="List what passes too.")]


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """How a command asks. ``render`` and ``lines`` replace the JSON and the text where a command has its own."""

    as_json: bool = False
    watch: bool = False
    every: float = 30.0
    metrics_port: ListenAddress | None = None
    metrics_file: Path | None = None
    passed: bool = False
    render: Callable[[Sequence[GuardResult]], Any] | None = None
    lines: Callable[[GuardResult], Iterable[str]] | None = None

    def text(self, result: GuardResult) -> Iterable[str]:
        """Return the lines of one result."""
        from migverify.guards.text import result_lines

        return self.lines(result) if self.lines is not None else result_lines(result, passed=self.passed)


def run_guards(
    guards: Sequence[StandingGuard],
    store: ResultStore,
    asking: GuardOptions,
    facts: Mapping[str, Any] | None = None,
    on_begin: Callable[[str], None] = lambda _: None,
) -> NoReturn:
    """Ask the guards, once or as a watch, keep the answers in the store, print them, and exit by the verdict.

    Parameters
    ----------
    store
        Closed at the end.
    facts
        What the run keeps beside the answers: endpoints, versions.
    on_begin
        Called with the run's id before the first asking.

    Raises
    ------
    UsageError
        metrics were requested without a watch.
    """
    if not asking.watch and asking.metrics_port is not None:
        raise UsageError("--metrics-port belongs to --watch", hint="One asking can be kept by --metrics-file.")
    from migverify.guards.keep import GuardRecorder, begin

    with ExitStack() as stack:
        stack.enter_context(closing(store))
        publish = stack.enter_context(metrics_page(asking.metrics_port, asking.metrics_file))
        command = command_line()
        kept = GuardRecorder(store, begin(store, command, [guard.name for guard in guards], facts or {}))
        on_begin(kept.run_id)
        verdict = _watched(guards, kept, asking, publish) if asking.watch else _once(guards, kept, asking, publish)
    raise typer.Exit(int(verdict))


def _once(guards: Sequence[StandingGuard], kept: GuardRecorder, asking: GuardOptions, publish: Publish) -> ExitCode:
    from migverify.guards.text import guard_metrics, guard_steps, results_as_json
    from migverify.guards.watch import ask

    results = ask(guards, on_result=kept.add)
    verdict = kept.finish(results)
    publish(guard_metrics(results, time.time()))
    if asking.as_json:
        reported = asking.render(results) if asking.render is not None else results_as_json(results, kept.run_id)
        if isinstance(reported, dict) and "verdict" in reported:
            typer.echo(json_text(reported, guard_steps(verdict, kept.run_id)))
        else:
            typer.echo(json.dumps(reported, ensure_ascii=False))
    else:
        for result in results:
            for line in asking.text(result):
                typer.echo(line)
    return verdict.exit_code


def _watched(guards: Sequence[StandingGuard], kept: GuardRecorder, asking: GuardOptions, publish: Publish) -> ExitCode:
    from migverify.guards.text import change_line, guard_metrics, guard_steps, status_as_json
    from migverify.guards.watch import GuardsWatch

    def tell(status: GuardsStatus) -> None:
        for result in status.results:
            kept.add(result)
        publish(guard_metrics(status.results, status.at))
        if asking.as_json:
            typer.echo(json_text(status_as_json(status, kept.run_id), guard_steps(status.verdict, kept.run_id)))
        elif status.turn == 1:
            for result in status.results:
                for line in asking.text(result):
                    typer.echo(line)
        for change in () if asking.as_json else status.changes:
            typer.echo(f"{time.strftime('%H:%M:%S', time.gmtime(status.at))} {change_line(change)}")
        sys.stdout.flush()

    say(f"watch {kept.run_id} (every {asking.every:g} s; stop it with Ctrl-C)")
    with stop_on_signals() as stopped:
        status = GuardsWatch(guards, asking.every, tell).run(stopped.is_set, stopped.wait)
        verdict = kept.finish(status.results, {"turns": status.turn})
    say(f"{verdict}: {status.turn} askings")
    return ExitCode.INTERRUPTED if stopped.is_set() else verdict.exit_code
