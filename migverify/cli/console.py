"""What all commands share at the terminal: options, examples in help texts, logging, the last message.

Data goes to standard output, everything else to standard error, so that ``migverify ... > file`` holds data
only.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.errors import MigverifyError
from migverify.model import NextStep, judged_document
from migverify.secrets import scrub, scrub_sentence

if TYPE_CHECKING:
    from migverify.report.model import Report

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="MIGVERIFY_CONFIG",
        show_envvar=True,
        metavar="FILE",
        help="The configuration file.",
    ),
]
"""Option ``--config`` of every command that reads the configuration; its default is ``DEFAULT_CONFIG``."""

DEFAULT_CONFIG = Path("migverify.yaml")

SourceOption = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="Which source, where several are configured.")
]
"""Option ``--source`` of every command that reads one source."""


class EngineName(StrEnum):
    """What ``--engine`` takes."""

    SPARK = "spark"
    LOCAL = "local"


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Result store; default: the configuration's.")
]
AssumeDatabaseOption = Annotated[
    str | None,
    typer.Option("--assume-database", metavar="NAME", help="Database of sessions whose database is not known."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
ResumeOption = Annotated[
    str | None,
    typer.Option("--resume", metavar="RUN", help="Go on with a run that was interrupted; `last` for the newest."),
]
TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tables", "-t", metavar="PATTERN", help="Only source tables that match, as database.table; repeatable."
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--spark-master", metavar="URL", help="Spark master or sc:// URL; default: the configuration's."),
]


def examples(*lines: str) -> str:
    """Epilog of a command's help: one example a line, kept as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def command_line() -> str:
    """Return this command as it can be typed again, without secrets: what the records of a run keep."""
    return scrub_sentence("migverify " + shlex.join(sys.argv[1:]))


def completed(step: NextStep) -> NextStep:
    """Return a next step with the configuration and the store that this command was given."""
    if not step.command.startswith(_TAKE_GIVEN):
        return step
    given = GIVEN.get()
    flags = ("--config",) if step.command.startswith("migverify config ") else ("--config", "--store")
    words = [word for flag in flags if flag in given for word in (flag, given[flag])]
    return replace(step, command=scrub_sentence(" ".join([step.command, *map(shlex.quote, words)])))


def completed_text(text: str) -> str:
    """Return a sentence whose commands have the configuration and the store that this command was given."""
    return _COMMAND.sub(lambda found: completed(NextStep(found[0], "")).command, text)


def completed_report(report: Report) -> Report:
    """Return a report whose next steps have the configuration and the store that this command was given."""
    return replace(report, next_steps=tuple(map(completed, report.next_steps)))


GIVEN: ContextVar[dict[str, str]] = ContextVar("given", default={})  # noqa: B039 - never written to
"""``--config`` and ``--store`` of the command that runs, where they are not the defaults."""
_TAKE_GIVEN = tuple(
    f"migverify {name} " for name in ("tables", "report", "recon", "guard", "check", "status", "config")
)  # fmt: skip
_COMMAND = re.compile(r"migverify [a-z]+(?: (?:[a-z]+|--[a-z-]+|'[^']+'|\d{8}T[\w-]+))*")
"""A command within a sentence: its words, options and run ids, up to the next mark."""


def given_options(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return what ``GIVEN`` holds while a command runs with these parameters."""
    config, store = parameters.get("config"), parameters.get("store")
    found = {} if config is None or Path(config) == DEFAULT_CONFIG else {"--config": str(config)}
    return found if not isinstance(store, str) else {**found, "--store": store}


def json_text(document: Mapping[str, Any], steps: Iterable[NextStep] = (), indent: int | None = None) -> str:
    """Return what ``--json`` prints of something with a verdict; ``steps`` are completed."""
    return json.dumps(judged_document(document, map(completed, steps)), indent=indent, ensure_ascii=False)


def say(text: str) -> None:
    """Print a line of progress or advice to standard error, scrubbed."""
    typer.echo(scrub_sentence(text), err=True)


def say_error(error: MigverifyError) -> None:
    """Print an error and its hint to standard error, scrubbed."""
    say(f"error: {error.message}")
    if error.hint:
        say(f"  {error.hint}")


class ScrubbingFormatter(logging.Formatter):
    """Formats a log line, then removes every known secret from the whole of it, traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the finished line."""
        return scrub(super().format(record))


def start_logging(verbosity: int) -> None:
    """Send log lines to standard error: warnings, with ``-v`` what happens, with ``-vv`` every detail."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ScrubbingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    # Only our own loggers: a driver's debug log may hold what is sent to the server.
    logging.getLogger("migverify").setLevel(level)


def visible(text: str, *, lines: bool = True) -> str:
    """Return a text whose control characters are escapes: none of them acts on a terminal.

    Names, reasons and evidence come from others. ESC sequences would move the cursor, hide or recolor what is read, and
    marks of writing direction would show it in another order. In JSON the escape is the same character.

    Parameters
    ----------
    lines
        Line ends and tabs stay; without, they are shown too, so that a text cannot pass for another line.
    """
    pattern = _CONTROLS if lines else _CONTROLS_AND_LINES
    return pattern.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_NO_LINES = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"  # C0 and C1
    "\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"  # direction, and what is not seen
)
_CONTROLS = re.compile(f"[{_NO_LINES}]")
_CONTROLS_AND_LINES = re.compile(f"[{_NO_LINES}\\t\\n]")


class VisibleStream:
    """A text stream that shows control characters instead of sending them; all else is the stream's own.

    What this program sends to move the cursor goes to ``raw``.
    """

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write a text, its control characters as escapes; a line may end as it does on other systems."""
        self.raw.write(visible(text.replace("\r\n", "\n")))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: Any) -> Any:
    """Return the stream that takes what moves the cursor."""
    return getattr(stream, "raw", stream) if isinstance(stream, VisibleStream) else stream


@contextmanager
def readable_output() -> Iterator[None]:
    """Let standard output and error show any text: what they cannot encode, or would act on, becomes an escape."""
    before = sys.stdout, sys.stderr
    for stream in before:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = (s if isinstance(s, VisibleStream) else VisibleStream(s) for s in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
