"""The root of the command line: finds commands, and turns every ending into a message and an exit code.

A command's module is imported when the command is called, not before: ``migverify --help`` reads the table
below and nothing else.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator, MutableMapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer
import typer.core
import typer.main

from migverify import __version__
from migverify.cli import console
from migverify.cli.renamed import refuse_renamed
from migverify.errors import ExitCode, MigverifyError, UsageError, wheel_hint

if TYPE_CHECKING:
    from typer._click import Command, HelpFormatter

_NEW_OBJECTS = 50_000
"""Objects that are made before the collector of cycles looks at them; 700 by default."""


class CommandEntry(NamedTuple):
    """One command: its name, the module whose ``app`` it is, and its line in the list of commands."""

    name: str
    module: str
    summary: str


COMMANDS = (
    CommandEntry("init", "migverify.cli.init", "Write a commented migverify.yaml by looking at both sides."),
    CommandEntry("config", "migverify.cli.config", "Check the configuration and grants; print schemas of files."),
    CommandEntry("check", "migverify.cli.check_all", "Ask both sides for everything that can be known before."),
    CommandEntry("tables", "migverify.cli.tables", "Compare whole tables: plan, verify, diff, repair, watch."),
    CommandEntry("changes", "migverify.cli.changes", "Read the source's binlog: check, tail, audit, archive."),
    CommandEntry("recon", "migverify.cli.recon", "Do the domains agree? Rules over tables, shards and services."),
    CommandEntry("workload", "migverify.cli.workload", "Capture what clients ask; digest, replay and compare it."),
    CommandEntry("guard", "migverify.cli.guard", "Guards: settings, schema, ids, capacity, hotspots, plans ..."),
    CommandEntry("runbook", "migverify.cli.runbook", "Runbooks with people: check, run, status, report."),
    CommandEntry("fleet", "migverify.cli.fleet", "Many services: who may cut over tonight, and why not."),
    CommandEntry("report", "migverify.cli.report", "Show a run as text, JSON, HTML, JUnit or Prometheus text."),
    CommandEntry("mcp", "migverify.cli.mcp", "Serve read-only tools to an MCP client: status, report, diff ..."),
    CommandEntry("status", "migverify.cli.status", "Show runs, watches and runbook runs at a glance."),
)


ADDED = "migverify.commands"
"""The group of entry points by which another distribution adds a command; its own summary is the line in the list."""


def added_commands() -> tuple[CommandEntry, ...]:
    """Return the commands that other installed distributions add, by name; imports none of them."""
    found = sorted(entry_points(group=ADDED), key=lambda one: one.name)
    return tuple(CommandEntry(one.name, one.module, _summary(one)) for one in found)


def _summary(point: EntryPoint) -> str:
    return point.dist.metadata["Summary"] if point.dist is not None else f"Added by {point.module}."


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name; taking one out imports its module."""

    def __init__(self, entries: Sequence[CommandEntry], added: MutableMapping[str, Any]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._loaded = dict(added)

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            if name not in self._entries:  # other distributions are looked at for names that are not ours only
                self._entries.update((entry.name, entry) for entry in added_commands() if entry.name == name)
            self._loaded[name] = _load(self._entries[name])
        command: Command = self._loaded[name]
        return command

    def __setitem__(self, name: str, command: Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._entries, **self._loaded})

    def __len__(self) -> int:
        return len({**self._entries, **self._loaded})


class LazyGroup(typer.core.TyperGroup):
    """The root group: lists commands from the table, loads the one that is requested."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands(COMMANDS, self.commands)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Command | None:  # type: ignore[override]
        """Return a command by its name, or None; the lab's says how it is installed where it is not."""
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name == "lab":
            raise UsageError(
                "the lab is not installed: it kills servers and plants faults, so it is a distribution of its own",
                hint=f"It belongs on a machine that has no production access. {wheel_hint(lab=True)}.",
            )
        return found

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Names in the order of the table."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: typer.Context, formatter: HelpFormatter) -> None:  # type: ignore[override]
        """Write the list of commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.summary) for entry in (*COMMANDS, *added_commands())])


def _load(entry: CommandEntry) -> Command:
    """Import a command's module and turn its Typer app into a command: one function, or a group."""
    part: typer.Typer = import_module(entry.module).app
    wrapper = typer.Typer(add_completion=False, rich_markup_mode=None)
    if len(part.registered_commands) == 1 and not part.registered_groups and part.registered_callback is None:
        wrapper.registered_commands.extend(part.registered_commands)
        return typer.main.get_command(wrapper)
    wrapper.add_typer(part, name=entry.name)
    group = typer.main.get_group(wrapper)
    return group.commands[entry.name]


