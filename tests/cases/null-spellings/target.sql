-- What a load from CSV makes of NULL.
CREATE TABLE t (id INT PRIMARY KEY, n INT, s VARCHAR(9), f FLOAT);
INSERT INTO t VALUES (1,0,'',0),(2,0,'',0),(3,NULL,NULL,1),(4,0,'NULL',1);
