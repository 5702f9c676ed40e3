"""Updates whose after images hold changes of JSON values, not the values (``binlog_row_value_options=PARTIAL_JSON``).

Source of the format: MySQL's ``rpl_record.cc`` and ``sql-common/json_diff.cc``. An after image begins with its options
(packed integer); with the first bit set follows one bit for each JSON column of the table. Where that bit is set, the
value is a list of changes of the before image's value: operation (1 byte: replace, insert, remove), length and text of
a path, and, unless it removes, length and binary of a value. What does not fit the before image is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import TypeAlias

from migverify.changes.column_types import Type
from migverify.changes.columns import Column, column_of
from migverify.changes.json_text import SCALARS, Shape, read_json
from migverify.changes.model import TableMap
from migverify.changes.payload import packed_integer
from migverify.errors import ChangeError

_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_LEG = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^.\["]+))|\[(\d+)\]')
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

Scalar: TypeAlias = tuple[int, bytes]
"""A value without parts: its type byte and its bytes."""
Node: TypeAlias = "Scalar | dict[bytes, Node] | list[Node]"


def full_images(table: TableMap, images: bytes) -> bytes:
    """Return before and after images as an UPDATE_ROWS event holds them, after images with whole values.

    Raises
    ------
    ChangeError
        an image is cut, or its changes do not fit the before image.
    """
    try:
        return _Images(table, images).whole()
    except (ChangeError, IndexError, struct.error, ValueError, KeyError, TypeError) as error:
        raise ChangeError(f"{table.name}: a partial update cannot be read: {error}") from error


class _Images:
    def __init__(self, table: TableMap, images: bytes) -> None:
        self.images, self.at = images, 0
        self.columns: list[Column] = [column_of(one, f"{table.name} column {one.name}", wanted=False)
                                      for one in table.columns]  # fmt: skip
        self.json = {n: order for order, n in enumerate(
            n for n, one in enumerate(table.columns) if one.type_code == Type.JSON)}  # fmt: skip
        self.width = (len(self.columns) + 7) // 8

    def whole(self) -> bytes:
        found = []
        while self.at < len(self.images):
            before = self.row(set(), [])
            options, self.at = packed_integer(self.images, self.at)
            if options not in (0, 1):
                raise ValueError(f"value options {options}")
            size = (len(self.json) + 7) // 8 if options else 0
            bits = int.from_bytes(self.take(size), "little")
            partial = {n for n, order in self.json.items() if bits >> order & 1}
            after = self.row(partial, before)
            found += [*before, *after]
        return b"".join(piece or b"" for piece in found)

    def row(self, partial: set[int], before: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the bitmap of NULLs, then the bytes of each column with its length; None is NULL."""
        bitmap = self.take(self.width)
        nulls = int.from_bytes(bitmap, "little")
        found: list[bytes | None] = [bitmap]
        for n, column in enumerate(self.columns):
            if nulls >> n & 1:
                found.append(None)
            elif column.size is not None:
                found.append(self.take(column.size))
            else:
                length = self.take(column.length_bytes)
                value = self.take(int.from_bytes(length, "little"))
                if n in partial:
                    old = before[n + 1]
                    if old is None:
                        raise ValueError("a change of a value that was NULL")
                    value = changed(old[column.length_bytes :], value)
                    length = len(value).to_bytes(column.length_bytes, "little")
                found.append(length + value)
        return found

    def take(self, size: int) -> bytes:
        found = self.images[self.at : self.at + size]
        if len(found) < size:
            raise ValueError("it is cut")
        self.at += size
        return found


def changed(value: bytes, diffs: bytes) -> bytes:
    """Return a binary JSON value after a list of changes."""
    root: list[Node] = [parsed(value)] if value else [(4, b"\0")]
    at = 0
    while at < len(diffs):
        operation = diffs[at]
        if operation not in (_REPLACE, _INSERT, _REMOVE):
            raise ValueError(f"operation {operation} is not known")
        size, at = packed_integer(diffs, at + 1)
        path, at = diffs[at : at + size].decode("utf-8"), at + size
        new: Node | None = None
        if operation != _REMOVE:
            size, at = packed_integer(diffs, at)
            if size < 1 or at + size > len(diffs):
                raise ValueError("a change is cut")
            new, at = parsed(diffs[at : at + size]), at + size
        _apply(root, operation, path, new)
    kind, data = encoded(root[0])
    return bytes((kind,)) + data


def _apply(root: list[Node], operation: int, path: str, new: Node | None) -> None:
    legs: list[bytes | int] = [0, *_legs(path)]
    parent: Node = root
    for leg in legs[:-1]:
        parent = _member(parent, leg, path)
    last = legs[-1]
    if isinstance(parent, dict) and isinstance(last, bytes):
        if (last in parent) is (operation == _INSERT):
            raise ValueError(f"{path} is there already, or is not there")
        if new is None:
            del parent[last]
        else:
            parent[last] = new
    elif isinstance(parent, list) and isinstance(last, int):
        if (last >= len(parent) and operation != _INSERT) or (parent is root and operation != _REPLACE):
            raise ValueError(f"{path} is not there")
        if new is None:
            del parent[last]
        elif operation == _INSERT:
            parent.insert(last, new)  # behind the end it is appended, here as there
        else:
            parent[last] = new
    else:
        raise ValueError(f"{path} leads through a value without parts")


def _member(node: Node, leg: bytes | int, path: str) -> Node:
    if isinstance(node, dict) and isinstance(leg, bytes):
        return node[leg]
    if isinstance(node, list) and isinstance(leg, int):
        return node[leg]
    raise ValueError(f"{path} leads through a value without parts")


def _legs(path: str) -> list[bytes | int]:
    if not path.startswith("$"):
        raise ValueError(f"{path!r} is no path")
    at = 1
    found: list[bytes | int] = []
    while at < len(path):
        leg = _LEG.match(path, at)
        if leg is None:
            raise ValueError(f"{path!r} is no path of members and places")
        quoted, plain, place = leg.groups()
        if place is not None:
            found.append(int(place))
        else:
            found.append((plain if quoted is None else _unescaped(quoted)).encode("utf-8"))
        at = leg.end()
    return found


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if code[0] == "u" else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text)


# --- binary JSON: into parts, and back ------------------------------------------------------------------------------

_NODE: Shape[Node] = Shape(
    {kind: lambda data, _, kind=kind: (kind, data) for kind in SCALARS},  # type: ignore[misc]
    lambda names, values: dict(zip(names, values, strict=True)),
    lambda values: values,
)


def parsed(value: bytes) -> Node:
    """Return the parts of a binary value."""
    return read_json(value, _NODE)


def encoded(node: Node) -> Scalar:
    """Return type and bytes; containers in the large form, which has room for any size."""
    if isinstance(node, tuple):
        return node
    names: list[bytes] = sorted(node, key=lambda name: (len(name), name)) if isinstance(node, dict) else []
    values = [node[name] for name in names] if isinstance(node, dict) else node
    heap = bytearray()
    at = 8 + 6 * len(names) + 5 * len(values)
    table = bytearray()
    for name in names:
        table += struct.pack("<IH", at + len(heap), len(name))
        heap += name
    for value in values:
        kind, data = encoded(value)
        if kind in (4, 5, 6, 7, 8):  # small values stand in the table itself
            table += bytes((kind,)) + data.ljust(4, b"\0")
        else:
            table += bytes((kind,)) + struct.pack("<I", at + len(heap))
            heap += data
    head = struct.pack("<II", len(values), at + len(heap))
    return 1 if isinstance(node, dict) else 3, bytes(head + table + heap)
