"""What a user may do, as ``SHOW GRANTS`` says it: MySQL, MariaDB and TiDB, roles taken in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migverify.errors import PrivilegeError, ReadError, RetryableReadError
from migverify.model import Flavor
from migverify.sql.quoting import quote_name
from migverify.sql.server import ACCOUNT, GRANTS, ServerQuery

# Privileges with which nothing can be changed. A privilege that is not listed counts as one to write.
_READING = frozenset({
    "USAGE", "SELECT", "SHOW DATABASES", "SHOW VIEW", "PROCESS", "REPLICATION CLIENT", "REPLICATION SLAVE",
    "BINLOG MONITOR", "SHOW_ROUTINE", "RESOURCE_GROUP_USER", "SENSITIVE_VARIABLES_OBSERVER", "FIREWALL_EXEMPT",
    "AUDIT_ABORT_EXEMPT", "ALLOW_NONEXISTENT_DEFINER", "DASHBOARD_CLIENT", "SLAVE MONITOR",
    "REPLICA MONITOR", "REPLICATION REPLICA",
})  # fmt: skip
# Servers show triggers, events and rules of keys to who may make some. None of them changes a row by a statement that
# reads; what a trigger or event does is bound by the rights of its definer.
_TO_SEE = frozenset({"TRIGGER", "EVENT", "REFERENCES"})
# What another server calls the same privilege.
_SPELLINGS = {
    "REPLICATION CLIENT": ("BINLOG MONITOR",), "REPLICATION SLAVE": ("REPLICATION REPLICA",),
}  # fmt: skip
_SEEN_WITH = {
    "triggers": ("TRIGGER",), "events": ("EVENT",),
    "procedures and functions": ("SHOW_ROUTINE", "EXECUTE", "CREATE ROUTINE", "ALTER ROUTINE"),
    "texts of views": ("SHOW VIEW",),
}  # fmt: skip
_MORE_THAN_SELECT = ("INSERT", "UPDATE", "DELETE", "REFERENCES", "ALTER", "CREATE", "DROP", "INDEX", "TRIGGER")
_GRANT = re.compile(r"GRANT (?P<what>.+?) ON (?P<on>.+?) TO (?P<rest>.+)\Z", re.DOTALL)
_REVOKE = re.compile(r"REVOKE (?P<what>.+?) ON (?P<on>.+?) FROM (?P<rest>.+)\Z", re.DOTALL)
_ROLES = re.compile(r"GRANT (?P<roles>[`'\"].+?) TO (?P<rest>.+)\Z", re.DOTALL)
_ROLE = re.compile(r"""(?:`(?:[^`]|``)*`|'(?:[^']|'')*')(?:@(?:`(?:[^`]|``)*`|'(?:[^']|'')*'))?""")
_COLUMNS = re.compile(r"\([^)]*\)")
_OBJECT = re.compile(r"(?:`(?P<database>(?:[^`]|``)*)`|(?P<every>\*))\.(?:`(?P<table>(?:[^`]|``)*)`|\*)\Z")


@dataclass(frozen=True, slots=True)
class Grant:
    """One privilege, in upper case, on a pattern of databases (None: all) and a table (None: all of them).

    ``columns`` says that it is held on some columns only; ``taken`` that it is taken away there again (MySQL's
    ``partial_revokes``).
    """

    privilege: str
    database: str | None
    table: str | None
    columns: bool = False
    taken: bool = False

    def covers(self, privilege: str, database: str | None, table: str | None, *, literal: bool = False) -> bool:
        """Whether this speaks of a privilege on a table; None asks for all of them. ``literal``: no name varies."""
        if self.columns or (self.privilege not in (privilege, "ALL", "ALL PRIVILEGES", *_SPELLINGS.get(privilege, ()))):
            return False
        if self.database is None:
            return True
        if database is None:
            return False
        if self.table is not None:
            return self.database == database and self.table == table
        return self.database == database if literal else _like(self.database).fullmatch(database) is not None


