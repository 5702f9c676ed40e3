"""What is documented of isolation levels: which anomalies MySQL and TiDB permit under which.

Tried by M. Kleppmann's Hermitage (github.com/ept/hermitage, ``mysql.md``) and its repetition for TiDB
(github.com/dborchard/hermitage, ``tidb.md``), and stated in the TiDB manual ("TiDB Transaction Isolation Levels"):
TiDB's REPEATABLE READ is snapshot isolation; a pessimistic transaction's locking reads and writes see the newest
version. MySQL's REPEATABLE READ permits lost updates, its SERIALIZABLE locks what is read.
"""

from __future__ import annotations

from migverify.workload.anomalies.model import Anomaly, AnomalyName, CheckedHistory

_NAMES = frozenset(AnomalyName)
_COMMITTED = _NAMES - {
    AnomalyName.DIRTY_WRITE, AnomalyName.ABORTED_READ, AnomalyName.INTERMEDIATE_READ, AnomalyName.CIRCULAR,
}  # fmt: skip
PERMITTED: dict[tuple[str, str], frozenset[AnomalyName]] = {
    ("mysql", "READ UNCOMMITTED"): _NAMES - {AnomalyName.DIRTY_WRITE},
    ("mysql", "READ COMMITTED"): _COMMITTED,
    ("mysql", "REPEATABLE READ"): _COMMITTED,
    ("mysql", "SERIALIZABLE"): frozenset(),
    ("tidb", "READ COMMITTED"): _COMMITTED,
    ("tidb", "REPEATABLE READ"): _COMMITTED,
}
"""By flavor and level. MySQL's and TiDB's REPEATABLE READ permit read skew where a transaction reads its snapshot, and
then locks, updates or reads the newest version of a row."""


def documented(history: CheckedHistory, anomaly: Anomaly) -> str:
    """Say whether a server's documentation permits an anomaly; empty where nothing is known."""
    flavor = history.server.partition(" ")[0].lower()
    levels = [PERMITTED.get((flavor, level)) for level in anomaly.isolation]
    known = [level for level in levels if level is not None]
    if len(known) < len(levels) or not known:
        return ""
    names = f"{flavor} {' and '.join(anomaly.isolation)}"
    if any(anomaly.name in level for level in known):
        return f"documented for {names}"
    return f"NOT documented for {names}: report it to the vendor"
