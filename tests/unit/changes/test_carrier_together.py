"""Rows that a watch takes undecoded keep their operation when those of one transaction are given together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from migverify.changes.carriers.base import CarriedRow
from migverify.changes.carriers.committed import CommittedChanges
from migverify.changes.model import DecodedTable, Op, Rows

TABLE = DecodedTable.of("app", "t", ("id",), ("id",))


class Nothing:
    """A carrier that is not read."""

    def read(self, since: Any = None) -> Iterator[Any]:
        del since
        return iter(())


@pytest.mark.parametrize("ops", [[Op.INSERT, Op.DELETE], [Op.DELETE, Op.INSERT, Op.INSERT, Op.DELETE]])
def test_rows_of_different_operations_are_not_given_as_one(ops: list[Op]) -> None:
    changes: Any = CommittedChanges(Nothing())  # type: ignore[arg-type]
    carried = [CarriedRow(9, TABLE, op, str(n).encode(), "t", 0, n) for n, op in enumerate(ops)]
    given = [item for item in changes._transaction(9, carried) if isinstance(item, Rows)]
    assert [(e.op, image) for e in given for image in e.images.split(b"\n")] == [
        (op, str(n).encode()) for n, op in enumerate(ops)
    ]
