"""The files of ``migverify workload capture``: named and opened, or followed while servers write them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.cli.console import say
from migverify.errors import ChangeError, UsageError

if TYPE_CHECKING:
    from migverify.workload.capture import CaptureInput, CaptureOptions, CaptureSummary

_TELLING = 4 << 10
"""Bytes of a log that tell its format before it is followed; of a shorter one the copies do."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How the files of a capture are read; see the options of the command."""

    form: str
    port: int
    zone: tzinfo
    server: str
    by_folder: bool

    def server_of(self, path: str) -> str:
        """Return the server that a file is of."""
        if not self.by_folder:
            return self.server
        return path.split("/")[-2] if "://" in path else Path(path).resolve().parent.name


def opened(files: Sequence[str], opening: Opening) -> list[CaptureInput]:
    """Return the inputs of a capture.

    Raises
    ------
    UsageError
        a file is not there, or its format is not known.
    """
    from migverify.workload.lines import shown_path
    from migverify.workload.opening import open_formats
    from migverify.workload.parts import CaptureInput

    missing = [shown_path(path) for path in files if not _is_there(path)]
    if missing:
        raise UsageError(f"no such file: {', '.join(missing)}.", hint="Name files; folders are not searched.")
    formats = open_formats(opening.form, files, opening.port, opening.zone)
    return [CaptureInput(path, one, opening.server_of(path)) for path, one in zip(files, formats, strict=True)]


def _is_there(path: str) -> bool:
    from migverify.workload.lines import size_of

    if "://" not in path:
        return Path(path).is_file()
    try:
        size_of(path)
    except ChangeError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False
        raise
    return True


def follow_logs(
    files: Sequence[str], opening: Opening, options: CaptureOptions, seconds: float | None,
    run: Callable[[list[CaptureInput], CaptureOptions], CaptureSummary],
) -> CaptureSummary:  # fmt: skip
    """Follow logs until Ctrl-C or for so many seconds, and capture their copies.

    Raises
    ------
    UsageError
        a log is a URL, packed, not there or of a format that is not followed; or the output is there already.
    """
    from migverify.cli.watching import stop_on_signals
    from migverify.workload.capture import check_out
    from migverify.workload.follow import Follower, follow_until
    from migverify.workload.lines import size_of

    check_out(options.out, replace=options.replace)
    urls = [path for path in files if "://" in path]
    if urls:
        raise UsageError("--follow reads files of this machine, not URLs.", hint="Follow where the server writes.")
    folder = options.out.with_name(options.out.name + ".followed")
    if not folder.exists():
        began = [path for path in files if opening.form != "auto" or not _is_there(path) or size_of(path) >= _TELLING]
        _check_followed(opened(began, opening))
    end = None if seconds is None else time.monotonic() + seconds
    stopped = threading.Event()
    with Follower(folder, [Path(path) for path in files], say) as follower:
        say(f"copying to {folder} (Ctrl-C ends it and captures what was copied)")
        with stop_on_signals(stopped):
            follow_until(follower, stopped, lambda: None if end is None else end - time.monotonic())
        copies = list(follower.copies())
        inputs = [
            replace(one, server=opening.server_of(log.path), growing=growing)
            for one, (log, _, growing) in zip(
                opened([str(path) for _, path, _ in copies], opening), copies, strict=True
            )
        ]  # fmt: skip
        _check_followed(inputs)
        losses = tuple(f"{log.path} {loss}" for log in follower.logs for loss in log.losses)
        summary = run(inputs, replace(options, losses=losses))
    if options.mask is not None:
        shutil.rmtree(folder)  # it holds what was masked
    return summary


def _check_followed(inputs: Sequence[CaptureInput]) -> None:
    from migverify.workload.lines import is_packed
    from migverify.workload.model import Divisible

    for one in inputs:
        if not isinstance(one.format, Divisible):
            raise UsageError(
                f"{one.shown} is of the format {one.format.name}.", hint="--follow reads slow, general and audit logs."
            )
        if is_packed(str(one.path)):
            raise UsageError(f"{one.shown} is gzip: nobody writes to it any more.", hint="Capture it without --follow.")
