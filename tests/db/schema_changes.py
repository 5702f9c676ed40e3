"""The matrix of planted changes: what is done to one side, where it must be found, and of which class it is."""

from __future__ import annotations

from typing import NamedTuple

from migverify.model import SchemaClass

BREAKS, LOSES, COSMETIC = SchemaClass.BREAKS_COMPARISON, SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC
# ruff: noqa: E501  (DDL reads better unbroken)

BASE = (
    "(id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, a INT DEFAULT 5, b VARCHAR(20) NOT NULL DEFAULT 'x', c DECIMAL(10,2),"
    " d DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, e ENUM('p','q'), g INT AS (a + 1) STORED, h INT UNSIGNED,"
    " p INT, s VARCHAR(9) COLLATE utf8mb4_general_ci COMMENT 'old', UNIQUE KEY ub (b), KEY ka (a), KEY kc (c, a) COMMENT 'old',"
    " CONSTRAINT {table}_fk FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)"
    " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='old'"
)


class Planted(NamedTuple):
    """A change on one side: where it must be found, and its class where the source and where the target was changed.

    None: that server refuses the change, or accepts it and does nothing. ``{}`` stands for the key's name on the source.
    """

    name: str
    sql: str
    path: str
    on_source: SchemaClass | None
    on_target: SchemaClass | None


