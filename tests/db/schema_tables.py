"""CREATE TABLE statements whose meaning is one on MySQL, MariaDB and TiDB, and what differs all the same, and why."""

from __future__ import annotations

# ruff: noqa: E501  (DDL reads better unbroken)
END = "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"

SIMILAR = {
    "integers": "(id INT PRIMARY KEY, a TINYINT UNSIGNED DEFAULT 5, b TINYINT(1), c SMALLINT DEFAULT -3, d MEDIUMINT UNSIGNED, e INT(11) DEFAULT 0, f BIGINT UNSIGNED DEFAULT 18446744073709551615, g INTEGER(5) ZEROFILL, h BOOLEAN DEFAULT TRUE, i BOOL NOT NULL DEFAULT FALSE, j INT SIGNED)",
    "numbers": "(id INT PRIMARY KEY, a DECIMAL(10,2) DEFAULT 1.00, b DECIMAL(60,30), c DECIMAL DEFAULT 0, d NUMERIC(5) UNSIGNED DEFAULT 7.0, e FLOAT DEFAULT 1.5, f FLOAT(7,4) DEFAULT 1.5, g DOUBLE DEFAULT 1e10, h REAL, i DOUBLE(20,5) UNSIGNED, j FLOAT(30), k BIT DEFAULT b'1', l BIT(5) DEFAULT b'00101', m DECIMAL(10,4) DEFAULT -0.5000, n DEC(7,3), o FIXED(7,3), p DOUBLE PRECISION)",
    "moments": "(id INT PRIMARY KEY, a YEAR DEFAULT 2020, b DATE DEFAULT '2020-01-02', c DATETIME DEFAULT '2020-01-02', d DATETIME(6) DEFAULT '2020-01-02 03:04:05.100000', e TIME DEFAULT '10:00', f TIME(3) DEFAULT '10:00:00', g TIMESTAMP NULL DEFAULT NULL, h TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), i TIMESTAMP NULL DEFAULT NOW(), k DATETIME NOT NULL DEFAULT LOCALTIME ON UPDATE NOW(), l DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3), m YEAR(4))",
    "texts": "(id INT PRIMARY KEY, a CHAR(5) DEFAULT '', b VARCHAR(20) NOT NULL DEFAULT 'it''s \\\\ x', c TINYTEXT, d TEXT, e MEDIUMTEXT, f LONGTEXT, g BINARY(4) DEFAULT 'ab', h VARBINARY(9) DEFAULT 'xy', i TINYBLOB, j BLOB, k LONGBLOB, l JSON, m VARCHAR(10) DEFAULT 'NULL', n VARCHAR(9) DEFAULT NULL, o CHAR(0), p CHAR, q VARCHAR(9) DEFAULT '5', r VARCHAR(30) DEFAULT 'current_timestamp()', s JSON NOT NULL)",
    "labels": "(id INT PRIMARY KEY, a ENUM('a','b,c','it''s','q\"','b\\\\') DEFAULT 'it''s', b SET('a','b', ' c)') DEFAULT 'a,b', c ENUM('','é','表') NOT NULL)",
    "charsets": "(id INT PRIMARY KEY, a VARCHAR(9) CHARSET latin1 COLLATE latin1_bin DEFAULT 'e', b VARCHAR(9) CHARSET ascii COLLATE ascii_bin, c VARCHAR(9) CHARSET utf8mb3 COLLATE utf8mb3_general_ci, d VARCHAR(9) CHARSET utf8 COLLATE utf8_unicode_ci, e VARCHAR(9) COLLATE utf8mb4_general_ci, f VARCHAR(9) COLLATE utf8mb4_unicode_ci, g CHAR(3) CHARSET binary)",
    "generated": "(id BIGINT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(30), j JSON, g1 INT AS (a + 1) VIRTUAL, g2 INT AS ((a + 1) * 2) STORED, g3 VARCHAR(50) AS (CONCAT(b, 'x', 'y''z')) STORED, g4 VARCHAR(20) AS (UPPER(SUBSTR(b, 1, 3))), g5 INT AS (IF(a > 3 AND a < 10 OR a IS NULL, 1, 0)), g8 INT AS (CASE WHEN a = 1 THEN 2 ELSE 3 END), g10 INT AS (a IN (1, 2, 3)), g11 INT AS (a BETWEEN 1 AND 2), g12 CHAR(8) AS (LPAD(HEX(a), 8, '0')), g20 INT AS (a * -1), g21 INT GENERATED ALWAYS AS (COALESCE(a, 0)))",
    "keys": "(id INT, a INT, b VARCHAR(100), c TEXT, PRIMARY KEY (id), UNIQUE KEY u (a, b(10)), KEY k (b), KEY k2 (c(5)), UNIQUE KEY u2 (b), KEY whole (b(100)), INDEX kk (a) COMMENT 'why', KEY (a, id)) COMMENT='it''s'",
    "key_order": "(id INT PRIMARY KEY, a INT, b INT, KEY zz (a), KEY aa (b), UNIQUE KEY mm (a, b))",
    "auto": "(id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, v INT, PRIMARY KEY (id)) AUTO_INCREMENT=77",
    "comments": "(id INT PRIMARY KEY COMMENT 'the id', v INT COMMENT 'it''s \"x\" \\\\ é 表') COMMENT='a table'",
    "row_format": "(id INT PRIMARY KEY, v VARCHAR(9)) ROW_FORMAT=DYNAMIC STATS_PERSISTENT=1",
    "range": "(id INT PRIMARY KEY, d DATETIME) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10) COMMENT 'x', PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "range_expression": "(id INT, d DATE, PRIMARY KEY (id, d)) PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN (2010))",
    "range_columns": "(id INT, d DATETIME, PRIMARY KEY (id, d)) PARTITION BY RANGE COLUMNS (d) (PARTITION p0 VALUES LESS THAN ('2020-01-01'), PARTITION p1 VALUES LESS THAN (MAXVALUE))",
    "list": "(id INT PRIMARY KEY) PARTITION BY LIST (id) (PARTITION p0 VALUES IN (7,1,2), PARTITION p1 VALUES IN (5,4,3))",
    "list_columns": "(s VARCHAR(9) PRIMARY KEY) PARTITION BY LIST COLUMNS (s) (PARTITION p0 VALUES IN ('a','b'), PARTITION p1 VALUES IN ('it''s'))",
    "hash": "(id INT PRIMARY KEY, d DATE) PARTITION BY HASH (id) PARTITIONS 4",
    "key": "(id INT PRIMARY KEY) PARTITION BY KEY (id) PARTITIONS 3",
    "key_bare": "(id INT PRIMARY KEY) PARTITION BY KEY () PARTITIONS 3",
    "no_key": "(a INT, b VARCHAR(9))",
    "words": "(`key` INT PRIMARY KEY, `order` INT, `key a` INT, `table` VARCHAR(9) COMMENT 'x', KEY `index` (`order`))",
}
PARENT = "(id INT PRIMARY KEY, u INT, w INT NOT NULL, UNIQUE KEY uu (u))"
CHILDREN = {
    "fk_plain": "(id BIGINT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {parent} (id))",
    "fk_rules": "(id BIGINT PRIMARY KEY, p INT, q INT, r INT, CONSTRAINT {name}_a FOREIGN KEY (p) REFERENCES {parent} (id) ON DELETE CASCADE, CONSTRAINT {name}_b FOREIGN KEY (q) REFERENCES {parent} (id) ON UPDATE SET NULL ON DELETE RESTRICT, CONSTRAINT {name}_c FOREIGN KEY (r) REFERENCES {parent} (u) ON DELETE NO ACTION)",
    "fk_own_key": "(id BIGINT PRIMARY KEY, p INT, KEY mine (p, id), CONSTRAINT {name}_a FOREIGN KEY (p) REFERENCES {parent} (id) ON DELETE SET NULL)",
}

