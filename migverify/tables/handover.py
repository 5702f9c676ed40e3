"""From one direction to the other: what the sources' binlogs hold after the place where a forward watch ended.

A forward watch proves everything up to its last place. Before the target is opened for writes, something may have been
written on a source behind that place: by a client that was not stopped, or because the watch ended before the writes
did. The reverse watch reads it, so that nothing lies unread between the two.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from migverify.changes.decode import count_rows
from migverify.changes.model import Item, Position, Rows, Statement
from migverify.changes.source import read_server
from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.errors import PlanError
from migverify.figures import amount
from migverify.model import Endpoint, KeyText, RunInfo
from migverify.tables.run_facts import THROUGH
from migverify.tables.tasks import Secrets
from migverify.tables.watch_identity import Watched
from migverify.watch.ledger import Ledger
from migverify.watch.stream import FollowedBinlog, concerned
from migverify.watch.touched import leaves_rows, touched_keys

KEYS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class UnreadChanges:
    """What was written in watched tables behind the end of a forward watch: rows, and statements by table pair."""

    rows: int = 0
    statements: int = 0

    def __str__(self) -> str:
        return f"{amount(self.rows, 'row')} and {amount(self.statements, 'statement')}"

    def as_text(self, forward: str) -> str:
        """Return it as JSON, with the forward watch and the present time."""
        return json.dumps({"forward": forward, "at": time.time(), **asdict(self)})


def through_of(run: RunInfo, name: str) -> Position:
    """Return the place up to which a watch had read a source when it ended.

    Raises
    ------
    PlanError
        it has not ended, or an earlier release wrote it.
    """
    place = run.facts.get(THROUGH, {}).get(name)
    if not place:
        raise PlanError(
            f"watch {run.run_id} did not record up to which place it read {name}: it has not ended",
            hint=f"End it first: migverify tables watch --resume {run.run_id} --until-drained",
        )
    return Position(str(place["file"]), int(place["offset"]), str(place["gtids"]))


def read_unread(
    config: Config, secrets: Secrets, run: RunInfo, watched: Sequence[Watched], pool: SessionPool, ledger: Ledger
) -> UnreadChanges:
    """Put into a ledger what was written on the sources behind the end of a watch; ``watched`` are the sources' tables.

    Raises
    ------
    ChangeError
        a binlog cannot be read from there on: purged, damaged.
    """
    total = UnreadChanges()
    for endpoint in config.sources:
        tables = {(w.database, w.table): w for w in watched if w.endpoint == endpoint.name}
        rows, statements = 0, 0
        keys: dict[tuple[int, KeyText], tuple[int, int, int]] = {}
        there: set[tuple[int, KeyText]] = set()
        for item in _behind(endpoint, secrets, through_of(run, endpoint.name), pool):
            if isinstance(item, Statement):
                statements += _note(item, tables, ledger, endpoint.name)
            elif isinstance(item, Rows) and (one := tables.get((item.table.database, item.table.table))) is not None:
                if not one.names:
                    rows += count_rows(item)
                    ledger.note(one.number, "keyless", "rows were written, and the table has no key to read them by")
                    continue
                for key, is_row in zip(touched_keys(one, item), leaves_rows(item), strict=False):
                    rows += 1
                    keys[one.number, key] = (1, 0, 0)
                    (there.add if is_row else there.discard)((one.number, key))
                if len(keys) >= KEYS_AT_ONCE:
                    ledger.touch(keys, {}, time.time(), origin=f"after run {run.run_id}", there=there)
                    keys, there = {}, set()
        ledger.touch(keys, {}, time.time(), origin=f"after run {run.run_id}", there=there)
        total = UnreadChanges(total.rows + rows, total.statements + statements)
    return total


def _behind(endpoint: Endpoint, secrets: Secrets, since: Position, pool: SessionPool) -> Iterator[Item]:
    binlog = FollowedBinlog(endpoint, secrets.get(endpoint.name))
    with pool.session(endpoint) as session:
        end = binlog.head(session)
    if binlog.ordinal(end) > binlog.ordinal(since):
        yield from read_server(
            endpoint, binlog.password, since, until=Position(end.file, end.offset), follow=False, any_table=True
        )


def _note(item: Statement, tables: Mapping[tuple[str, str], Watched], ledger: Ledger, name: str) -> int:
    found = list(concerned(item, tables.values()))
    for one in found:
        ledger.note(one.number, "stale", f"{name}: a statement behind the end of the forward watch: {item.op.value}")
    return len(found)
