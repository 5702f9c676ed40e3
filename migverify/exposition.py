"""The Prometheus text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/), written.

One writer for every page of metrics. An unknown number is ``NaN``, never left out and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from unicodedata import category

from migverify.model import Verdict

Sample = tuple[Mapping[str, str], str]
"""Labels of one series, and its value as text; see ``number``."""


_NOT_SHOWN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: control characters, marks of direction and the like, surrogates, line and paragraph breaks."""
VERDICTS = {Verdict.MATCH: "0", Verdict.MISMATCH: "1", Verdict.INCONCLUSIVE: "3"}
"""A verdict as a sample value: the exit code of the command."""


class Metric(NamedTuple):
    """One gauge with its series; one without series is still named, so that a reader sees that it exists."""

    name: str
    help: str
    samples: Iterable[Sample]


def listed(metrics: Iterable[Metric]) -> list[Metric]:
    """Return gauges that can be read more than once."""
    return [Metric(name, text, list(samples)) for name, text, samples in metrics]


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
    return _help(value).replace('"', '\\"')


def _help(text: str) -> str:
    # The format escapes a backslash, a line break and, in labels, a quote only. Names come from others: a control
    # character would act on the terminal that shows the page, and a lone surrogate has no UTF-8 form.
    safe = "".join(f"\\u{ord(c):04x}" if c != "\n" and category(c) in _NOT_SHOWN else c for c in text)
    return safe.replace("\\", "\\\\").replace("\n", "\\n")
