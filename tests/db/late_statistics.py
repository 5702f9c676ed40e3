"""Statistics of the target that tests rest on.

TiDB adds up the changes of its sessions and writes them once in 60 to 120 seconds: what was filled before ``ANALYZE``
can be counted once more after it, and the statistics are stale then by as many changes as there are rows. The remedy is
the one that is printed to users.
"""

from __future__ import annotations

import re

from tests.conftest import Databases
from tests.waiting import wait_for

ROWS = 10_000
LATE = re.compile(
    rf"has stale statistics: {ROWS:,} changes since they were taken, \S+ rows: (ANALYZE TABLE `\w+`\.`\w+`)"
)


def analyzed(databases: Databases, table: str = "orders", *others: str) -> None:
    """Take statistics on the target until they are of all rows: the lab's storage gives a part of them at times."""
    show = f"SHOW STATS_META WHERE db_name = DATABASE() AND table_name = '{table}'"

    def whole() -> bool:
        databases.target(f"ANALYZE TABLE {', '.join((table, *others))}")
        return bool(databases.target(show)[0][5] == ROWS)

    wait_for(whole, "statistics of all rows", every=0.2)


def counted_late(databases: Databases, output: str) -> bool:
    """Tell whether a command found changes that were counted after ``ANALYZE``; take those statistics again then."""
    late = LATE.findall(output)
    if late:
        databases.target(*late)
    return bool(late)