CHANGES = (
    Planted("column added", "ALTER TABLE t ADD x INT", "columns.x", BREAKS, BREAKS),
    Planted("column dropped", "ALTER TABLE t DROP COLUMN h", "columns.h", BREAKS, BREAKS),
    Planted("type widened", "ALTER TABLE t MODIFY a BIGINT DEFAULT 5", "columns.a.type", LOSES, None),
    Planted("type widened on the target", "ALTER TABLE t MODIFY h BIGINT UNSIGNED", "columns.h.type", LOSES, COSMETIC),
    Planted("length", "ALTER TABLE t MODIFY b VARCHAR(40) NOT NULL DEFAULT 'x'", "columns.b.type", LOSES, COSMETIC),
    Planted("scale", "ALTER TABLE t MODIFY c DECIMAL(12,3)", "columns.c.type", LOSES, COSMETIC),
    Planted("sign", "ALTER TABLE t MODIFY h INT", "columns.h.type", LOSES, LOSES),
    Planted("fraction of a second", "ALTER TABLE t2 MODIFY d DATETIME(3)", "columns.d.type", LOSES, COSMETIC),
    Planted("nullability", "ALTER TABLE t MODIFY b VARCHAR(20) DEFAULT 'x'", "columns.b.nullability", LOSES, COSMETIC),
    Planted("default", "ALTER TABLE t ALTER a SET DEFAULT 6", "columns.a.default", LOSES, LOSES),
    Planted("no default", "ALTER TABLE t ALTER b DROP DEFAULT", "columns.b.default", LOSES, LOSES),
    Planted("on update", "ALTER TABLE t MODIFY d DATETIME DEFAULT CURRENT_TIMESTAMP", "columns.d.on_update", LOSES, LOSES),
    Planted("label added", "ALTER TABLE t MODIFY e ENUM('p','q','r')", "columns.e.members", LOSES, COSMETIC),
    Planted("generation", "ALTER TABLE t DROP COLUMN g, ADD g INT AS (a + 2) STORED AFTER e", "columns.g.generated", LOSES, None),
    Planted("collation", "ALTER TABLE t MODIFY s VARCHAR(9) COLLATE utf8mb4_bin COMMENT 'old'", "columns.s.collation", LOSES, LOSES),
    Planted("column comment", "ALTER TABLE t MODIFY s VARCHAR(9) COLLATE utf8mb4_general_ci COMMENT 'new'", "columns.s.comment", COSMETIC, COSMETIC),
    Planted("column order", "ALTER TABLE t MODIFY h INT UNSIGNED FIRST", "column_order", COSMETIC, COSMETIC),
    Planted("invisible column", "ALTER TABLE t ALTER COLUMN h SET INVISIBLE", "columns.h.visibility", COSMETIC, None),
    Planted("auto increment lost", "ALTER TABLE t MODIFY id BIGINT NOT NULL", "columns.id.auto", COSMETIC, None),
    Planted("key dropped", "ALTER TABLE t DROP KEY ka", "keys.ka", COSMETIC, COSMETIC),
    Planted("key added", "ALTER TABLE t ADD KEY kx (h)", "keys.kx", COSMETIC, COSMETIC),
    Planted("key renamed", "ALTER TABLE t RENAME KEY ka TO kz", "keys.{}.name", COSMETIC, COSMETIC),
    Planted("key hidden", "ALTER TABLE t ALTER INDEX ka INVISIBLE", "keys.ka.visibility", COSMETIC, COSMETIC),
    Planted("key comment", "ALTER TABLE t DROP KEY kc; ALTER TABLE t ADD KEY kc (c, a) COMMENT 'new'", "keys.kc.comment", COSMETIC, COSMETIC),
    Planted("key prefix", "ALTER TABLE t ADD KEY kp (b(5))", "keys.kp", COSMETIC, COSMETIC),
    Planted("key sorted down", "ALTER TABLE t DROP KEY ka, ADD KEY ka (a DESC)", "keys.ka.order", COSMETIC, None),
    Planted("unique key dropped", "ALTER TABLE t DROP KEY ub", "keys.ub", LOSES, LOSES),
    Planted("unique key added", "ALTER TABLE t ADD UNIQUE KEY ux (h)", "keys.ux", LOSES, LOSES),
    Planted("foreign key dropped", "ALTER TABLE t DROP FOREIGN KEY t_fk", "foreign_keys.t_fk", LOSES, LOSES),
    Planted("foreign key added", "ALTER TABLE t ADD CONSTRAINT t_fk2 FOREIGN KEY (a) REFERENCES parent (id)", "foreign_keys.t_fk2", LOSES, LOSES),
    Planted("foreign key rule", "ALTER TABLE t DROP FOREIGN KEY t_fk; ALTER TABLE t ADD CONSTRAINT t_fk FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL", "foreign_keys.t_fk.on_delete", LOSES, LOSES),
    Planted("check added", "ALTER TABLE t ADD CONSTRAINT t_ck CHECK (a > 3)", "checks.t_ck", LOSES, None),
    Planted("check not enforced", "ALTER TABLE t ADD CONSTRAINT t_ck CHECK (a > 3) NOT ENFORCED", "checks.t_ck", LOSES, None),
    Planted("trigger", "CREATE TRIGGER t_tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1", "triggers.t_tr", LOSES, None),
    Planted("table comment", "ALTER TABLE t COMMENT 'new'", "options.comment", COSMETIC, COSMETIC),
    Planted("table collation", "ALTER TABLE t DEFAULT COLLATE utf8mb4_general_ci", "options.collation", COSMETIC, COSMETIC),
    Planted("time to live", "ALTER TABLE t2 TTL = `d` + INTERVAL 3 MONTH", "attributes.ttl", None, LOSES),
    Planted("id cache", "ALTER TABLE t2 AUTO_ID_CACHE 100", "attributes.auto_id_cache", None, COSMETIC),
    Planted("row ids sharded", "ALTER TABLE t3 SHARD_ROW_ID_BITS = 4", "options.sharding", None, COSMETIC),
    Planted("partition dropped", "ALTER TABLE tp DROP PARTITION p1", "partitions.p1", COSMETIC, LOSES),
    Planted("partition added", "ALTER TABLE tp ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))", "partitions.p2", LOSES, COSMETIC),
    Planted("partitions removed", "ALTER TABLE tp REMOVE PARTITIONING", "partitions", LOSES, COSMETIC),
    Planted("hash partitions", "ALTER TABLE th COALESCE PARTITION 1", "partitions.p2", COSMETIC, COSMETIC),
    Planted("table dropped", "DROP TABLE t3", "table", BREAKS, BREAKS),
    Planted("table added", "CREATE TABLE t9 (id INT PRIMARY KEY)", "table", BREAKS, BREAKS),
    Planted("view", "CREATE VIEW v AS SELECT id FROM t", "view", LOSES, COSMETIC),
    Planted("procedure", "CREATE PROCEDURE pr() SELECT 1", "procedure", LOSES, None),
    Planted("function", "CREATE FUNCTION fu() RETURNS INT DETERMINISTIC RETURN 1", "function", LOSES, None),
    Planted("event", "CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1", "event", LOSES, None),
    Planted("sequence", "CREATE SEQUENCE sq", "sequence", None, COSMETIC),
)  # fmt: skip
OTHERS = (
    "CREATE TABLE parent (id INT PRIMARY KEY) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
    "CREATE TABLE t2 (id BIGINT AUTO_INCREMENT PRIMARY KEY, d DATETIME) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
    "CREATE TABLE t3 (a INT) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
    "CREATE TABLE tp (id INT PRIMARY KEY) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
    "CREATE TABLE th (id INT PRIMARY KEY) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin PARTITION BY HASH (id) PARTITIONS 3",
)
