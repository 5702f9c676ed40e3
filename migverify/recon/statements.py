"""What SQL of a rule may do: read rows of tables, once per run, at one snapshot. Everything else is refused.

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

from migverify.sql.lexer import TokenKind
from migverify.sql.tokens import SqlProblem, SqlToken, tokens, without_comments

if TYPE_CHECKING:
    from sqlglot import exp

_PLAIN = re.compile(r"[0-9A-Za-z_.: -]*")
_FORMS = "Write one SELECT, WITH, TABLE or VALUES."
_READS = ("SELECT", "WITH", "TABLE", "VALUES")

# Functions that SQL of a rule may call. A name that is not here may be a stored function, and those may write. The list
# is our own, as sqlglot also knows the functions of other dialects: it is what MySQL, MariaDB and TiDB build in, less
# what locks, waits, writes, reads files or depends on the session.
_TEXT = """
ascii bin bit_length char char_length character_length chr collation charset coercibility concat concat_ws elt
export_set field find_in_set format from_base64 hex insert instr lcase left length locate lower lpad ltrim make_set mid
natural_sort_key oct octet_length ord position quote repeat replace reverse right rpad rtrim sformat soundex space
strcmp substr substring substring_index to_base64 to_char translate trim ucase unhex upper weight_string regexp_instr
regexp_like regexp_replace regexp_substr convert cast match against
"""
_NUMBERS = """
abs acos asin atan atan2 ceil ceiling conv cos cot crc32 crc32c degrees div exp floor greatest interval least ln log
log10 log2 mod pi pow power radians round sign sin sqrt tan truncate bit_count bitand bitor bitxor bitneg
"""
_TIMES = """
add_months adddate addtime convert_tz curdate current_date current_time current_timestamp curtime date date_add
date_format date_sub datediff day dayname dayofmonth dayofweek dayofyear extract from_days from_unixtime get_format hour
last_day localtime localtimestamp makedate maketime microsecond minute month monthname now period_add period_diff
quarter sec_to_time second str_to_date subdate subtime time time_format time_to_sec timediff timestamp timestampadd
timestampdiff to_days to_seconds unix_timestamp utc_date utc_time utc_timestamp week weekday weekofyear year yearweek
"""
_VALUES = """
any_value case coalesce default grouping if ifnull isnull name_const nullif nvl nvl2 values row exists
bin_to_uuid uuid_to_bin is_uuid uuid_timestamp uuid_version
inet_aton inet_ntoa inet6_aton inet6_ntoa is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6
aes_decrypt aes_encrypt compress decode encode md5 password sha sha1 sha2 sm3 statement_digest statement_digest_text
uncompress uncompressed_length database schema version tidb_version
tidb_parse_tso tidb_parse_tso_logical tidb_shard vitess_hash format_bytes
"""
_JSON = """
json_array json_array_append json_array_insert json_compact json_contains json_contains_path json_depth json_detailed
json_equals json_exists json_extract json_insert json_keys json_length json_loose json_merge json_merge_patch
json_merge_preserve json_normalize json_object json_overlaps json_pretty json_query json_quote json_remove json_replace
json_schema_valid json_search json_set json_storage_free json_storage_size json_table json_type json_unquote json_valid
json_value extractvalue updatexml column_get column_exists column_json
"""
_AGGREGATES = """
approx_count_distinct approx_percentile avg bit_and bit_or bit_xor count group_concat json_arrayagg json_objectagg max
median min percentile_cont percentile_disc std stddev stddev_pop stddev_samp sum var_pop var_samp variance
cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
"""
_SPATIAL = """
st_area st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_contains st_distance st_distance_sphere st_equals
st_geohash st_geomfromgeojson st_geomfromtext st_geomfromwkb st_geometrytype st_intersects st_isvalid st_latitude
st_length st_longitude st_srid st_swapxy st_within st_x st_y point
vec_as_text vec_cosine_distance vec_dims vec_from_text vec_l1_distance vec_l2_distance vec_l2_norm
vec_negative_inner_product
"""
_KEYWORDS = """
all and any as between binary both by columns cross distinct distinctrow else end escape except filter for force from
group having ignore in index intersect is join key lateral leading like limit natural nested not of offset on or order
ordinality over partition path recursive regexp rlike select separator some straight_join then trailing union use using
when where window with within xor
bigint bit character decimal dec double fixed float int integer mediumint nchar nvarchar numeric real signed smallint
tinyint unsigned varbinary varchar datetime vector
"""

BUILT_IN = frozenset(
    " ".join((_TEXT, _NUMBERS, _TIMES, _VALUES, _JSON, _AGGREGATES, _SPATIAL, _KEYWORDS)).split()
)  # fmt: skip
"""Names, in lower case, that may precede a parenthesis."""

_UNSPACED = """
adddate bit_and bit_or bit_xor cast count curdate curtime date_add date_sub extract group_concat json_arrayagg
json_objectagg max mid min now position std stddev stddev_pop stddev_samp subdate substr substring sum trim
var_pop var_samp variance
"""

UNSPACED = frozenset(_UNSPACED.split())
"""Built in only where the parenthesis follows at once: with a space a stored function of that name is called.

