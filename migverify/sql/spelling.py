"""One meaning, many spellings: types, defaults and expressions as two servers print them.

Each function makes a form that only serves to compare: equal forms mean the same, and nobody reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from migverify.model import ColumnDef

# How the servers call one function; the words on the left never reach a comparison.
SYNONYMS = {
    "now": "current_timestamp", "localtime": "current_timestamp", "localtimestamp": "current_timestamp",
    "curdate": "current_date", "curtime": "current_time", "lcase": "lower", "ucase": "upper",
    "substr": "substring", "mid": "substring", "character_length": "char_length", "octet_length": "length",
    "ceil": "ceiling", "power": "pow", "dayofmonth": "day", "mod": "%", "integer": "int",
    "and": "&&", "or": "||", "not": "!", "<>": "!=",
}  # fmt: skip
# These take no argument and may go without parentheses.
_BARE = frozenset({"current_date", "current_time", "current_timestamp", "utc_timestamp", "utc_date", "utc_time"})
_SHIFTS = {"date_add": "+", "adddate": "+", "date_sub": "-", "subdate": "-"}
_INTRODUCER = re.compile(r"_(?:utf8mb4|utf8mb3|utf8|latin1|ascii|binary|gbk|gb18030)$")
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")|`(?P<name>(?:[^`]|``)+)`"""
    r"""|(?P<word>[\w$]+(?:\.\d+)?)|(?P<sign><=>|->>|->|<=|>=|<>|!=|&&|\|\||<<|>>|.)""",
    re.DOTALL,
)
_EXPONENT_SAFE = 1000
# MySQL stores ``NOT (a > 1)`` as ``a <= 1`` and ``a`` in a condition as ``0 <> a``; TiDB keeps what was typed.
_REWRITTEN = frozenset({"!", "=", "!=", "<", "<=", ">", ">=", "&&", "||", "0"})


INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "integer": 4, "bigint": 8}
"""Integer type -> width."""


def normal_type(column: ColumnDef) -> str:
    """Return the type without what only its display depends on: ``int(11)`` is ``int``, ``year(4)`` ``year``.

    ZEROFILL is display as well, and TiDB's catalog does not show it.
    """
    if column.members:
        return column.data_type
    text = re.sub(r"\s+", " ", column.column_type.lower()).strip()
    text = re.sub(r"\binteger\b", "int", re.sub(r"\bnumeric\b", "decimal", text))
    if column.data_type in INTEGER_BYTES or column.data_type == "year":
        text = re.sub(r"\(\d+\)", "", text, count=1)
    text = re.sub(r" zerofill\b", "", text)
    return re.sub(r"\((\d+), (\d+)\)", r"(\1,\2)", text)


def as_in_catalog(text: str) -> str:
    """Return the text as MySQL's catalog can hold it: ``?`` for every character outside the BMP."""
    return re.sub(r"[^\u0000-\uffff]", "?", text)


def fold_label(label: str) -> str:
    r"""Return a form of an ENUM or SET label in which what one of the catalogs confuses is equal.

    TiDB prints a newline and the two characters ``\n`` equally; MySQL prints ``?`` for an emoji.
    """
    escaped = label.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")
    return as_in_catalog(re.sub(r"\\+", r"\\", escaped))


def normal_expression(text: str) -> str:
    """Return an expression in a form that MySQL, MariaDB and TiDB agree on.

    Case of words, spaces, backticks, character set introducers, names of one function and parentheses are
    evened out. Parentheses go altogether, since MySQL prints all of them and TiDB those that were typed:
    ``grouped_equally`` tells whether they mean the same.
    """
    text = unescaped(text)
    words: list[str] = []
    for token in _TOKEN.finditer(text):
        if token["text"] is not None:
            words.append("'" + _literal(token["text"]) + "'")
        elif token["name"] is not None:
            words.append(token["name"].replace("``", "`").casefold())
        elif token["word"] is not None:
            word = token["word"].casefold()
            if not _INTRODUCER.match(word):
                words.append(SYNONYMS.get(word, word))
        elif token["sign"] is not None and token["sign"] not in "()":
            words.append(SYNONYMS.get(token["sign"], token["sign"]))
    return " ".join(_evened(words))


def unescaped(text: str) -> str:
    """Return an expression without the escapes that MySQL's catalog adds to the quotes of GENERATION_EXPRESSION."""
    if re.search(r"\\'", text) and not re.search(r"(?<!\\)'", text):
        return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
    return text


def rewritten_equally(source: str, target: str) -> bool:
    """Whether two expressions differ in nothing but comparisons, NOT, AND and OR, which MySQL rewrites."""
    forms = (
        [word for word in normal_expression(text).split(" ") if word not in _REWRITTEN] for text in (source, target)
    )
    return next(forms) == next(forms)


def grouped_equally(source: str, target: str) -> bool:
    """Whether operators take the same operands in two expressions of one normal form.

    True as well where that cannot be known: one cannot be parsed, or has a function for an operator of the other.
    """
    shapes = [_shape(text) for text in (source, target)]
    if shapes[0] is None or shapes[1] is None or sorted(_operators(shapes[0])) != sorted(_operators(shapes[1])):
        return True
    return shapes[0] == shapes[1]


