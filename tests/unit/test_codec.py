"""Plans and tasks as JSON: what goes in comes out, and nothing half-loads."""

# ruff: noqa: E501  (tables read better unbroken)
from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.codec import decode, encode, parse_json
from migverify.config import yaml_text
from migverify.config.yaml_text import YamlProblem, read_yaml
from migverify.model import ChunkChecksum, ChunkResult, ChunkState, DiffKind, KeyRange, LiveState, RowDiff
from migverify.tables.tasks import Rules, TaskOutcome, outcome_from_text

KEYS = st.lists(st.none() | st.text(), max_size=3).map(tuple)
SUMS = st.builds(ChunkChecksum, *[st.integers(0, 10**40)] * 4)
CHUNKS = st.builds(
    ChunkResult, st.text(), st.integers(0), st.integers(0), st.builds(KeyRange, st.none() | KEYS, st.none() | KEYS, st.booleans()),
    st.sampled_from(ChunkState), st.none() | SUMS, st.none() | SUMS, st.floats(0, 2e9), st.floats(0, 100),
)  # fmt: skip
DIFFS = st.builds(RowDiff, st.text(), KEYS, st.sampled_from(DiffKind), st.sampled_from(LiveState))


@settings(max_examples=30)
@given(st.lists(CHUNKS, max_size=2).map(tuple), st.lists(DIFFS, max_size=2).map(tuple))
def test_an_answer_travels_unchanged(chunks: tuple[ChunkResult, ...], diffs: tuple[RowDiff, ...]) -> None:
    outcome = TaskOutcome("span", "d.t", chunks=chunks, diffs=diffs, rest=KeyRange(("1",)))
    assert outcome_from_text(outcome.to_text()) == outcome


@pytest.mark.parametrize(
    "change",
    [
        {"chunk_rows": "7"},
        {"chunk_rows": True},
        {"chunk_rows": None},
        {"unknown": 1},
        {"live": 1},
        {"chunk_seconds": "1"},
        {"retries": 1.5},
    ],
)
def test_what_is_not_of_the_type_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        decode(Rules, {**encode(Rules()), **change})


def test_a_missing_key_is_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        decode(ChunkChecksum, {"hashed": 1, "exact": 1})


@pytest.mark.parametrize("data", [None, 7, [], "x"])
def test_an_object_is_expected(data: object) -> None:
    with pytest.raises(ValueError, match="Rules"):
        decode(Rules, data)


DEEP = 200_000


@pytest.mark.attack(
    "runbook", "Evidence, a journal's line or a program's answer is JSON of 200,000 levels",
    "it is refused with a reason, and the process goes on",
)  # fmt: skip
@pytest.mark.parametrize(
    "text", ["[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * 500 + "1" + "}" * 500, "[" * 65 + "]" * 65]
)
def test_deep_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested deeper|Expecting"):
        parse_json(text)


def test_brackets_in_texts_or_side_by_side_are_no_depth() -> None:
    value = {"a": "[{" * 100, "b": [[], {}] * 100}
    for text in (json.dumps(value), json.dumps(value).encode(), json.dumps(value).encode("utf-16")):
        assert parse_json(text) == value


def test_json_of_a_usual_depth_is_read() -> None:
    text = "[" * 60 + "]" * 60
    assert json.dumps(parse_json(text)) == text


@pytest.mark.attack(
    "rules", "A configuration, a runbook or a file of rules is YAML of 100,000 levels, in brackets, entries or by indenting",
    "it is refused at its line before anything walks it, by both readers",
)  # fmt: skip
@pytest.mark.parametrize("reader", [yaml_text._Loader, yaml_text._FastLoader])
@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "a: " + "{b: " * 100_000 + "1" + "}" * 100_000, "- " * 100_000 + "1", "? " * 5000 + "1",
     "".join(f"{' ' * n}a:\n" for n in range(400))],
)  # fmt: skip
def test_deep_yaml_is_refused(text: str, reader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_FastLoader", reader)
    with pytest.raises(YamlProblem, match="nested"):
        read_yaml(text)


def test_yaml_with_many_brackets_that_are_not_deep_is_read() -> None:
    text = "\n".join(f"- {{a: [{n}, {n}]}}" for n in range(2000))
    assert len(read_yaml(text).data) == 2000  # type: ignore[arg-type]
