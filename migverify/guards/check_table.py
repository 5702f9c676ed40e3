"""The table of questions of the settings guard: who is asked, before which work, what is wanted, why, and what to do.

A check is added by adding a row here, or one to ``check_parts`` where it belongs to a question. A judge is data
where possible (``Value``, ``Agree``, ``NoneOf``), else a function of ``check_basics``, ``check_grants``,
``check_tables``, ``check_binlog`` or ``check_feeds``. The tables of docs/check.md are generated from the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from migverify.guards import check_basics as basics
from migverify.guards import check_feeds as feeds
from migverify.guards import check_grants as grants
from migverify.guards import check_tables as tables
from migverify.guards.check_parts import BINLOG, MARIADB, MYSQL, OTHER_SETTINGS, TIDB, TIDB_VARIABLES, TYPES
from migverify.guards.check_rules import ALL, Agree, CheckQuestion, NoneOf, Of, Work, at_least
from migverify.sql import settings as sql
from migverify.sql.server import CLOCK, CONNECTIONS

MOVING = frozenset({Work.WORKLOAD, Work.CUTOVER})
"""Work in which applications meet the target."""
READING = frozenset({Work.TABLES, Work.CHANGES, Work.RECON, Work.CUTOVER})
_SNAPSHOTS = frozenset({Work.TABLES, Work.RECON, Work.CUTOVER})
_CUTOVER = frozenset({Work.CUTOVER})
_FOLLOWING = frozenset({Work.CHANGES, Work.CUTOVER})
_NOT_TIDB = MYSQL | MARIADB

QUESTIONS: tuple[CheckQuestion, ...] = (
    CheckQuestion(
        "reachable", "the server answers and lets the user in", "SELECT VERSION()",
        "An endpoint that does not answer now stops the work when it begins.",
        "Check host, port, firewalls, user and password.", basics.reachable, others=True, of=Of.EACH, work=ALL,
    ),
    CheckQuestion(
        "tls", "TLSv1.2 or later, a verified certificate that lasts 14 days at least",
        "SHOW SESSION STATUS LIKE 'Ssl_%'",
        "Without TLS, passwords and rows can be read on the network; an expired certificate refuses every connection.",
        "Turn TLS on at the server; where the network is trusted, set tls.mode: disabled.",
        basics.encryption, others=True, of=Of.EACH, work=ALL,
    ),
    CheckQuestion(
        "version", "no version with known damage", "SELECT VERSION()",
        "Some releases lose data or were withdrawn; others lack what a verification relies on.",
        "Upgrade before the work begins, or read from a replica of another version.", basics.version, others=True,
        of=Of.EACH, work=ALL,
    ),
    CheckQuestion(
        "replicator", "a version that DM is known to read", "SELECT VERSION()",
        "A replicator that does not know the binlog of this version stops, or leaves changes out.",
        "Rehearse the replication with exactly these versions.", basics.replicator, of=Of.SOURCE, work=_FOLLOWING,
    ),
    CheckQuestion(
        "grants-tables", "SELECT on every table in scope", "SHOW GRANTS",
        "A table that the user may not read looks as if it did not exist.",
        "GRANT SELECT on the databases in scope (see docs/privileges.md).", grants.tables, of=Of.EACH, work=READING,
    ),
    CheckQuestion(
        "grants-changes", "REPLICATION SLAVE, REPLICATION CLIENT on *.*", "SHOW GRANTS",
        "Without them the source's binlog cannot be read.",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user.", grants.changes,
        of=Of.SOURCE, work=_FOLLOWING, kinds=_NOT_TIDB,
    ),
    CheckQuestion(
        "grants-workload", "SELECT and SHOW VIEW on everything in scope, PROCESS",
        "SHOW GRANTS",
        "A replayed statement that is refused does not test the server; a capture sees too few sessions.",
        "GRANT SELECT, SHOW VIEW on the databases in scope, PROCESS ON *.*.", grants.workload,
        of=Of.EACH, work=frozenset({Work.WORKLOAD}),
    ),
    CheckQuestion(
        "grants-repair",
        "INSERT, UPDATE, DELETE on every table in scope", "SHOW GRANTS",
        "Without them `tables repair --apply` is refused when it is needed.",
        "GRANT INSERT, UPDATE, DELETE on the databases in scope.", grants.repair,
        of=Of.TARGET, work=frozenset({Work.TABLES, Work.CUTOVER}),
    ),
    CheckQuestion(
        "grants-excess", "a source's user only reads, the target's administers nothing", "SHOW GRANTS",
        "A privilege that the user lacks cannot be used by mistake.",
        "Use a user of its own with SELECT only (see docs/privileges.md).", grants.excess, of=Of.EACH, work=ALL,
    ),
    CheckQuestion(
        "sql-mode", "equal", sql.global_variable("sql_mode"),
        "Another mode stores other values for the same statement: it cuts, rounds, or refuses.",
        "Set the target's to the source's.", pair=basics.sql_mode, of=Of.PAIR, work=ALL,
    ),
    CheckQuestion(
        "charset", "equal defaults", sql.global_variable("collation_server"),
        "New tables and literals that name no collation compare by other rules.",
        "Spell CHARACTER SET and COLLATE out.", pair=basics.charset, of=Of.PAIR, work=MOVING,
    ),
    CheckQuestion(
        "collations", "equal columns have equal collations",
        sql.COLUMNS,
        "Under another collation a unique key takes other texts as equal, and a lookup finds other rows.",
        "ALTER TABLE ... MODIFY ... COLLATE on the target, or look for values that become equal (GROUP BY ... HAVING"
        " COUNT(*) > 1).",
        pair=tables.collations, of=Of.PAIR, work=frozenset({Work.TABLES, Work.RECON, *MOVING}),
    ),
    CheckQuestion(
        "collations-known", "the target knows every collation of the source's columns", sql.COLLATIONS,
        "CREATE TABLE with a collation that is not known is refused, or becomes another one.",
        "Choose a collation that both know before the schema moves.", pair=tables.collations_known,
        of=Of.PAIR, work=MOVING,
    ),
    CheckQuestion(
        "time-zone", "equal offsets in winter and summer", sql.ZONE_OFFSETS,
        "NOW(), TIMESTAMP columns and defaults give other times to sessions that set no zone.",
        "SET GLOBAL time_zone to the same offset on both; SYSTEM means what the host means.", pair=basics.time_zone,
        of=Of.PAIR, work=ALL,
    ),
    CheckQuestion(
        "named-zones", "both servers know zones by name", sql.NAMED_ZONES,
        "CONVERT_TZ with a name gives NULL where zones are not loaded, and SET time_zone with a name is refused.",
        "Load them: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql", pair=basics.named_zones,
        of=Of.PAIR, work=MOVING,
    ),
    CheckQuestion(
        "clock", f"within {basics.CLOCK_SECONDS:g} s", CLOCK,
        "Lag, settle times, deadlines and the order of evidence are judged by clocks.",
        "Let all hosts follow the same time source.", basics.clock, pair=basics.clock_pair, others=True,
        of=Of.EACH, work=ALL,
    ),
    CheckQuestion(
        "binlog", "every condition of `migverify changes check`", sql.VARIABLES,
        "The binlog proves what was written, if it holds everything and is kept until it was read.",
        "See docs/changes.md.", of=Of.SOURCE, work=_FOLLOWING, kinds=MYSQL,
        parts=tuple(row for row in BINLOG if not row.alone),
    ),
    CheckQuestion(
        "max-allowed-packet", "the target's at least the source's", sql.global_variable("max_allowed_packet"),
        "A larger statement or row is refused by the target alone.", "Raise the target's.",
        pair=Agree("max_allowed_packet", at_least, required=True, unit="bytes"), of=Of.PAIR, work=ALL,
    ),
    CheckQuestion(
        "row-size", "no type that holds more than TiDB stores in a row", sql.ENTRY_SIZE,
        "TiDB refuses a larger row (error 8025), on replication and for the application.",
        "Raise performance.txn-entry-size-limit, at most 120 MiB, or keep such values elsewhere.", pair=tables.row_size,
        of=Of.PAIR, work=_CUTOVER, kinds=TIDB,
    ),
    CheckQuestion(
        "isolation", "equal, and one that TiDB has", sql.global_variable("transaction_isolation"),
        "Another isolation lets transactions see other rows: lost updates and phantoms that no test of one user shows.",
        "Set both to the same value, or let the application set its own.", pair=basics.isolation,
        of=Of.PAIR, work=MOVING,
    ),
    CheckQuestion(
        "other-settings", "equal, or at least the source's", sql.VARIABLES,
        "The same statement behaves otherwise.", "Set the target's to the source's.",
        of=Of.PAIR, work=MOVING, parts=OTHER_SETTINGS,
    ),
    CheckQuestion(
        "auto-increment", "equal step and offset", sql.global_variable("auto_increment_%"),
        "With another step or offset two writers give out one id, or an application gets gaps that it does not expect.",
        "Set both to the same values.", pair=basics.auto_increment, of=Of.PAIR, work=MOVING,
    ),
    CheckQuestion(
        "scope", "every pattern of tables.include matches, and one table at least",
        sql.TABLES,
        "A table outside the scope is not verified, without any message.",
        "Correct tables.include, or grant SELECT: tables without a grant cannot be seen.", tables.scope,
        of=Of.SOURCE, work=ALL,
    ),
    CheckQuestion(
        "tables-present", "every table in scope is on the target",
        sql.TABLES,
        "A table that is missing takes no writes, and has no rows to compare.",
        "Create them from the source's definitions, or correct routes.", pair=tables.present, of=Of.PAIR, work=ALL,
    ),
    CheckQuestion(
        "keys", "a primary key, or a unique key without NULL, in every table",
        sql.INDEXES,
        "Rows that cannot be distinguished cannot be followed, may be applied twice, and TiCDC leaves them out.",
        "Add a primary key; else compare these tables whole at the end, and plan without a rollback.",
        NoneOf(tables.without_key), of=Of.EACH, work=ALL,
    ),
    CheckQuestion(
        "engines", "InnoDB", sql.TABLES,
        "Writes to other engines are not undone with the transaction, and no snapshot holds them still.",
        "ALTER TABLE ... ENGINE = InnoDB.", NoneOf(tables.of_other_engines), of=Of.SOURCE, work=ALL,
    ),
    CheckQuestion(
        "types", "nothing that TiDB does not have",
        sql.COLUMNS,
        "CREATE TABLE is refused by TiDB, and the application's queries on them too.",
        "Convert the columns and move the queries elsewhere before the schema moves.",
        of=Of.PAIR, work=MOVING, kinds=TIDB, parts=TYPES,
    ),
    CheckQuestion(
        "names", "no two names that differ in case alone", sql.global_variable("lower_case_table_names"),
        "TiDB compares names without case: both tables would become one, and their rows would mix.",
        "Rename one of them, or route it elsewhere.", pair=tables.names, of=Of.PAIR, work=ALL,
    ),
    CheckQuestion(
        "foreign-keys", "those of the source, enforced",
        sql.FOREIGN_KEYS,
        "A key that is not enforced lets orphans in, and a cascade that is missing leaves rows behind.",
        "Add them on the target once the data is there, and look for orphans.", pair=tables.foreign_keys,
        of=Of.PAIR, work=_CUTOVER,
    ),
    CheckQuestion(
        "checks", "enforced by the target",
        sql.CHECKS,
        "TiDB drops CHECK constraints with a warning while tidb_enable_check_constraint is off.",
        "SET GLOBAL tidb_enable_check_constraint = ON; before the tables are made there.", pair=tables.checks,
        of=Of.PAIR, work=_CUTOVER,
    ),
    CheckQuestion(
        "triggers", "none", sql.TRIGGERS,
        "TiDB runs no triggers: what they wrote is not written any more, from the cutover on.",
        "Move what they do into the application, prove it by replay, then skip this question.",
        NoneOf(tables.triggers, unseen=tables.unseen_triggers), of=Of.SOURCE, work=MOVING, kinds=_NOT_TIDB,
    ),
    CheckQuestion(
        "events", "none that is enabled", sql.EVENTS,
        "TiDB runs no events; on the source they go on writing after the cutover.",
        "Move them to a scheduler outside, and disable them on the source at the cutover.",
        NoneOf(tables.events, among="database", unseen=tables.unseen_events),
        of=Of.SOURCE, work=MOVING, kinds=_NOT_TIDB,
    ),
    CheckQuestion(
        "routines", "none", sql.ROUTINES,
        "TiDB has no stored procedures and functions: CALL is refused with error 8108, a function with 1305.",
        "Move them into the application; `workload digest` lists which are called.",
        NoneOf(tables.routines, among="database", unseen=tables.unseen_routines),
        of=Of.SOURCE, work=MOVING, kinds=_NOT_TIDB,
    ),
    CheckQuestion(
        "views", "those of the source",
        sql.VIEWS,
        "No replicator moves views, and TiDB's cannot be written to.",
        "CREATE VIEW on the target; write to the tables themselves.", pair=tables.views, of=Of.PAIR, work=MOVING,
    ),
    CheckQuestion(
        "tidb-variables", "values that behave as MySQL does", sql.VARIABLES,
        "They decide whether TiDB behaves as MySQL does.", "See each.",
        of=Of.TARGET, work=MOVING, kinds=TIDB, parts=TIDB_VARIABLES,
    ),
    CheckQuestion(
        "new-collations", "`a` equals `A` under utf8mb4_general_ci", sql.NEW_COLLATIONS,
        "Without them TiDB compares bytes under any collation; fixed when a cluster is made.",
        "Make the cluster anew with new_collations_enabled_on_first_bootstrap: true.", basics.new_collations,
        of=Of.TARGET, work=ALL, kinds=TIDB,
    ),
    CheckQuestion(
        "gc-life-time", "longer than a verification takes",
        sql.global_variable("tidb_gc_life_time"),
        "A read as of a moment that garbage collection has passed ends with error 8055, and begins again from nothing.",
        "SET GLOBAL tidb_gc_life_time to more than that for as long as the work goes on.", feeds.gc_life_time,
        of=Of.EACH, work=_SNAPSHOTS, kinds=TIDB,
    ),
    CheckQuestion(
        "gc-safe-point", "less than 24 h old",
        sql.TIDB_STATE,
        "A safe point that does not advance (a changefeed, a backup, a long transaction) keeps every old version: disk"
        " and reads suffer.",
        "Look for what holds it: pd-ctl service-gc-safepoint, and open transactions.", feeds.safe_point,
        of=Of.EACH, work=_SNAPSHOTS, kinds=TIDB,
    ),
    CheckQuestion(
        "connections", "`connections` of the configuration are free, and 20 % more", CONNECTIONS,
        "Where none is left, the verification stops, or takes connections from the application.",
        "Lower `connections`, or raise max_connections.", basics.connections, others=True, of=Of.EACH, work=ALL,
    ),
    CheckQuestion(
        "statistics", f"every table with rows analyzed, health of {feeds.HEALTHY_WELL} or more",
        sql.STATISTICS,
        "Without statistics TiDB chooses plans by guess: the first hour after a cutover is the slowest.",
        "ANALYZE TABLE on the tables named.", feeds.statistics, of=Of.TARGET, work=MOVING, kinds=TIDB,
    ),
    CheckQuestion(
        "disk", f"every store up, and {basics.DISK_LEFT:.0%} of it left", sql.STORES,
        "Stores that are nearly full refuse writes and move regions about.",
        "Add stores, or free space, before the load begins.", basics.disk, of=Of.EACH, work=ALL, kinds=TIDB,
    ),
    CheckQuestion(
        "dm", f"checkpoints written within {feeds.STALE_SECONDS} s", sql.CHECKPOINT_TABLES,
        "A task that does not advance leaves the target behind; on a quiet source its checkpoint ages as well.",
        "Look at it: dmctl query-status TASK.", feeds.data_migration, of=Of.TARGET, work=_FOLLOWING,
    ),
    CheckQuestion(
        "ticdc", f"every changefeed normal, its checkpoint within {feeds.STALE_SECONDS} s",
        "GET /api/v2/changefeeds", "A rollback is as good as the feed that keeps the old side current.",
        "Look at it: cdc cli changefeed query -c ID.", feeds.ticdc, of=Of.TARGET, work=_CUTOVER,
    ),
)  # fmt: skip


PREFLIGHT = CheckQuestion("", parts=BINLOG, kinds=MYSQL)
"""What `migverify changes check` asks."""


def chosen(
    only: Sequence[str] = (), skip: Sequence[str] = (), work: Sequence[Work] = ()
) -> tuple[tuple[CheckQuestion, ...], list[str]]:
    """Return the questions that are to be asked, and names that no question has."""
    names = {question.name for question in QUESTIONS}
    unknown = [name for name in (*only, *skip) if name not in names]
    wanted = [
        question
        for question in QUESTIONS
        if (not only or question.name in only) and question.name not in skip and (not work or question.work & set(work))
    ]
    return tuple(wanted), unknown
