"""The forms of a report, and its way to a file."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

from migverify.errors import UsageError
from migverify.exposition import page
from migverify.files import write_whole
from migverify.report.model import Report


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
    """Return the form that a file's suffix is for; text without a file or for any other suffix."""
    return Format.TEXT if path is None else _SUFFIXES.get(path.suffix.lower(), Format.TEXT)


def render(report: Report, form: Format, *, color: bool = False) -> str:
    """Return the report in one form. ``color`` concerns text only."""
    match form:
        case Format.TEXT:
            from migverify.report.text import render_text

            return render_text(report, color=color)
        case Format.JSON:
            # ASCII: a control, bidi or lone surrogate character in a name cannot break a terminal or a reader.
            return json.dumps(report.json_document, indent=2, allow_nan=False) + "\n"
        case Format.JUNIT:
            from migverify.report.junit import render_junit

            return render_junit(report)
        case Format.PROMETHEUS:
            return page(report.metrics)
        case Format.HTML:
            from migverify.report.html import render_html

            return render_html(report)


def prepare(form: Format) -> None:
    """Load what a form takes time to load, so that it is there when a report is."""
    if form is Format.HTML:
        from migverify.report.html import template

        template()


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
        write_whole(path, content, 0o600 if private else None)
    except OSError as error:
        raise UsageError(
            f"cannot write the report to {path}: {error.strerror or error}",
            hint="Name a file in a folder that exists and is writable.",
        ) from error