_COMPLETION = "_MIGVERIFY_COMPLETE"
"""Variable by which the script that ``--install-completion`` writes asks for completions."""

app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,  # help and errors read well without color, and rich costs a tenth of a second
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=console.examples(
        "migverify init --source mysql://app@db1 --target tidb://app@tidb1",
        "migverify tables verify",
        "migverify report last -o report.html",
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"migverify {__version__}")
        raise typer.Exit


@app.callback()
def root(
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log what happens to standard error; -vv: all.")
    ] = 0,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Prove a migration from MySQL or Aurora to TiDB.

    Exit codes: 0 match, 1 mismatch, 2 usage or configuration, 3 inconclusive (also a
    server that cannot be reached), 130 interrupted.
    """
    del version
    console.start_logging(verbose)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code; TERM interrupts it as Ctrl-C does."""
    # What commands read is frozen and refers to nothing that refers back: to look for cycles as often as by default
    # takes 8 % of the time of a board.
    gc.set_threshold(_NEW_OBJECTS)
    # A cluster, a service manager and CI end a program so. By default queries would go on, and the first process of a
    # container would not notice.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # the process ends: to look for cycles among all that it read takes a tenth of a second, for nothing
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code.

    This is the one place where errors become messages. Only a command that raised ``typer.Exit`` with another
    code, or ended without an error, is believed; anything unforeseen is INCONCLUSIVE.
    """
    with console.readable_output():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(app)
    if _COMPLETION in os.environ:  # the shell asks what can follow
        command.main(list(arguments), prog_name="migverify")
    try:
        refuse_renamed(arguments)
        # Not Command.main(): it ends the process with 1 on a closed pipe, which here would mean MISMATCH.
        with command.make_context("migverify", list(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as ending:
        return _flushed(ending.exit_code)
    except MigverifyError as error:
        console.say_error(error)
        _show_traceback()
        return int(error.exit_code)
    except typer.TyperException as error:
        return _usage_error(error)
    except (KeyboardInterrupt, typer.Abort):
        console.say("interrupted")
        return int(ExitCode.INTERRUPTED)
    except OSError as error:
        return _system_error(error)
    except Exception as error:  # noqa: BLE001  (unforeseen: say so, and never look like a verdict)
        return _bug(error)
    return int(ExitCode.MATCH)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        return _system_error(error)
    return int(code)


def _usage_error(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group alone: the message is its help
        console.say(error.format_message())
        return int(ExitCode.USAGE)
    console.say(f"error: {error.format_message()}")
    if context is not None:
        console.say(f"  Try `{context.command_path} --help`.")
    return int(ExitCode.USAGE)


def _system_error(error: OSError) -> int:
    """Disk full, file unreadable, reader gone: a fact about the machine, and not all of the answer was given."""
    if not isinstance(error, BrokenPipeError):  # `migverify ... | head` needs no comment
        console.say(f"error: {error}")
        _show_traceback()
    try:
        sys.stdout.flush()
    except OSError:
        # What is left in the buffer cannot be written; the interpreter must not try again at its end.
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
    return int(ExitCode.INCONCLUSIVE)


def _bug(error: Exception) -> int:
    console.say(f"error: internal error: {type(error).__name__}: {error}")
    if not _show_traceback():
        console.say(
            "  This is a bug in migverify; nothing was decided. Run again with MIGVERIFY_TRACEBACK=1 and"
            " report it with what that prints."
        )
    return int(ExitCode.INCONCLUSIVE)


def _show_traceback() -> bool:
    if os.environ.get("MIGVERIFY_TRACEBACK") != "1":
        return False
    console.say(traceback.format_exc().rstrip())
    return True
