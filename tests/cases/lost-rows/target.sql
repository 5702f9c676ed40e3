-- The last batch never came, and somebody tried the new system out.
CREATE TABLE t (id INT PRIMARY KEY, v INT);
INSERT INTO t VALUES (1,1),(2,2),(3,3),(1000,0);
