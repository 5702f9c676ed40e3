"""Statements for digests: fixed ones for every trap met, and any number made by a grammar from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

NAMES = [
    "a", "b", "id", "name", "status", "value", "t1.id", "`order`", "`a``b`", "x.y.z", "date", "user_id", "é", "type",
    "t1 . c", "data", "T1.Amount", "1st", "count", "comment",
]  # fmt: skip
TABLES = [
    "t", "orders", "db1.t", "`Order Lines`", "payments p", "users AS u", "t1", "Events e", "`d`.`t`",
]  # fmt: skip
STRINGS = [
    "'x'", "'it''s'", '"dq"', "'a\\'b'", "''", "'-- no'", "'/* no */'", "_utf8mb4'abc'", "N'nat'", "'é€'", "'a;b'",
    "'?'", "_binary 'q'", "_latin1 x'41'",
]  # fmt: skip
NUMBERS = [
    "1", "42", "-7", "+3", "1.5", "-0.25", ".5", "1e10", "-1.5E-3", "0x1F", "b'101'", "0b11", "x'4D5A'",
    "18446744073709551616", "- 2", "007",
]  # fmt: skip
FUNCTIONS = [
    "now()", "now(6)", "count(*)", "count(DISTINCT a)", "max(b)", "MIN( a )", "sum(a)", "concat('a', b, 'c')",
    "ifnull(a, 0)", "coalesce(a, NULL, 1)", "cast(a AS char)", "CAST('1' AS signed)", "json_extract(a, '$.x')",
    "a->'$.x'", "a->>'$.y.z'", "date_add(a, INTERVAL 1 DAY)", "substring(a, 1, 2)", "substr('abc' FROM 2)",
    "group_concat(a ORDER BY b SEPARATOR ',')", "if(a > 1, 'x', 'y')", "left(a, 3)", "uuid()", "rand()", "f (a)",
    "my_func(1, 2)", "trim(both 'x' FROM a)", "extract(YEAR FROM a)", "position('a' IN b)", "abs(-5)", "mod(a, 2)",
    "row_number() OVER (PARTITION BY a ORDER BY b DESC)", "curdate()", "current_timestamp", "char_length(a)",
    "convert(a USING utf8mb4)", "replace(a, 'x', 'y')", "truncate(a, 2)", "repeat('x', 3)", "database()",
    "last_insert_id()", "sum(a) OVER ()", "greatest(a, 1, -2)", "std(a)", "isnull(a)", "date(a)", "user()",
]  # fmt: skip
COMMENTS = [
    "", "", "", "", "", " ", "/* c */ ", "/* it's */ ", "-- x\n", "# y\n", "/*!50000 */ ", "\n\t", "/**/",
]  # fmt: skip
HINTS = [
    "", "", "", "", "", "/*+ max_execution_time(1000) */ ", "/*+ BKA(t1) no_index(t1 x, y) */ ",
    "/*+ set_var(sort_buffer_size=16M) */ ", "/*+ qb_name(q1) join_order(a, b@q2) */ ",
]  # fmt: skip

FIXED = (Path(__file__).parent / "digest_statements.txt").read_text().splitlines()


class Grammar:
    """Makes statements at random; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, among: list[str]) -> str:
        return self.random.choice(among)

    def some(self, make: Callable[[], str], most: int = 4, joined: str = ", ") -> str:
        return joined.join(make() for _ in range(self.random.randint(1, most)))

    def name(self) -> str:
        return self.one(NAMES)

    def literal(self) -> str:
        return self.one([self.one(STRINGS), self.one(NUMBERS), self.one(NUMBERS), "NULL", "TRUE"])

    def expression(self, depth: int = 2) -> str:
        kind = self.random.randint(0, 9 if depth else 3)
        inner = depth - 1
        if kind <= 1:
            return self.literal()
        if kind == 2:
            return self.name()
        if kind == 3:
            return self.one(FUNCTIONS)
        if kind == 4:
            sign = self.one(["+", "-", "*", "/", "%", " - ", " + ", "|", "&", "<<", " DIV ", " MOD "])
            return f"{self.name()}{sign}{self.expression(inner)}"
        if kind == 5:
            return f"({self.expression(inner)})"
        if kind == 6:
            return f"g({self.some(lambda: self.expression(inner))})"
        if kind == 7:
            return f"CASE WHEN {self.condition(inner)} THEN {self.expression(inner)} ELSE {self.expression(inner)} END"
        if kind == 8:
            return f"(SELECT {self.expression(inner)} FROM {self.one(TABLES)} WHERE {self.condition(inner)} LIMIT 1)"
        return f"{self.name()} {self.one(['=', '<', '>='])} {self.expression(inner)}"

    def condition(self, depth: int = 2) -> str:
        inner = max(depth - 1, 0)
        kind = self.random.randint(0, 8 if depth else 2)
        name = self.name()
        if kind <= 2:
            sign = self.one([" = ", "=", " < ", ">", " >= ", "<=", " <> ", "!=", " <=> "])
            return f"{name}{sign}{self.expression(inner)}"
        if kind == 3:
            return f"{name} {self.one(['IN', 'NOT IN', 'in'])} ({self.some(self.literal, 6)})"
        if kind == 4:
            return f"{name} BETWEEN {self.literal()} AND {self.literal()}"
        if kind == 5:
            return f"{name} IS {self.one(['NULL', 'NOT NULL', 'null'])}"
        if kind == 6:
            return f"{name} LIKE {self.one(STRINGS)}"
        if kind == 7:
            return f"({self.condition(inner)} {self.one(['AND', 'OR', 'and', '&&'])} {self.condition(inner)})"
        rows = self.some(lambda: f"({self.one(NUMBERS)}, {self.literal()})", 4)
        return f"(a, b) IN ({rows})"

    def select(self) -> str:
        gap = self.one(COMMENTS)
        text = f"{self.one(['SELECT', 'select', 'Select'])} {self.one(HINTS)}{gap}"
        text += self.some(
            lambda: self.one(
                ["*", self.expression(), f"{self.expression(1)} AS {self.one(['x1', 'total', '`y z`', 'name'])}"]
            )
        )
        text += f"\nFROM {self.one(TABLES)}"
        for _ in range(self.random.randint(0, 2)):
            text += f" {self.one(['JOIN', 'LEFT JOIN', 'inner join'])} {self.one(TABLES)} ON {self.condition(1)}"
        text += f" WHERE {self.some(self.condition, 3, ' AND ')} {self.one(COMMENTS)}"
        if self.random.random() < 0.3:
            text += f" GROUP BY {self.some(lambda: self.one([self.name(), '1', '2']), 3)}"
        if self.random.random() < 0.4:
            text += f" ORDER BY {self.some(lambda: self.one([self.name(), '1', '3 DESC', self.name() + ' DESC']), 3)}"
        text += self.one(["", "", " LIMIT 10", " LIMIT 10, 20", " LIMIT 5 OFFSET 7", " FOR UPDATE"])
        return text + self.one(["", "", "", ";", " ;"])

    def insert(self) -> str:
        columns = self.random.randint(1, 5)
        values = ["now()", "DEFAULT"]

        def row() -> str:
            return "(" + ", ".join(self.one([self.literal(), *values]) for _ in range(columns)) + ")"

        rows = self.some(row, 5)
        names = ", ".join(self.one(["a", "b", "`c`", "name", "status"]) for _ in range(columns))
        verb = self.one(["INSERT INTO", "insert into", "INSERT IGNORE INTO", "REPLACE INTO"])
        text = f"{verb} t ({names}) VALUES {rows}"
        if "REPLACE" not in text and self.random.random() < 0.3:
            text += f" ON DUPLICATE KEY UPDATE a = VALUES(a), b = {self.expression(1)}"
        return text

    def update(self) -> str:
        sets = self.some(lambda: f"{self.one(['a', 'b', '`c`', 'name'])} = {self.expression()}", 4)
        ending = self.one(["", " LIMIT 1", " ORDER BY id LIMIT 3"])
        return f"UPDATE {self.one(TABLES)} SET {sets} WHERE {self.condition()}{ending}"

    def delete(self) -> str:
        table, ending = self.one(["t", "d.t", "`x`"]), self.one(["", " LIMIT 1"])
        return f"DELETE FROM {table} WHERE {self.some(self.condition, 2, ' OR ')}{ending}"

    def statement(self) -> str:
        kind = self.random.random()
        if kind < 0.5:
            return self.select()
        if kind < 0.7:
            return self.insert()
        if kind < 0.85:
            return self.update()
        if kind < 0.95:
            return self.delete()
        return f"WITH c AS ({self.select().rstrip('; ')}) {self.select()}"


def corpus(size: int = 3000, seed: int = 7) -> list[bytes]:
    """Return the fixed statements and made ones behind them, as UTF-8."""
    grammar = Grammar(seed)
    made = [grammar.statement() for _ in range(max(size - len(FIXED), 0))]
    return [text.encode() for text in (*FIXED, *made)]