_OPERATORS = frozenset({
    "Add", "Sub", "Mul", "Div", "IntDiv", "Mod", "And", "Or", "Xor", "EQ", "NEQ", "GT", "GTE", "LT", "LTE",
    "NullSafeEQ", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseLeftShift", "BitwiseRightShift", "Like",
})  # fmt: skip
_FLAT = frozenset({"And", "Or"})
Shape = tuple[Any, ...]


def _shape(text: str) -> Shape | None:
    """Return the operators of an expression as a tree of (name, operands ...); None where it cannot be parsed."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    text = unescaped(text)
    try:
        parsed: Any = sqlglot.parse_one(f"SELECT ({text})", dialect="mysql")
        return _operands(parsed.expressions[0])
    except (SqlglotError, RecursionError):
        return None


def _operands(node: Any) -> Shape:
    from sqlglot import exp

    node = node.unnest()
    name = type(node).__name__
    if isinstance(node, exp.Binary) and name in _OPERATORS:
        parts = [_operands(node.left), _operands(node.right)]
        # MySQL takes apart what AND or OR joins, however it was grouped.
        flat = [one for part in parts for one in (part[1:] if name in _FLAT and part[:1] == (name,) else (part,))]
        return (name, *flat)
    return ("", *(found for child in node.iter_expressions() if (found := _operands(child)) != ("",)))


def _operators(shape: Shape) -> Iterator[str]:
    # A chain of n operands has n - 1 operators, flat or not.
    yield from [shape[0]] * (len(shape) - 2 if shape[0] in _FLAT else 1)
    for part in shape[1:]:
        yield from _operators(part)


def _evened(words: list[str]) -> list[str]:
    """Even out what MySQL adds or prints as an operator where TiDB prints a function, and the other way round.

    Precision 0 of a moment, the character set of a cast, ``0 =`` for NOT, DATE_ADD, REGEXP_LIKE.
    """
    kept: list[str] = []
    signs = [_SHIFTS[word] for word in words if word in _SHIFTS]
    for word in words:
        before = kept[-1] if kept else ""
        if word in _SHIFTS or word == "regexp_like":
            continue
        if word == "interval" and before == "," and signs:
            kept[-1] = signs.pop()
        if word == "0" and before in _BARE:
            continue
        if before == "charset":
            kept.pop()
        elif word == "=" and before == "0":
            kept[-1] = "!"
        elif word in {"regexp", "rlike"}:
            kept.append(",")
        else:
            kept.append(word)
    return kept


def _literal(quoted: str) -> str:
    body, quote = quoted[1:-1], quoted[0]
    body = re.sub(
        r"\\(.)", lambda m: {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}.get(m[1], m[1]), body, flags=re.DOTALL
    )
    return as_in_catalog(body.replace(quote * 2, quote))


def normal_default(column: ColumnDef) -> str | None:
    """Return the default of a column in a comparable form; None for no default and for DEFAULT NULL.

    The first letter says what it is: ``e`` an expression, ``n`` a number, ``t`` text or a moment, ``b`` bytes.
    """
    value = column.default
    if value is None or (value.upper() == "NULL" and column.nullable and column.data_type in _NO_NULL_TEXT):
        return None
    if "default_generated" in column.extra.lower():
        return "e" + normal_expression(value)
    if column.data_type == "year" and re.fullmatch(r"\d{1,2}", value) and int(value):
        return f"n{int(value) + (2000 if int(value) < 70 else 1900)}"
    if column.data_type in _NUMBERS:
        return _number(value)
    if column.data_type in _MOMENTS:
        return _moment(column.data_type, value)
    if column.data_type in _BYTES:
        return "b" + _bytes(value)
    return "t" + fold_label(value)


_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year"})
_MOMENTS = frozenset({"date", "datetime", "timestamp", "time"})
_BYTES = frozenset({"binary", "varbinary"})
# A default NULL as a word can only be the constant in a type whose literals are never words.
_NO_NULL_TEXT = _NUMBERS | _MOMENTS


def _number(value: str) -> str:
    if match := re.fullmatch(r"b'([01]*)'", value):
        return f"n{int(match[1] or '0', 2)}"
    if re.fullmatch(r"0x[0-9a-fA-F]+", value):
        return f"n{int(value, 16)}"
    try:
        number = Decimal(value)
    except InvalidOperation:
        return "e" + normal_expression(value)
    if not number.is_finite() or abs(number.adjusted()) > _EXPONENT_SAFE:
        return "t" + value
    plain = format(number, "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "n0" if plain in {"", "-", "-0"} else f"n{plain}"


def _moment(data_type: str, value: str) -> str:
    if not re.fullmatch(r"[-\d][\d\s:.T-]*", value):
        return "e" + normal_expression(value)
    text = value.strip().replace("T", " ")
    if data_type in {"datetime", "timestamp"} and " " not in text:
        text += " 00:00:00"
    return "t" + (text.rstrip("0").rstrip(".") if "." in text else text)


def _bytes(value: str) -> str:
    """MySQL prints hex and stops at the first zero byte, TiDB prints the bytes; BINARY pads with zero bytes."""
    if re.fullmatch(r"0x(?:[0-9a-fA-F]{2})*", value):
        data = bytes.fromhex(value[2:])
    else:
        data = value.encode("utf-8", "surrogateescape")
    return data.split(b"\0", 1)[0].hex()
