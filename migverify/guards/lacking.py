"""What the configured users lack: the grants that commands need, compared with what the servers list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from migverify.config import Config, database_patterns
from migverify.db.session import open_session
from migverify.model import Endpoint, Flavor, Side
from migverify.secrets import resolve_password
from migverify.sql.grants import check_grants, names_are_literal
from migverify.sql.privileges import Scopes, missing, statements, wanted_for
from migverify.sql.settings import version_number


@dataclass(frozen=True, slots=True)
class Lacking:
    """What the user of one endpoint lacks: privileges by the object of ``GRANT ... ON``, and the statements."""

    endpoint: Endpoint
    account: str
    privileges: dict[str, tuple[str, ...]]
    statements: tuple[str, ...]


def lacking_grants(config: Config, endpoint: Endpoint, chosen: Sequence[str]) -> Lacking:
    """Return what the user of an endpoint lacks for commands; ``chosen`` empty: for all that write nothing.

    Raises
    ------
    EndpointError
        the server cannot be reached, or refuses the user.
    """
    plain = replace(endpoint, snapshot=None, resource_group=None)  # both may be what the user lacks a grant for
    side = Side.TARGET if endpoint.name == config.target.name else Side.SOURCE
    with open_session(plain, resolve_password(endpoint).reveal() or None) as session:
        held = check_grants(session)
        held = replace(held, literal=session.flavor is Flavor.MYSQL and names_are_literal(session))
        needs = wanted_for(chosen, side, session.flavor, version_number(session.version))
    databases = database_patterns(config, target=side is Side.TARGET)
    reverse = None if config.reverse is None else config.reverse.marker
    watch = config.watch
    scopes = Scopes(databases, watch.marker, watch.checkpoint, bool(endpoint.resource_group), reverse)
    lacking = missing(needs, held, scopes)
    return Lacking(endpoint, held.account, lacking, tuple(statements(lacking, held.account)))
