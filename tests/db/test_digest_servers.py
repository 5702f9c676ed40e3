"""Digests against the servers themselves, and the tables of words the package carries."""

from __future__ import annotations

import json
import logging
from collections import Counter
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from migverify.workload.digest import Digester
from migverify_lab.servers import LabServers
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.digest_corpus import corpus

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

pytestmark = pytest.mark.db

SIZE = 1_000
LOG = logging.getLogger(__name__)  # what differs, by reason: shown by --log-level=INFO


def data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files("migverify.workload").joinpath(f"data/{name}").read_text())
    return found


def ask_mysql(cursor: Cursor, sql: bytes) -> tuple[str, str] | str:
    """Return digest and text, or the reason why the server has none."""
    import pymysql

    literal = f"_utf8mb4 x'{sql.hex()}'"
    try:
        cursor.execute(f"SELECT STATEMENT_DIGEST({literal}), STATEMENT_DIGEST_TEXT({literal})")
    except pymysql.MySQLError as error:
        return str(error.args[1])[:60]
    row = cursor.fetchone()
    assert row is not None
    return str(row[0]), str(row[1])


def test_mysql(pair: LabServers, databases: Databases) -> None:
    with connect(pair.source, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION(), @@max_digest_length")
        version, length = cursor.fetchone() or ("", 0)
        if not str(version).startswith("9.7"):
            pytest.skip(f"the tokens are those of 9.7, the server is {version}")
        cursor.execute(f"USE `{databases.name}`")
        digester = Digester("mysql", max_digest_length=int(length))
        same = 0
        others: Counter[str] = Counter()
        unlike = []
        for sql in corpus(SIZE):
            answer = ask_mysql(cursor, sql)
            if isinstance(answer, str):
                others[f"the server cannot parse it: {answer}"] += 1
            elif answer == tuple(digester.digest(sql)):
                same += 1
            else:
                unlike.append((sql, answer))
    compared = same + len(unlike)
    LOG.info("MySQL: %d of %d the same; %s; unlike: %s", same, compared, others, unlike)
    assert compared > SIZE // 2
    assert same >= 0.99 * compared, unlike[:5]


def test_tidb(pair: LabServers) -> None:
    digester = Digester("tidb")
    same = 0
    unlike = []
    statements = corpus(SIZE)
    with connect(pair.target, seconds=60.0) as connection, connection.cursor() as cursor:
        for start in range(0, len(statements), 50):
            part = statements[start : start + 50]
            asked = ", ".join(f"TIDB_ENCODE_SQL_DIGEST(x'{sql.hex()}')" for sql in part)
            cursor.execute(f"SELECT {asked}")
            for sql, answer in zip(part, cursor.fetchone() or (), strict=True):
                if digester.digest(sql).digest == answer:
                    same += 1
                else:
                    unlike.append(sql)
    LOG.info("TiDB: %d of %d the same; unlike: %s", same, len(statements), unlike)
    assert same >= 0.99 * len(statements), unlike[:5]


def test_what_was_executed_bears_the_digest(pair: LabServers) -> None:
    sql = "SELECT 'digest of a statement that ran', -1, 2 + 3 FROM dual WHERE 1 IN (1, 2) ORDER BY 1"
    found = Digester("tidb").digest(sql.encode())
    with connect(pair.target, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        cursor.execute(
            "SELECT digest_text FROM information_schema.statements_summary WHERE digest = %s", (found.digest,)
        )
        assert cursor.fetchone() == (found.text,)


def test_mysql_keywords(pair: LabServers) -> None:
    with connect(pair.source, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        version = str((cursor.fetchone() or ("",))[0])
        if not version.startswith("9.7"):
            pytest.skip(f"the words are those of 9.7, the server is {version}")
        cursor.execute("SELECT word FROM information_schema.keywords")
        assert {row[0] for row in cursor.fetchall()} == set(data("mysql-9.7.json")["words"])


def test_tidb_keywords(pair: LabServers) -> None:
    """A word is a keyword where TiDB's digest of it is that of the bare word."""
    own = data("tidb-8.5.json")
    with connect(pair.target, seconds=60.0) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT word FROM information_schema.keywords")
        words = {str(row[0]).lower() for row in cursor.fetchall()}
        words |= {*own["words"], *own["functions"], *(name.lower() for name in data("mysql-9.7.json")["words"])}
        digester = Digester("tidb")
        texts = [text for word in sorted(words) for text in (word, f"{word}(", f"x.{word}")]
        for start in range(0, len(texts), 50):
            part = texts[start : start + 50]
            cursor.execute(f"SELECT {', '.join(['TIDB_ENCODE_SQL_DIGEST(%s)'] * len(part))}", part)
            for text, answer in zip(part, cursor.fetchone() or (), strict=True):
                assert digester.digest(text.encode()).digest == answer, text
