"""What all commands share at the terminal: options, examples in help texts, logging, the last message.

Data goes to standard output, everything else to standard error, so that ``migverify ... > file`` holds data
only.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from migverify.errors import MigverifyError
from migverify.secrets import scrub

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


def examples(*lines: str) -> str:
    """Epilog of a command's help: one example a line, kept as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def say(text: str) -> None:
    """Print a line of progress or advice to standard error, scrubbed."""
    typer.echo(scrub(text), err=True)


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


def stand_any_text() -> None:
    """Let standard output and error show any name: what they cannot encode becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
