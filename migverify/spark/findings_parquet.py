"""All findings of a run as Parquet, written row group by row group: memory does not grow with their number.

The columns are those of the CSV. Money is kept exactly: ``money`` is its text, ``money_decimal`` the same amount as a
decimal where 38 digits, 10 of them behind the point, hold it, else NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from migverify.changes.storage import open_storage
from migverify.errors import UsageError
from migverify.recon.listing import COLUMNS, rows
from migverify.store.base import ResultStore

GROUP_ROWS = 20_000
_DIGITS, _SCALE = 38, 10
_NUMBERS = ("rows_source", "rows_target", "reads")
_MONEY = "money"

SCHEMA = pa.schema([
    *((name, pa.int64() if name in _NUMBERS else pa.string()) for name in COLUMNS),
    ("money_decimal", pa.decimal128(_DIGITS, _SCALE)),
])  # fmt: skip
"""``key``, ``deviations`` and ``also`` are JSON; ``at`` is UTC; ``money`` is NULL where the amount is not known."""


def write_findings(store: ResultStore, run_id: str, path: str) -> int:
    """Write all findings of a run, known exceptions and pending ones too; return how many.

    Parameters
    ----------
    path
        A file, or an fsspec URL such as ``s3://bucket/findings.parquet``. It appears when it is whole.

    Raises
    ------
    UsageError
        the file cannot be written.
    """
    folder, _, name = path.rpartition("/")
    count = 0
    try:
        with (
            open_storage(folder or ".").create(name) as file,
            pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer,
        ):
            found = rows(store, run_id)
            while group := list(islice(found, GROUP_ROWS)):
                writer.write_table(table_of(group))
                count += len(group)
    except OSError as error:
        raise UsageError(
            f"cannot write the findings to {path}: {error}", hint="Name a file that can be written."
        ) from error
    return count


def table_of(listed: Sequence[Sequence[str]]) -> pa.Table:
    """Return rows of ``migverify.recon.listing`` as a table of ``SCHEMA``."""
    columns: dict[str, list[object]] = {name: [] for name in SCHEMA.names}
    for row in listed:
        for name, cell in zip(COLUMNS, row, strict=True):
            columns[name].append(_cell(name, cell))
        columns["money_decimal"].append(exact_decimal(row[COLUMNS.index(_MONEY)]))
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA)


def exact_decimal(text: str) -> Decimal | None:
    """Return an amount as a decimal that Parquet holds exactly; None where there is none or it has too many digits."""
    if not text:
        return None
    amount = Decimal(text)
    _, digits, exponent = amount.as_tuple()
    if not isinstance(exponent, int) or -exponent > _SCALE or len(digits) + exponent > _DIGITS - _SCALE:
        return None
    return amount


def _cell(name: str, cell: str) -> object:
    if name in _NUMBERS:
        return int(cell) if cell else None
    if name == _MONEY:
        return cell or None
    # Texts hold the server's bytes, whatever they are; Parquet holds characters.
    return cell.encode("utf-8", "backslashreplace").decode()
