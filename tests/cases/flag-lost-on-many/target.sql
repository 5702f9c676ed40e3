CREATE TABLE t (id INT PRIMARY KEY, flag TINYINT, v VARCHAR(9));
INSERT INTO t VALUES (1,0,'a'),(2,0,'a'),(3,0,'a'),(4,0,'a');
