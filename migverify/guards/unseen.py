"""The tables in scope that a guard could not ask about, because a user cannot see them: nothing over them passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migverify.guards.scope import Scope
from migverify.model import Endpoint
from migverify.sql.grants import Grants
from migverify.sql.quoting import quote_name
from migverify.tables.hidden import matched, open_ended, partly_seen, unseen_databases

__all__ = ["VisibleTables", "unseen"]

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class VisibleTables:
    """The (database, table) names in scope that a user of an endpoint sees, and what it may do there."""

    endpoint: Endpoint
    tables: Sequence[Name]
    grants: Grants


def unseen(scope: Scope, seen: Sequence[VisibleTables]) -> Iterator[str]:
    """Yield a reason for each part of the scope that may be there and was not seen.

    Parameters
    ----------
    seen
        Of the endpoints that answered, in any order.
    """
    include = scope.config.tables.include
    target = scope.config.target.name
    sources = [one for one in seen if one.endpoint.name != target]
    names = [name for one in sources for name in one.tables]
    unmatched = [pattern for pattern in include if not matched([pattern], names)]
    # What no source shows is absent, or hidden from the users of all of them.
    databases = {p.database.literal for p in open_ended(unmatched) if p.database.literal is not None}
    expected = {(p.database.literal, p.table.literal) for p in unmatched
                if p.database.literal is not None and p.table.literal is not None}  # fmt: skip
    for one in sources:
        yield from unseen_databases(one.endpoint, one.grants, open_ended(include), "looked at")
        yield from _of(
            one, databases | {database for database, _ in matched(open_ended(include), one.tables)}, expected
        )
    led_to = [(scope.route(one.endpoint.name, *name), bool(matched(open_ended(include), [name])))
              for one in sources for name in one.tables]  # fmt: skip
    for one in seen:
        if one.endpoint.name == target:
            yield from _of(one, {name[0] for name, is_open in led_to if is_open}, {name for name, _ in led_to})
    nowhere = scope.unmatched(name for one in seen for name in one.tables)
    if nowhere and len(seen) == len(scope.endpoints):
        yield f"no table fits tables.include ({', '.join(nowhere)}), or none that a user may see"


def _of(seen: VisibleTables, databases: set[str], expected: set[Name]) -> Iterator[str]:
    """Yield what the user of one endpoint may not see of these databases and of these tables."""
    yield from partly_seen(seen.endpoint, seen.grants, databases, "looked at")
    shown = {(database.lower(), table.lower()) for database, table in seen.tables}
    for database, table in sorted(expected):
        hidden = (database.lower(), table.lower()) not in shown and not seen.grants.allows("SELECT", database, table)
        if hidden and database not in databases:
            yield (
                f"{seen.endpoint.name}: {seen.endpoint.user} may not read {database}.{table}, so it is not looked at:"
                f" GRANT SELECT ON {quote_name(database)}.{quote_name(table)}"
            )
