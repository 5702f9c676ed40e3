-- A number kept as text on the other side: nobody excluded the column, so nothing is proved.
CREATE TABLE t (id INT PRIMARY KEY, v INT);
INSERT INTO t VALUES (1,7);
