"""Messages a second of a carrier's files in one process: as a watch reads them, and as ``changes tail`` prints them.

``python -m bench.carriers [--messages 200000] [--rounds 3]`` writes files of 11 columns a row and prints one table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from migverify.changes import tail
from migverify.changes.carriers.committed import CommittedChanges
from migverify.changes.carriers.formats import CarrierFormat, CarrierSource
from migverify.changes.decode import decoder
from migverify.changes.model import Rows

BASE = 445_000_000_000_000_000
_TYPES = {
    "id": ("bigint", -5), "account": ("bigint", -5), "amount": ("decimal(20,2)", 3), "state": ("varchar(20)", 12),
    "kind": ("int", 4), "reference": ("varchar(64)", 12), "note": ("varchar(200)", 12), "rate": ("double", 8),
    "created": ("datetime(6)", 93), "day": ("date", 91), "flag": ("tinyint(1)", -6),
}  # fmt: skip
_CODES = {"id": 8, "account": 8, "amount": 246, "state": 15, "kind": 3, "reference": 15, "note": 15, "rate": 5,
          "created": 12, "day": 10, "flag": 1}  # fmt: skip


def rows(count: int) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Yield commit, operation and row; two of three transactions have one row."""
    chance, commit = random.Random(7), BASE
    for number in range(count):
        if number % 3:
            commit += 262_144
        yield commit, ("INSERT", "UPDATE", "DELETE")[number % 3], {
            "id": str(number), "account": str(chance.randrange(10**12)), "amount": f"{number}.{number % 100:02d}",
            "state": "settled", "kind": str(number % 7), "reference": f"{chance.getrandbits(120):030x}",
            "note": "caf\u00e9 and \"cake\", paid" if number % 5 == 0 else "paid by card at the desk",
            "rate": repr(chance.random()), "created": f"2026-01-02 03:04:{number % 60:02d}.{number % 10**6:06d}",
            "day": "2026-01-02", "flag": str(number % 2),
        }  # fmt: skip


def canal_json(path: Path, count: int) -> None:
    """Write messages as TiCDC does."""
    with path.open("w", encoding="utf-8") as file:
        head = json.dumps({name: code for name, (_, code) in _TYPES.items()}, separators=(",", ":"))
        types = json.dumps({name: kind for name, (kind, _) in _TYPES.items()}, separators=(",", ":"))
        for number, (commit, op, row) in enumerate(rows(count)):
            data = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
            old = f"[{data}]" if op == "UPDATE" else "null"
            file.write(f'{{"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"{op}",'
                       f'"es":{commit >> 18},"ts":{commit >> 18},"sql":"","sqlType":{head},"mysqlType":{types},'
                       f'"old":{old},"data":[{data}],"_tidb":{{"commitTs":{commit}}}}}\r\n')  # fmt: skip
            if number % 1000 == 999 or number == count - 1:
                file.write(f'{{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":'
                           f'"TIDB_WATERMARK","es":0,"ts":0,"sql":"","sqlType":null,"mysqlType":null,"old":null,"data":null,'
                           f'"_tidb":{{"watermarkTs":{commit + (number == count - 1)}}}}}\r\n')  # fmt: skip


def open_protocol(path: Path, count: int) -> None:
    """Write events as TiCDC does."""

    def part(text: str) -> bytes:
        raw = text.encode()
        return len(raw).to_bytes(8, "big") + raw

    def columns(row: dict[str, str]) -> dict[str, object]:
        return {name: {"t": _CODES[name], **({"h": True, "f": 11} if name == "id" else {"f": 65}),
                       "v": int(value) if _CODES[name] in (1, 3, 8) else float(value) if name == "rate" else value}
                for name, value in row.items()}  # fmt: skip

    with path.open("wb") as file:
        file.write((1).to_bytes(8, "big"))
        for number, (commit, op, row) in enumerate(rows(count)):
            key = f'{{"ts":{commit},"scm":"shop","tbl":"orders","t":1}}'
            image = json.dumps(columns(row), ensure_ascii=False, separators=(",", ":"))
            shape = {"INSERT": '{{"u":{0}}}', "UPDATE": '{{"u":{0},"p":{0}}}', "DELETE": '{{"d":{0}}}'}[op]
            file.write(part(key) + part(shape.format(image)))
            if number % 1000 == 999 or number == count - 1:
                resolved = commit + 1 if number == count - 1 else commit
                file.write(part(f'{{"ts":{resolved},"t":3}}') + part(""))


def watch(source: CarrierSource) -> int:
    """Read the keys, as ``watch.touched`` does; return how many rows."""
    count = 0
    for item in CommittedChanges(source.carrier(keys_only=True)).items():
        if type(item) is Rows:
            texts = decoder(item.table, ("id",)).texts(item.images)
            count += len(texts) >> (item.op == "update")
    return count


def print_all(source: CarrierSource) -> int:
    """Print every change as ``changes tail --json`` does; return how many."""
    count = 0
    with Path(os.devnull).open("w", encoding="utf-8") as out:
        for found in tail.changes(CommittedChanges(source.carrier()).items()):
            if type(found) is tail.Change:
                out.write(f"{tail.as_json(found)}\n")
                count += 1
    return count


def main() -> None:
    """Print one table."""
    options = argparse.ArgumentParser()
    options.add_argument("--messages", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    uses: dict[str, Callable[[CarrierSource], int]] = {"watch (keys)": watch, "tail --json": print_all}
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'format':<14} {'use':<13} {'MB':>5} {'messages/s':>11} {'MB/s':>6}")
        for name, write in (("canal-json", canal_json), ("open-protocol", open_protocol)):
            path = Path(folder) / name
            write(path, given.messages)
            source = CarrierSource(CarrierFormat(name), files=(path,))
            for use, read in uses.items():
                times = []
                for _ in range(given.rounds):
                    begun = time.process_time()
                    if read(source) != given.messages:
                        sys.exit(f"{name}, {use}: rows are missing")
                    times.append(time.process_time() - begun)
                size, best = path.stat().st_size / 1e6, min(times)
                print(f"{name:<14} {use:<13} {size:>5.0f} {given.messages / best:>11,.0f} {size / best:>6.0f}")


if __name__ == "__main__":
    main()
