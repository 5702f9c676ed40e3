"""The hidden writers: what each one is, what would confirm it, what helps against it. Data; the docs are tested."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class HiddenWriter:
    """One kind of hidden writer."""

    name: str
    meaning: str
    confirm: str
    remedy: str


_CAUSES = (
    HiddenWriter(
        "ddl",
        "A schema change ran while the transaction was open, or wrote the key itself.",
        "ADMIN SHOW DDL JOBS for the time of the overlap; the job's START_TIME and END_TIME must lie across it.",
        "Keep tidb_enable_metadata_lock on; run DDL outside of busy hours; retry the whole transaction.",
    ),
    HiddenWriter(
        "expired lock",
        "The transaction's own lock was gone when it committed: it had outlived its time to live, or was treated"
        " as dead, and another transaction that met it rolled it back.",
        "TiDB's log for 'ttlManager' or 'resolve lock' with this start TSO; pauses of the TiDB node; transactions"
        " longer than max-txn-ttl.",
        "Shorter transactions; no long pause between the last statement and COMMIT; retry the whole transaction.",
    ),
    HiddenWriter(
        "ttl",
        "A TTL job deleted rows that were due.",
        "mysql.tidb_ttl_job_history for this table and time; SHOW CREATE TABLE names the TTL column.",
        "Give TTL a window without traffic (tidb_ttl_job_schedule_window_start_time), or never write due rows.",
    ),
    HiddenWriter(
        "internal",
        "A statement of TiDB's own wrote the key (statistics, privileges, sequences, id allocation).",
        "The slow log's record with Is_internal: true and this Txn_start_ts.",
        "Nothing to change in the application; report it if it comes back often.",
    ),
    HiddenWriter(
        "replicator",
        "A replication tool (DM, TiCDC, a CDC or ETL job) wrote the same row.",
        "The replicator's log for this key and time; the user or program name of the session that wrote it.",
        "One writer a row: stop application writes to what is still replicated, or stop replication before them.",
    ),
    HiddenWriter(
        "own retry",
        "The statement was carried out again by TiDB itself and met its own earlier attempt.",
        "Exec_retry_count or Txn_retry in the slow log, 'retrying' in TiDB's log, for the same connection.",
        "Leave tidb_disable_txn_auto_retry on; use pessimistic transactions; retry in the application.",
    ),
    HiddenWriter(
        "timed-out client",
        "A client gave up waiting and asked again on another connection; its first statement went on in the server.",
        "The client's log for a timeout or a broken connection between both begins; the old session asks nothing "
        "after it.",
        "Client time limits above the server's (max_execution_time ends reads only); KILL the old connection before "
        "asking again; make the write idempotent.",
    ),
    HiddenWriter(
        "asynchronous commit",
        "The writer's client had its answer while the locks of its commit were still being cleared: the client is "
        "answered before the last key is committed.",
        "The writer's commit was answered before the reader began, and the reader's plan or slow-log record shows "
        "ResolveLock or txnLockFast.",
        "Nothing is wrong with the data. Smaller transactions; where a read must not wait, "
        "tidb_enable_async_commit = OFF and fewer keys a transaction.",
    ),
    HiddenWriter(
        "autocommit statement",
        "A statement outside of any transaction, of another session, is a transaction too.",
        "The slow log's record with this Txn_start_ts and IsExplicitTxn: false.",
        "SELECT ... FOR UPDATE first, or pessimistic transactions; retry on 9007.",
    ),
    HiddenWriter(
        "other transaction",
        "Another session's transaction wrote the same key: plain concurrency.",
        "The slow log's records with this Txn_start_ts.",
        "Pessimistic transactions (tidb_txn_mode); keep transactions short; retry on 9007.",
    ),
)

CAUSES = {cause.name: cause for cause in _CAUSES}
REMEDY_UNKNOWN = (
    "Give more evidence: TiDB's log and slow log of every TiDB node for the time of the overlap"
    " (tidb_slow_log_threshold = 0 for a while), and the capture of the clients."
)
REPLICATORS = ("dm-worker", "dm_worker", "dm", "syncer", "ticdc", "cdc", "drainer", "canal", "debezium", "maxwell",
               "replicator", "flink", "otter", "dts", "dms")  # fmt: skip
"""Words that name a replication tool as user or program."""
