"""Keys of a ledger that are written again before the following side has applied what was written: hot rows.

Such a key is never due: its last write is always on its way. It is proved to a place between its writes instead, and
stays for the later ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from migverify.model import KeyText
from migverify.watch.ledger_file import LedgerFile, key_text


@dataclass(frozen=True, slots=True)
class MovingKey:
    """A key with several unproved writes; ``since`` is the place of the first one, on the only source."""

    pair: int
    key: KeyText
    since: int


class MovingKeys(LedgerFile):
    """The part of a ledger that is about hot rows."""

    def moving(self, source: int, applied: int, first_before: float, limit: int) -> list[MovingKey]:
        """Return keys whose first unproved write is applied, and whose last one is not; the oldest first.

        Parameters
        ----------
        first_before
            Unix time; a key that was written first after it is left to the read of its last write.

        Keys that differed in a read of both sides, that no write put here, or whose row was deleted last are left out.
        """
        rows = self._read(
            "SELECT pair,key,since FROM touched WHERE state=0 AND source=? AND seq>? AND since BETWEEN 1 AND ? AND "
            "touches>1 AND first<=? AND there=1 AND diverged=0 AND found=0 AND origin='' "
            "AND typeof(head)<>'text' ORDER BY first LIMIT ?",
            [source, applied, applied, first_before, limit],
        )
        return [MovingKey(pair, tuple(json.loads(key)), since) for pair, key, since in rows]

    def proved_to(self, keys: Iterable[tuple[MovingKey, int, float]]) -> None:
        """Note that keys are proved to a place, which is older than their last write; with its Unix time.

        A key that was proved as a whole, or diverged, or sent again from before meanwhile, stays as it is.
        """
        values = [(place + 1, first, one.pair, key_text(one.key), one.since, place) for one, place, first in keys]
        with self._transaction() as db:
            db.executemany(
                "UPDATE touched SET since=?, first=max(first,?) WHERE pair=? AND key=? AND since=? AND seq>? "
                "AND state=0 AND diverged=0 AND typeof(head)<>'text'",
                values,
            )