@dataclass(frozen=True, slots=True)
class Grants:
    """What a user may do, roles taken in. ``writing`` names each privilege that is not one to read, and on what.

    ``lines`` holds those of every role the user could turn on; ``active`` what holds in a session as it begins.
    ``literal`` says that the server takes names of databases in grants as they are written (``partial_revokes``).
    """

    account: str
    lines: tuple[str, ...]
    roles: tuple[str, ...]
    writing: tuple[str, ...]
    active: tuple[Grant, ...] = ()
    literal: bool = False

    @property
    def may_write(self) -> bool:
        """Whether this user can change rows; to be allowed to define what it is there to see is not that."""
        return bool(self.changing)

    @property
    def changing(self) -> tuple[str, ...]:
        """``writing`` without what servers ask of a user that is to see triggers, events and rules of keys."""
        return tuple(one for one in self.writing if one.partition(" on ")[0] not in _TO_SEE)

    def allows(self, privilege: str, database: str | None = None, table: str | None = None) -> bool:
        """Whether a session of this user has a privilege on a whole table; None asks for all databases or tables."""
        held = [grant for grant in self.active if grant.covers(privilege, database, table, literal=self.literal)]
        return self._settled(held)

    def allows_pattern(self, privilege: str, pattern: str | None) -> bool:
        r"""Whether a privilege is held on every database of a pattern (``pay\_eu``, ``pay\_%``); None asks for all."""
        name = None if pattern is None else plain_name(pattern)
        if pattern is None or name is not None:
            return self.allows(privilege, name)
        # What lies in a pattern is not known: it is held on all databases, or on the same pattern.
        return self._settled([
            grant for grant in self.active
            if grant.covers(privilege, None, None)
            or (not self.literal and grant.database == pattern and grant.covers(privilege, pattern, None, literal=True))
        ])  # fmt: skip

    @staticmethod
    def _settled(held: Sequence[Grant]) -> bool:
        if not any(not grant.taken for grant in held):
            return False
        # A partial revoke takes from the global level only; what a database or a table was given itself stays.
        taken = any(grant.taken for grant in held)
        return not taken or any(not grant.taken and grant.database is not None for grant in held)


def check_grants(session: ServerQuery) -> Grants:
    """Read what the session's user may do: its own grants, and those of every role it could turn on.

    Raises
    ------
    ReadError
        the server does not tell.
    """
    account = session.query(ACCOUNT)[0][0] or ""
    own = [row[0] or "" for row in session.query(GRANTS)]
    active = tuple(grant for line in own for grant in grants_in(line))
    varying = any(re.search("[_%]", grant.database or "") for grant in active if grant.table is None)
    literal = varying and names_are_literal(session)  # asked only where it makes a difference
    lines, roles = list(own), sorted({role for line in own for role in _roles(line)})
    if roles:
        try:
            lines += _of_roles(session, roles)
        except RetryableReadError:
            raise
        except (ReadError, PrivilegeError):
            # What a role allows is unknown: it may allow anything.
            unknown = (f"role {', '.join(roles)}: grants not shown",)
            return Grants(account, tuple(lines), tuple(roles), unknown, active, literal)
    lines = list(dict.fromkeys(lines))
    return Grants(account, tuple(lines), tuple(roles), _writing(lines), active, literal)


def hidden_parts(flavor: Flavor, grants: Grants) -> tuple[str, ...]:
    """Return what a server hides from a user with these grants: it looks as if there were none.

    A grant on any database counts for all: this is about users that lack it altogether.
    """
    if flavor is Flavor.TIDB:
        return ()  # it has no triggers, routines and events, and shows the rest
    held = {grant.privilege for grant in grants.active if not grant.taken}
    if held & {"ALL", "ALL PRIVILEGES"}:
        return ()
    hidden = [what for what, needed in _SEEN_WITH.items() if not held.intersection(needed)]
    if flavor is Flavor.MARIADB and not held.intersection(_MORE_THAN_SELECT):
        hidden.append("foreign keys")
    return tuple(hidden)


def account_text(account: str) -> str:
    """Return an account as CURRENT_USER() says it (``user@host``) quoted for GRANT, under every ``sql_mode``."""
    user, _, host = account.rpartition("@")
    return f"{_account_part(user)}@{_account_part(host)}"


