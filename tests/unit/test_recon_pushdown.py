"""When bucket checksums pay."""

from __future__ import annotations

import pytest

from migverify.model import ColumnDef
from migverify.recon import pushdown
from migverify.recon.relation import Combine, Relation, SqlRead


def relation(*widths: int) -> Relation:
    reads = tuple(SqlRead("source", "`d`.`t`", ("id",), ("v",), row_bytes=width) for width in widths)
    column = ColumnDef("id", 1, "bigint", "bigint", False)
    return Relation("d", reads, (column,), (column,), (Combine.ROW,))


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [((100,), (120,), False), ((-1,), (-1,), False), ((100, 50_000), (100,), True), ((100,), (2001,), True)],
)
def test_checksums_pay_for_wide_rows_only(source: tuple[int, ...], target: tuple[int, ...], wanted: bool) -> None:
    assert pushdown.pays(relation(*source), relation(*target)) is wanted
