"""Questions of the settings guard about privileges: too few for what is going to run, and too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migverify.errors import PrivilegeError
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, failed, listed, passed, unknown, warned
from migverify.model import Side
from migverify.sql.catalog import access_sql
from migverify.sql.grants import Grants, account_text, like_literal
from migverify.sql.privileges import DATABASES, REPAIR, object_text, privileges_for
from migverify.sql.quoting import quote_path

_ADMIN = ("SUPER", "ALL PRIVILEGES", "ALL", "GRANT OPTION", "CREATE USER", "SHUTDOWN", "ROLE_ADMIN", "SYSTEM_USER")


def tables(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether every table in scope may be read; what SHOW GRANTS does not say is tried by using it."""
    try:
        found = server.tables
    except PrivilegeError as error:  # the catalog shows less than the whole table: a grant on columns
        yield failed(error.message.split("\n")[0], error.hint)
        return
    missing = [
        (table.ref.database, table.ref.table)
        for table in found
        if not server.grants.allows("SELECT", table.ref.database, table.ref.table)
        and not _reads(server, table.ref.database, table.ref.table)
    ]
    value = f"{server.grants.account} may read {len(found) - len(missing)} of {len(found)} tables"
    if not found:
        yield unknown("no table in scope can be seen", _grant(server, "SELECT", ["<database>.*"]))
        return
    names = [f"{database}.{table}" for database, table in missing]
    if names:
        yield failed(f"{value}; not {listed(names)}", _grant(server, "SELECT", _databases(server, missing)))
        return
    yield passed(value)


def _reads(server: CheckedServer, database: str, table: str) -> bool:
    try:
        server.session.query(access_sql(database, table))
    except PrivilegeError:
        return False
    return True


def changes(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask for the two grants of a reader of the binlog."""
    wanted = privileges_for("changes tail", "*.*", Side.SOURCE, server.flavor)
    if not wanted:
        return
    missing = [name for name in wanted if not server.grants.allows(name)]
    todo = _grant(server, ", ".join(missing), ["*.*"])
    yield CheckResult(
        AnswerState.FAIL if missing else AnswerState.PASS,
        f"missing: {', '.join(missing)}" if missing else "granted",
        todo,
    )


def workload(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether replayed statements may read tables and views, and whether sessions of others can be seen."""
    views = [(one.database, one.name) for one in server.skipped if one.kind == "view"]
    refs = [(table.ref.database, table.ref.table) for table in server.tables]
    unread = [name for name in (*refs, *views) if not server.grants.allows("SELECT", *name)]
    if unread:
        names = [f"{database}.{table}" for database, table in unread]
        yield failed(f"may not read {listed(names)}", _grant(server, "SELECT", _databases(server, unread)))
        return
    wants_view = [database for database, name in views if not server.grants.allows("SHOW VIEW", database, name)]
    if wants_view:
        value = f"SHOW VIEW is missing for {len(wants_view)} views: EXPLAIN of statements on them is refused"
        yield warned(value, _grant(server, "SHOW VIEW", _databases(server, [(one, "") for one in wants_view])))
        return
    if not server.grants.allows("PROCESS"):
        yield warned(
            "reads everything; without PROCESS a capture by polling sees its own session only",
            _grant(server, "PROCESS", ["*.*"]),
        )
        return
    yield passed(f"may read {len(refs)} tables and {len(views)} views, and see sessions")


def repair(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether the target's rows may be repaired; missing is a warning, as not everybody lets migverify do that."""
    read = privileges_for("tables repair", DATABASES, Side.TARGET, server.flavor)
    wanted = [name for name in privileges_for(REPAIR, DATABASES, Side.TARGET, server.flavor) if name not in read]
    refs = [(table.ref.database, table.ref.table) for table in server.tables]
    if not refs:
        yield unknown("no table in scope can be seen")
        return
    short = [ref for ref in refs if not all(server.grants.allows(name, *ref) for name in wanted)]
    todo = _grant(server, ", ".join(wanted), _databases(server, short)) + " Or apply the repair's SQL as somebody else."
    value = f"may write {len(refs) - len(short)} of {len(refs)} tables"
    yield CheckResult(AnswerState.WARN if short else AnswerState.PASS, value, todo)


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


def _databases(server: CheckedServer, names: Sequence[tuple[str, str]]) -> list[str]:
    databases = {database for database, _ in names}
    varying = any(like_literal(one) != one for one in databases)
    literal = varying and server.variables.get("partial_revokes", "").upper() in ("ON", "1")
    return sorted(object_text(like_literal(one), None, literal=literal) for one in databases)


def _grant(server: CheckedServer, privileges: str, objects: Sequence[str]) -> str:
    account = account_text(server.grants.account)
    return " ".join(f"GRANT {privileges} ON {one} TO {account};" for one in objects)