Source: the MySQL manual, "Function Name Parsing and Resolution", for a session without IGNORE_SPACE.
"""

_LOCKS = "takes or looks at a lock"
_WAITS = "waits"
_SEQUENCE = "changes a sequence"
_SESSION = "depends on the session"

REFUSED = {
    "sleep": _WAITS, "benchmark": _WAITS, "master_pos_wait": _WAITS, "source_pos_wait": _WAITS,
    "master_gtid_wait": _WAITS, "wait_for_executed_gtid_set": _WAITS, "wait_until_sql_thread_after_gtids": _WAITS,
    "get_lock": _LOCKS, "release_lock": _LOCKS, "release_all_locks": _LOCKS, "is_free_lock": _LOCKS,
    "is_used_lock": _LOCKS,
    "load_file": "reads a file of the server",
    "nextval": _SEQUENCE, "setval": _SEQUENCE, "lastval": _SESSION,
    "last_insert_id": _SESSION, "found_rows": _SESSION, "row_count": _SESSION, "connection_id": _SESSION,
    "current_user": _SESSION, "session_user": _SESSION, "system_user": _SESSION, "user": _SESSION,
    "current_role": _SESSION, "getvar": _SESSION, "setvar": "assigns a variable", "sysdate": _SESSION,
    "rand": "gives another answer at each read", "random_bytes": "gives another answer at each read",
    "uuid": "gives another answer at each read", "uuid_short": "gives another answer at each read",
    "uuid_v4": "gives another answer at each read", "uuid_v7": "gives another answer at each read",
    "sys_exec": "runs a program", "sys_eval": "runs a program",
}  # fmt: skip
"""Built-in functions that a rule may not call, and why."""

MEANINGLESS = frozenset({"current_user", "current_role"})
"""Words that call a function without a parenthesis, and that a rule may not use."""


def check_query(sql: str) -> str:
    """Return a statement that reads, without its comments and surrounding space.

    Raises SqlProblem: it is not one SELECT (WITH, UNION, TABLE ...), or it writes, locks, waits, reads another moment,
    or uses variables. ``start`` counts in the text that was given.
    """
    parts = list(tokens(without_comments(sql)))
    _check_tokens(parts)
    root = _parse(parts)
    _check_tree(root)
    _check_calls(parts, root)
    return "".join(part.text for part in parts).strip()


def check_expression(sql: str, *, what: str) -> str:
    """Return an expression (a condition, a column) that only reads its row, without comments.

    Raises SqlProblem: as for ``check_query``; also for an aggregate, which would need the whole table.
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
    first = next((part for part in parts if part.kind is not TokenKind.SPACE), None)
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
    return text.strip()


def _check_tokens(parts: list[SqlToken]) -> None:
    words = [part for part in parts if part.kind not in (TokenKind.SPACE, TokenKind.COMMENT)]
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
        if part.kind is TokenKind.HINT and "SET_VAR" in part.text.upper():
            raise SqlProblem("the hint SET_VAR changes the session", part.start, "Remove it.")
        if part.kind is TokenKind.WORD:
            _check_word(part, after)


