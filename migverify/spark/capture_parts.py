"""Files cut into parts that are read at the same time, and the proof that their borders are borders of records.

A first pass reads every part from the first header it finds. Whether that is where the part before it ended shows when
both are read: a header may be forged inside a literal, and a quote may be open. A part for which it is not so is read
again from its true border. What the records of a part say for those behind it (the database, a time, an echo to come)
is handed on in the same chain, so the second pass reads what one reader of the whole file would have read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from migverify.spark.capture_audit import restricted
from migverify.spark.capture_audit_survey import survey_audit
from migverify.spark.capture_rows import COMMAND_CODES, Names, Rows
from migverify.spark.capture_sources import LogSource, RecordSource
from migverify.spark.capture_times import Entry, Times
from migverify.workload.capture import CaptureInput, FileCount, tells_connects, unaccounted
from migverify.workload.formats.audit import Audit, AuditSurvey
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.reading import splits
from migverify.workload.formats.slow import SlowLog
from migverify.workload.formats.statements import UNTOLD, Carry
from migverify.workload.lines import BLOCK
from migverify.workload.model import Command

PART_BYTES = 64 << 20
SAMPLES = 2_000
_LOOKED_AT = 20_000
_CONNECT = COMMAND_CODES[Command.CONNECT]

SessionKey: TypeAlias = tuple[str, int]
"""Server and connection id; -1 where it is not told."""


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes [start, stop) of a file; ``stop`` is None for the last part. ``rank`` is the file's place in time.

    ``borders`` are offsets at which the first pass cuts it further, at the next lines.
    """

    one: CaptureInput
    rank: int
    nth: int
    start: int
    stop: int | None
    borders: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A first pass over a part: from its first header when ``begin`` is None, else from there.

    ``told`` is what the part before is known, or guessed, to have said of sessions.
    """

    part: Part
    begin: int | None
    told: tuple[tuple[int, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """What a first pass found. ``end`` is where the first piece behind the part begins, None when not looked for."""

    begin: int
    end: int | None
    lines: int
    carry: Carry
    last: int
    newest: int
    sample: tuple[tuple[SessionKey, int], ...]
    connects: frozenset[str]
    told: AuditSurvey | None = None
    inner: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """A second pass: a part that begins at ``entry`` and has to end exactly at ``end``, where that is told."""

    part: Part
    entry: Entry
    end: int | None
    told: AuditSurvey | None = None


@dataclass(slots=True)
class Plan:
    """What the first pass gives for the second: where parts begin, servers that log connects, sessions and rows."""

    reads: list[Read] = field(default_factory=list)
    connects: set[str] = field(default_factory=set)
    sample: dict[SessionKey, int] = field(default_factory=dict)


def parts_of(inputs: Sequence[CaptureInput], size: int = PART_BYTES) -> list[Part]:
    """Cut files into parts of a size; one of a format that cannot be read from the middle, or packed, is one part."""
    found = []
    for rank, one in enumerate(inputs):
        whole = one.path.stat().st_size
        count = max(1, whole // size) if splits(str(one.path)) else 1
        borders = [whole * nth // count for nth in range(count)]
        if isinstance(one.format, Audit):
            found.append(Part(one, rank, 0, 0, None, tuple(borders[1:])))
            continue
        if not isinstance(one.format, SlowLog | GeneralLog):
            borders = [0]
        stops: list[int | None] = [*borders[1:], None]
        found += [
            Part(one, rank, nth, start, stop)
            for nth, (start, stop) in enumerate(zip(borders, stops, strict=True))
            if stop is None or stop > start
        ]
    return found


def survey(ask: Ask, block: int = BLOCK) -> Survey:
    """Read a part for its borders, and for what it says for the bytes behind it."""
    part, names = ask.part, Names()
    times = Times(FileCount("", "", ""))
    sample: dict[SessionKey, int] = {}
    if isinstance(part.one.format, Audit):
        told, inner = survey_audit(
            part.one, part.one.format, part.borders, block, lambda rows, known: _add(sample, rows, known)
        )
        return Survey(0, None, 0, Carry(), -1, -1, tuple(sample.items()), frozenset(), told, tuple(inner))
    if not isinstance(part.one.format, SlowLog | GeneralLog):
        return _sampled(part, names, sample)
    carry = None
    if part.start:
        carry = Carry(0, UNTOLD, None, ask.told)
    begin = part.start if ask.begin is None else ask.begin
    connects: set[str] = set()
    with LogSource(
        part.one, part.rank, names, Entry(begin, 1, carry), part.stop, block,
        seek=bool(begin) and ask.begin is None, light=True,
    ) as source:  # fmt: skip
        reading = source.reading
        begun = reading.place
        for batch in source.batches():
            columns = batch.rows.columns
            if not len(batch.rows):
                continue
            times.take(columns["time"])
            here = columns["command"] == _CONNECT
            connects.update(names.texts[place] for place in np.unique(columns["server"][here]))
            _add(sample, batch.rows, names)
        return Survey(
            begun, reading.place, reading.line - 1, reading.grammar.carry(), times.last, times.newest,
            tuple(sample.items()), frozenset(connects),
        )  # fmt: skip


def _sampled(part: Part, names: Names, sample: dict[SessionKey, int]) -> Survey:
    """Look at the beginning of a file that is read whole: it shows about which sessions there are."""
    rows = 0
    connects: set[str] = set()
    for batch in RecordSource(part.one, part.rank, names).batches():
        columns = batch.rows.columns
        connects.update(names.texts[place] for place in np.unique(columns["server"][columns["command"] == _CONNECT]))
        _add(sample, batch.rows, names)
        rows += len(batch.rows)
        if rows >= _LOOKED_AT and tells_connects([part.one]):  # who tells none is read for its connects
            break
    return Survey(0, None, 0, Carry(), -1, -1, tuple(sample.items()), frozenset(connects))


def _add(sample: dict[SessionKey, int], rows: Rows, names: Names) -> None:
    for (server, session), count in _sessions(rows):
        key = (names.texts[server], session)
        if key in sample or len(sample) < SAMPLES:
            sample[key] = sample.get(key, 0) + count


def _sessions(rows: Rows) -> list[tuple[tuple[int, int], int]]:
    both = np.stack([rows.columns["server"].astype(np.int64), rows.columns["session"]])
    found, counts = np.unique(both, axis=1, return_counts=True)
    return [((int(found[0, at]), int(found[1, at])), int(counts[at])) for at in range(found.shape[1])]


def plan(parts: Sequence[Part], ask: Callable[[Sequence[Ask]], Sequence[Survey]]) -> Plan:
    """Find where parts truly begin; ``ask`` makes surveys, at the same time where it can.

    Each round confirms at least one part more of every file, and nearly always all of them.
    """
    known: dict[tuple[Part, int, Any], Survey] = {}
    latest: dict[Part, Survey] = {}
    wanted = [Ask(part, None if part.start else 0) for part in parts]
    while wanted:
        for one, found in zip(wanted, ask(wanted), strict=True):
            known[one.part, found.begin, one.told] = latest[one.part] = found
        made, wanted = Plan(), []
        entry = Entry()
        for part in parts:
            if part.nth == 0:
                entry = Entry()
            elif part.stop is not None and entry.begin >= part.stop:
                continue  # all of it belongs to a record that begins before it
            told = () if entry.carry is None else entry.carry.told
            found = known.get((part, entry.begin, told), latest[part])
            if (part, entry.begin, told) not in known:
                wanted.append(Ask(part, entry.begin, told))
                found = replace(found, carry=replace(found.carry, told=_guess(told, found.carry.told)))
            made.reads += _reads(part, entry, found)
            made.connects |= found.connects
            for key, count in found.sample:
                made.sample[key] = made.sample.get(key, 0) + count
            entry = _behind(entry, found)
    return made


def _reads(part: Part, entry: Entry, found: Survey) -> list[Read]:
    if found.told is None:
        return [Read(part, entry, found.end)]
    entries = [entry, *found.inner]
    ends: list[int | None] = [*(one.begin for one in found.inner), None]
    return [
        Read(
            Part(part.one, part.rank, nth, one.begin, end), one, end, restricted(found.told, one.begin, end)
        )
        for nth, (one, end) in enumerate(zip(entries, ends, strict=True))
    ]  # fmt: skip


def _guess(before: tuple[tuple[int, Any], ...], own: tuple[tuple[int, Any], ...]) -> tuple[tuple[int, Any], ...]:
    return tuple(sorted((dict(before) | dict(own)).items()))


def _behind(entry: Entry, found: Survey) -> Entry:
    end = entry.begin if found.end is None else found.end
    carry = found.carry if entry.carry is None else found.carry.behind(entry.carry)
    return Entry(
        end, entry.line + found.lines, carry, entry.last if found.last < 0 else found.last,
        max(entry.newest, found.newest),
    )  # fmt: skip


def cuts(sample: dict[SessionKey, int], count: int) -> tuple[SessionKey, ...]:
    """Return the sessions at which the order of all sessions is cut into at most ``count`` shares of about one size."""
    ordered = sorted(sample.items())
    total = sum(rows for _, rows in ordered)
    found: list[SessionKey] = []
    passed = 0
    for key, rows in ordered:
        if passed >= total * (len(found) + 1) / count and len(found) < count - 1 and passed:
            found.append(key)
        passed += rows
    return tuple(found)


def ended(read: Read, place: int) -> None:
    """Check that a second pass ended where the first did.

    Raises
    ------
    ReadError
        it did not: the file has changed in between.
    """
    if read.end is not None and read.part.stop is not None and place != read.end:
        raise unaccounted(read.part.one, place, read.end)
