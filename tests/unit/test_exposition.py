"""The Prometheus text format: numbers stay exact, labels are escaped, nothing unknown is left out."""

from __future__ import annotations

import math

import pytest

from migverify.exposition import Metric, labels_text, number, page


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1_234_567_890, "1234567890"), (1.5, "1.5"), (2.0, "2"), (None, "NaN"), (math.nan, "NaN"),
     (math.inf, "+Inf"), (-math.inf, "-Inf"), (0.1, "0.1")],
)  # fmt: skip
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_labels_are_escaped() -> None:
    assert labels_text({"a": 'x"y\\z\n', "b": ""}) == r'{a="x\"y\\z\n",b=""}'
    assert labels_text({}) == ""
    assert labels_text({"a": "\udce9"}) == r'{a="\\udce9"}'


def test_control_characters_of_names_do_not_act_on_a_terminal() -> None:
    assert labels_text({"a": "\x1b[2Jx\r\u202e\x9b"}) == r'{a="\\u001b[2Jx\\u000d\\u202e\\u009b"}'
    assert labels_text({"a": "été 表 😀\u00a0"}) == '{a="été 表 😀\u00a0"}'
    assert page([Metric("m", "a\x1b\nb", [])]) == "# HELP m a\\\\u001b\\nb\n# TYPE m gauge\n"


def test_a_page() -> None:
    text = page([Metric("m", "What.\nMore", [({"a": "1"}, "2"), ({}, "NaN")]), Metric("empty", "None.", [])])
    assert text == (
        '# HELP m What.\\nMore\n# TYPE m gauge\nm{a="1"} 2\nm NaN\n# HELP empty None.\n# TYPE empty gauge\n'
    )
