CREATE TABLE t (id INT PRIMARY KEY, j JSON);
INSERT INTO t VALUES (1,'{"long key":[1,{"b":null,"aa":true}],"k":1.0}'),(2,'[1,2]'),(3,'9007199254740993'),(4,'"1"'),(5,'null');