# What TiDB makes otherwise though the statement is the same: (paths that differ, why).
OTHERWISE_ON_TIDB = {
    "descending": ("(id INT PRIMARY KEY, a INT, KEY kd (a DESC))", {"keys.kd.order"}, "TiDB sorts every key upwards"),
    "check": ("(id INT PRIMARY KEY, a INT, CONSTRAINT {name}_ck CHECK (a > 3))", {"checks.{name}_ck"}, "TiDB drops CHECK unless tidb_enable_check_constraint is on"),
    "linear_hash": ("(id INT PRIMARY KEY) PARTITION BY LINEAR HASH (id) PARTITIONS 4", {"partitions.method"}, "TiDB makes a plain HASH of it"),
    "sub": ("(id INT, d DATE, PRIMARY KEY (id, d)) PARTITION BY RANGE (YEAR(d)) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (2000))", {"partitions.sub_method", "partitions.sub_expression", "partitions.sub_count"}, "TiDB has no subpartitions"),
    "inline_fk": ("(id INT PRIMARY KEY, p INT REFERENCES {parent} (id))", {"foreign_keys.{name}_ibfk_1", "keys.p"}, "TiDB reads REFERENCES of a column and makes nothing of it"),
    "engine": ("(id INT PRIMARY KEY) ENGINE=MyISAM", {"options.engine"}, "TiDB has one engine"),
}  # fmt: skip