def _account_part(name: str) -> str:
    # A backslash in quotes means two things; backticks take it as it is, but cannot hold the empty name.
    return quote_name(name) if "\\" in name else "'" + name.replace("'", "''") + "'"


def names_are_literal(session: ServerQuery) -> bool:
    """Whether the server takes names of databases in grants as they are written: MySQL with ``partial_revokes``."""
    try:
        return session.query("SELECT @@partial_revokes")[0][0] in ("1", "ON")
    except RetryableReadError:
        raise
    except (ReadError, PrivilegeError):
        return False  # MariaDB, TiDB and MySQL before 8.0.16 have no such variable


def _of_roles(session: ServerQuery, roles: Sequence[str]) -> list[str]:
    """Return the grants of roles. MariaDB has no USING: there each role is requested, and the roles of roles."""
    if any("@" in role for role in roles):
        return [row[0] or "" for row in session.query("SHOW GRANTS FOR CURRENT_USER() USING " + ", ".join(roles))]
    found: list[str] = []
    waiting, seen = list(roles), set(roles)
    while waiting:
        lines = [row[0] or "" for row in session.query(f"SHOW GRANTS FOR {waiting.pop()}")]
        found += lines
        further = {role for line in lines for role in _roles(line)} - seen
        seen |= further
        waiting += sorted(further)
    return found


def grants_in(line: str) -> Iterator[Grant]:
    """Yield the privileges of one line of SHOW GRANTS; none for a role, a routine or a proxied account."""
    found, taken = _GRANT.match(line), False
    if found is None:
        found, taken = _REVOKE.match(line), True
    if found is None:
        return
    on = _OBJECT.match(found["on"].removeprefix("TABLE "))
    if on is None:  # a routine, a proxied account
        return
    database = None if on["every"] else on["database"].replace("``", "`")
    table = None if on["table"] is None else on["table"].replace("``", "`")
    for part in re.split(r",(?![^(]*\))", found["what"]):
        name = _COLUMNS.sub("", part).strip().upper()
        yield Grant(name, database, table, "(" in part, taken)


def like_literal(name: str) -> str:
    """Return the pattern of ``GRANT`` that is one database."""
    return re.sub(r"([_%])", r"\\\1", name)


def plain_name(pattern: str) -> str | None:
    """Return the one database that a pattern of ``GRANT`` is, None where it varies."""
    if re.search(r"(?<!\\)[_%]", pattern):
        return None
    return re.sub(r"\\([_%])", r"\1", pattern)


def _like(pattern: str) -> re.Pattern[str]:
    r"""Return a database's grant as a pattern: ``_`` and ``%`` match, with ``\`` before them they are themselves."""
    out = []
    for escaped, character in re.findall(r"(\\?)(.)", pattern, re.DOTALL):
        if not escaped and character in "_%":
            out.append("." if character == "_" else ".*")
        else:
            out.append(re.escape(character if character in "_%" else escaped + character))
    return re.compile("".join(out), re.DOTALL)


def _roles(line: str) -> list[str]:
    if _GRANT.match(line):
        return []
    found = _ROLES.match(line)
    return _ROLE.findall(found["roles"]) if found else []


def _writing(lines: list[str]) -> tuple[str, ...]:
    found: list[str] = []
    for line in lines:
        granted = _GRANT.match(line)
        if granted is None:
            if not _roles(line) and not line.startswith(("REVOKE ", "SET DEFAULT ROLE ")):
                found.append(f"not understood: {line}")
            elif "WITH ADMIN OPTION" in line:
                found.append("roles WITH ADMIN OPTION")
            continue
        where = granted["on"].removeprefix("TABLE ")
        names = [name.strip().upper() for name in _COLUMNS.sub("", granted["what"]).split(",")]
        found += [f"{name} on {where}" for name in names if name not in _READING]
        if "WITH GRANT OPTION" in granted["rest"]:
            found.append(f"GRANT OPTION on {where}")
    return tuple(dict.fromkeys(found))
