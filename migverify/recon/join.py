"""The join of two relations: its statement, its answer, and what a join adds up to, on both engines.

``migverify.sql.recon_join`` makes the statement; DuckDB (``local``) and Spark run it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from migverify.codec import decode
from migverify.db.snapshot import ReadSnapshot
from migverify.recon.relation import JoinFilter, KeyRows, Pairing, Relation, Totals
from migverify.recon.rows import Relations, shards_of, texts
from migverify.sql.packed import unpack
from migverify.sql.recon_join import TOTALS, WORD, JoinSide, join_sql

PAGE = 1000
Row = Mapping[str, Any]


class Join:
    """One join under way; see ``migverify.recon.relation.Joined``.

    ``run``: Reads both sides and yields the rows of ``statement``. It sets ``snapshots`` and ``populations``: (rows,
    keys) that a side looked at, where not all of them come back.
    """

    def __init__(self, relations: Relations, run: Callable[[Join], Iterator[Row]]) -> None:
        self.relations = relations
        self.snapshots: tuple[ReadSnapshot, ...] = ()
        self.populations: Sequence[tuple[int, int] | None] = (None, None)
        self._run = run
        self._totals: Totals | None = None

    def __iter__(self) -> Iterator[Sequence[Pairing]]:
        """Read both sides, then yield batches of pairings.

        Raises ReadError: a read failed after its retries; nothing was yielded before. Or the disk is full.
        """
        self._totals = None
        sums = dict.fromkeys(TOTALS, 0)
        agreed = 0
        streams: list[ReadSnapshot] = []
        batch: list[Pairing] = []
        for row in self._run(self):
            for name in TOTALS:
                sums[name] += row[name]
            if row["k"] is None:
                continue
            if row["n0"] or row["n1"]:
                batch.append(pairing(row, self.relations))
                if len(batch) >= PAGE:
                    yield batch
                    batch = []
                continue
            note = json.loads(bytes(row["k"]))
            agreed += note.get("agreed", 0)
            if "snapshot" in note:
                streams.append(decode(ReadSnapshot, note["snapshot"]))
        if batch:
            yield batch
        self.snapshots = (*self.snapshots, *streams)
        source = self.populations[0] or (sums["rows0"] + agreed, sums["keys0"] + agreed)
        target = self.populations[1] or (sums["rows1"] + agreed, sums["keys1"] + agreed)
        # Keys that were looked at and did not come back agreed.
        unseen = source[1] - sums["keys0"] if self.populations[0] and self.relations[1] is None else 0
        self._totals = Totals(source[0], target[0], source[1], target[1], sums["matched"] + agreed + unseen)

    @property
    def totals(self) -> Totals:
        """Totals; RuntimeError before the pairings were read to their end."""
        if self._totals is None:
            raise RuntimeError("totals are known after the last pairing")
        return self._totals


def statement(relations: Relations, keep: JoinFilter, rows: str) -> str:
    """Return the statement that joins ``rows``, what follows FROM; its rows are for ``pairing``."""
    sides = [
        JoinSide(len(relation.reads), relation.rows, relation.compared, relation.carried)
        for relation in relations if relation is not None
    ]  # fmt: skip
    return join_sql(sides, keep, rows)


def pairing(row: Row, relations: Relations) -> Pairing:
    """Return the pairing of a row of the join that has a key."""
    sides = [
        None if relation is None or not row[f"n{side}"] else _held(row, side, relation)
        for side, relation in enumerate(relations)
    ]
    return Pairing(texts(unpack(bytes(row["k"]))), sides[0], sides[1])


def _held(row: Row, side: int, relation: Relation) -> KeyRows:
    carried = bool(relation.carried)
    values = texts(unpack(bytes(row[f"{'w' if carried else 'v'}{side}"])))
    mixed = bool(row[f"m{side}"]) if carried else False
    return KeyRows(
        row[f"n{side}"], values, bool(row[f"u{side}"]), shards_of(relation, _reads(row, side, relation)), mixed
    )


def _reads(row: Row, side: int, relation: Relation) -> Sequence[int]:
    if len(relation.reads) == 1:
        return (0,)
    masks = [row[f"s{side}_{word}"] or 0 for word in range(-(-len(relation.reads) // WORD))]
    return [word * WORD + bit for word, mask in enumerate(masks) for bit in range(WORD) if mask >> bit & 1]
