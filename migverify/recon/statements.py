"""What SQL of a rule may do: read rows of tables, once per run, at the anchored moment. Everything else is refused.

The text is split by ``tokens``, comments are taken out and strings masked, and only then does sqlglot parse it: no
difference between its reading of quotes and comments and the server's can hide a statement. The sessions that run the
SQL are pinned to read only where the server can do that; this check is the one that also names file, rule and line.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from migverify.recon.functions import BUILT_IN, MEANINGLESS, REFUSED, UNSPACED
from migverify.sql.tokens import Form, SqlProblem, Token, tokens, without_comments

if TYPE_CHECKING:
    from sqlglot import exp

_PLAIN = re.compile(r"[0-9A-Za-z_.: -]*")
_FORMS = "Write one SELECT, WITH, TABLE or VALUES."
_READS = ("SELECT", "WITH", "TABLE", "VALUES")


def check_query(sql: str) -> str:
    """Return a statement that reads, without its comments and surrounding space.

    Raises
    ------
    SqlProblem
        it is not one SELECT (WITH, UNION, TABLE ...), or it writes, locks, waits, reads another moment, uses
        variables, or joins tables without a condition. ``start`` counts in the text that was given.
    """
    parts = list(tokens(without_comments(sql)))
    _check_tokens(parts)
    root = _parse(parts)
    _check_tree(root)
    _check_calls(parts, root)
    from migverify.recon.joins import check_joins

    check_joins(root)
    return "".join(part.text for part in parts).strip()


def check_expression(sql: str, *, what: str) -> str:
    """Return an expression (a condition, a column) that only reads the row it stands for, without comments.

    Raises
    ------
    SqlProblem
        as for ``check_query``; also for an aggregate, which would need the whole table.
    """
    from sqlglot import exp

    text = without_comments(sql)
    parts = list(tokens(text))
    _check_tokens(parts)
    depth = 0
    for part in parts:
        depth += (part.text == "(") - (part.text == ")")
        if depth < 0:
            raise SqlProblem(f"the {what} closes a parenthesis that it did not open", part.start)
    if depth:
        raise SqlProblem(f"the {what} leaves a parenthesis open")
    if not text.strip():
        raise SqlProblem(f"the {what} is empty")
    first = next((part for part in parts if part.form is not Form.SPACE), None)
    if first is not None and first.text.upper() in _READS:
        raise SqlProblem(f"the {what} is a statement, not an expression", first.start, "Put a subquery in parentheses.")
    # In parentheses, with a FROM after it: nothing but one expression fits there.
    before, after = list(tokens("SELECT (")), list(tokens("\n) FROM q"))
    root = _parse([*before, *parts, *after])
    inner = root.expressions[0].unnest() if isinstance(root, exp.Select) and len(root.expressions) == 1 else None
    if inner is None or isinstance(inner, exp.Tuple | exp.Star | exp.Alias):
        raise SqlProblem(f"the {what} is not one expression")
    _check_tree(root)
    _check_calls(parts, root)
    if any(node.parent_select is root for node in root.find_all(exp.AggFunc, exp.Window)):
        raise SqlProblem(
            f"the {what} holds an aggregate", hint="Write the dataset as `sql:` with a GROUP BY, or as same_groups."
        )
    from migverify.recon.joins import check_joins

    check_joins(root)
    return text.strip()


def _check_tokens(parts: list[Token]) -> None:
    words = [part for part in parts if part.form not in (Form.SPACE, Form.COMMENT)]
    for number, part in enumerate(words):
        after = words[number + 1] if number + 1 < len(words) else None
        if part.text == "@":
            raise SqlProblem("variables (@name) are not used here", part.start, "Declare a parameter instead.")
        if part.text == ";" and after is not None:
            raise SqlProblem("the SQL holds more than one statement", part.start, "Write one dataset for each.")
        if part.text == ";":
            raise SqlProblem("the SQL ends with a ;", part.start, "Remove it.")
        if part.text == ":" and after is not None and after.text == "=":
            raise SqlProblem("the SQL assigns a variable (:=)", part.start, "Use a window function, or a parameter.")
        if part.form is Form.HINT and "SET_VAR" in part.text.upper():
            raise SqlProblem("the hint SET_VAR changes the session", part.start, "Remove it.")
        if part.form is Form.WORD:
            _check_word(part, after)


def _check_word(part: Token, after: Token | None) -> None:
    word, following = part.text.upper(), after.text.upper() if after else ""
    if word in ("INTO", "OUTFILE", "DUMPFILE"):
        raise SqlProblem(f"the SQL writes ({word}); a rule only reads", part.start)
    if (word, following) in (("FOR", "UPDATE"), ("FOR", "SHARE"), ("LOCK", "IN")):
        raise SqlProblem(f"the SQL locks rows ({word} {following}); a rule only reads", part.start)
    if (word, following) in (("NEXT", "VALUE"), ("PREVIOUS", "VALUE")):
        raise SqlProblem(f"the SQL takes a value of a sequence ({word} VALUE); a rule only reads", part.start)


def _parse(parts: list[Token]) -> exp.Expr:
    import sqlglot
    from sqlglot.errors import SqlglotError

    masked = "".join(map(_masked, parts))
    first = next((part for part in parts if part.form is Form.WORD), None)
    if first is None or first.text.upper() not in _READS:
        raise SqlProblem("this is not a statement that reads", first.start if first else 0, _FORMS)
    log = logging.getLogger("sqlglot")
    level = log.level
    log.setLevel(logging.CRITICAL)  # its warnings quote the SQL; what it cannot read is refused below
    try:
        found = sqlglot.parse(masked, dialect="mysql")
    except SqlglotError as error:
        raise _unreadable(masked, error) from None
    except RecursionError:
        raise SqlProblem("the SQL is nested too deeply") from None
    finally:
        log.setLevel(level)
    if len(found) != 1 or found[0] is None:
        raise SqlProblem("the SQL holds more than one statement", hint="Write one dataset for each.")
    root: Any = found[0]
    tree: exp.Expr = root
    return tree


def _masked(part: Token) -> str:
    """Text for the parser: what a string holds is nothing to it, and a parameter is a number."""
    lines = "\n" * part.text.count("\n")
    if part.form is Form.STRING:
        inner = part.text[1:-1]
        return f"'{inner}'" if _PLAIN.fullmatch(inner) else f"'$'{lines}"
    if part.form in (Form.COMMENT, Form.HINT):
        return f" {lines}"
    if part.form is Form.PARAMETER:
        return "1"
    return part.text


def _unreadable(masked: str, error: Any) -> SqlProblem:
    details = getattr(error, "errors", None) or [{}]
    line = int(details[0].get("line") or 1)
    start = sum(len(text) + 1 for text in masked.split("\n")[: line - 1])
    near = str(details[0].get("highlight") or "").strip()
    return SqlProblem(
        "the SQL cannot be read as a statement that only reads" + (f" (near {near})" if near else ""),
        start,
        "Write one SELECT in the words that MySQL and TiDB share.",
    )


def _check_tree(root: exp.Expr) -> None:
    from sqlglot import exp

    if not isinstance(root, exp.Query | exp.Values):
        raise SqlProblem("this is not a statement that reads", hint=_FORMS)
    for node in root.walk():
        if isinstance(node, exp.DML | exp.DDL | exp.Command | exp.Set | exp.Into | exp.Merge) and not isinstance(
            node, exp.Query | exp.Values
        ):
            raise SqlProblem(f"the SQL holds {node.key.upper()}; a rule only reads")
        if isinstance(node, exp.Lock):
            raise SqlProblem("the SQL locks rows; a rule only reads")
        if isinstance(node, exp.Parameter | exp.SessionParameter | exp.PropertyEQ):
            raise SqlProblem("variables (@name) are not used here", hint="Declare a parameter instead.")
        if isinstance(node, exp.Version | exp.TableSample):
            raise SqlProblem(
                "the SQL reads another moment, or a sample", hint="All of a rule is read at one moment, and whole."
            )


def _check_calls(parts: list[Token], root: exp.Expr) -> None:
    """Refuse every call of something that is not known to read only: a stored function may write."""
    neighbors = list(_neighbors(parts))
    named = Counter(part.name.lower() for before, part, after, _ in neighbors if after == "(" and before != ".")
    # A name that stands before a parenthesis more often than it names a table is called, too: WITH f(a) ... f(1).
    lists = {name for name, count in _column_lists(root).items() if named[name] == count}
    for before, part, after, spaced in neighbors:
        name = part.name.lower()
        if name in MEANINGLESS and part.form is Form.WORD and before != ".":
            raise SqlProblem(f"{name.upper()} {REFUSED[name]}; a rule reads rows only", part.start)
        if after != "(":
            continue
        if name in REFUSED and before != ".":
            raise SqlProblem(f"{name.upper()}() {REFUSED[name]}; a rule only reads", part.start)
        if name in lists and before != ".":
            continue
        if name in UNSPACED and spaced and before != ".":
            raise SqlProblem(
                f"{part.name} with a space before its parenthesis is a stored function to MySQL, which may write",
                part.start, f"Write {part.name}( without the space.",
            )  # fmt: skip
        if before == "." or name not in BUILT_IN or part.form is Form.NAME:
            raise SqlProblem(
                f"{part.name}() is not a function that is known to read only", part.start,
                "A stored function may write; put its expression into the SQL.",
            )  # fmt: skip


def _column_lists(root: exp.Expr) -> Counter[str]:
    """Count the names before a parenthesis that are no calls: ``WITH c(a, b)``, ``AS q(a)``."""
    from sqlglot import exp

    return Counter(alias.name.lower() for alias in root.find_all(exp.TableAlias) if alias.args.get("columns"))


def _neighbors(parts: list[Token]) -> Iterator[tuple[str, Token, str, bool]]:
    """Yield each name with what comes before and after it, and whether space or a comment parts it from the latter."""
    words = [part for part in parts if part.form not in (Form.SPACE, Form.COMMENT, Form.HINT)]
    for number, part in enumerate(words):
        if part.form in (Form.WORD, Form.NAME):
            before = words[number - 1].text if number else ""
            after = words[number + 1] if number + 1 < len(words) else None
            spaced = after is not None and after.start > part.start + len(part.text)
            yield before, part, after.text if after else "", spaced


def selected_columns(sql: str) -> tuple[str, ...] | None:
    """Names of the columns of a checked statement; None where only the server tells them (``*``, a bare expression)."""
    from sqlglot import exp

    root = _parse(list(tokens(sql)))
    if not isinstance(root, exp.Query) or any(select.is_star for select in root.find_all(exp.Select)):
        return None
    first: exp.Expr = root
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    if not isinstance(first, exp.Select):
        return None
    if not all(isinstance(one, exp.Alias | exp.Column) for one in first.expressions):
        return None
    return tuple(one.alias_or_name for one in first.expressions)
