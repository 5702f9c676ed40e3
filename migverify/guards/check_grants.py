"""Questions of the settings guard about privileges: too few for what is going to run, and too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migverify.errors import PrivilegeError
from migverify.figures import amount
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, failed, first_line, listed, passed, unknown, warned
from migverify.model import Side
from migverify.sql.catalog import access_sql
from migverify.sql.grants import Grants, like_literal
from migverify.sql.privileges import DATABASES, REPAIR, object_text, privileges_for
from migverify.sql.quoting import quote_path

_ADMIN = ("SUPER", "ALL PRIVILEGES", "ALL", "GRANT OPTION", "CREATE USER", "SHUTDOWN", "ROLE_ADMIN", "SYSTEM_USER")


Name = tuple[str, str]


def tables(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether every table in scope may be read; a grant that SHOW GRANTS does not list is tried by using it."""
    try:
        refs = _tables(server)
    except PrivilegeError as error:  # the catalog shows less than the whole table: a grant on columns
        yield failed(first_line(error), error.hint)
        return
    if not refs:
        yield unknown(_NO_TABLE, _grant(server, "SELECT", ["<database>.*"]))
        return
    unread = [ref for ref in _without(server, refs, "SELECT") if not _reads(server, ref)]
    value = f"{server.grants.account} may read {len(refs) - len(unread)} of {amount(len(refs), 'table')}"
    yield failed(f"{value}; not {_listed(unread)}", _grant_on(server, "SELECT", unread)) if unread else passed(value)


def _reads(server: CheckedServer, table: Name) -> bool:
    try:
        server.session.query(access_sql(*table))
    except PrivilegeError:
        return False
    return True


def changes(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask for the two grants of a reader of the binlog."""
    missing = [
        name for name in privileges_for("changes tail", "*.*", Side.SOURCE, server.flavor)
        if not server.grants.allows(name)
    ]  # fmt: skip
    words = ", ".join(missing)
    yield failed(f"missing: {words}", _grant(server, words, ["*.*"])) if missing else passed("granted")


def workload(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether replayed statements may read tables and views, and whether sessions of others can be seen."""
    views = [(view.database, view.name) for view in server.skipped if view.kind == "view"]
    refs = _tables(server)
    if unread := _without(server, [*refs, *views], "SELECT"):
        yield failed(f"may not read {_listed(unread)}", _grant_on(server, "SELECT", unread))
    elif hidden := _without(server, views, "SHOW VIEW"):
        value = f"SHOW VIEW is missing for {len(hidden)} views: EXPLAIN of statements on them is refused"
        yield warned(value, _grant_on(server, "SHOW VIEW", hidden))
    elif not server.grants.allows("PROCESS"):
        value = "reads everything; without PROCESS a capture by polling sees its own session only"
        yield warned(value, _grant(server, "PROCESS", ["*.*"]))
    else:
        yield passed(f"may read {amount(len(refs), 'table')} and {amount(len(views), 'view')}, and see sessions")


def repair(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether the target's rows may be repaired; missing is a warning, as not everybody lets migverify do that."""
    read = privileges_for("tables repair", DATABASES, Side.TARGET, server.flavor)
    wanted = [name for name in privileges_for(REPAIR, DATABASES, Side.TARGET, server.flavor) if name not in read]
    refs = _tables(server)
    if not refs:
        yield unknown(_NO_TABLE)
        return
    short = _without(server, refs, *wanted)
    value = f"may write {len(refs) - len(short)} of {amount(len(refs), 'table')}"
    todo = _grant_on(server, ", ".join(wanted), short) + " Or apply the repair's SQL as somebody else."
    yield warned(value, todo) if short else passed(value)


def excess(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask what the user may do beyond its work, roles taken in that it could turn on."""
    grants = server.grants
    if not server.is_source:
        admin = [one for one in grants.writing if one.split(" on ")[0].upper() in _ADMIN]
        value = f"{grants.account} may: {listed(admin)}" if admin else f"{grants.account} administers nothing"
        yield CheckResult(AnswerState.WARN if admin else AnswerState.PASS, value)
        return
    changing = [one for one in grants.changing if not _marker(one, server)]
    if changing:
        yield failed(f"{grants.account} may write: {listed(changing)}", _revoke(grants))
        return
    looking = [one for one in grants.writing if one not in grants.changing]
    seeing = f", and may define what it is there to see: {listed(looking)}" if looking else ""
    roles = f", roles {', '.join(grants.roles)} taken in" if grants.roles else ""
    yield passed(f"{grants.account} only reads{roles}{seeing}")


def _marker(privilege: str, server: CheckedServer) -> bool:
    """Whether this is the one write that a configuration may allow on a source."""
    name, _, where = privilege.partition(" on ")
    database, dot, table = (server.plan.marker or "").partition(".")
    return bool(dot) and name in ("INSERT", "DELETE") and where == quote_path(database, table)


def _revoke(grants: Grants) -> str:
    return (
        f"Use a user of its own: CREATE USER 'migverify'@'%' IDENTIFIED BY '...'; GRANT SELECT ON <database>.* TO"
        f" 'migverify'@'%'; and not {grants.account} (see docs/privileges.md)."
    )


_NO_TABLE = "no table in scope can be seen"


def _tables(server: CheckedServer) -> list[Name]:
    return [(table.ref.database, table.ref.table) for table in server.tables]


def _without(server: CheckedServer, names: Sequence[Name], *privileges: str) -> list[Name]:
    """Return the tables and views on which a user lacks one of these, by SHOW GRANTS."""
    return [name for name in names if not all(server.grants.allows(word, *name) for word in privileges)]


def _listed(names: Sequence[Name]) -> str:
    return listed([".".join(name) for name in names])


def _grant_on(server: CheckedServer, privileges: str, names: Sequence[Name]) -> str:
    """Return GRANT statements for the databases of these tables."""
    databases = {database for database, _ in names}
    varying = any(like_literal(one) != one for one in databases)
    literal = varying and server.variables.get("partial_revokes", "").upper() in ("ON", "1")
    return _grant(
        server, privileges, sorted(object_text(like_literal(one), None, literal=literal) for one in databases)
    )


def _grant(server: CheckedServer, privileges: str, objects: Sequence[str]) -> str:
    return " ".join(f"GRANT {privileges} ON {one} TO {server.account};" for one in objects)
