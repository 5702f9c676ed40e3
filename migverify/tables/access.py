"""Tell a table that is not there from one that the user may not see.

A server leaves tables without a grant out of its catalog, so they look as if that side lacked them: a MISMATCH that is
none. Asking for them by name tells the two apart. (Columns without a grant are refused where the catalog is read.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from migverify.db.session import Session
from migverify.errors import PrivilegeError, ReadError, RetryableReadError
from migverify.sql.catalog import access_sql
from migverify.tables.pairs import FoundPair


def refuse_hidden(found: Iterable[FoundPair], sources: Sequence[Session], target: Session) -> None:
    """Ask for every table that only one side shows.

    A lone table of the target is looked for under its own name on every source; a route backwards is not known.

    Raises
    ------
    PrivilegeError
        the user of the other side may not read it; the message names the user, the hint the grant.
    """
    for pair in found:
        if pair.target is None:
            _ask(target, *pair.name)
        elif not pair.sources:
            for session in sources:
                _ask(session, pair.target.ref.database, pair.target.ref.table)


def _ask(session: Session, database: str, table: str) -> None:
    try:
        session.query(access_sql(database, table))
    except (PrivilegeError, RetryableReadError):
        raise  # a killed query says nothing of the table
    except ReadError:
        return  # no such database or table: what the catalog said is true