def _check_word(part: SqlToken, after: SqlToken | None) -> None:
    word, following = part.text.upper(), after.text.upper() if after else ""
    if word in ("INTO", "OUTFILE", "DUMPFILE"):
        raise SqlProblem(f"the SQL writes ({word}); a rule only reads", part.start)
    if (word, following) in (("FOR", "UPDATE"), ("FOR", "SHARE"), ("LOCK", "IN")):
        raise SqlProblem(f"the SQL locks rows ({word} {following}); a rule only reads", part.start)
    if (word, following) in (("NEXT", "VALUE"), ("PREVIOUS", "VALUE")):
        raise SqlProblem(f"the SQL takes a value of a sequence ({word} VALUE); a rule only reads", part.start)


def _parse(parts: list[SqlToken]) -> exp.Expr:
    import sqlglot
    from sqlglot.errors import SqlglotError

    masked = "".join(map(_masked, parts))
    first = next((part for part in parts if part.kind is TokenKind.WORD), None)
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


def _masked(part: SqlToken) -> str:
    """Text for the parser: what a string holds is nothing to it, and a parameter is a number."""
    lines = "\n" * part.text.count("\n")
    if part.kind is TokenKind.STRING:
        inner = part.text[1:-1]
        return f"'{inner}'" if _PLAIN.fullmatch(inner) else f"'$'{lines}"
    if part.kind in (TokenKind.COMMENT, TokenKind.HINT):
        return f" {lines}"
    if part.kind is TokenKind.NAMED:
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
    # Variables and INTO are refused as tokens.
    writes = exp.DML, exp.DDL, exp.Command, exp.Set, exp.Merge, exp.Lock
    for node in root.find_all(*writes, exp.Version, exp.TableSample):
        if isinstance(node, exp.Version | exp.TableSample):
            raise SqlProblem(
                "the SQL reads another moment, or a sample", hint="All of a rule is read at one moment, and whole."
            )
        if not isinstance(node, exp.Query | exp.Values):
            raise SqlProblem(f"the SQL holds {node.key.upper()}; a rule only reads")


def _check_calls(parts: list[SqlToken], root: exp.Expr) -> None:
    """Refuse every call of something that is not known to read only: a stored function may write."""
    neighbors = list(_neighbors(parts))
    named = Counter(part.name.lower() for before, part, after, _ in neighbors if after == "(" and before != ".")
    # A name before a parenthesis more often than it names a table is called, too: WITH f(a) ... f(1).
    lists = {name for name, count in _column_lists(root).items() if named[name] == count}
    for before, part, after, spaced in neighbors:
        name = part.name.lower()
        if name in MEANINGLESS and part.kind is TokenKind.WORD and before != ".":
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
        if before == "." or name not in BUILT_IN or part.kind is TokenKind.QUOTED:
            raise SqlProblem(
                f"{part.name}() is not a function that is known to read only", part.start,
                "A stored function may write; put its expression into the SQL.",
            )  # fmt: skip


def _column_lists(root: exp.Expr) -> Counter[str]:
    """Count the names before a parenthesis that are no calls: ``WITH c(a, b)``, ``AS q(a)``."""
    from sqlglot import exp

    return Counter(alias.name.lower() for alias in root.find_all(exp.TableAlias) if alias.args.get("columns"))


def _neighbors(parts: list[SqlToken]) -> Iterator[tuple[str, SqlToken, str, bool]]:
    """Yield each name with what comes before and after it, and whether space or a comment parts it from the latter."""
    words = [part for part in parts if part.kind not in (TokenKind.SPACE, TokenKind.COMMENT, TokenKind.HINT)]
    for number, part in enumerate(words):
        if part.kind in (TokenKind.WORD, TokenKind.QUOTED):
            before = words[number - 1].text if number else ""
            after = words[number + 1] if number + 1 < len(words) else None
            spaced = after is not None and after.start > part.start + len(part.text)
            yield before, part, after.text if after else "", spaced
