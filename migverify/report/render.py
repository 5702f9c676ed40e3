"""One door to all forms of the report, and the way to a file."""

from __future__ import annotations

import os
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.errors import UsageError
from migverify.model import StoredKind
from migverify.report.summary import ReportData, ReportOptions, read_report

if TYPE_CHECKING:
    from migverify.report.guards import GuardReport
    from migverify.report.replay import ReplayReport
    from migverify.store.base import ResultStore


class Format(StrEnum):
    """The forms a report can take."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    PROMETHEUS = "prometheus"
    HTML = "html"


_SUFFIXES = {
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".json": Format.JSON,
    ".xml": Format.JUNIT,
    ".prom": Format.PROMETHEUS,
}


def format_of(path: Path | None) -> Format:
    """Return the form that a file's suffix stands for; text without a file or for any other suffix."""
    return Format.TEXT if path is None else _SUFFIXES.get(path.suffix.lower(), Format.TEXT)


def read_any(
    store: ResultStore, run_id: str, options: ReportOptions, *, whole: bool = False
) -> ReportData | ReplayReport | GuardReport:
    """Read a run of any kind; ``whole`` asks for every digest of a replay, not only the heaviest.

    Raises
    ------
    UsageError
        There is no such run.
    StoreError
        The store cannot be read.
    """
    info = store.load_run(run_id)
    if info.kind is StoredKind.REPLAY:
        from migverify.report.replay import read_replay_report

        if whole:
            return read_replay_report(store, run_id, options, listed=None)
        return read_replay_report(store, run_id, options)
    if info.kind is StoredKind.GUARDS:
        from migverify.report.guards import read_guard_report

        return read_guard_report(store, info)
    return read_report(store, run_id, options)


def render(data: ReportData | ReplayReport | GuardReport, form: Format, *, color: bool = False) -> str:
    """Return the report in one form. ``color`` concerns text only."""
    if not isinstance(data, ReportData):
        from migverify.report.guards import GuardReport

        return _render_guards(data, form) if isinstance(data, GuardReport) else _render_replay(data, form, color=color)
    match form:
        case Format.TEXT:
            from migverify.report.text import render_text

            return render_text(data, color=color)
        case Format.JSON:
            from migverify.report.as_json import render_json

            return render_json(data)
        case Format.JUNIT:
            from migverify.report.junit import render_junit

            return render_junit(data)
        case Format.PROMETHEUS:
            from migverify.report.prometheus import render_prometheus

            return render_prometheus(data)
        case Format.HTML:
            from migverify.report.html import render_html

            return render_html(data)


def _render_guards(data: GuardReport, form: Format) -> str:
    from migverify.report import guards

    forms = {
        Format.TEXT: guards.render_text, Format.JSON: guards.render_json, Format.JUNIT: guards.render_junit,
        Format.PROMETHEUS: guards.render_prometheus, Format.HTML: guards.render_html,
    }  # fmt: skip
    return forms[form](data)


def _render_replay(data: ReplayReport, form: Format, *, color: bool) -> str:
    from migverify.report import replay_text

    match form:
        case Format.TEXT:
            return replay_text.render_text(data, color=color)
        case Format.JSON:
            return replay_text.render_json(data)
        case Format.JUNIT:
            return replay_text.render_junit(data)
        case Format.PROMETHEUS:
            return replay_text.render_prometheus(data)
        case Format.HTML:
            from migverify.report.replay_html import render_html

            return render_html(data)


def write_report(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file whole or not at all: a collector that reads meanwhile sees the old one or the new one.

    With ``private`` its owner alone may read it: it shows statements.

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    content = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or a device such as /dev/stdout: nothing to replace
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            temporary.chmod(0o600 if private else 0o666 & ~_umask())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"cannot write the report to {path}: {error.strerror or error}",
            hint="Name a file in a folder that exists and is writable.",
        ) from error


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
