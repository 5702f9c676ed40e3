"""Changes of JSON values: values taken apart and put together, paths, and images that are damaged."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.changes.column_types import Type
from migverify.changes.json_text import json_text
from migverify.changes.model import ColumnMap, TableMap
from migverify.changes.partial_json import changed, encoded, full_images, parsed
from migverify.errors import ChangeError

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)


def node(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return 4, bytes(({None: 0, True: 1, False: 2}[value],))
    if isinstance(value, int):
        return (5, struct.pack("<h", value)) if -(2**15) <= value < 2**15 else (9, struct.pack("<q", value))
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
        size = bytes((len(data),)) if len(data) < 128 else bytes((len(data) & 127 | 128, len(data) >> 7))
        return 12, size + data
    if isinstance(value, list):
        return [node(one) for one in value]
    return {name.encode("utf-8", "replace"): node(one) for name, one in value.items()}


def binary(value: Any) -> bytes:
    kind, data = encoded(node(value))
    return bytes((kind,)) + data


@given(documents)
def test_a_value_taken_apart_and_put_together_has_the_same_text(value: Any) -> None:
    data = binary(value)
    kind, again = encoded(parsed(data))
    assert bytes((kind,)) + again == data
    assert json.loads(json_text(data)) == json.loads(json.dumps(value))


def diff(operation: int, path: str, value: Any = ...) -> bytes:
    data = b"" if value is ... else bytes((len(binary(value)),)) + binary(value)
    return bytes((operation, len(path.encode()))) + path.encode() + data


@pytest.mark.parametrize(
    ("before", "diffs", "after"),
    [
        ({"a": 1}, diff(0, "$.a", "x"), {"a": "x"}),
        ({"a": 1}, diff(1, '$."b c\\""', [2]), {"a": 1, 'b c"': [2]}),
        ([1, 2], diff(1, "$[7]", 3), [1, 2, 3]),
        ([1, 2], diff(1, "$[0]", 3), [3, 1, 2]),
        ({"a": [{"b": 1}, 2]}, diff(2, "$.a[0].b") + diff(2, "$.a[1]"), {"a": [{}]}),
        ({"a": 1}, diff(0, "$", 7), 7),
    ],
)
def test_changes_are_applied_in_their_order(before: Any, diffs: bytes, after: Any) -> None:
    assert json.loads(json_text(changed(binary(before), diffs))) == after


TABLE = TableMap(
    "d",
    "t",
    tuple(ColumnMap(name, kind, meta, False, True) for name, kind, meta in (("n", Type.LONG, 0), ("j", Type.JSON, 4))),
)


def image(value: bytes) -> bytes:
    return b"\0" + struct.pack("<iI", 1, len(value)) + value


def update(before: Any, diffs: bytes) -> bytes:
    return image(binary(before)) + b"\1\1" + image(diffs)


def test_an_after_image_of_changes_becomes_one_of_values() -> None:
    images = update({"a": 1}, diff(0, "$.a", 2)) + image(binary([1])) + b"\0" + image(binary([2]))
    expected = [{"a": 1}, {"a": 2}, [1], [2]]
    assert full_images(TABLE, images) == b"".join(image(binary(one)) for one in expected)


@pytest.mark.attack(
    "changes", "a change of a JSON value that does not fit the before image", "the stream ends: the row is not known"
)
@pytest.mark.parametrize(
    "diffs",
    [diff(0, "$.b", 1), diff(1, "$.a", 1), diff(2, "$.l[5]"), diff(0, "$.a.b", 1), diff(3, "$.a", 1), diff(2, "$"),
     diff(0, "a", 1), diff(0, "$**.a", 1), diff(0, "$.a", 1)[:-1], b"\0"],
)  # fmt: skip
def test_a_change_that_does_not_fit_is_refused(diffs: bytes) -> None:
    with pytest.raises(ChangeError, match=r"d\.t: a partial update cannot be read"):
        full_images(TABLE, update({"a": 1, "l": [1]}, diffs))


@pytest.mark.attack("changes", "a partial update with bytes changed or cut", "it is read or refused, never a crash")
@given(documents, st.integers(0, 400), st.integers(0, 255), st.integers(0, 400))
def test_damaged_images_are_read_or_refused(value: Any, at: int, byte: int, cut: int) -> None:
    images = bytearray(update({"a": value, "l": [1]}, diff(0, "$.l", 2)))
    images[at % len(images)] = byte
    try:
        full_images(TABLE, bytes(images[: max(1, len(images) - cut)]))
    except ChangeError:
        return
