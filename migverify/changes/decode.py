"""Row images -> the text that SELECT gives, by a reader made for each table, wanted columns and set of NULLs.

Images of one table are read alike, but for which values are NULL. So for every NULL bitmap that occurs a small
function is compiled: fixed-size neighbors are taken in one ``struct`` call, columns that nobody wants are stepped over,
and only what is wanted becomes text. The source of the function holds numbers and places only; names, labels and
character sets of the stream never stand in it.

Source of the format: MySQL's ``rows_event.h`` and ``log_event.cc`` (``calc_field_size``). An image is a bitmap of
NULLs, one bit a column, then the values that are there, without gaps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from migverify.changes.columns import Column, column_of
from migverify.changes.model import TableMap, Texts
from migverify.errors import ChangeError

MOST_STEPS = 512
"""Compiled functions of one decoder; the table begins anew when a stream has more sets of NULLs."""
CACHED = 2048

Step = Callable[[bytes, int], tuple[Texts, int]]


class Decoder:
    """Decodes images of one table; made by ``decoder``."""

    def __init__(self, table: TableMap, columns: Sequence[str] | None) -> None:
        self._table = table
        names = [column.name for column in table.columns]
        missing = [name for name in columns or () if name not in names]
        if missing:
            raise ChangeError(
                f"{table.name} has no column {missing[0]!r} at this place of the stream; it has {', '.join(names)}.",
                hint="The table was changed: verify it again with its new definition.",
            )
        self._wanted = range(len(names)) if columns is None else [names.index(name) for name in columns]
        wanted = set(self._wanted)
        self._columns = [
            column_of(column, f"{table.name} column {column.name}", wanted=n in wanted)
            for n, column in enumerate(table.columns)
        ]
        self._steps: dict[int, Step] = {}

    def texts(self, images: bytes) -> list[Texts]:
        """Return the wanted columns of every image, in the order asked for.

        Raises
        ------
        ChangeError
            the images do not end where the bytes do, or a value is none of its column's.
        """
        found: list[Texts] = []
        append, steps = found.append, self._steps
        width = (len(self._columns) + 7) // 8
        every = (1 << len(self._columns)) - 1
        at, end = 0, len(images)
        try:
            while at < end:
                nulls = int.from_bytes(images[at : at + width], "little") & every
                step = steps.get(nulls) or self._make(nulls)
                texts, at = step(images, at + width)
                append(texts)
        except (UnicodeDecodeError, IndexError, ValueError, KeyError, OverflowError, struct.error) as error:
            raise ChangeError(
                f"{self._table.name}: a row image cannot be read at byte {at} of {end}: {error}"
            ) from error
        if at != end:
            raise ChangeError(f"{self._table.name}: row images end at byte {at}, the event at {end}.")
        return found

    def _make(self, nulls: int) -> Step:
        if len(self._steps) > MOST_STEPS:
            self._steps.clear()
        step = self._steps[nulls] = _compile(self._columns, self._wanted, nulls)
        return step


@lru_cache(maxsize=CACHED)
def _made(table: TableMap, columns: tuple[str, ...] | None) -> Decoder:
    return Decoder(table, columns)


def decoder(table: TableMap, columns: Sequence[str] | None = None) -> Decoder:
    """Return the decoder of a layout; the same one for the same layout and columns.

    Parameters
    ----------
    columns
        Names of the wanted columns in the order of the texts; None for all.

    Raises
    ------
    ChangeError
        a column is not there, or its type or character set cannot be read exactly (unwanted ones are stepped over).
    """
    return _made(table, None if columns is None else tuple(columns))


def _compile(columns: Sequence[Column], wanted: Sequence[int], nulls: int) -> Step:
    """Write and compile the function of one set of NULLs: (images, place behind the bitmap) -> (texts, next place)."""
    lines: list[str] = []
    scope: dict[str, Any] = {}
    run: list[tuple[int, Column]] = []
    texts = {n: "None" for n in wanted if nulls >> n & 1}
    for n, column in enumerate(columns):
        if nulls >> n & 1:
            continue
        if column.size is not None:
            run.append((n, column))
            continue
        _flush(run, lines, scope)
        lines.append(f" n = {column.length_code}; at += {column.length_bytes}")
        if n in wanted:
            lines.append(f" v{n} = b[at:at + n]")
            # A slice past the end is short without an error; the text of a cut value must not get out.
            lines.append(f" if len(v{n}) != n: raise IndexError('a value of %d bytes is cut' % n)")
        lines.append(" at += n")
    _flush(run, lines, scope)
    for n in wanted:
        if n not in texts:
            texts[n] = columns[n].text_code(f"v{n}", f"f{n}")
            scope[f"f{n}"] = columns[n].reader
    row = "".join(f"{texts[n]}, " for n in wanted)
    source = "\n".join(["def step(b, at):", *lines, f" return ({row}), at"])
    exec(compile(source, "<row image>", "exec"), scope)  # noqa: S102 - made of numbers of this module
    made: Step = scope["step"]
    return made


def _flush(run: list[tuple[int, Column]], lines: list[str], scope: dict[str, Any]) -> None:
    """Read neighbors of fixed size in one call; those that nobody wants are padding."""
    size = sum(column.size or 0 for _, column in run)
    named = [(n, column) for n, column in run if column.wanted]
    if named:
        layout = "<" + "".join(column.layout if column.wanted else f"{column.size}x" for _, column in run)
        number = len(scope)
        scope[f"u{number}"] = struct.Struct(layout).unpack_from
        lines.append(f" {', '.join(f'v{n}' for n, _ in named)}, = u{number}(b, at)")
    if size:
        lines.append(f" at += {size}")
    run.clear()
