"""Touched keys -> proved, doubtful or diverged: one batch of one pair, read on both sides at the same time.

A key is read only when the target has applied past its last touch. If the checksums differ then, it is in *doubt*: the
read of the source may have seen a change that the stream had not shown yet. It is *diverged* when the stream of every
source of the pair was read past that moment without a touch of the key, and a second read shows both sides as they
were. With no proof of what is applied (settle time), a witness is needed as well: a key written later on that source
whose rows are equal. A key that no write put there needs none, as long as no written key of the source is in doubt:
neither side changed it for the settle time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from migverify.errors import IncompleteReadError
from migverify.model import DiffKind, KeyText, LiveState, RowDiff
from migverify.sql import checksum
from migverify.tables.confirm import read_of
from migverify.tables.diff import PairReader, compare_lists, list_diffs, read_rows, rows_at_once
from migverify.watch.ledger import KeyState, LedgerKey
from migverify.watch.lifecycle import Criteria, Finding, Read, advance, read_once
from migverify.watch.stream import SourceProgress
from migverify.watch.touched import form_of

MOST_WAIT = 30.0
CRITERIA = Criteria()
"""A key is read when the target has applied past its last write, so one more read that shows the same is enough."""


@dataclass(slots=True)
class Checked:
    """What one batch came to. ``differing`` are the arguments of ``Ledger.seen``; ``found`` are keys of a collation.

    ``unfound`` are keys that are on neither side although their last change left a row.
    ``present`` are proved keys whose rows are there (a deleted row is equal on a target that applied nothing);
    ``transitions`` are row diffs in their new state: DIVERGED, or CONVERGED for one that was diverged.
    """

    proved: list[LedgerKey] = field(default_factory=list)
    differing: list[tuple[LedgerKey, KeyState, str | None, str | None, Mapping[int, int], float]] = field(
        default_factory=list
    )
    unfound: list[LedgerKey] = field(default_factory=list)
    present: list[LedgerKey] = field(default_factory=list)
    found: list[tuple[int, KeyText]] = field(default_factory=list)
    transitions: list[tuple[LedgerKey, RowDiff]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckMoment:
    """What is known while a batch is judged, per source number.

    ``head`` asks the source's server where its binlog ends now; ``witness`` is the latest place whose key was found
    equal; ``proof`` whether the applied place is a fact; ``doubted`` are the sources with written keys in doubt.
    ``sources`` are those of the pair. ``unseen``: no stream shows what was written, so no key is known to be unwritten.
    ``final`` is the moment of a final pass, 0 without one: what the target held before it proves nothing.
    """

    head: Callable[[int], int]
    witness: Mapping[int, int]
    proof: Mapping[int, bool]
    delay: float
    sources: Sequence[int]
    doubted: Set[int] = frozenset()
    unseen: bool = False
    final: int = 0


def check(reader: PairReader, keys: Sequence[LedgerKey], moment: CheckMoment) -> Checked:
    """Read the rows of some due keys of one pair on both sides and judge each.

    Raises
    ------
    ReadError
        a side did not answer, after its retries: nothing of the batch counts.
    """
    result = Checked()
    for start in range(0, len(keys), rows_at_once(reader.pair)):
        _check_some(reader, keys[start : start + rows_at_once(reader.pair)], moment, result)
    return result


def _check_some(reader: PairReader, keys: Sequence[LedgerKey], moment: CheckMoment, result: Checked) -> None:
    need_presence = not all(moment.proof.values()) or any(entry.there for entry in keys)
    diffs, present = differing_rows(reader, [k.key for k in keys], presence=need_presence)
    differing = {form_of(reader.key, diff.key): diff for diff in diffs}
    heads: dict[int, int] = {}
    for entry in keys:
        diff = differing.pop(entry.key, None)
        if diff is None and entry.there and entry.key not in present:
            if not heads:
                heads = {s: moment.head(s) for s in moment.sources}
            _doubt(entry, heads, moment, result)
            continue
        if diff is None:
            prove(reader, entry, result)
            if entry.key in present:
                result.present.append(entry)
            continue
        if not heads:
            heads = {s: moment.head(s) for s in moment.sources}  # after the read: what the read saw lies before them
        judge(reader, entry, diff, heads, moment, result)
    # A collation may find rows of other keys; those that differ are read again under their own key.
    result.found += [(keys[0].pair, key) for key in differing]


def differing_rows(
    reader: PairReader, keys: Sequence[KeyText], *, presence: bool = False
) -> tuple[list[RowDiff], set[KeyText]]:
    """Return the rows of some keys that are not the same on both sides, and which keys have a row on the source.

    The keys with a row are found only where ``presence`` asks for them.
    """
    try:
        parts, theirs = reader.ask(lambda side: side.key_list(keys))
    except IncompleteReadError:
        if len(keys) == 1:
            raise
        middle = len(keys) // 2
        one = differing_rows(reader, keys[:middle], presence=presence)
        other = differing_rows(reader, keys[middle:], presence=presence)
        return one[0] + other[0], one[1] | other[1]
    ours = [element for part in parts for element in part]
    present = {form_of(reader.key, checksum.split_element(reader.key, e)[0]) for e in ours} if presence else set()
    return list(list_diffs(reader, compare_lists(ours, theirs))), present


def prove(reader: PairReader, entry: LedgerKey, result: Checked) -> None:
    """Take a key as proved: its rows are equal."""
    result.proved.append(entry)
    if entry.diverged:
        result.transitions.append((entry, _converged(reader, entry)))


def _doubt(entry: LedgerKey, heads: Mapping[int, int], moment: CheckMoment, result: Checked) -> None:
    """Take a key whose row is on neither side, though its last change left one, for no agreement.

    It may have been removed behind the place that the stream was read to: then that change touches it again. Otherwise
    the key of the stream is not that of the servers: a text in another time zone, or of a type that was declared wrong.
    """
    known = entry.state is KeyState.DOUBT and entry.source_sum is None and entry.target_sum is None
    if known:
        result.unfound.append(entry)
    wait = min(MOST_WAIT, moment.delay * 2 ** min(entry.reads, 6))
    result.differing.append((entry, KeyState.DOUBT, None, None, entry.heads if known else heads, wait))


def judge(
    reader: PairReader, entry: LedgerKey, diff: RowDiff, heads: Mapping[int, int], moment: CheckMoment, result: Checked
) -> None:
    """Say what one more read that found a key different makes of it; ``heads`` are places after the read."""
    seen = (diff.source_checksum, diff.target_checksum)
    witnessed = all(_witnessed(entry, source, moment) for source in moment.sources)
    finding = advance(finding_of(entry), Read(seen, applied_past=witnessed), CRITERIA)
    wait = min(MOST_WAIT, moment.delay * 2 ** min(entry.reads, 6))
    if finding.state is not LiveState.DIVERGED:
        # The heads move only with what was read: the next read counts when the streams have come by this one.
        stood_still = finding.still > 0
        result.differing.append(
            (entry, KeyState.DOUBT, *seen, entry.heads if stood_still else heads, wait if stood_still else moment.delay)
        )
        return
    result.differing.append((entry, KeyState.DIVERGED, *seen, entry.heads, max(wait, 5 * moment.delay)))
    # An earlier process may have been killed after its ledger knew of a diverged key, and before the store did.
    if finding_of(entry).state is not LiveState.DIVERGED or entry.state is KeyState.REREAD:
        full = _with_columns(reader, diff)
        if full is not None:
            result.transitions.append((entry, full))


def finding_of(entry: LedgerKey) -> Finding:
    """Return what is known of a key: of one that was written since it was read last, only that it was diverged."""
    if entry.state is KeyState.PENDING:
        return Finding(reads=entry.reads, reported=entry.diverged)
    state = LiveState.UNCONFIRMED if entry.state is KeyState.DOUBT else LiveState.DIVERGED
    return Finding((entry.source_sum, entry.target_sum), state, entry.reads, reported=entry.diverged)


def _witnessed(entry: LedgerKey, source: int, moment: CheckMoment) -> bool:
    if moment.proof[source]:
        return True
    if moment.unseen:
        return moment.witness.get(source, -1) >= entry.heads.get(source, 0)
    if (entry.origin or source != entry.source) and source not in moment.doubted:
        return True
    return moment.witness.get(source, -1) >= (entry.ordinal if source == entry.source else entry.heads.get(source, 0))


def _with_columns(reader: PairReader, diff: RowDiff) -> RowDiff | None:
    """Read the whole row once more for its columns; None when it moved in this moment."""
    fresh, read = read_of(reader, diff, *read_rows(reader, [diff.key]))
    finding = advance(read_once((diff.source_checksum, diff.target_checksum)), read, CRITERIA)
    return replace(fresh, state=finding.state) if finding.state is LiveState.DIVERGED else None


def _converged(reader: PairReader, entry: LedgerKey) -> RowDiff:
    return RowDiff(reader.pair.id, entry.key, DiffKind.VALUE_DIFFERS, LiveState.CONVERGED,
                   source_checksum=entry.source_sum, target_checksum=entry.target_sum)  # fmt: skip


def transition_text(entry: LedgerKey, diff: RowDiff, source: SourceProgress, now: float) -> str:
    """Return the JSON record of a key that became diverged, or equal again."""
    return json.dumps(
        {
            "key": list(entry.key), "state": diff.state.value, "kind": diff.kind.value,
            "touched_at": source.shown(entry.ordinal) if entry.ordinal else None,
            "touches": entry.touches, "reads": entry.reads + 1,
            "first_touched": entry.first, "at": now,
            "source_checksum": diff.source_checksum, "target_checksum": diff.target_checksum,
            "stream_read_to": str(source.position) if source.position else None,
            "target_applied": source.shown(source.applied) if source.applied else None,
            "origin": entry.origin or "stream",
        }
    )  # fmt: skip
