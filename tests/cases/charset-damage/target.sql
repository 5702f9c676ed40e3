-- Bytes taken for another character set, marks lost, case folded, spaces cut.
CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(40));
INSERT INTO t VALUES (1,'cafÃ©'),(2,'plain'),(3,'na?ve'),(4,'STRAßE'),(5,'tail');
