"""Row images -> the text that SELECT gives, by a function made for each table, wanted columns and set of NULLs.

Images of one table are read alike, but for which values are NULL. So for the NULL bitmaps that occur often a function
is compiled that reads image after image as long as they have the same bitmap: neighbors of fixed size are taken in
one ``struct`` call, columns that nobody wants are stepped over, and only what is wanted becomes text. Rare bitmaps
share one function that asks column by column. Source text made here holds numbers and places only; names, labels and
character sets of the stream are never in it.

Source of the format: MySQL's ``rows_event.h`` and ``log_event.cc`` (``calc_field_size``). An image is a bitmap of
NULLs, one bit a column, then the values that are there, without gaps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from migverify.changes.columns import ImageColumn, column_of
from migverify.changes.model import AfterImages, DecodedTable, Op, Rows, TableMap, Texts
from migverify.errors import ChangeError

FIRST_SETS = 8
"""So many sets of NULLs are compiled when they are first seen; after them a set must be seen often."""
OFTEN = 200
MOST_SETS = 128
_MOST_COUNTED = 4096
_MOST_DECODERS = 2048
_DAMAGED = (UnicodeDecodeError, IndexError, ValueError, KeyError, OverflowError, struct.error)

Step = Callable[[bytes, int, int, Callable[[Texts], None]], int]
"""(images, place, end, append) -> next place, behind the last neighbor of this set of NULLs, or behind one image."""


class Decoder:
    """Decodes images of one table; made by ``decoder``."""

    __slots__ = ("_any_nulls", "_columns", "_counts", "_steps", "_table", "_wanted", "_width")

    def __init__(self, table: TableMap, columns: Sequence[str] | None, *, exact: bool = False) -> None:
        self._table = table
        self._wanted = _places(table, columns)
        wanted = set(self._wanted)
        self._columns = [
            column_of(column, f"{table.name} column {column.name}", wanted=n in wanted, exact=exact)
            for n, column in enumerate(table.columns)
        ]
        self._width = (len(self._columns) + 7) // 8
        self._steps: dict[bytes, Step] = {}
        self._counts: dict[bytes, int] = {}
        self._any_nulls: Step | None = None

    def texts(self, images: bytes) -> list[Texts]:
        """Return the wanted columns of every image, in the order of the request."""
        found: list[Texts] = []
        try:
            self._read(images, found)
        except (*_DAMAGED, ChangeError) as error:
            raise ChangeError(f"{self._blamed(images)}: row image {len(found) + 1} of a rows event "
                              f"cannot be read: {error}") from error  # fmt: skip
        return found

    def _read(self, images: bytes, found: list[Texts]) -> None:
        append, steps, width = found.append, self._steps, self._width
        at, end = 0, len(images)
        while at < end:
            nulls = images[at : at + width]
            at = (steps.get(nulls) or self._step(nulls))(images, at, end, append)

    def _step(self, nulls: bytes) -> Step:
        """Return the function of a bitmap that has none yet; makes one if that pays."""
        seen = self._counts.get(nulls, 0) + 1
        if len(nulls) == self._width and (len(self._steps) < FIRST_SETS or seen >= OFTEN):
            if len(self._steps) >= MOST_SETS:
                # Counting begins anew too: a table of very many sets would else compile one for nearly every image.
                self._steps.clear()
                self._counts.clear()
            made = self._steps[nulls] = _compile(self._columns, self._wanted, nulls)
            return made
        if len(self._counts) >= _MOST_COUNTED:
            self._counts.clear()
        self._counts[nulls] = seen
        if self._any_nulls is None:
            self._any_nulls = _compile(self._columns, self._wanted, None)
        return self._any_nulls

    def _blamed(self, images: bytes) -> str:
        """Return the table and, where the value of one column is at fault, its name: the fast way does not know it."""
        for place in (None, *sorted(set(self._wanted))):
            name = "" if place is None else self._table.columns[place].name
            try:
                Decoder(self._table, () if place is None else (name,))._read(images, [])
            except (*_DAMAGED, ChangeError):
                return f"{self._table.name} column {name}" if name else self._table.name
        return self._table.name


class _TextDecoder(Decoder):
    """Picks columns of images that a carrier gave."""

    __slots__ = ("_reader",)

    def __init__(self, table: DecodedTable, columns: Sequence[str] | None) -> None:
        self._reader = table.reader(_places(table, columns))

    def texts(self, images: bytes) -> list[Texts]:
        """Return the wanted columns of every image, in the order of the request."""
        return self._reader(images)


def _places(table: TableMap, columns: Sequence[str] | None) -> tuple[int, ...]:
    if columns is None:
        return tuple(range(len(table.columns)))
    places = {column.name: n for n, column in enumerate(table.columns)}
    for name in columns:
        if name not in places:
            raise ChangeError(
                f"{table.name} has no column {name!r} at this place of the stream; it has {', '.join(places)}.",
                hint="The table was changed: verify it again with its new definition.",
            )
    return tuple(places[name] for name in columns)


_by_identity: dict[tuple[int, tuple[str, ...] | None, bool], tuple[TableMap, Decoder]] = {}
_by_layout: dict[tuple[TableMap, tuple[str, ...] | None, bool], Decoder] = {}


def decoder(table: TableMap, columns: Sequence[str] | None = None, *, exact: bool = False) -> Decoder:
    """Return the decoder of a layout; the same one for the same layout and columns.

    Parameters
    ----------
    columns
        Names of the wanted columns in the order of the texts; None for all.
    exact
        A FLOAT becomes the text of the DOUBLE of the same value, for comparing and for writing: what SELECT gives of it
        has six digits, which many values share.
    """
    names = None if columns is None else tuple(columns)
    # Hashing a layout costs as much as decoding a row, and a stream hands out the same object again and again. The
    # entry keeps the object alive, so its identity cannot be that of another one.
    known = _by_identity.get((id(table), names, exact))
    if known is not None and known[0] is table:
        return known[1]
    made = _by_layout.get((table, names, exact))
    if made is None:
        made = _TextDecoder(table, names) if isinstance(table, DecodedTable) else Decoder(table, names, exact=exact)
        if len(_by_layout) >= _MOST_DECODERS:
            _by_layout.clear()
        _by_layout[table, names, exact] = made
    if len(_by_identity) >= 2 * _MOST_DECODERS:
        _by_identity.clear()
    _by_identity[id(table), names, exact] = table, made
    return made


def count_rows(rows: Rows) -> int:
    """Count the rows of an event: the images of one column are decoded, halved for an UPDATE."""
    layout = rows.table
    name = layout.columns[layout.key[0] if layout.key else 0].name
    images = len(decoder(layout, [name]).texts(rows.images))
    if isinstance(layout, AfterImages):
        return images
    if rows.op is Op.UPDATE and images % 2:
        raise ChangeError(f"{rows.file}:{rows.offset}: an update of {layout.name} has a before without an after.")
    return images // 2 if rows.op is Op.UPDATE else images


def _compile(columns: Sequence[ImageColumn], wanted: Sequence[int], nulls: bytes | None) -> Step:
    """Write and compile the function of one bitmap, or with None the one that reads any."""
    writer = _Writer((len(columns) + 7) // 8)
    body = writer.with_any_nulls(columns) if nulls is None else writer.with_nulls(columns, nulls)
    values = {n: "None" if nulls is not None and nulls[n // 8] >> n % 8 & 1 else f"t{n}" for n in wanted}
    for n in set(wanted):
        if values[n] != "None":
            writer.scope[f"f{n}"] = columns[n].reader
            if nulls is not None:
                values[n] = columns[n].text_code(f"v{n}", f"f{n}")
    row = "".join(f"{values[n]}, " for n in wanted)
    source = [
        "def step(b, at, end, append):",
        " while True:",
        *(f"  {line}" for line in body),
        "  if at > end: raise IndexError('it is cut')",
        f"  append(({row}))",
        "  return at" if nulls is None else "  if b[at:at + width] != nulls: return at",
    ]
    writer.scope.update(nulls=nulls, width=writer.width)
    exec(compile("\n".join(source), "<row image>", "exec"), writer.scope)  # noqa: S102 - made of numbers of this module
    made: Step = writer.scope["step"]
    return made


class _Writer:
    """Writes lines that read one image from ``b`` at ``at``: raw values to ``v3``, or texts to ``t3``.

    A slice past the end is short without an error, so the lines that follow compare ``at`` with the end before
    anything is given out.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.skip = 0
        self.run: list[tuple[int, str, str, str]] = []  # offset, name, struct code, byte order

    def with_nulls(self, columns: Sequence[ImageColumn], nulls: bytes) -> list[str]:
        """Lines for images of one bitmap."""
        self.skip = self.width
        for n, column in enumerate(columns):
            if not nulls[n // 8] >> n % 8 & 1:
                self._column(n, column)
        self._flush()
        return self.lines

    def with_any_nulls(self, columns: Sequence[ImageColumn]) -> list[str]:
        """Lines that look into the bitmap for each column."""
        found = [f"nulls = int.from_bytes(b[at:at + {self.width}], 'little'); at += {self.width}"]
        for n, column in enumerate(columns):
            self._column(n, column)
            self._flush()
            if column.wanted:
                self.lines.append(f"t{n} = {column.text_code(f'v{n}', f'f{n}')}")
                found.append(f"t{n} = None")
            found += [f"if not nulls & {1 << n}:", *(f" {line}" for line in self.lines)]
            self.lines = []
        return found

    def _column(self, n: int, column: ImageColumn) -> None:
        if column.size is not None:
            if column.wanted:
                self._take(f"v{n}", column.layout, column.size, column.order)
            else:
                self.skip += column.size
            return
        code, order = {1: ("B", ""), 2: ("H", "<"), 3: ("3s", ""), 4: ("I", "<")}[column.length_bytes]
        self._take("n", code, column.length_bytes, order)
        skipped = self._flush(move=False)
        length = "int.from_bytes(n, 'little')" if code == "3s" else "n"
        if column.wanted:
            self.lines += [f"p = at + {skipped}; at = p + {length}", f"v{n} = b[p:at]"]
        else:
            self.lines.append(f"at += {skipped} + {length}")

    def _take(self, name: str, code: str, size: int, order: str) -> None:
        if order and any(known not in ("", order) for *_, known in self.run):
            self._flush()
        self.run.append((self.skip, name, code, order))
        self.skip += size

    def _flush(self, *, move: bool = True) -> int:
        """Write what was taken so far; returns the bytes by which ``at`` is still behind."""
        if len(self.run) == 1 and self.run[0][2] == "B":
            offset, name, *_ = self.run[0]
            self.lines.append(f"{name} = b[at + {offset}]")
        elif self.run:
            layout, at = next((order for *_, order in self.run if order), "<"), 0
            for offset, _, code, _ in self.run:
                layout += (f"{offset - at}x" if offset > at else "") + code
                at = offset + struct.calcsize("<" + code)
            name = f"u{len(self.scope)}"
            self.scope[name] = struct.Struct(layout).unpack_from
            self.lines.append(f"{', '.join(name for _, name, *_ in self.run)}, = {name}(b, at)")
        skipped, self.skip, self.run = self.skip, 0, []
        if not move:
            return skipped
        if skipped:
            self.lines.append(f"at += {skipped}")
        return 0
