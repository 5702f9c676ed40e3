"""The Prometheus text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/), written.

One writer for every page of metrics. An unknown number is ``NaN``, never left out and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from migverify.model import Verdict

Sample = tuple[Mapping[str, str], str]
"""Labels of one series, and its value as text; see ``number``."""


VERDICTS = {Verdict.MATCH: "0", Verdict.MISMATCH: "1", Verdict.INCONCLUSIVE: "3"}
"""A verdict as a sample value: the exit code of the command."""


class Metric(NamedTuple):
    """One gauge with its series; one without series is still named, so that a reader sees that it exists."""

    name: str
    help: str
    samples: Iterable[Sample]


def page(metrics: Iterable[Metric]) -> str:
    """Return gauges as a page that ends with a line break."""
    lines: list[str] = []
    for name, text, samples in metrics:
        lines += [f"# HELP {name} {_help(text)}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels_text(labels)} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    """Return a sample value; integers stay exact, None is ``NaN``."""
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels in braces; nothing where there are none."""
    inner = ",".join(f'{name}="{_label(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _label(value: str) -> str:
    # The format knows these three escapes only. A lone surrogate has no UTF-8 form.
    safe = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return safe.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
