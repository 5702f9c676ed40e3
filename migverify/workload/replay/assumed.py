"""What is assumed of sessions whose beginning the capture did not see, and which statements that can change.

The text of such a statement is whole; its user, database and settings may be unknown. A dump of the server's sessions,
or ``--assume-database``, gives them. The rest is left to the servers' defaults: the sql_mode, the time zone, the
character set and other variables (PAD_CHAR_TO_FULL_LENGTH is taken as off). Each statement then names the assumptions
that could change its answer. The user changes none, as a replay asks as its own user. An unknown database concerns
what names a table without its database; such a statement is not asked. Unknown settings concern writes, what cannot be
read, and reads whose text holds anything that a setting may change; not the plain reads of most applications.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, NamedTuple

from migverify.errors import UsageError
from migverify.workload.classify import StatementKind
from migverify.workload.formats.tcp import Address, joined_session
from migverify.workload.meaning import Meaning
from migverify.workload.replay.touches import Keys, TableKeys
from migverify.workload.server_sessions import ServerSession, SessionDump
from migverify.workload.state import COLUMNS, SessionState

FOR_DIFFERENCES = "a log without connects"
"""Beside what bears on a statement of a log that tells no connects: an equal answer is not weighed, a difference is."""
NO_DATABASE = "the session's database is not known, and a table is named without one"

_QUIET = frozenset({StatementKind.SESSION, StatementKind.TRANSACTION})
_DEPENDS = {
    "sql_mode": re.compile(
        r"\|\||(?<!\bIS )\bNOT\b(?! (?:IN|LIKE|EXISTS|BETWEEN|REGEXP|NULL)\b)|!(?!=)|\s-\s"
        r"|\b(?:GROUP BY|DISTINCT|HAVING|CAST|CONVERT)\b", re.IGNORECASE,
    ),
    "time zone": re.compile(
        r"\b(?:NOW|SYSDATE|CUR(?:RENT_)?(?:DATE|TIME)|CURRENT_TIMESTAMP|LOCALTIME(?:STAMP)?|FROM_UNIXTIME|UNIX_TIMESTAMP)\b",
        re.IGNORECASE,
    ),
    "variables": re.compile(
        r"\b(?:GROUP_CONCAT|AVG|DAYNAME|MONTHNAME|DATE_FORMAT|(?:YEAR)?WEEK|STR_TO_DATE|FORMAT)\b|\s/\s"
        r"|\b(?:LAST_INSERT_ID|FOUND_ROWS|ROW_COUNT)\b", re.IGNORECASE,
    ),
}  # fmt: skip
"""What in a normalized text a setting may change. What one setting changes says nothing of another, which is known."""
_MODES_RAW = re.compile(rb"[\"\\]|'0000|-00")
_USER_VARIABLE = re.compile(rb"@@|(?<![@\w'\"`])@[`'\"]?([\w$.]+)")
_AGGREGATE = re.compile(
    r"\b(?:COUNT|SUM|MIN|MAX|AVG|GROUP_CONCAT|JSON_\w+AGG|BIT_\w+|STD\w*|VAR\w*)`? \(", re.IGNORECASE
)
_WORDS = {"sql_mode": "sql_mode", "time_zone": "time zone", "charset": "character set"}


class Assumed(NamedTuple):
    """The state a statement is asked in. ``unknown`` names what nobody gave; ``given`` who gave what, for evidence."""

    state: SessionState
    unknown: frozenset[str] = frozenset()
    given: tuple[str, ...] = ()


class SessionFacts:
    """What dumps and options say of sessions that began before the capture.

    Parameters
    ----------
    dumps
        One or more of each server.
    database
        The database of sessions that nothing else tells, None for none.
    servers
        Names of the capture's servers. A dump of another name is that of the only one.
    first
        When the capture began, Unix microseconds. A dump that is older proves nothing: its values are used and stay
        assumed.

    Raises UsageError: it is not known which server a dump is of.
    """

    def __init__(
        self, dumps: Sequence[SessionDump] = (), database: str | None = None, servers: Sequence[str] = (),
        first: int | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._dumps: dict[str, list[tuple[SessionDump, bool, dict[int, ServerSession]]]] = {}
        for dump in dumps:
            if dump.server not in servers and len(servers) > 1:
                raise UsageError(
                    f"the dump of sessions is of {dump.server}, and the capture is of {', '.join(servers)}",
                    hint="Name the server as in the capture: migverify workload sessions --server NAME.",
                )
            server = dump.server if not servers or dump.server in servers else servers[0]
            current = first is None or dump.at >= first
            by_id = {one.id: one for one in dump.sessions} | dict(_by_address(dump))
            self._dumps.setdefault(server, []).append((dump, current, by_id))

    def _found(self, session: str) -> tuple[SessionDump, bool, ServerSession] | None:
        server, _, rest = session.partition("/")
        number = rest.partition("/")[0]
        if not number.removeprefix("-").isdecimal():
            return None
        for dump, current, by_id in self._dumps.get(server, ()):
            one = by_id.get(int(number))
            if one is not None:
                return dump, current, one
        return None

    def assume(self, session: str, state: SessionState, user: str | None) -> Assumed:
        """Return the state in which a statement of a session that began before the capture is asked."""
        found = self._found(session)
        if found is not None and user is not None and found[2].user not in (None, user):
            found = None  # the connection id was given again, after a restart
        unknown = {words for name, words in _WORDS.items() if getattr(state, name) is None} | {"variables"}
        unknown |= {"user"} if user is None and (found is None or found[2].user is None) else set()
        given: list[str] = []
        changes: dict[str, Any] = {}
        if found is not None:
            changes = _from_dump(state, found[0], found[2])
            if found[1]:
                unknown -= {_WORDS[name] for name in changes if name in _WORDS}
                unknown -= {"variables"} if found[2].settings is not None else set()
            given += [f"{name} from --sessions" for name in changes]
        if "database" not in changes and state.database is None:
            if self._database is not None:
                changes["database"] = self._database
                given.append("database from --assume-database")
            else:
                unknown.add("database")
        return Assumed(replace(state, **changes) if changes else state, frozenset(unknown), tuple(given))


def _from_dump(state: SessionState, dump: SessionDump, one: ServerSession) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if state.database is None and one.database is not None:
        changes["database"] = one.database
    settings = one.settings or {}
    for name, column in COLUMNS.items():
        if getattr(state, column) is None and name in settings:
            changes[column] = settings[name]
    if state.autocommit is None and "autocommit" in settings:
        changes["autocommit"] = settings["autocommit"] in ("1", "ON")
    own = {
        name: value for name, value in settings.items()
        if name not in (*COLUMNS, "autocommit", "long_query_time") and dump.defaults.get(name) != value
    }  # fmt: skip
    if own:
        rest = state.parts
        rest["variables"] = own | rest.get("variables", {})
        changes["rest"] = json.dumps(rest, ensure_ascii=False, sort_keys=True)
    return changes


def _by_address(dump: SessionDump) -> Iterator[tuple[int, ServerSession]]:
    """Yield sessions by the numbers that packets of connections joined midway have."""
    servers = [found for one in dump.addresses if (found := _address(one)) is not None]
    for one in dump.sessions:
        client = _address(one.client)
        if client is not None:
            yield from ((joined_session(client, server), one) for server in servers)


def _address(text: str) -> Address | None:
    host, _, port = text.rpartition(":")
    try:
        return ip_address(host).packed, int(port)
    except ValueError:
        return None


def needs_database(meaning: Meaning) -> bool:
    """Tell whether a statement may hang on the current database."""
    if meaning.classification.kind in _QUIET:
        return False
    tables = meaning.shape.tables
    if tables is None or any("." not in name for name in tables):
        return True
    found = meaning.classification
    return bool(found.volatile & {"database", "schema"}) or "stored function possible" in found.effects


def bearing(unknown: Iterable[str], sql: bytes, meaning: Meaning, state: SessionState, keys: Keys) -> tuple[str, ...]:
    """Return which of these unknowns could change the answer of a statement, in a fixed order."""
    found = meaning.classification
    if found.kind in _QUIET:
        return ()
    named = [one for one in unknown if one == "database" and needs_database(meaning)]
    named += [one for one in unknown if _depends(one, sql, meaning, state, keys)]
    return tuple(sorted(named))


def _depends(setting: str, sql: bytes, meaning: Meaning, state: SessionState, keys: Keys) -> bool:
    """Tell whether a setting (not the user, nor the database) may change the answer of a statement."""
    if setting in ("user", "database"):
        return False
    found, tables, text = meaning.classification, meaning.shape.tables, meaning.text
    if setting == "character set":
        return tables is None or not sql.isascii() or (tables == () and b"'" in sql)
    if tables is None or found.may_write or found.statements > 1 or _DEPENDS[setting].search(text):
        return True
    if setting == "sql_mode":
        aggregates = bool(_AGGREGATE.search(text)) and "," in text.partition(" FROM ")[0]
        return aggregates or _MODES_RAW.search(sql) is not None
    if setting == "variables":
        known = state.parts.get("user_variables", {})
        return any(name.decode("ascii", "replace").lower() not in known for name in _USER_VARIABLE.findall(sql))
    return any(_reads_zoned(keys.get(_full(name, state.database), TableKeys()), text) for name in tables)


def _reads_zoned(table: TableKeys, text: str) -> bool:
    """Tell whether a normalized text may look at a TIMESTAMP column of a table."""
    if table.zoned is None:
        return True
    if not table.zoned:
        return False
    lower = text.lower().replace("( * )", "")
    every = "* from" in lower or "* ," in lower or "natural" in lower or text.endswith("...")
    return every or any(f"`{name}`" in lower for name in table.zoned)


def _full(name: str, database: str | None) -> str:
    return name.lower() if "." in name else f"{database}.{name}".lower()
