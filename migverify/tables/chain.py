"""The proof of coverage: finished chunks form an unbroken chain through every span, and the spans one through the key.

Counts prove the same where nobody writes. While writes go on a count says nothing, and the chain is all there is;
so nothing here trusts that a span was walked because it was begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migverify.model import ChunkResult, KeyRange, KeyText

Span = tuple[int, KeyRange]


@dataclass(slots=True)
class _Progress:
    """How far one span is read: ``reached`` is the lower bound of chunk ``number``, None at an open edge."""

    range: KeyRange
    reached: KeyText | None
    number: int = 0
    done: bool = False
    broken: str = ""


class Chain:
    """Follows the chunks of one table pair; holds one entry per span, none per chunk."""

    def __init__(self) -> None:
        self._spans: dict[int, _Progress] = {}

    def begin(self, span: int, key_range: KeyRange) -> None:
        """Expect a span."""
        self._spans[span] = _Progress(key_range, key_range.lower)

    def add(self, chunk: ChunkResult) -> None:
        """Take the next finished chunk of its span; another attempt at an earlier chunk changes nothing."""
        span = self._spans.get(chunk.span)
        if span is None:
            span = self._spans[chunk.span] = _Progress(chunk.range, chunk.range.lower)
            span.broken = "its span is not recorded"
        if chunk.number < span.number:
            return
        fits = chunk.number == span.number and not span.done and chunk.range.nulls == span.range.nulls
        if not fits or chunk.range.lower != span.reached:
            span.broken = span.broken or f"chunk {chunk.number} {chunk.range} does not follow {_shown(span.reached)}"
        span.number = chunk.number + 1
        span.reached = chunk.range.upper
        span.done = span.range.nulls or chunk.range.upper == span.range.upper

    def rest(self, span: int) -> tuple[int, KeyRange] | None:
        """Return the number of the next chunk of a span and what is left of its range; None when it is done."""
        progress = self._spans[span]
        if progress.done:
            return None
        if progress.range.nulls:
            return progress.number, progress.range
        return progress.number, KeyRange(progress.reached, progress.range.upper)

    def gaps(self) -> list[str]:
        """Return what keeps the chain from being a proof; empty when every span is covered to its end."""
        found = []
        for number, span in sorted(self._spans.items()):
            if span.broken:
                found.append(f"the chunks of span {number} {span.range} have a gap: {span.broken}")
            elif not span.done:
                rest = span.range if span.range.nulls else KeyRange(span.reached, span.range.upper)
                found.append(f"{rest} was not read")
        return found


def missing_spans(spans: Sequence[Span], *, nullable: bool) -> list[KeyRange]:
    """Return the ranges that the recorded spans leave out of the key space, in order.

    Spans are recorded one by one, so a process killed between two of them leaves a cut of the key space that ends
    in the middle. Without this, a resumed run would read the first part and call it the table.

    Raises
    ------
    ValueError
        the spans overlap or have a hole in the middle: they are not the beginning of any cut.
    """
    ranges = [key_range for _, key_range in sorted(spans, key=lambda item: item[0])]
    plain = [key_range for key_range in ranges if not key_range.nulls]
    missing = []
    reached: KeyText | None = None
    for place, key_range in enumerate(plain):
        if key_range.lower != reached or (place and reached is None):
            raise ValueError(f"span {key_range} does not follow {_shown(reached)}")
        reached = key_range.upper
    if not plain or reached is not None:
        missing.append(KeyRange(reached))
    if nullable and not any(key_range.nulls for key_range in ranges):
        missing.append(KeyRange(nulls=True))
    return missing


def _shown(bound: KeyText | None) -> str:
    return "the open edge" if bound is None else str(bound)
