CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(40) CHARACTER SET latin1);
INSERT INTO t VALUES (1,'café'),(2,'plain'),(3,'naïve'),(4,'Straße'),(5,'tail ');
