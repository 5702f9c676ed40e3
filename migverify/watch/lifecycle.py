"""The life of one difference, from the first read that found it to its end. Pure.

A difference that was read once proves nothing while writes go on: the change may be on its way to the target. So it is
read again, and ``advance`` says what each read makes of it:

- *unconfirmed*: it differs, and what is needed to conclude is not there yet;
- *converged*: both sides were equal at the last read. A difference that comes after that is a new one;
- *hot*: the reads are used up and the rows kept moving. Nothing is concluded, and more reads may still conclude it;
- *diverged*: both sides stood still for ``Criteria.still_reads`` reads after the first that showed this, and at the
  last of them the target had applied past the change. It remains diverged for as long as neither side moves: what was
  proved needs no second proof.

There is no way from hot or unconfirmed to an agreement but a read that found both sides equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from migverify.model import LiveState


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a conclusion needs.

    ``still_reads`` is how many reads in a row, each compared with the one before, must show the same; 0 concludes from
    the first read, where nothing can move. ``most_reads`` is after how many reads, the first included, a difference
    that moves is hot; None never.
    """

    still_reads: int = 1
    most_reads: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """One read of both sides.

    ``look`` is what they showed, and equal looks mean that neither side moved; it does not matter where they are
    ``equal``. ``applied_past``: when this read was made, the target had applied every change of the key that is known,
    by its position or because the settle time is over.
    """

    look: Hashable = None
    equal: bool = False
    applied_past: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one key that differed.

    ``look`` is that of the last read, None before the first read since the last known write. ``reads`` counts all
    reads, ``still`` how many of the last ones in a row showed what the one before them had shown. ``reported`` says
    that it was diverged, and that no read found both sides equal since: a difference that was reported once is not
    taken back because its rows move.
    """

    look: Hashable = None
    state: LiveState = LiveState.UNCONFIRMED
    reads: int = 0
    still: int = 0
    reported: bool = False


def read_once(look: Hashable) -> Finding:
    """Return a difference that one read found."""
    return Finding(look, reads=1)


def advance(finding: Finding, read: Read, criteria: Criteria) -> Finding:
    """Return what one more read makes of a difference."""
    reads = finding.reads + 1
    if read.equal:
        return Finding(state=LiveState.CONVERGED, reads=reads)
    stood_still = finding.look is not None and read.look == finding.look
    still = finding.still + 1 if stood_still else 0
    if stood_still and finding.state is LiveState.DIVERGED:
        state = LiveState.DIVERGED
    elif still >= criteria.still_reads:
        # Not hot either: what does not move is only waiting for the target.
        state = LiveState.DIVERGED if read.applied_past else LiveState.UNCONFIRMED
    elif criteria.most_reads is not None and reads >= criteria.most_reads:
        state = LiveState.HOT
    else:
        state = LiveState.UNCONFIRMED
    return Finding(read.look, state, reads, still, finding.reported or state is LiveState.DIVERGED)
