"""Hold one moment of a TiDB target for a whole run.

``snapshot: now`` in the configuration: a transaction is opened on the target, its start timestamp becomes the
``tidb_snapshot`` of every session of the run, and the transaction stays open until the run ends. TiDB's garbage
collection never passes the start of an open transaction (for at most ``tidb_gc_max_wait_time``, a day by default), so
the snapshot stays readable without a change to any global setting.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from migverify.config import Config
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, MigverifyError
from migverify.model import Flavor
from migverify.tables.engine import Secrets

NOW = "now"
TOUCH_SECONDS = 30.0


@contextmanager
def held_snapshot(config: Config, secrets: Secrets) -> Iterator[Config]:
    """Yield the configuration with ``snapshot: now`` replaced by a timestamp that is held meanwhile.

    Raises
    ------
    EndpointError
        the target is no TiDB, or cannot be reached.
    """
    if config.target.snapshot != NOW:
        yield config
        return
    current = replace(config.target, snapshot=None)
    with open_session(current, secrets.get(config.target.name)) as session:
        if session.flavor is not Flavor.TIDB:
            raise EndpointError(
                f"{config.target.name}: snapshot: now needs TiDB, and this is {session.flavor}",
                hint="Remove snapshot from the target.",
            )
        session.query("BEGIN")
        timestamp = session.query("SELECT TIDB_CURRENT_TSO()")[0][0]
        ended = threading.Event()
        keeper = threading.Thread(target=_touch, args=(session, ended), name="snapshot", daemon=True)
        keeper.start()
        try:
            yield replace(config, target=replace(config.target, snapshot=timestamp))
        finally:
            ended.set()
            keeper.join()


def _touch(session: Session, ended: threading.Event) -> None:
    """Keep the connection from being closed as idle.

    When it is lost all the same, a read of a snapshot that garbage collection passed fails with a message of its own
    (8055), so nothing wrong is ever read.
    """
    while not ended.wait(TOUCH_SECONDS):
        try:
            session.query("SELECT 1")
        except MigverifyError:
            return
