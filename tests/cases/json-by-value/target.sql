CREATE TABLE t (id INT PRIMARY KEY, j JSON);
INSERT INTO t VALUES (1,'{"k":1,"long key":[1,{"aa":true,"b":null}]}'),(2,'[2,1]'),(3,'9007199254740992'),(4,'1'),(5,NULL);
