-- A change that a linear checksum (XOR of CRC32) does not see: the same bit in an even number of rows.
CREATE TABLE t (id INT PRIMARY KEY, flag TINYINT, v VARCHAR(9));
INSERT INTO t VALUES (1,1,'a'),(2,1,'a'),(3,1,'a'),(4,1,'a');
