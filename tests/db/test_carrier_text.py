"""The texts that carriers give are those of SELECT, on both servers."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING

import pytest

from migverify.changes.carriers import column_text as texts
from migverify.db.session import open_session
from migverify.db.snapshot import current_timestamp
from migverify.model import Endpoint, Flavor

if TYPE_CHECKING:
    from tests.conftest import Databases

pytestmark = pytest.mark.db

STRINGS = ("", "a", "é", "表😀", "\\b\\f\\n\\r\\t", "\\u0001\\u001f", '\\"', "\\\\", "/", "\x7f", "\u2028", "<&>")


def numbers() -> list[tuple[float, float]]:
    """Doubles of all sizes, and near 1e15, where the servers change their notation; each with a float near it."""
    chance = random.Random(5)
    doubles = [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(1500)]
    doubles += [chance.uniform(-1, 1) * 10.0 ** chance.randint(-20, 20) for _ in range(1500)]
    doubles += [float(chance.randint(-(10**17), 10**17)) for _ in range(500)]
    doubles += [chance.uniform(1e15, 1e16) for _ in range(500)]
    usable = [double for double in doubles if double == double and 1e-300 < abs(double) < 1e308]
    return [(d, struct.unpack("<f", struct.pack("<f", d))[0] if 1e-37 < abs(d) < 3e38 else 1.5) for d in usable]


def test_float_and_double(databases: Databases) -> None:
    values = numbers()
    for connection in databases.connections:
        connection.decoders = {}  # the server's own text
    rows = ",".join(f"({place},{double!r},{single!r})" for place, (double, single) in enumerate(values))
    for run, flavor in ((databases.source, Flavor.MYSQL), (databases.target, Flavor.TIDB)):
        found = run(
            "CREATE TABLE n (id INT PRIMARY KEY, d DOUBLE, f FLOAT)",
            f"INSERT INTO n VALUES {rows}",
            "SELECT d, f FROM n ORDER BY id",
        )
        wrong = [
            (value, row)
            for value, row in zip(values, found, strict=True)
            if (texts.double_text(value[0], flavor), texts.float_text(value[1], flavor)) != tuple(row)
        ]
        assert not wrong, f"{flavor}: {len(wrong)} of {len(values)}: {wrong[:5]}"


def test_json(databases: Databases) -> None:
    written = [
        f'{{"{text}": ["{text}", {{}}, [], true, null, 1.5, 1e20, 1e2, 1.5e-7, 18446744073709551615]}}'
        for text in STRINGS
    ]
    quoted = ",".join("('" + text.replace("\\", "\\\\").replace("'", "''") + "')" for text in written)
    found = databases.source("CREATE TABLE j (c JSON)", f"INSERT INTO j VALUES {quoted}", "SELECT c FROM j")
    assert {text for (text,) in found} == {texts.json_text(text, Flavor.MYSQL) for text in written}
    assert len(found) == len(written)


def test_the_present_timestamp_is_beyond_every_commit(databases: Databases) -> None:
    databases.target("CREATE TABLE c (id INT PRIMARY KEY)")
    target = databases.pair.target
    with open_session(Endpoint("target", target.host, target.port, target.user), None) as session:
        for number in range(5):
            before = current_timestamp(session)
            ((written,),) = databases.target(f"INSERT INTO c VALUES ({number})", "SELECT @@tidb_last_txn_info")[-1:]
            commit = json.loads(written)["commit_ts"]
            assert before < commit < current_timestamp(session)
