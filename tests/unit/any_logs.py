"""Logs as servers write them, with odd records among them: what they are decides a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.unit.log_writers import BANNER, FORGED, FORGED_GENERAL

SQL = [
    b"select 1", b"SELECT 'it''s' FROM t", b"/* a; b */ select `x` from t", b"insert into t values ('\\'', \"q\")",
    b"BEGIN", b"commit", b"ROLLBACK", b"rollback to savepoint a", b"set autocommit=0", b"SET autocommit=1",
    b"start transaction", b"SET autocommit = 0", b"commit and chain", b"set names latin1", b"use shop", b"",
    b"SET sql_mode='ANSI', @a = 5", b"select @a := 1", b"select 1 into @b", b"select 1; select 2", b"select ';x'",
    b"create temporary table x (a int)", b"drop table x", b"lock tables t write", b"select '" + FORGED + b"'",
    b"select '" + FORGED_GENERAL + b"'", b"select '", b"(select 1)", b" \n select 2", b"-- c\nselect 3", b"selecting",
    b"prepare s from 'select 1'", b"execute s", b"PREPARE s FROM ...", b"create user u identified by '<secret>'",
    b"alter user u identified by *****", b"\xff\xfe", b"update t set a = '\xe9'", b"call p()",
    b"/*!40101 SET NAMES utf8 */",
    b"select 1 -- a", b"select 1 # '", b"/* open", b"xa start 'x'", b"# administrator command: Ping",
    b"# administrator command: Quit", b"# administrator command: Init DB", b"show tables",
    b"with a as (select 1) select 2",
]  # fmt: skip
OFTEN = [
    b"set autocommit=0", b"SET autocommit=1", b"commit", b"begin", b"select 1", b"insert into t values (1, 'x')",
    b"prepare s from 'select 1'", b"execute s", b"select `a` from t where b = 'it''s'",
]  # fmt: skip
USUAL = [b"2026-01-02T03:04:%02d.%06dZ" % (second, 678_900 + second % 7) for second in range(60)]
TIMES = [
    b"2026-12-31T23:59:59.999999Z", b"2024-02-29T00:00:00.000000Z", b"2023-02-29T00:00:00.000000Z",
    b"2026-01-02T03:04:05.678901+08:00", b"2026-01-02T24:04:05.678901Z", b"2026-13-02T03:04:05.678901Z",
    b"0000-00-00T00:00:00.000000Z", b"260102  3:04:05",
]  # fmt: skip
USERS = [
    b"app[app] @ web1 [10.0.0.9]  Id:     3", b"app[app] @ web1 [10.0.0.9]  Id:     4", b"b[b] @  []  Id: 3", b"odd",
    b"b[b] @ localhost []", b"app[app] @ web2 [10.0.0.8]  Id: 12345678901234",
]  # fmt: skip
FIGURES = [
    b"# Query_time: 0.003464  Lock_time: 0.000324 Rows_sent: 1000  Rows_examined: 2000\n",
    b"# Query_time: 0.000001  Lock_time: 0.000324 Rows_sent: 0  Rows_examined: 0 Thread_id: 4 Errno: 0 Killed: 0\n",
    b"# Query_time: 0.000001  Lock_time: 0.000324 Rows_sent: 0  Rows_examined: 0 Thread_id: 3 Errno: 1062 Killed: 0\n",
    b"# Query_time: 12.003464  Lock_time: 0.000324 Rows_sent: 1  Rows_examined: 2 Thread_id: 3 Errno: 1213 Killed: 0\n",
    b"# Query_time: 18446744073708.796870.000036  Lock_time: 0 Rows_sent: 0  Rows_examined: 0\n",
    b"# Thread_id: 8  Schema: d  QC_hit: No\n# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 0\n",
]  # fmt: skip
CLOCKS = [
    b"SET timestamp=1767323045;\n", b"SET timestamp=1767323044;\n", b"SET timestamp=1767323045.000100;\n", b"",
    b"SET last_insert_id=7,insert_id=18446744073709551615,timestamp=1767323045;\n",
    b"use d;\nSET timestamp=1767323045;\n", b"SET insert_id=8,timestamp=1767323045;\n",
    b"use `a``b`;\nSET timestamp=1;\n", b"use shop;\n",
    b"SET last_insert_id=0,timestamp=1767323045;\n",
]  # fmt: skip
ODD = [BANNER, b"\n", b"\r\n", b"'", b"/*", b"garbage\n", FORGED, b"\xff\x00", b"# Time: "]
LOGINS = [b"app@web on d using TCP/IP", b"b@web on  using Socket", b"Access denied for user 'x'@'y'"]


class Writer:
    """Writes logs whose records are usual ones, but for every so many."""

    def __init__(self, seed: int) -> None:
        self.made = random.Random(seed)
        self.odd = self.made.choice([0.0, 0.02, 0.1, 0.4])

    def of(self, *choices: list[bytes]) -> bytes:
        """One of the first, seldom one of the others; of a list mostly its first two."""
        usual, *others = choices
        if others and self.made.random() < self.odd:
            return self.made.choice(self.made.choice(others))
        return self.made.choice(usual)

    def slow(self) -> bytes:
        of = self.of
        return (
            b"# Time: " + of(USUAL, TIMES) + b"\n# User@Host: " + of(USERS[:2], USERS) + b"\n"
            + of(FIGURES[:3], FIGURES) + of(CLOCKS[:2], CLOCKS) + of(OFTEN, SQL) + b";\n"
        )  # fmt: skip

    def general(self) -> bytes:
        session = self.made.choice([3, 4, 5, 123456]) if self.made.random() > self.odd / 4 else 0
        time = self.of(USUAL, TIMES)
        if self.made.random() < 0.05:
            return time + b"\t%5d Connect\t" % session + self.made.choice(LOGINS) + b"\n"
        command = self.of([b"Query"] * 6 + [b"Execute", b"Prepare"], [b"Quit", b"Close stmt", b"Init DB", b"Ping"])
        return time + b"\t%5d " % session + command + b"\t" + self.of(OFTEN, SQL) + b"\n"

    def audit(self, dialect: int, line: int) -> bytes:
        """One line of Aurora's, RDS's or MariaDB's dialect."""
        of, made = self.of, self.made
        time = b"17673230%02d678901" % (line % 60) if dialect == 0 else b"20260102 03:04:%02d" % (line // 3 % 60)
        time = of([time], [b"", b"20261302 03:04:05", b"20260102  3:04:05", b"1767323045"])
        host = of([b"10.0.0.9", b"localhost"], [b"", b"web:4711", b"a:b"])
        session = made.choice([3, 4, 5]) if made.random() > self.odd / 4 else made.choice([0, 10**17, 10**18])
        who = b"%s,%s,%s,%s,%d," % (time, of([b"db-1"], [b"", b"*****"]), of([b"app"], [b"", b"it's"]), host, session)
        query = line + (0 if made.random() > self.odd / 2 else -made.randrange(5))
        tail = b",," if dialect == 1 else b""
        if made.random() < 0.06 + self.odd / 4:
            odd = [b"CONNECT,shop,,0", b"DISCONNECT,shop,,0", b"FAILED_CONNECT,,,1045", b"CHANGEUSER,other,,0",
                   b"READ,shop,t,", b"QUERY,shop,'select 1", b"QUERY,shop,select 1,0", b"NOPE,a,b,0"]  # fmt: skip
            return who + b"%d," % max(0, query) + made.choice(odd) + tail + b"\n"
        sql = made.choice([of(OFTEN, SQL), of([b"select '%d'" % line], [b"select ?, '?'", b"select '?'", b"\\\\'"])])
        escapes = {0x5C: b"\\\\", 0x27: b"\\'", 0x0A: b"\\n", 0x0D: b"\\r", 0x09: b"\\t", 0: b"\\0"}
        text = b"".join(escapes.get(one, bytes([one])) for one in sql)
        text = of([text], [text + b"\\q", text[:12], b"x" * 1024, b"select '" + b"y" * 1020, b"a" * 1500])
        code = of([b"0"], [b"1062", b"1064", b"1213", b"", b"123456789"])
        return who + b"%d,QUERY,%s,'%s',%s" % (max(0, query), of([b"shop"], [b"", b"o'k"]), text, code) + tail + b"\n"

    def audit_log(self) -> bytes:
        """A log of one dialect, its last line maybe half."""
        dialect = self.made.randrange(3)
        lines = [self.audit(dialect, line) for line in range(self.made.randrange(90))]
        if self.odd:
            other = [b"\n", b"\r\n", b"x\n"]
            lines = [line if self.made.random() > 0.02 else self.made.choice([*other, line[:-1] + b"\r\n"])
                     for line in lines]  # fmt: skip
        data = b"".join(lines)
        return data[: len(data) - self.made.choice([0, 0, 1, 7])]

    def log(self, record: Callable[[], bytes]) -> bytes:
        """A log, maybe an empty one."""
        parts = (
            record() if self.made.random() > self.odd / 4 else self.made.choice(ODD)
            for _ in range(self.made.randrange(90))
        )
        return self.made.choice([b"", b"", BANNER, b"tail of a record;\n"]) + b"".join(parts)
