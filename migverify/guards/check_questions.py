"""All questions of the settings guard as data: what is asked of whom, for which work, what is wanted, and why."""

from __future__ import annotations

from collections.abc import Sequence

from migverify.guards import check_basics as basics
from migverify.guards import check_feeds as feeds
from migverify.guards import check_grants as grants
from migverify.guards import check_settings as settings
from migverify.guards import check_tables as tables
from migverify.guards.check_binlog import binlog
from migverify.guards.check_model import ALL, MOVING, READING, Of, Question, Work
from migverify.sql import settings as sql
from migverify.sql.server import CLOCK

_CUTOVER = frozenset({Work.CUTOVER})
_FOLLOWING = frozenset({Work.CHANGES, Work.CUTOVER})


def _variable(name: str) -> str:
    return f"SHOW GLOBAL VARIABLES LIKE '{name}'"


QUESTIONS: tuple[Question, ...] = (
    Question(
        "reachable", Of.EACH, ALL, "the server answers and lets the user in", "SELECT VERSION()",
        "What does not answer now will not answer in the middle of the night.",
        "Check host, port, firewalls, user and password.", basics.reachable, others=True,
    ),
    Question(
        "tls", Of.EACH, ALL, "TLSv1.2 or later, a verified certificate that lasts 14 days at least",
        "SHOW SESSION STATUS LIKE 'Ssl_%'",
        "In clear, passwords and rows can be read by anybody between; a certificate that ends cuts every connection.",
        "Turn TLS on at the server; where the network is trusted, say so with tls.mode: disabled.",
        basics.encryption, others=True,
    ),
    Question(
        "version", Of.EACH, ALL, "no version with known damage", "SELECT VERSION()",
        "Some releases lose data or were withdrawn; others lack what a verification relies on.",
        "Upgrade before the work begins, or read from a replica of another version.", basics.version, others=True,
    ),
    Question(
        "replicator", Of.SOURCE, _FOLLOWING, "a version that DM is known to read", "SELECT VERSION()",
        "A replicator that does not know the binlog of this version stops, or leaves changes out.",
        "Rehearse the replication with exactly these versions.", basics.replicator,
    ),
    Question(
        "grants-tables", Of.EACH, READING, "SELECT on every table in scope", "SHOW GRANTS",
        "What a user may not read looks like a table that is not there.",
        "GRANT SELECT on the databases in scope (see docs/privileges.md).", grants.tables,
    ),
    Question(
        "grants-changes", Of.SOURCE, _FOLLOWING, "REPLICATION SLAVE, REPLICATION CLIENT on *.*", "SHOW GRANTS",
        "Without them nobody follows the source's writes.",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user.", grants.changes,
    ),
    Question(
        "grants-workload", Of.EACH, frozenset({Work.WORKLOAD}), "SELECT and SHOW VIEW on everything in scope, PROCESS",
        "SHOW GRANTS", "A replayed statement that is refused tells nothing of the server; a capture sees too little.",
        "GRANT SELECT, SHOW VIEW on the databases in scope, PROCESS ON *.*.", grants.workload,
    ),
    Question(
        "grants-repair", Of.TARGET, frozenset({Work.TABLES, Work.CUTOVER}),
        "INSERT, UPDATE, DELETE on every table in scope", "SHOW GRANTS",
        "Without them `repair --apply` is refused in the hour when it is needed.",
        "GRANT INSERT, UPDATE, DELETE on the databases in scope.", grants.repair,
    ),
    Question(
        "grants-excess", Of.EACH, ALL, "a source's user only reads, the target's administers nothing", "SHOW GRANTS",
        "What a user may not do, no mistake of a tool or of a person can do.",
        "Use a user of its own with SELECT only (see docs/privileges.md).", grants.excess,
    ),
    Question(
        "sql-mode", Of.PAIR, ALL, "equal", _variable("sql_mode"),
        "Another mode stores other values for the same statement: it cuts, rounds, or refuses.",
        "Set the target's to the source's.", pair=settings.sql_mode,
    ),
    Question(
        "charset", Of.PAIR, MOVING, "equal defaults", _variable("collation_server"),
        "Where nothing is said, new tables and texts in statements compare by other rules.",
        "Spell CHARACTER SET and COLLATE out.", pair=settings.charset,
    ),
    Question(
        "collations", Of.PAIR, frozenset({Work.TABLES, Work.RECON, *MOVING}), "equal columns have equal collations",
        sql.COLUMNS,
        "Under another collation a unique key takes other texts as equal, and a lookup finds other rows.",
        "ALTER TABLE ... MODIFY ... COLLATE on the target, or look for texts that meet (GROUP BY ... HAVING).",
        pair=tables.collations,
    ),
    Question(
        "collations-known", Of.PAIR, MOVING, "the target knows every collation of the source's columns", sql.COLLATIONS,
        "CREATE TABLE with a collation that is not known is refused, or becomes another one.",
        "Choose a collation that both know before the schema moves.", pair=tables.collations_known,
    ),
    Question(
        "time-zone", Of.PAIR, ALL, "equal offsets in winter and summer", sql.ZONE_OFFSETS,
        "NOW(), TIMESTAMP columns and defaults give other times to sessions that set no zone.",
        "SET GLOBAL time_zone to the same offset on both; SYSTEM means what the host means.", pair=basics.time_zone,
    ),
    Question(
        "named-zones", Of.PAIR, MOVING, "both servers know zones by name", sql.NAMED_ZONES,
        "CONVERT_TZ with a name gives NULL where zones are not loaded, and SET time_zone with a name is refused.",
        "Load them: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql", pair=basics.named_zones,
    ),
    Question(
        "clock", Of.EACH, ALL, f"within {basics.CLOCK_SECONDS:g} s", CLOCK,
        "Lag, settle times, deadlines and the order of evidence are judged by clocks.",
        "Let all hosts follow the same time source.", basics.clock, basics.clock_pair, others=True,
    ),
    Question(
        "binlog", Of.SOURCE, _FOLLOWING, "every condition of `migverify changes check`", sql.VARIABLES,
        "The binlog proves what was written, if it holds everything and is kept until it was read.",
        "See docs/changes.md.", binlog,
    ),
    Question(
        "max-allowed-packet", Of.PAIR, ALL, "the target's at least the source's", _variable("max_allowed_packet"),
        "A larger statement or row is refused by the target alone.", "Raise the target's.", pair=settings.packet,
    ),
    Question(
        "row-size", Of.PAIR, _CUTOVER, "no type that holds more than TiDB stores in a row", sql.ENTRY_SIZE,
        "TiDB refuses a larger row (error 8025), on replication and for the application.",
        "Raise performance.txn-entry-size-limit, at most 120 MiB, or keep such values elsewhere.", pair=tables.row_size,
    ),
    Question(
        "isolation", Of.PAIR, MOVING, "equal, and one that TiDB has", _variable("transaction_isolation"),
        "Another isolation lets transactions see other rows: lost updates and phantoms that no test of one user shows.",
        "Set both alike, or let the application set its own.", pair=settings.isolation,
    ),
    Question(
        "other-settings", Of.PAIR, MOVING, "equal, or at least the source's", sql.VARIABLES,
        "The same statement behaves otherwise.", "Set the target's to the source's.", pair=settings.other_settings,
    ),
    Question(
        "auto-increment", Of.PAIR, MOVING, "equal step and offset", _variable("auto_increment_%"),
        "With another step or offset two writers give out one id, or an application meets gaps that it did not expect.",
        "Set both alike.", pair=settings.auto_increment,
    ),
    Question(
        "scope", Of.SOURCE, ALL, "every pattern of tables.include matches, and one table at least",
        sql.TABLES,
        "What is not in scope is not verified, and nobody notices.",
        "Correct tables.include, or grant SELECT: tables without a grant cannot be seen.", tables.scope,
    ),
    Question(
        "tables-present", Of.PAIR, ALL, "every table in scope is on the target",
        sql.TABLES,
        "A table that is missing takes no writes, and has no rows to compare.",
        "Create them from the source's definitions, or correct routes.", pair=tables.present,
    ),
    Question(
        "keys", Of.EACH, ALL, "a primary key, or a unique key without NULL, in every table",
        sql.INDEXES,
        "Rows that nothing tells apart cannot be followed, may be applied twice, and TiCDC leaves them out.",
        "Add a primary key; else compare these tables whole at the end, and plan without a way back.", tables.keys,
    ),
    Question(
        "engines", Of.SOURCE, ALL, "InnoDB", sql.TABLES,
        "Writes to other engines are not undone with the transaction, and no snapshot holds them still.",
        "ALTER TABLE ... ENGINE = InnoDB.", tables.engines,
    ),
    Question(
        "types", Of.PAIR, MOVING, "nothing that TiDB does not have",
        sql.COLUMNS,
        "CREATE TABLE is refused by TiDB, and the application's queries on them too.",
        "Convert the columns and move the queries elsewhere before the schema moves.", pair=tables.types,
    ),
    Question(
        "names", Of.PAIR, ALL, "no two names that differ in case alone", _variable("lower_case_table_names"),
        "TiDB finds names without regard to case: of two such tables one has no room, and rows would mix.",
        "Rename one of them, or route it elsewhere.", pair=tables.names,
    ),
    Question(
        "foreign-keys", Of.PAIR, _CUTOVER, "those of the source, enforced",
        sql.FOREIGN_KEYS,
        "A key that is not enforced lets orphans in, and a cascade that is missing leaves rows behind.",
        "Add them on the target once the data is there, and look for orphans.", pair=tables.foreign_keys,
    ),
    Question(
        "checks", Of.PAIR, _CUTOVER, "enforced by the target",
        sql.CONSTRAINTS,
        "TiDB drops CHECK constraints with a warning while tidb_enable_check_constraint is off.",
        "SET GLOBAL tidb_enable_check_constraint = ON; before the tables are made there.", pair=tables.checks,
    ),
    Question(
        "triggers", Of.SOURCE, MOVING, "none", sql.TRIGGERS,
        "TiDB runs no triggers: what they wrote is not written any more, from the cutover on.",
        "Move what they do into the application, prove it by replay, then skip this question.", tables.triggers,
    ),
    Question(
        "events", Of.SOURCE, MOVING, "none that is enabled", sql.EVENTS,
        "TiDB runs no events; on the source they go on writing after the cutover.",
        "Move them to a scheduler outside, and disable them on the source at the cutover.", tables.events,
    ),
    Question(
        "routines", Of.SOURCE, MOVING, "none", sql.ROUTINES,
        "TiDB has no stored procedures and functions: CALL is refused with error 8108, a function with 1305.",
        "Move them into the application; `workload digest` tells which are called.", tables.routines,
    ),
    Question(
        "views", Of.PAIR, MOVING, "those of the source",
        sql.VIEWS,
        "No replicator moves views, and TiDB's cannot be written to.",
        "CREATE VIEW on the target; write to the tables themselves.", pair=tables.views,
    ),
    Question(
        "tidb-variables", Of.TARGET, MOVING, "values that behave as MySQL does", sql.VARIABLES,
        "These decide how TiDB behaves.", "See each.", settings.tidb_variables,
    ),
    Question(
        "new-collations", Of.TARGET, ALL, "`a` equals `A` under utf8mb4_general_ci", sql.NEW_COLLATIONS,
        "Without them TiDB compares bytes, whatever a collation is called; fixed when a cluster is made.",
        "Make the cluster anew with new_collations_enabled_on_first_bootstrap: true.", settings.new_collations,
    ),
    Question(
        "gc-life-time", Of.EACH, frozenset({Work.TABLES, Work.RECON, Work.CUTOVER}), "longer than a verification takes",
        _variable("tidb_gc_life_time"),
        "A read as of a moment that garbage collection has passed ends with error 8055, and begins again from nothing.",
        "SET GLOBAL tidb_gc_life_time to more than that for as long as the work goes on.", feeds.gc_life_time,
    ),
    Question(
        "gc-safe-point", Of.EACH, frozenset({Work.TABLES, Work.RECON, Work.CUTOVER}), "less than 24 h old",
        sql.TIDB_STATE,
        "A safe point that stands still (a changefeed, a backup, a long transaction) keeps every old version: disk and"
        " reads suffer.",
        "Look for what holds it: pd-ctl service-gc-safepoint, and open transactions.", feeds.safe_point,
    ),
    Question(
        "connections", Of.EACH, ALL, "room for `connections` of the configuration, and 20 % left", sql.CONNECTED,
        "Where no connection is left, the verification stops, or takes those of the application.",
        "Lower `connections`, or raise max_connections.", basics.connections, others=True,
    ),
    Question(
        "statistics", Of.TARGET, MOVING, f"every table with rows analyzed, health of {feeds.HEALTHY_WELL} or more",
        sql.STATISTICS, "Without statistics TiDB chooses plans by guess: the first hour after a cutover is the worst.",
        "ANALYZE TABLE on the tables named.", feeds.statistics,
    ),
    Question(
        "disk", Of.EACH, ALL, f"every store up, and {basics.DISK_LEFT:.0%} of it left", sql.STORES,
        "Stores that are nearly full refuse writes and move regions about.",
        "Add stores, or make room, before the load begins.", basics.disk,
    ),
    Question(
        "dm", Of.TARGET, _FOLLOWING, f"checkpoints written within {feeds.STALE_SECONDS} s", sql.CHECKPOINT_TABLES,
        "A task that stands still leaves the target behind; on a quiet source its checkpoint ages as well.",
        "Look at it: dmctl query-status TASK.", feeds.data_migration,
    ),
    Question(
        "ticdc", Of.TARGET, _CUTOVER, f"every changefeed normal, its checkpoint within {feeds.STALE_SECONDS} s",
        "GET /api/v2/changefeeds", "The way back is as good as the feed that keeps the old side current.",
        "Look at it: cdc cli changefeed query -c ID.", feeds.ticdc,
    ),
)  # fmt: skip


def chosen(
    only: Sequence[str] = (), skip: Sequence[str] = (), work: Sequence[Work] = ()
) -> tuple[tuple[Question, ...], list[str]]:
    """Return the questions that are to be asked, and names that no question has."""
    names = {question.name for question in QUESTIONS}
    unknown = [name for name in (*only, *skip) if name not in names]
    wanted = [
        question
        for question in QUESTIONS
        if (not only or question.name in only) and question.name not in skip and (not work or question.work & set(work))
    ]
    return tuple(wanted), unknown
