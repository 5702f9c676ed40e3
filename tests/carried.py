"""What a carrier gave, in the form of ``changes tail``."""

from __future__ import annotations

from migverify.changes.carriers.base import Carried
from migverify.changes.model import Begin, Position
from migverify.changes.tail import Change, changes


def change_of(item: Carried) -> Change:
    """Return the change; of a statement on several tables, that of the first."""
    (change, *_) = changes([Begin(item.gtid, Position("", 0), item.time), item.event])
    assert isinstance(change, Change)
    return change
