-- One of everything, the same statements on both sides.
CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(40), amount DECIMAL(12,2), rate DOUBLE, at DATETIME(3), ok BIT(1), doc JSON);
INSERT INTO t VALUES (1,'a',1.50,0.1e0,'2026-01-01 10:00:00.5',1,'{"bb":1,"a":2}'),(18446744073709551615,'',NULL,1e300,'0000-00-00 00:00:00',0,NULL);
