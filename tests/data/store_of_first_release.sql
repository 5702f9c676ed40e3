BEGIN TRANSACTION;
CREATE TABLE migverify_blobs (
	scope BIGINT NOT NULL, 
	name VARCHAR(190) NOT NULL, 
	number BIGINT NOT NULL, 
	part INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (scope, name, number, part)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_blobs" VALUES(1,'plan',1,0,X'00FF20706C616E');
INSERT INTO "migverify_blobs" VALUES(1,'plan',2,0,X'7365636F6E64');
INSERT INTO "migverify_blobs" VALUES(1,'stamps',1,0,X'');
INSERT INTO "migverify_blobs" VALUES(7,'ledger',1,0,X'6C65646765722031');
INSERT INTO "migverify_blobs" VALUES(10,'schema',1,0,X'789C75534D6FDB300CFD2F3A07832DCB9693DB8AF5D0C380A1D865288A401F54A2D5965C49EE1A14FDEFA3AC7C341D7613C9C7C7C767FA8D181F46B2A957245A0D64F346C0E9C95B97C886443F0705644584D60162C4D47E53636C06F1E20386E3213E0F98788110AD7798597FA9308E1030B54D7644CEBAAABE542B32782586EBD4E4A34DA50F9B929003E09087B7F2CC6A0298FF89D2025122228CE85337BE13795F11E587797485CB893C91D80CBA0CAC0BC1361DA6A58ADCA7B6EB9C9B87A150A730C38ACC2EDA9D034D36460C11131A8C9807949691C8B11721C225F4D85E465EEADB01DC2EED4F29AF12A44FB92980B2F1435F44F7E01498389D9E3B7010C4C5C5987CC8EA8A5A784D4194C208A3C4CF849E3CAE70B717645FD63AAEA1FC38C2E230795F001A5EE1CAC11FF777DFBFDEFF22D903FB3C9F1DB9989D4D7E5CB41B5B9AB346CC9C87958E276447C29B9FF7B7B7248B9CF279E10A47751FB4647FA3C2EF6FDD2E17B3B6E0FF2010EF471E1294D73F36A399D665D577CEF96F37E413A99893DF5AA70294DCD17411D2721F1F3E2F424482AD9F52D147F27D6560CC8789BF0FE0396C9FE070D2BE07F5747CA76077BBB3E767F66595325124C4C879590397CB671C76F97A1ECA51673B0DE2214CA1DCBFD27D27956C75C74175956A9BA651C60003D669DDB40D48067DC744CBEBAA551D08D3239E6951B19AF51C590771F073E6EA1AA139350D974D6368DD01ED28177D5BE94EC11A4BACE142515AB75D851510DD9AD14AB638ACEF3BD12E97E2E56F50E9B8E3B5D696F76A4D296F25D58C43AF28977D53714EA1351A28E3B467B25D574DC31955725DEB0657A898519AF7266BDD5BADC12DE6BCFF05AE1583F1');
INSERT INTO "migverify_blobs" VALUES(11,'schema',1,0,X'789C75534D6FDC2010FD2F9CADC806DB78F7D6A839E450A98A7AA9AA688561F0D2D8E0004EB38AF2DF3B98FDC8A6EA8D9979F3E6CDF3F88D68E727B2AD0A128C02B27D2360D5EC8C8D644BA2F003445210A194871030B5DF5618EB51BC388FE17408CF23265EC007E32C66363725C6013CA676D14CC85995E54D5990D149315EA766174CCC7DD814453F020EF9F5969F498D07FD3F514A204A04841175EA4E75F25E10E9C665B299CB8A34919804BA0CAC32C12E1EE6B56A13656EBBCED9651C3375F40B1464B1C10C1614D96A31064C28D06219515A4222C75EF80097D0617B1E79A9EF46B043DC9F524E46889F72B30769C287BE80EEC129D0613E3D07B0E0C5C5C5109D4FEAB25A788D5EE4C204538F9F093D792C70B717645FD73AAE21DD34C1EA30795F010A5EE1CAC1EF0FF7DFBE3CFC24C903F3BC9C1DB9989D4C7E5CB56B939B9346CC9C87E58E276447C2DB1F0F777724899CD379E10A47751FB4247F83C4EF6FEC908A499B777F1088F7D31F22E4D73F36A399C626D5F7D6BAAFB7E413A958A2DB192B3DE4DCD174E1E37A1F1F3E2F4244849D9B63D647D27D2560488789BF0FE039EC9EE070D2BE07F9747C476F86E1ECF9997D5D254F141131FDB2AE81CB15A7F3462FD7A34E766AC4839F7DBE7FA9BAB6977DA35A0EB22D65C318935A430D75AB146B18F435746D2D1A5E958D6C41E80EF1B512655DD51D47D6511CDC92B85A2614A79AF19E314DAB16684BB9E89A52B5123658AA191792D2AA694BAC806837352DFB0687755D2B9AF5525CFF1B643CEE78ADB5E19DDC50CA9B9EAA9A432729EF3B56724EA1D10A68CD6957F7CDA6648CD754F69B4A315CA1ACB554BCD349EBDE28057635E7FD2F586B83DD');
INSERT INTO "migverify_blobs" VALUES(12,'schema',1,0,X'789CED54CB6E1C2110FC17CE2B6B60DE7B8B151F7C881459B94496B5E2D1EC12CFC01818C72BCBFF9E66D887D796FF203728BAABAB8B8657A29D1FC99AAE48300AC8FA9580559333369235096EF612C88A70A53C8480D06E4D71AF07FEEC3C6EC77D781A1078061F8CB388F45705EE03788436D18CC8498BE2AA5891C1493E5C42930B26E63C4C8A5C0C8045EE5FF332A9F1A0BF12A53846F18061441DB3711DC9DB8A4837CCA3CD5C96A78AC4A4A073419A0936713F2DA7C87D4CBBC4EC3C0C993AFA195664B6C16C2D28B2D67C080828D07C1E505A8A448E1DF701CE5B87E9B9E4F97C3380DDC6DD11723242FC804D1EA409EFF202BA07C78D0ED371B9050B9E9F5D0CD1F9A42EAB8597E8793E186114784DE8C9C30A7B7B46F6A5AD431BD28D232C0EA38127D75E2E4C63FF4DFBDAB42540C10B5C8CDDCFBBDB1FDFEE7E93E481799A4F8E9C27344DE6C3A25D9B9C9C3422722A96331E911D09AF7FDDDDDC9024724A6F125B38A87BA725F91B243E1A63B7E93069F3EE2F06E2A313FB0879F5C96634D3D8A4FAD65AF7FD9A7C20E573741B63A5878C1D4CE73E2EF3F1EE7A318447D8B829667D69A696C0905E33FE3980E3B07984FD51FB0EE4E3611DBDD96E4F9E9FD8975672451E3146CC4B1BD85C7AFB7E9BA6E73EFF04C94E8DF1E0279F3F0D5616BDE814149D6AA1692AC594928A555D2524A5BDA0AD96152F550155D974B4814A30219A52B654D54C4B641DF8DECD89AB80A26FBBBEAA256545D3B5AA04457955944AF74A8BB217655DE956D67D5BF2BEEB95D4AAEB59035DC70AA5BA65529CF803321E7ABCD4AA5BDD012BB82A19AB29AB505ACB9A5E332A6A9035F04E169A96755F51C9BB52EBA6A0A2AA58C57AD1362AFDCF3BA314D8C59CB77FE965EE9B');
INSERT INTO "migverify_blobs" VALUES(13,'schema',1,0,X'789C75534D6FDC2010FD2F9CADC806DB78F7D6A839E450A98A7AA9AA688561F0D2D8E0004EB38AF2DF3B98FDC8A6EA8D9979F3E6CDF3F88D68E727B2AD0A128C02B27D2360D5EC8C8D644BA2F003445210A194871030B5DF5618EB51BC388FE17408CF23265EC007E32C66363725C6013CA676D14CC85995E54D5990D149315EA766174CCC7DD814453F020EF9F5969F498D07FD3F514A204A04841175EA4E75F25E10E9C665B299CB8A34919804BA0CAC32C12E1EE6B56A13656EBBCED9651C3375F40B1464B1C10C1614D96A31064C28D06219515A4222C75EF80097D0617B1E79A9EF46B043DC9F524E46889F72B30769C287BE80EEC129D0613E3D07B0E0C5C5C5109D4FEAB25A788D5EE4C204538F9F093D792C70B717645FD73AAE21DD34C1EA30795F010A5EE1CAC1EF0FF7DFBE3CFC24C903F3BC9C1DB9989D4C7E5CB56B939B9346CC9C87E58E276447C2DB1F0F777724899CD379E10A47751FB4247F83C4EF6FEC908A499B777F1088F7D31F22E4D73F36A399C626D5F7D6BAAFB7E413A958A2DB192B3DE4DCD174E1E37A1F1F3E2F4244849D9B63D647D27D2560488789BF0FE039EC9EE070D2BE07F9747C476F86E1ECF9997D5D254F141131FDB2AE81CB15A7F3462FD7A34E766AC4839F7DBE7FA9BAB6977DA35A0EB22D65C318935A430D75AB146B18F435746D2D1A5E958D6C41E80EF1B512655DD51D47D6511CDC92B85A2614A79AF19E314DAB16684BB9E89A52B5123658AA191792D2AA694BAC806837352DFB0687755D2B9AF5525CFF1B643CEE78ADB5E19DDC50CA9B9EAA9A432729EF3B56724EA1D10A68CD6957F7CDA6648CD754F69B4A315CA1ACB554BCD349EBDE28057635E7FD2F586B83DD');
CREATE TABLE migverify_chunks (
	scope BIGINT NOT NULL, 
	span BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	key_range TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	source_rows BIGINT, 
	source_hashed BIGINT, 
	source_exact VARCHAR(64), 
	source_value VARCHAR(64), 
	target_rows BIGINT, 
	target_hashed BIGINT, 
	target_exact VARCHAR(64), 
	target_value VARCHAR(64), 
	started DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	source_seconds DOUBLE NOT NULL, 
	target_seconds DOUBLE NOT NULL, 
	attempts BIGINT NOT NULL, 
	reason TEXT NOT NULL, 
	PRIMARY KEY (scope, span, number, seq), 
	UNIQUE (scope, seq)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_chunks" VALUES(1,0,0,1,'[["0"],["250"],false]','different',250,250,'1180591620717411303425','2305843009213693952',250,250,'7','0',1800000000.0,0.4,0.4,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(1,0,1,2,'[["250"],["500"],false]','equal',250,250,'1180591620717411303425','2305843009213693952',250,250,'7','0',1800000000.5,4.10000000000000031086e-01,4.10000000000000031086e-01,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(1,0,2,3,'[["500"],["750"],false]','equal',250,250,'1180591620717411303425','2305843009213693952',250,250,'7','0',1800000001.0,4.20000000000000039968e-01,4.20000000000000039968e-01,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(1,0,3,4,'[["750"],["1000"],false]','different',250,250,'1180591620717411303425','2305843009213693952',250,250,'7','0',1800000001.5,4.30000000000000048849e-01,4.30000000000000048849e-01,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(1,0,4,5,'[["1000"],["1250"],false]','equal',250,250,'1180591620717411303425','2305843009213693952',250,250,'7','0',1800000002.0,0.44,0.44,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(1,1,0,6,'[["0"],["250"],false]','different',250,250,'7','0',250,250,'7','0',1800000000.0,1.0,0.4,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(2,0,0,1,'[["0"],["250"],false]','failed',NULL,NULL,NULL,NULL,250,250,'7','0',1800000000.0,0.4,0.4,0.3,1,'lost connection');
INSERT INTO "migverify_chunks" VALUES(2,0,0,2,'[["0"],["250"],false]','equal',250,250,'7','0',250,250,'7','0',1800000000.0,0.4,0.4,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(3,0,0,1,'[["0"],["250"],false]','equal',250,250,'7','0',250,250,'7','0',1800000000.0,0.4,0.4,0.3,1,'');
INSERT INTO "migverify_chunks" VALUES(3,0,1,2,'[["250"],["500"],false]','failed',250,250,'7','0',NULL,NULL,NULL,NULL,1800000000.5,4.10000000000000031086e-01,4.10000000000000031086e-01,0.3,5,'query ran into its time limit of 60 s');
INSERT INTO "migverify_chunks" VALUES(4,0,0,1,'[["0"],["250"],false]','different',250,250,'7','0',250,250,'7','0',1800000000.0,0.4,0.4,0.3,1,'');
CREATE TABLE migverify_finding_heads (
	scope BIGINT NOT NULL, 
	key_hash BLOB NOT NULL, 
	number BIGINT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	PRIMARY KEY (scope, key_hash), 
	UNIQUE (scope, kind, number), 
	UNIQUE (scope, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_finding_heads" VALUES(5,X'1AEAE35E83CFF47D2ADF7383C26B74F17E16F5D34F3008BFEF8F65206E218AC1',1,'value mismatch');
INSERT INTO "migverify_finding_heads" VALUES(5,X'5D9FCCAA03F1BFB6FBB7E8C7F5F0743420F8ADB980968042C3CDEA6D2FA765B1',2,'known exception');
INSERT INTO "migverify_finding_heads" VALUES(6,X'424955EA02490D6576BAF41B8177A1157302610A331162B39D76C065EAB7ECB0',2,'pending');
INSERT INTO "migverify_finding_heads" VALUES(6,X'621F50E920BCA296A05F0AE3BBB3FAC3D635F2C4D9500AB2C0633061A854676F',3,'');
INSERT INTO "migverify_finding_heads" VALUES(6,X'645B4000CB858E58761BFD0997B01330652D418011C5F27066142B231B50DCF9',4,'value mismatch');
INSERT INTO "migverify_finding_heads" VALUES(9,X'647088F5D5A06C807A132FA0BB80B0349C390ACE812AD073A3F2419846E4D3F1',4,'');
INSERT INTO "migverify_finding_heads" VALUES(9,X'FBC0026DD9E4BB43E79B8B726E774F2E9A5D3B04B65CC7734BBF1CA9040A5742',3,'pass');
INSERT INTO "migverify_finding_heads" VALUES(14,X'399F88A6691A366781F7AD11A5B8E21232EDF5569F8556DBF3B5412521AB34C6',1,'blocker');
INSERT INTO "migverify_finding_heads" VALUES(14,X'67FD332FAC1A8211F0086460BB7FA8F80B7A6D5F18A6215F8E29065B8E21EBC3',2,'none');
INSERT INTO "migverify_finding_heads" VALUES(14,X'9DC0938E2E884F1C75D05F167AC2AC90D19EEB0BE741F310F495C727CAD54461',3,'blocker');
INSERT INTO "migverify_finding_heads" VALUES(15,X'78EB509C49ADF51F2C82E531F4314B3717F3E7EAB7022FF2478C9E47DC53673D',1,'blocker');
CREATE TABLE migverify_finding_windows (
	scope BIGINT NOT NULL, 
	window_hash BLOB NOT NULL, 
	number BIGINT NOT NULL, 
	PRIMARY KEY (scope, window_hash, number), 
	UNIQUE (scope, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_finding_windows" VALUES(5,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',1);
INSERT INTO "migverify_finding_windows" VALUES(5,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',2);
INSERT INTO "migverify_finding_windows" VALUES(6,X'1994F9C90C462F52175FB643FB379878FB1AFEFDCE2F3B27BB5E5A788621AE5E',4);
INSERT INTO "migverify_finding_windows" VALUES(6,X'70C2C86D95810F7512F3BDD1CE984FD7F76B1A7E9971F5F7AA57E4A3C6C4DE77',1);
INSERT INTO "migverify_finding_windows" VALUES(6,X'70C2C86D95810F7512F3BDD1CE984FD7F76B1A7E9971F5F7AA57E4A3C6C4DE77',2);
INSERT INTO "migverify_finding_windows" VALUES(6,X'70C2C86D95810F7512F3BDD1CE984FD7F76B1A7E9971F5F7AA57E4A3C6C4DE77',3);
INSERT INTO "migverify_finding_windows" VALUES(9,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',1);
INSERT INTO "migverify_finding_windows" VALUES(9,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',2);
INSERT INTO "migverify_finding_windows" VALUES(9,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',3);
INSERT INTO "migverify_finding_windows" VALUES(9,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',4);
INSERT INTO "migverify_finding_windows" VALUES(14,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',1);
INSERT INTO "migverify_finding_windows" VALUES(14,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',2);
INSERT INTO "migverify_finding_windows" VALUES(14,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',3);
INSERT INTO "migverify_finding_windows" VALUES(15,X'E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855',1);
CREATE TABLE migverify_findings (
	scope BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	key_hash BLOB NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (scope, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_findings" VALUES(5,1,X'1AEAE35E83CFF47D2ADF7383C26B74F17E16F5D34F3008BFEF8F65206E218AC1','value mismatch','{"rule":"pay","key":["1"],"window":"","kind":"value mismatch","of":"value mismatch","message":"payment 1: amount secret 1 on orders, secret 2 on payments","deviations":[["amount","secret 1","secret 2","value",false]],"money":"9007199254740993.0001","currency":"EUR","also":[],"counts":[1,1],"bounds":null,"reads":3,"at":1800000000.0,"shard":"","reason":""}');
INSERT INTO "migverify_findings" VALUES(5,2,X'5D9FCCAA03F1BFB6FBB7E8C7F5F0743420F8ADB980968042C3CDEA6D2FA765B1','known exception','{"rule":"pay","key":["2"],"window":"","kind":"known exception","of":"value mismatch","message":"payment 2: amount secret 1 on orders, secret 2 on payments","deviations":[["amount","secret 1","secret 2","value",false]],"money":"9007199254740993.0001","currency":"EUR","also":[],"counts":[1,1],"bounds":null,"reads":3,"at":1800000000.0,"shard":"","reason":"known exception of bob"}');
INSERT INTO "migverify_findings" VALUES(6,1,X'621F50E920BCA296A05F0AE3BBB3FAC3D635F2C4D9500AB2C0633061A854676F','value mismatch','{"key":["1",null],"window":"2027-01-15T00:00","kind":"value mismatch"}');
INSERT INTO "migverify_findings" VALUES(6,2,X'424955EA02490D6576BAF41B8177A1157302610A331162B39D76C065EAB7ECB0','pending','{"key":["2",""],"window":"2027-01-15T00:00","kind":"pending"}');
INSERT INTO "migverify_findings" VALUES(6,3,X'621F50E920BCA296A05F0AE3BBB3FAC3D635F2C4D9500AB2C0633061A854676F','','{"key":["1",null],"window":"2027-01-15T00:00","kind":""}');
INSERT INTO "migverify_findings" VALUES(6,4,X'645B4000CB858E58761BFD0997B01330652D418011C5F27066142B231B50DCF9','value mismatch','{"key":["1",null],"window":"2027-01-15T01:00","kind":"value mismatch","note":"\u00fc\u202e"}');
INSERT INTO "migverify_findings" VALUES(9,1,X'FBC0026DD9E4BB43E79B8B726E774F2E9A5D3B04B65CC7734BBF1CA9040A5742','fail','{"key":["source","binlog_format"],"window":"","kind":"fail","guard":"check","name":"binlog_format","subject":"source","state":"fail","value":"ROW","threshold":"ROW","query":"SELECT @@binlog_format","why":"Rows tell what was written.","todo":"SET GLOBAL binlog_format = ROW","server_time":100.0,"local_time":0.0,"numbers":{"days":1.5}}');
INSERT INTO "migverify_findings" VALUES(9,2,X'647088F5D5A06C807A132FA0BB80B0349C390ACE812AD073A3F2419846E4D3F1','pass','{"key":["source","gtid_mode"],"window":"","kind":"pass","guard":"check","name":"gtid_mode","subject":"source","state":"pass","value":"ON","threshold":"ROW","query":"SELECT @@binlog_format","why":"Rows tell what was written.","todo":"","server_time":100.0,"local_time":0.0,"numbers":{"days":1.5}}');
INSERT INTO "migverify_findings" VALUES(9,3,X'FBC0026DD9E4BB43E79B8B726E774F2E9A5D3B04B65CC7734BBF1CA9040A5742','pass','{"key":["source","binlog_format"],"window":"","kind":"pass","guard":"check","name":"binlog_format","subject":"source","state":"pass","value":"ROW","threshold":"ROW","query":"SELECT @@binlog_format","why":"Rows tell what was written.","todo":"","server_time":100.0,"local_time":0.0,"numbers":{"days":1.5}}');
INSERT INTO "migverify_findings" VALUES(9,4,X'647088F5D5A06C807A132FA0BB80B0349C390ACE812AD073A3F2419846E4D3F1','','{"key":["source","gtid_mode"],"window":"","kind":""}');
INSERT INTO "migverify_findings" VALUES(14,1,X'399F88A6691A366781F7AD11A5B8E21232EDF5569F8556DBF3B5412521AB34C6','blocker','{"key":["a2b50b37dbd7fee1d2bb9cb9f7f1dcebb94024af4f4827fdc98547bc385ef8f2"],"window":"","kind":"blocker","tally":{"digest":"a2b50b37dbd7fee1d2bb9cb9f7f1dcebb94024af4f4827fdc98547bc385ef8f2","text":"SELECT `id` , NAME FROM `t` WHERE NAME = ?","kind":"read","states":{"same":0,"different":1,"indeterminate":0,"unjudged":0},"unproven":0,"shallow":0,"assumed":0,"written":0,"aspects":{"value":{"severity":"blocker","different":1,"undecided":0,"noise":0}},"columns":{"value":{"name":1}},"reasons":{},"users":{},"databases":{},"errors":{"captured":{},"source":{},"target":{}},"repeated":0,"sampled":0,"noisy":0,"noisy_sampled":0,"first":1000000,"last":1000000,"lag":{"count":1,"total":0,"least":0,"most":0,"buckets":[0,1]},"latencies":{"source":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]},"target":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]},"source_service":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]},"target_service":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]}},"examples":{"value":[{"session":"s1","position":1,"state":"different","reason":"","differences":[{"aspect":"value","severity":"blocker","source":"''ann@example.org''","target":"0x3c7363726970743e616c6572742831293c2f7363726970743ee280ae","column":"name","detail":""}],"details":{"at":"1000000","clock":"1000000","session_state":"{}","source":"ok, 1 row\nid integer, name text\n(1, ''ann@example.org'')","sql":"SELECT id, name FROM t WHERE name = ''ann@example.org''","statement":"{\"sql\": \"SELECT id, name FROM t WHERE name = ''ann@example.org''\", \"parameters\": null, \"prepared\": false}","target":"ok, 1 row\nid integer, name text\n(1, 0x3c7363726970743e616c6572742831293c2f7363726970743ee280ae)"}}]}},"verdict":{"digest":"a2b50b37dbd7fee1d2bb9cb9f7f1dcebb94024af4f4827fdc98547bc385ef8f2","verdict":"MISMATCH","weight":"blocker","reasons":["value: blocker"],"findings":[{"aspect":"value","weight":"blocker","test":{"aspect":"value","different":1,"judged":1,"noise":0,"repeated":0,"p":null,"signal":true},"label":"unknown","ids":[],"links":[],"waiver":""}],"latency":[]}}');
INSERT INTO "migverify_findings" VALUES(14,2,X'67FD332FAC1A8211F0086460BB7FA8F80B7A6D5F18A6215F8E29065B8E21EBC3','none','{"key":["b66bac87bf6ff1018516a339b212c5c8d4ebbcfdd0ab7a27b95442dc1157d960"],"window":"","kind":"none","tally":{"digest":"b66bac87bf6ff1018516a339b212c5c8d4ebbcfdd0ab7a27b95442dc1157d960","text":"SELECT `id` , NAME FROM `t` WHERE `id` = ?","kind":"read","states":{"same":20,"different":0,"indeterminate":0,"unjudged":0},"unproven":0,"shallow":0,"assumed":0,"written":0,"aspects":{},"columns":{},"reasons":{},"users":{},"databases":{},"errors":{"captured":{},"source":{},"target":{}},"repeated":0,"sampled":0,"noisy":0,"noisy_sampled":0,"first":1000000,"last":1000000,"lag":{"count":20,"total":0,"least":0,"most":0,"buckets":[0,20]},"latencies":{"source":{"count":20,"total":20000,"least":1000,"most":1000,"buckets":[190,20]},"target":{"count":20,"total":20000,"least":1000,"most":1000,"buckets":[190,20]},"source_service":{"count":20,"total":20000,"least":1000,"most":1000,"buckets":[190,20]},"target_service":{"count":20,"total":20000,"least":1000,"most":1000,"buckets":[190,20]}},"examples":{}},"verdict":{"digest":"b66bac87bf6ff1018516a339b212c5c8d4ebbcfdd0ab7a27b95442dc1157d960","verdict":"MATCH","weight":"none","reasons":[],"findings":[],"latency":[]}}');
INSERT INTO "migverify_findings" VALUES(14,3,X'9DC0938E2E884F1C75D05F167AC2AC90D19EEB0BE741F310F495C727CAD54461','blocker','{"key":["e9ca13cd544def952b2b6092f52f6b677a227fe1f3295b67eb292eb7498bf2a2"],"window":"","kind":"blocker","tally":{"digest":"e9ca13cd544def952b2b6092f52f6b677a227fe1f3295b67eb292eb7498bf2a2","text":"CALL `settle` (?)","kind":"write","states":{"same":0,"different":1,"indeterminate":0,"unjudged":0},"unproven":0,"shallow":0,"assumed":0,"written":1,"aspects":{"error":{"severity":"blocker","different":1,"undecided":0,"noise":0}},"columns":{},"reasons":{},"users":{},"databases":{},"errors":{"captured":{},"source":{},"target":{"8108":1}},"repeated":0,"sampled":0,"noisy":0,"noisy_sampled":0,"first":1000000,"last":1000000,"lag":{"count":1,"total":0,"least":0,"most":0,"buckets":[0,1]},"latencies":{"source":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]},"target":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]},"source_service":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]},"target_service":{"count":1,"total":1000,"least":1000,"most":1000,"buckets":[190,1]}},"examples":{"error":[{"session":"s1","position":1,"state":"different","reason":"","differences":[{"aspect":"error","severity":"blocker","source":"ok, 1 affected","target":"error 8108 (HY000): Unsupported ann@example.org","column":"","detail":""}],"details":{"at":"1000000","clock":"1000000","session_state":"{}","source":"ok, 1 affected\ninsert id 0, 0 warnings","sql":"CALL settle(''x'')","statement":"{\"sql\": \"CALL settle(''x'')\", \"parameters\": null, \"prepared\": false}","target":"error 8108 (HY000): Unsupported ann@example.org","target_errno":"8108"}}]}},"verdict":{"digest":"e9ca13cd544def952b2b6092f52f6b677a227fe1f3295b67eb292eb7498bf2a2","verdict":"MISMATCH","weight":"blocker","reasons":["error: blocker"],"findings":[{"aspect":"error","weight":"blocker","test":{"aspect":"error","different":1,"judged":1,"noise":0,"repeated":0,"p":null,"signal":true},"label":"unknown","ids":[],"links":[],"waiver":""}],"latency":[]}}');
INSERT INTO "migverify_findings" VALUES(15,1,X'78EB509C49ADF51F2C82E531F4314B3717F3E7EAB7022FF2478C9E47DC53673D','blocker','{"key":["window-frame"],"window":"","kind":"blocker","reason":"title"}');
CREATE TABLE migverify_plan_parts (
	run_id VARCHAR(32) NOT NULL, 
	part INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (run_id, part)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_plan_parts" VALUES('20270115T080001-000ca3',0,X'78017590CB0AC32010457F25CC3AB47B7FA59432189B0A49477C2C82F8EF15D2EA98C6ED3D339EEB4430A8AD03718BA02710805252787B0723380A56AA9CB917990B031EEDACFC095870A3907745FC2E5FDB5501FBC440CFA1BC97D2F8738749FBC742F3BF9C91839D919EBE8C34FE92D60232384FABCAF738FE9E93B600279D02758417A8692D60705BD5D9F51968F50C74EC6582CB4B98D23D7D00CEDAB964');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080002-c00966',0,X'7801AB562A2ACD492D56B28A562A48AC548AD501529945207EB552668A921558B436B616000FAF0D3A');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080003-800b1d',0,X'7801AB562A2ACD492D56B28A562A48AC548AD501529945207EB552668A921558B416289C92999E5A5C021400ABD73554AA050044751331');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080003-c00a14',0,X'7801AB562A48CC2C2A56B28AAE56CA4C51B2524A4C4ECE2FCD2B2956D2512ACE2F2D4A4E058A1567E417E82149942416A5A7966091C849ACCC2F05EAB5AA866AD647D56AA50451A1909FA60037AFB636B6160080413049');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080005-00089e',0,X'7801AB562A2ACD492D56B28A562A48AC548AD501529945207E6C2D0089200969');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080005-4001d5',0,X'7801AB564A2F4D2C4A2956B28A564ACE484DCE56D251CA0472636B01773A08A7');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080005-c00d61',0,X'7801AB564A2F4D2C4A2956B28A562A4ECE48CD4D548AD5512ACE4B2C28CEC82F51B22A292A4DAD0500F5850D44');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080006-4002f5',0,X'7801AB564A2F4D2C4A2956B28A562A4ECE48CD4D548AD5512ACE4B2C28CEC82F51B22A292A4DAD0500F5850D44');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080006-c00241',0,X'7801AB56CACECC4B51B2522A4A2DC849AC54D2514A4E2C28292D4A050AE94399C5FA460646E6BA0686BA86264AB500A3D10F80');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080007-8001da',0,X'7801AB56CACECC4B51B2522A4A2DC849AC54D2514A4E2C28292D4A050AE94399C5FA460646E6BA0686BA86A64AB500A3D40F81');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080007-c00de2',0,X'7801AB56CACECC4B51B2524ACEC94CCD2B2956D2514A4ECDC92956B28A56CA4A494A5648548AAD0500E9290C20');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080008-400dcc',0,X'7801AB562A28CA4F4A55B28A562ACFCC4BC92FD74D2B4ACC4D55D251CA2FC9482D528AAD0500D0F50BED');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080008-c00339',0,X'7801ABAE0500017500F9');
INSERT INTO "migverify_plan_parts" VALUES('20270115T080009-80053f',0,X'7801ABAE0500017500F9');
CREATE TABLE migverify_row_diff_heads (
	scope BIGINT NOT NULL, 
	key_hash BLOB NOT NULL, 
	number BIGINT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	PRIMARY KEY (scope, key_hash), 
	UNIQUE (scope, state, number, kind)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'115175DAFA22E3159003105401F27980690A156EA5190AA769E33A7E1394B09E',6,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'18D92D9BE8BF853942DA2214F6F17711F9C733314CCCE35B240509F6A4FCA910',13,'missing_on_source','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'256F6AA94E6FDB7EBCE358314FDE8B319BBED4016F3A414061D0F063B2DDA933',14,'value_differs','hot');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'2AAA0D08E3A122EBEB3A8AD58D25D4F9633AEF77BE71E5C52780A74CEF886D53',16,'value_differs','converged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'3D2F323697BF5F150CB2C41DD9DEB48E49B793E1BE62C52D2F12D116A18E6FFA',10,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'614C38A4FE853D409710A29B6C7559F5D0D794D8AA95CA462FBA2CDD56B7CA73',9,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'631B73EC4AA4279742F5CAA4365B50405BDB34C50F89D454DF235D6C2E558EA3',15,'missing_on_target','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'6E32BC5B03AB4D239B1EFF1DE30DE5007F906DDA41E8F720240BBF6481496A60',4,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'71447C96D68BDC65906C5092DE19F2D27634B0FB59A86BAAC726A961B4DE4228',5,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'75FD229C68471D3D93EB936C077CB9A3F70082A3366A78BF62D4228389F77847',8,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'803EC8ADD3498AC66633E5FDBF8F47D69858594C8820AB43A85DD692FC73E5BA',7,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'8D81FB9D8D154C5E6D6840B806B2C52E6285FB84C30152A00A09619F41B70523',3,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'953D1C8161D6C2EAF8834E68A39F73A45A03C5999959B43902164286F1BA8571',2,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'FF79E6583582A4445D69F80C3ECD3034C158754BD33C7C62958C861EDF7F2A62',11,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(4,X'7EF41462A149809073EC5F88B292D90B795E70FACAF3C2EA5F2109B00EF0EE33',1,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(7,X'26A6CE94F8D2ECE150A6CAA06E71F7D032764E0638A47B58E868257BB3DEA578',4,'value_differs','unconfirmed');
INSERT INTO "migverify_row_diff_heads" VALUES(7,X'43DE3A417D75F4818C5A553268B80CE3A5805109A3BBC6B605E9FB0B8F50B485',5,'value_differs','diverged');
INSERT INTO "migverify_row_diff_heads" VALUES(7,X'68A90152C04505F5F2F397B31C13447056085E8176BE9DAA43B182B9D731B2E4',6,'value_differs','converged');
INSERT INTO "migverify_row_diff_heads" VALUES(7,X'A37BBBB0764CC5BF8D8C251CB1C95E3D2E142934792916CCB362CEB5902D9F0B',1,'value_differs','unconfirmed');
CREATE TABLE migverify_row_diffs (
	scope BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	key_hash BLOB NOT NULL, 
	row_key TEXT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	column_diffs TEXT NOT NULL, 
	source_checksum TEXT, 
	target_checksum TEXT, 
	source_count BIGINT NOT NULL, 
	target_count BIGINT NOT NULL, 
	shard TEXT NOT NULL, 
	read_at DOUBLE NOT NULL, 
	PRIMARY KEY (scope, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_row_diffs" VALUES(1,1,X'2AAA0D08E3A122EBEB3A8AD58D25D4F9633AEF77BE71E5C52780A74CEF886D53','["7"]','value_differs','diverged','[["name","M\u00fcller ","M\u00fcller","trailing-space",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,2,X'953D1C8161D6C2EAF8834E68A39F73A45A03C5999959B43902164286F1BA8571','["8"]','value_differs','diverged','[["email","Ann@example.org","ann@example.org","case",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,3,X'8D81FB9D8D154C5E6D6840B806B2C52E6285FB84C30152A00A09619F41B70523','["9"]','value_differs','diverged','[["note","",null,"empty-or-null",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,4,X'6E32BC5B03AB4D239B1EFF1DE30DE5007F906DDA41E8F720240BBF6481496A60','["10"]','value_differs','diverged','[["flags","0",null,"null",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,5,X'71447C96D68BDC65906C5092DE19F2D27634B0FB59A86BAAC726A961B4DE4228','["11"]','value_differs','diverged','[["created","2026-01-31 12:00:00.000000","2026-01-31 13:00:00.000000","shifted +1h",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,6,X'115175DAFA22E3159003105401F27980690A156EA5190AA769E33A7E1394B09E','["12"]','value_differs','diverged','[["memo","a\tb\u200bc","a    bc","value",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,7,X'803EC8ADD3498AC66633E5FDBF8F47D69858594C8820AB43A85DD692FC73E5BA','["13"]','value_differs','diverged','[["amount","1234.5600","1234.5599","precision",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,8,X'75FD229C68471D3D93EB936C077CB9A3F70082A3366A78BF62D4228389F77847','["14"]','value_differs','diverged','[["title","<b>bold</b> & \u202eevil","<b>bold</b> &amp; evil","value",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,9,X'614C38A4FE853D409710A29B6C7559F5D0D794D8AA95CA462FBA2CDD56B7CA73','["15"]','value_differs','diverged','[["body","xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx1yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy","xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx2yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy","value",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,10,X'3D2F323697BF5F150CB2C41DD9DEB48E49B793E1BE62C52D2F12D116A18E6FFA','["16"]','value_differs','diverged','[["secret",null,null,"value",true]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,11,X'FF79E6583582A4445D69F80C3ECD3034C158754BD33C7C62958C861EDF7F2A62','["17"]','value_differs','diverged','[["city","Z\u00fcrich","Z\u00c3\u00bcrich","charset",false]]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,12,X'631B73EC4AA4279742F5CAA4365B50405BDB34C50F89D454DF235D6C2E558EA3','["9007199254740993"]','missing_on_target','unconfirmed','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,13,X'18D92D9BE8BF853942DA2214F6F17711F9C733314CCCE35B240509F6A4FCA910','["5000"]','missing_on_source','diverged','[]',NULL,'12345',1,1,'source.eu',1800000001.5);
INSERT INTO "migverify_row_diffs" VALUES(1,14,X'256F6AA94E6FDB7EBCE358314FDE8B319BBED4016F3A414061D0F063B2DDA933','["a\u0000b",null,"\u00fc\ud83d\udc18"]','value_differs','hot','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,15,X'631B73EC4AA4279742F5CAA4365B50405BDB34C50F89D454DF235D6C2E558EA3','["9007199254740993"]','missing_on_target','diverged','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,16,X'2AAA0D08E3A122EBEB3A8AD58D25D4F9633AEF77BE71E5C52780A74CEF886D53','["7"]','value_differs','converged','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(4,1,X'7EF41462A149809073EC5F88B292D90B795E70FACAF3C2EA5F2109B00EF0EE33','["3f2a90"]','value_differs','diverged','[]',NULL,NULL,2,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(7,1,X'A37BBBB0764CC5BF8D8C251CB1C95E3D2E142934792916CCB362CEB5902D9F0B','["0"]','value_differs','unconfirmed','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(7,2,X'43DE3A417D75F4818C5A553268B80CE3A5805109A3BBC6B605E9FB0B8F50B485','["1"]','value_differs','unconfirmed','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(7,3,X'68A90152C04505F5F2F397B31C13447056085E8176BE9DAA43B182B9D731B2E4','["2"]','value_differs','unconfirmed','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(7,4,X'26A6CE94F8D2ECE150A6CAA06E71F7D032764E0638A47B58E868257BB3DEA578','["3"]','value_differs','unconfirmed','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(7,5,X'43DE3A417D75F4818C5A553268B80CE3A5805109A3BBC6B605E9FB0B8F50B485','["1"]','value_differs','diverged','[]',NULL,NULL,1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(7,6,X'68A90152C04505F5F2F397B31C13447056085E8176BE9DAA43B182B9D731B2E4','["2"]','value_differs','converged','[]',NULL,NULL,1,1,'',0.0);
CREATE TABLE migverify_rule_windows (
	scope BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	window_text VARCHAR(190) NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (scope, number), 
	UNIQUE (scope, window_text, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_rule_windows" VALUES(5,1,'','open','{"window":"","bounds":null,"state":"open","rule":"pay","batch":0}');
INSERT INTO "migverify_rule_windows" VALUES(5,2,'','open','{"window":"","bounds":null,"state":"open","rule":"pay","batch":1}');
INSERT INTO "migverify_rule_windows" VALUES(5,3,'','done','{"window":"","bounds":null,"state":"done","rule":"pay","verdict":"MISMATCH","reasons":["1 key has unlike values"],"covered":{"rows_source":10,"rows_target":11,"matched":9,"groups":0,"events":0,"crossed":0},"counts":{"value mismatch":1,"known exception":1},"money":[["known exception","EUR","9007199254740993.0001"],["value mismatch","EUR","9007199254740993.0001"]],"volume":{"EUR":"90071992547409930.001"},"unexplained":{"EUR":"9007199254740993.0001"},"anchors":[{"endpoint":"source","flavor":"mysql","how":"consistent snapshot","position":"binlog.000012:4711","until":"","exact":true,"at":1.0}],"seconds":1.5,"gaps":[]}');
INSERT INTO "migverify_rule_windows" VALUES(6,1,'2027-01-15T00:00','open','{"window":"2027-01-15T00:00","state":"open","n":1}');
INSERT INTO "migverify_rule_windows" VALUES(6,2,'2027-01-15T00:00','done','{"window":"2027-01-15T00:00","state":"done","sum":1180591620717411303424,"n":2}');
INSERT INTO "migverify_rule_windows" VALUES(6,3,'2027-01-15T01:00','open','{"window":"2027-01-15T01:00","state":"open"}');
INSERT INTO "migverify_rule_windows" VALUES(8,1,'','waiting','{"window":"","state":"waiting"}');
INSERT INTO "migverify_rule_windows" VALUES(9,1,'','fail','{"window":"","state":"fail","started":0.0,"seconds":0.0,"unasked":["target: no answer"],"facts":{},"answers":2}');
INSERT INTO "migverify_rule_windows" VALUES(9,2,'','pass','{"window":"","state":"pass","started":0.0,"seconds":0.0,"unasked":[],"facts":{},"answers":1}');
INSERT INTO "migverify_rule_windows" VALUES(14,1,'','done','{"window":"","state":"done","replay":{"coverage":{"statements":22,"judged":22,"same":20,"different":2,"indeterminate":0,"unjudged":0,"assumed":0,"unproven":0,"shallow":0,"did_not_recur":0,"written":1,"digests":3,"digests_judged":3,"judged_share":1.0,"digests_share":1.0,"indeterminate_share":0.0,"unjudged_share":0.0,"repeated":0,"noisy":0,"by_verdict":{"MATCH":1,"MISMATCH":2,"INCONCLUSIVE":0},"out_of_scope":0,"out_of_scope_kinds":[]},"verdict":"MISMATCH","reasons":["2 digests differ for certain: error, value"],"latencies":{"source":{"count":22,"total":22000,"least":1000,"most":1000,"buckets":[190,22]},"target":{"count":22,"total":22000,"least":1000,"most":1000,"buckets":[190,22]}},"lag":{"count":22,"total":0,"least":0,"most":0,"buckets":[0,22]},"slo":[{"name":"payments","met":true,"reasons":[]}],"pace":"x2"}}');
INSERT INTO "migverify_rule_windows" VALUES(14,2,'trend','done','{"window":"trend","state":"done","trend":{"day":"2027-01-14","first":true,"runs":[{"run_id":"20270115T080006-c00241","day":"2027-01-14","verdict":"MISMATCH","statements":22,"failing":2}],"new":[{"digest":"a2b50b37dbd7fee1d2bb9cb9f7f1dcebb94024af4f4827fdc98547bc385ef8f2","text":"SELECT `id` , NAME FROM `t` WHERE NAME = ?","aspects":"value","since":"2027-01-14"},{"digest":"e9ca13cd544def952b2b6092f52f6b677a227fe1f3295b67eb292eb7498bf2a2","text":"CALL `settle` (?)","aspects":"error","since":"2027-01-14"}],"new_count":2,"gone":[],"gone_count":0,"failing":[{"digest":"a2b50b37dbd7fee1d2bb9cb9f7f1dcebb94024af4f4827fdc98547bc385ef8f2","text":"SELECT `id` , NAME FROM `t` WHERE NAME = ?","aspects":"value","since":"2027-01-14"},{"digest":"e9ca13cd544def952b2b6092f52f6b677a227fe1f3295b67eb292eb7498bf2a2","text":"CALL `settle` (?)","aspects":"error","since":"2027-01-14"}],"failing_count":2}}');
INSERT INTO "migverify_rule_windows" VALUES(15,1,'','holds','{"window":"","state":"holds"}');
CREATE TABLE migverify_run_events (
	run_id VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	event VARCHAR(16) NOT NULL, 
	at DOUBLE NOT NULL, 
	writer VARCHAR(255) NOT NULL, 
	verdict VARCHAR(16), 
	facts TEXT NOT NULL, 
	PRIMARY KEY (run_id, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_run_events" VALUES('20270115T080001-000ca3',0,'run_started',1800000001.0,'dba-1 process 4711 4a797b18fd6a',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080001-000ca3',1,'run_finished',1800000002.5,'dba-1 process 4711 4a797b18fd6a','MISMATCH','{"seconds":75.25,"reasons":["2 tables differ"]}');
INSERT INTO "migverify_run_events" VALUES('20270115T080002-c00966',0,'run_started',1800000002.75,'dba-1 process 4711 00e732ca42c2',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080002-c00966',1,'run_finished',1800000003.25,'dba-1 process 4711 00e732ca42c2','MISMATCH','{"seconds":2.0}');
INSERT INTO "migverify_run_events" VALUES('20270115T080003-800b1d',0,'run_started',1800000003.5,'dba-1 process 4711 6249cfd0304d',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080003-c00a14',0,'run_started',1800000003.75,'dba-1 process 4711 40bbf8d46745',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080003-c00a14',1,'run_resumed',1800000004.25,'dba-1 process 4711 877b203f36ea',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080003-c00a14',2,'run_finished',1800000004.75,'dba-1 process 4711 877b203f36ea','MISMATCH','{"seconds":20.0,"reasons":["1 key diverged"]}');
INSERT INTO "migverify_run_events" VALUES('20270115T080005-00089e',0,'run_started',1800000005.0,'dba-1 process 4711 76573825bd04',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080005-4001d5',0,'run_started',1800000005.25,'dba-1 process 4711 d6a365d5fbc8',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080005-4001d5',1,'run_finished',1800000005.5,'dba-1 process 4711 d6a365d5fbc8','MATCH','{"seconds":0.5,"reasons":[]}');
INSERT INTO "migverify_run_events" VALUES('20270115T080005-c00d61',0,'run_started',1800000005.75,'dba-1 process 4711 f1a778e9c770',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080005-c00d61',1,'run_finished',1800000006.0,'dba-1 process 4711 f1a778e9c770','INCONCLUSIVE','{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080006-4002f5',0,'run_started',1800000006.25,'dba-1 process 4711 af1500e21284',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080006-4002f5',1,'run_finished',1800000006.5,'dba-1 process 4711 af1500e21284','INCONCLUSIVE','{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080006-c00241',0,'run_started',1800000006.75,'dba-1 process 4711 c896701769e4',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080006-c00241',1,'run_finished',1800000007.25,'dba-1 process 4711 c896701769e4','MISMATCH','{"seconds":2.5,"reasons":["2 digests differ for certain: error, value"]}');
INSERT INTO "migverify_run_events" VALUES('20270115T080007-8001da',0,'run_started',1800000007.5,'dba-1 process 4711 c5dfdb60de5d',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080007-c00de2',0,'run_started',1800000007.75,'dba-1 process 4711 67287733ae5e',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080007-c00de2',1,'run_finished',1800000008.0,'dba-1 process 4711 67287733ae5e','MATCH','{"seconds":1.0,"reasons":[]}');
INSERT INTO "migverify_run_events" VALUES('20270115T080008-400dcc',0,'run_started',1800000008.25,'dba-1 process 4711 14d52af4fbc2',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080008-400dcc',1,'run_finished',1800000008.5,'dba-1 process 4711 14d52af4fbc2','MISMATCH','{"reasons":["1 blocker"],"seconds":2.0}');
INSERT INTO "migverify_run_events" VALUES('20270115T080008-c00339',0,'run_started',1800000008.75,'dba-1 process 4711 be9626f0bea8',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080008-c00339',1,'run_finished',1800000009.25,'dba-1 process 4711 be9626f0bea8','MATCH','{}');
INSERT INTO "migverify_run_events" VALUES('20270115T080009-80053f',0,'run_started',1800000009.5,'dba-1 process 4711 cac539ee2439',NULL,'{}');
CREATE TABLE migverify_runbook_events (
	run VARCHAR(120) NOT NULL, 
	seq BIGINT NOT NULL, 
	line TEXT NOT NULL, 
	PRIMARY KEY (run, seq)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_runbook_events" VALUES('r1',0,'{"actor":"alice","attempt":0,"boot":"boot-1","data":{"autopilot":false,"environment":"staging","id":"cut","kind":"rehearsal","login":"root@dba-1","previous":null,"rules":3,"runbook":{"environment":"staging","id":"cut","kind":"cutover","people":[{"aliases":["al","a.lice"],"name":"alice"},{"name":"bob"},{"aliases":["caro"],"name":"carol"},{"name":"dana"},{"name":"erin"}],"phases":["p"],"policy":{},"roles":[{"backup":"erin","name":"coordinator","person":"alice"},{"name":"db-1","person":"bob"},{"name":"db-2","person":"carol"},{"name":"decision_owner","person":"dana"}],"sha":"sha-of-runbook","steps":[{"dri":"db-1","effect":{"action":"world.set","arguments":{"name":"a"}},"expect":[{"action":"world.is","arguments":{"name":"a"}}],"id":"a","instruction":"Set it.","kind":"command","phase":"p","place":{"file":"test.yaml","line":1},"reconcile":{"action":"world.is","arguments":{"name":"a"}},"repeat":"check","reviewer":"db-2","rollback":{"effect":{"action":"world.unset","arguments":{"name":"a"}},"instruction":"Unset it.","verify":[{"action":"world.is_not","arguments":{"name":"a"}}]},"sha":"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb","times":{},"title":"Set a"},{"dri":"db-1","effect":null,"expect":[],"id":"b","instruction":"Set it.","kind":"manual","phase":"p","place":{"file":"test.yaml","line":1},"repeat":"check","reviewer":"db-2","sha":"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d","times":{},"title":"Set b"},{"dri":"db-1","effect":{"action":"world.set","arguments":{"name":"c"}},"expect":[{"action":"world.is","arguments":{"name":"c"}}],"id":"c","instruction":"Set it.","kind":"command","phase":"p","place":{"file":"test.yaml","line":1},"reconcile":{"action":"world.is","arguments":{"name":"c"}},"repeat":"check","reviewer":"db-2","rollback":{"effect":{"action":"world.unset","arguments":{"name":"c"}},"instruction":"Unset it.","verify":[{"action":"world.is_not","arguments":{"name":"c"}}]},"sha":"2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6","times":{},"title":"Set c"}],"text_sha":"sha-of-text","title":"Cut"},"schema_fingerprint":"","text_sha":"sha-of-text"},"epoch":0,"kind":"run started","mono":5001000000,"previous":"0000000000000000000000000000000000000000000000000000000000000000","role":"","run":"r1","runbook":"sha-of-runbook","seq":0,"sha":"78ba4fa1fca586b0a09d754e4377a626728061af635ff66eae7b9e15a46345e2","step":"","wall":1800000000.001}');
INSERT INTO "migverify_runbook_events" VALUES('r1',1,'{"actor":"executor-ae748965@dba-1","attempt":0,"boot":"boot-1","data":{"boot":"boot-1","epoch":1,"host":"dba-1","person":"alice","process":""},"epoch":1,"kind":"lease","mono":5003000000,"previous":"78ba4fa1fca586b0a09d754e4377a626728061af635ff66eae7b9e15a46345e2","role":"","run":"r1","runbook":"sha-of-runbook","seq":1,"sha":"80a48f2c5a47ac2bd66784a0829cf1f4492b20fb4d38a2dc4487021c668b663e","step":"","wall":1800000000.0029998}');
INSERT INTO "migverify_runbook_events" VALUES('r1',2,'{"actor":"alice","attempt":1,"boot":"boot-1","data":{},"epoch":1,"kind":"called","mono":5006000000,"previous":"80a48f2c5a47ac2bd66784a0829cf1f4492b20fb4d38a2dc4487021c668b663e","role":"coordinator","run":"r1","runbook":"sha-of-runbook","seq":2,"sha":"a5850d46bfd67bd1a067234dbad437ee87a1d67e94707fa367582a0e1118cfb3","step":"a","wall":1800000000.0059996}');
INSERT INTO "migverify_runbook_events" VALUES('r1',3,'{"actor":"bob","attempt":1,"boot":"boot-1","data":{},"epoch":1,"kind":"started","mono":5008000000,"previous":"a5850d46bfd67bd1a067234dbad437ee87a1d67e94707fa367582a0e1118cfb3","role":"dri","run":"r1","runbook":"sha-of-runbook","seq":3,"sha":"f8405eb6232759c70bd13740216c4d6ed97ac67f3981b3ae91759e037a6739d6","step":"a","wall":1800000000.0079994}');
INSERT INTO "migverify_runbook_events" VALUES('r1',4,'{"actor":"executor-ae748965@dba-1","attempt":1,"boot":"boot-1","data":{"action":"world.set","arguments":{"name":"a"},"timeout":60.0},"epoch":1,"kind":"intent","mono":5015000000,"previous":"f8405eb6232759c70bd13740216c4d6ed97ac67f3981b3ae91759e037a6739d6","role":"executor","run":"r1","runbook":"sha-of-runbook","seq":4,"sha":"a7d081d2610be0dc34ee1ba63d0b21e1570d8c3cdbd09f65f9218413d4710168","step":"a","wall":1800000000.014999}');
INSERT INTO "migverify_runbook_events" VALUES('r1',5,'{"actor":"executor-ae748965@dba-1","attempt":1,"boot":"boot-1","data":{"effect":true,"evidence":{},"outcome":"ok","text":"set a","value":true},"epoch":1,"kind":"effect","mono":5020000000,"previous":"a7d081d2610be0dc34ee1ba63d0b21e1570d8c3cdbd09f65f9218413d4710168","role":"executor","run":"r1","runbook":"sha-of-runbook","seq":5,"sha":"48e3ff8411f14759e091e7b05bb29806027e3805745c83a8fb576e013ee0aa8f","step":"a","wall":1800000000.0199986}');
INSERT INTO "migverify_runbook_events" VALUES('r1',6,'{"actor":"executor-ae748965@dba-1","attempt":1,"boot":"boot-1","data":{"checks":[{"action":"world.is","evidence":{},"state":"pass","text":"asked","value":true}],"complete":true},"epoch":1,"kind":"evidence","mono":5028000000,"previous":"48e3ff8411f14759e091e7b05bb29806027e3805745c83a8fb576e013ee0aa8f","role":"executor","run":"r1","runbook":"sha-of-runbook","seq":6,"sha":"639dc13630d30ac1853178a57fe9502267ab3e2dc45739e002fcc3e04841fe15","step":"a","wall":1800000000.027998}');
INSERT INTO "migverify_runbook_events" VALUES('r1',7,'{"actor":"carol","attempt":1,"boot":"boot-1","data":{"hash":"fffa4c37191b4cbd80ba7185b9cf8c9446f6ccbfffd60ff1a2843c60a305b3a7","of":"done"},"epoch":1,"kind":"accepted","mono":5049000000,"previous":"639dc13630d30ac1853178a57fe9502267ab3e2dc45739e002fcc3e04841fe15","role":"reviewer","run":"r1","runbook":"sha-of-runbook","seq":7,"sha":"fcc025aa605aa8f3c6c0b2fb4267ccaf7b4548ca2ab9d1cf05693f9f882af95d","step":"a","wall":1800000000.0489964}');
INSERT INTO "migverify_runbook_events" VALUES('r1',8,'{"actor":"alice","attempt":1,"boot":"boot-1","data":{},"epoch":1,"kind":"called","mono":5051000000,"previous":"fcc025aa605aa8f3c6c0b2fb4267ccaf7b4548ca2ab9d1cf05693f9f882af95d","role":"coordinator","run":"r1","runbook":"sha-of-runbook","seq":8,"sha":"be48faf62c33a62a8618eb74aa452638afa23ec37e59fadaa205d0d24be4ae10","step":"b","wall":1800000000.0509963}');
INSERT INTO "migverify_runbook_events" VALUES('r1',9,'{"actor":"bob","attempt":1,"boot":"boot-1","data":{},"epoch":1,"kind":"started","mono":5053000000,"previous":"be48faf62c33a62a8618eb74aa452638afa23ec37e59fadaa205d0d24be4ae10","role":"dri","run":"r1","runbook":"sha-of-runbook","seq":9,"sha":"fb1ed69e97b16efe1e2ae46733207c7361a67acbfc8658ea0f0fdfd305cc3abb","step":"b","wall":1800000000.0529962}');
INSERT INTO "migverify_runbook_events" VALUES('r1',10,'{"actor":"bob","attempt":1,"boot":"boot-1","data":{"evidence":{},"manual":true,"text":"seen"},"epoch":1,"kind":"effect","mono":5055000000,"previous":"fb1ed69e97b16efe1e2ae46733207c7361a67acbfc8658ea0f0fdfd305cc3abb","role":"dri","run":"r1","runbook":"sha-of-runbook","seq":10,"sha":"fae12427e782a429dcf53dc9482a5085835badad669bca62874517774954c4e2","step":"b","wall":1800000000.054996}');
INSERT INTO "migverify_runbook_events" VALUES('r1',11,'{"actor":"executor-ae748965@dba-1","attempt":1,"boot":"boot-1","data":{"checks":[],"complete":true},"epoch":1,"kind":"evidence","mono":5064000000,"previous":"fae12427e782a429dcf53dc9482a5085835badad669bca62874517774954c4e2","role":"executor","run":"r1","runbook":"sha-of-runbook","seq":11,"sha":"051d4fb0f5ba9c82cd3a7d95a254bd48c9001f8567010d92d8ec42725cd4fcc1","step":"b","wall":1800000000.0639954}');
INSERT INTO "migverify_runbook_events" VALUES('r1',12,'{"actor":"carol","attempt":1,"boot":"boot-1","data":{"hash":"1a0b98393fb974b10116e2938342e79e78489c1cb67608d317e9d504fb1d65b4","of":"done"},"epoch":1,"kind":"accepted","mono":5085000000,"previous":"051d4fb0f5ba9c82cd3a7d95a254bd48c9001f8567010d92d8ec42725cd4fcc1","role":"reviewer","run":"r1","runbook":"sha-of-runbook","seq":12,"sha":"02b7270bc48669dcd88b3aa2b36f2bd535ec681c37ad0695f7a75b79d8fbb50a","step":"b","wall":1800000000.0849938}');
INSERT INTO "migverify_runbook_events" VALUES('r2',0,'{"actor":"alice","attempt":0,"boot":"boot-1","data":{"autopilot":false,"environment":"staging","id":"cut","kind":"rehearsal","login":"root@dba-1","previous":{"run":"r1","seq":12,"sha":"02b7270bc48669dcd88b3aa2b36f2bd535ec681c37ad0695f7a75b79d8fbb50a"},"rules":3,"runbook":{"environment":"staging","id":"cut","kind":"cutover","people":[{"aliases":["al","a.lice"],"name":"alice"},{"name":"bob"},{"aliases":["caro"],"name":"carol"},{"name":"dana"},{"name":"erin"}],"phases":["p"],"policy":{},"roles":[{"backup":"erin","name":"coordinator","person":"alice"},{"name":"db-1","person":"bob"},{"name":"db-2","person":"carol"},{"name":"decision_owner","person":"dana"}],"sha":"sha-of-runbook","steps":[{"dri":"db-1","effect":{"action":"world.set","arguments":{"name":"z"}},"expect":[{"action":"world.is","arguments":{"name":"z"}}],"id":"z","instruction":"Set it.","kind":"command","phase":"p","place":{"file":"test.yaml","line":1},"reconcile":{"action":"world.is","arguments":{"name":"z"}},"repeat":"check","reviewer":"db-2","rollback":{"effect":{"action":"world.unset","arguments":{"name":"z"}},"instruction":"Unset it.","verify":[{"action":"world.is_not","arguments":{"name":"z"}}]},"sha":"594e519ae499312b29433b7dd8a97ff068defcba9755b6d5d00e84c524d67b06","times":{},"title":"Set z"}],"text_sha":"sha-of-text","title":"Cut"},"schema_fingerprint":"","text_sha":"sha-of-text"},"epoch":0,"kind":"run started","mono":5001000000,"previous":"0000000000000000000000000000000000000000000000000000000000000000","role":"","run":"r2","runbook":"sha-of-runbook","seq":0,"sha":"d306ff2936914460a03e127673934ba4bd05003fe99ca27e4a1f09a6755cd980","step":"","wall":1800000000.001}');
CREATE TABLE migverify_runbook_leases (
	run VARCHAR(120) NOT NULL, 
	epoch BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed DOUBLE NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (run)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_runbook_leases" VALUES('r1',1,0,1.79540231765198254583e+09,'{"epoch": 1, "executor": "executor-ae748965@dba-1", "person": "alice", "host": "dba-1", "boot": "boot-1", "process": "", "beat": 0, "life": 30.0}');
CREATE TABLE migverify_runbook_runs (
	run VARCHAR(120) NOT NULL, 
	position BIGINT NOT NULL, 
	events BIGINT NOT NULL, 
	head VARCHAR(64) NOT NULL, 
	PRIMARY KEY (run), 
	UNIQUE (position)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_runbook_runs" VALUES('r1',1,13,'02b7270bc48669dcd88b3aa2b36f2bd535ec681c37ad0695f7a75b79d8fbb50a');
INSERT INTO "migverify_runbook_runs" VALUES('r2',2,1,'d306ff2936914460a03e127673934ba4bd05003fe99ca27e4a1f09a6755cd980');
CREATE TABLE migverify_runs (
	run_id VARCHAR(32) NOT NULL, 
	position BIGINT NOT NULL, 
	command TEXT NOT NULL, 
	plan_hash VARCHAR(128) NOT NULL, 
	started DOUBLE NOT NULL, 
	facts TEXT NOT NULL, 
	PRIMARY KEY (run_id), 
	UNIQUE (position)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_runs" VALUES('20270115T080001-000ca3',1,'migverify tables verify --config migverify.yaml','digest-1',1800000001.0,'{"engine":"spark local[*]","migverify":"0.1.0","endpoints":{"source":{"flavor":"mysql","version":"9.7.4","position":"binlog.000012:4711"},"target":{"flavor":"tidb","version":"8.0.11-TiDB-v8.5.0","position":"TSO 470606899199344640"}},"slots":4,"skipped":[]}');
INSERT INTO "migverify_runs" VALUES('20270115T080002-c00966',2,'recon run','plan',1800000002.75,'{"engine":"local"}');
INSERT INTO "migverify_runs" VALUES('20270115T080003-800b1d',3,'migverify recon run rules.yaml','digest-2',1800000003.5,'{"engine":"local","windows at":1800000100.0}');
INSERT INTO "migverify_runs" VALUES('20270115T080003-c00a14',4,'migverify tables watch','digest-1',1800000003.75,'{"engine":"spark local[*]","migverify":"0.1.0","endpoints":{"source":{"flavor":"mysql","version":"9.7.4","position":"binlog.000012:4711"},"target":{"flavor":"tidb","version":"8.0.11-TiDB-v8.5.0","position":"TSO 470606899199344640"}},"watch":true}');
INSERT INTO "migverify_runs" VALUES('20270115T080005-00089e',5,'migverify recon watch rules.yaml','digest-2',1800000005.0,'{"recon_watch":{"pay":"2027-01-15T00:00:00"}}');
INSERT INTO "migverify_runs" VALUES('20270115T080005-4001d5',6,'migverify check','',1800000005.25,'{"endpoints":{"source":{"version":"9.7.4"}}}');
INSERT INTO "migverify_runs" VALUES('20270115T080005-c00d61',7,'migverify schema snapshot','',1800000005.75,'{"endpoints":{"source":{},"target":{}}}');
INSERT INTO "migverify_runs" VALUES('20270115T080006-4002f5',8,'migverify schema snapshot','',1800000006.25,'{"endpoints":{"source":{},"target":{}}}');
INSERT INTO "migverify_runs" VALUES('20270115T080006-c00241',9,'migverify workload replay /captures/2027-01-14','h',1800000006.75,'{"endpoints":{"source":{"version":"9.7"}}}');
INSERT INTO "migverify_runs" VALUES('20270115T080007-8001da',10,'migverify workload replay /captures/2027-01-15','h',1800000007.5,'{}');
INSERT INTO "migverify_runs" VALUES('20270115T080007-c00de2',11,'migverify workload clients','',1800000007.75,'{"endpoints":{}}');
INSERT INTO "migverify_runs" VALUES('20270115T080008-400dcc',12,'workload probe','',1800000008.25,'{"endpoints":{"source":{"address":"10.0.0.1:3306"},"target":{"address":"10.0.0.2:4000"}},"versions":{}}');
INSERT INTO "migverify_runs" VALUES('20270115T080008-c00339',13,'verify','old',1800000008.75,'{"note":"a first run"}');
INSERT INTO "migverify_runs" VALUES('20270115T080009-80053f',14,'verify','old',1800000009.5,'{}');
CREATE TABLE migverify_scopes (
	scope INTEGER NOT NULL, 
	run_id VARCHAR(32) NOT NULL, 
	pair_hash BLOB NOT NULL, 
	pair TEXT NOT NULL, 
	PRIMARY KEY (scope), 
	UNIQUE (run_id, pair_hash)
);
INSERT INTO "migverify_scopes" VALUES(1,'20270115T080001-000ca3',X'BC62A3C14FEC277E3DC6B504BF7C6348C2E421F8ACC42032DEDDB0A96070F078','accounts');
INSERT INTO "migverify_scopes" VALUES(2,'20270115T080001-000ca3',X'21EB2153DD1483CD67A621FB2C7B2F65B2CA46C64A49E49BE4B939A1F0C844F8','customers');
INSERT INTO "migverify_scopes" VALUES(3,'20270115T080001-000ca3',X'DF384AE97C77AD3001626AAB01F2EB2AAD176448109165DF1D64C57B7091CD1C','payments');
INSERT INTO "migverify_scopes" VALUES(4,'20270115T080001-000ca3',X'04BD77921F470FD9CCEA1FCE0F8B7D65EB3C96AF332141FD45FA3131FE0DDD27','audit_log');
INSERT INTO "migverify_scopes" VALUES(5,'20270115T080002-c00966',X'9350872D712A127C494D7DC35E46B0BC9E62E288239708E581DFC3A1400154A4','pay');
INSERT INTO "migverify_scopes" VALUES(6,'20270115T080003-800b1d',X'9350872D712A127C494D7DC35E46B0BC9E62E288239708E581DFC3A1400154A4','pay');
INSERT INTO "migverify_scopes" VALUES(7,'20270115T080003-c00a14',X'BC62A3C14FEC277E3DC6B504BF7C6348C2E421F8ACC42032DEDDB0A96070F078','accounts');
INSERT INTO "migverify_scopes" VALUES(8,'20270115T080005-00089e',X'9350872D712A127C494D7DC35E46B0BC9E62E288239708E581DFC3A1400154A4','pay');
INSERT INTO "migverify_scopes" VALUES(9,'20270115T080005-4001d5',X'2D555DE751022D4B56A2F146012470F11F34E739E710059403E318654A6D8FD3','guard/check');
INSERT INTO "migverify_scopes" VALUES(10,'20270115T080005-c00d61',X'41CF6794BA4200B839C53531555F0F3998DF4CBB01A4D5CB0B94E3CA5E23947D','source');
INSERT INTO "migverify_scopes" VALUES(11,'20270115T080005-c00d61',X'34A04005BCAF206EEC990BD9637D9FDB6725E0A0C0D4AEBF003F17F4C956EB5C','target');
INSERT INTO "migverify_scopes" VALUES(12,'20270115T080006-4002f5',X'41CF6794BA4200B839C53531555F0F3998DF4CBB01A4D5CB0B94E3CA5E23947D','source');
INSERT INTO "migverify_scopes" VALUES(13,'20270115T080006-4002f5',X'34A04005BCAF206EEC990BD9637D9FDB6725E0A0C0D4AEBF003F17F4C956EB5C','target');
INSERT INTO "migverify_scopes" VALUES(14,'20270115T080006-c00241',X'5CC82D7BA1D0C502ADBDFD4AA2C00E5A2EFE5A460A52FD60947EBCA8F650F48B','workload replay');
INSERT INTO "migverify_scopes" VALUES(15,'20270115T080008-400dcc',X'C0BD40B21D4815B7A50E9EBAEA2E538A9D9117C8EF4FD4FC2FF030220A44350A','probe:window-frame');
INSERT INTO "migverify_scopes" VALUES(16,'20270115T080008-c00339',X'E3B98A4DA31A127D4BDE6E43033F66BA274CAB0EB7EB1C70EC41402BF6273DD8','t');
CREATE TABLE migverify_spans (
	scope BIGINT NOT NULL, 
	span BIGINT NOT NULL, 
	key_range TEXT NOT NULL, 
	PRIMARY KEY (scope, span)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_spans" VALUES(1,0,'[null,["9007199254740993"],false]');
INSERT INTO "migverify_spans" VALUES(1,1,'[["9007199254740993"],null,false]');
INSERT INTO "migverify_spans" VALUES(1,2,'[null,null,true]');
INSERT INTO "migverify_spans" VALUES(2,0,'[null,null,false]');
INSERT INTO "migverify_spans" VALUES(3,0,'[null,null,false]');
INSERT INTO "migverify_spans" VALUES(4,0,'[null,null,false]');
CREATE TABLE migverify_sql_texts (
	scope BIGINT NOT NULL, 
	side VARCHAR(190) NOT NULL, 
	purpose VARCHAR(190) NOT NULL, 
	number BIGINT NOT NULL, 
	sql_text TEXT NOT NULL, 
	PRIMARY KEY (scope, side, purpose)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_sql_texts" VALUES(1,'source','checksum',1,'SELECT COUNT(*) FROM `shop`.`accounts`');
INSERT INTO "migverify_sql_texts" VALUES(1,'target','checksum',2,'SELECT COUNT(*) FROM `shop`.`accounts` -- target');
CREATE TABLE migverify_store (
	name VARCHAR(64) NOT NULL, 
	value VARCHAR(255) NOT NULL, 
	PRIMARY KEY (name)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_store" VALUES('schema_version','1');
CREATE TABLE migverify_table_results (
	scope BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	at DOUBLE NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (scope, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_table_results" VALUES(1,1,1800000001.25,'INCONCLUSIVE','{"pair":"accounts","source":"shop.accounts","target":"shop.accounts","verdict":"INCONCLUSIVE","reasons":[],"rows_source":1000,"rows_target":1000,"chunks":4,"lanes":["exact"],"missing_on_target":0,"missing_on_source":0,"value_differs":0,"not_covered":[],"schema":[],"seconds":1.25,"hash_name":"sha2-256/60","blind_spots":["A collision of a 60-bit sum has a chance of about 2^-60."],"details":{}}');
INSERT INTO "migverify_table_results" VALUES(1,2,1800000001.5,'MISMATCH','{"pair":"accounts","source":"shop.accounts","target":"shop.accounts","verdict":"MISMATCH","reasons":["14 row diffs"],"rows_source":1000,"rows_target":1000,"chunks":6,"lanes":["exact","value"],"missing_on_target":1,"missing_on_source":1,"value_differs":10,"not_covered":[{"what":"column `geo`","reason":"its type POINT has no canonical text on TiDB"}],"schema":[{"kind":"type","where":"name","source":"varchar(20)","target":"varchar(10)","level":"may-lose-data","message":"the target holds fewer characters"},{"kind":"missing","where":"geo","source":"point","target":null,"level":"breaks-comparison","message":"no such column"}],"seconds":9,"hash_name":"sha2-256/60","blind_spots":["A collision of a 60-bit sum has a chance of about 2^-60."],"details":{"position":{"source":"binlog.000012:4711"},"counts":[1,2.5,null,true]}}');
INSERT INTO "migverify_table_results" VALUES(2,1,1800000002.25,'MATCH','{"pair":"customers","source":"shop.customers","target":"shop.customers","verdict":"MATCH","reasons":[],"rows_source":1000,"rows_target":1000,"chunks":1,"lanes":["exact"],"missing_on_target":0,"missing_on_source":0,"value_differs":0,"not_covered":[],"schema":[],"seconds":1.25,"hash_name":"sha2-256/60","blind_spots":["A collision of a 60-bit sum has a chance of about 2^-60."],"details":{}}');
INSERT INTO "migverify_table_results" VALUES(3,1,1800000001.75,'INCONCLUSIVE','{"pair":"payments","source":"shop.payments","target":"shop.payments","verdict":"INCONCLUSIVE","reasons":["1 of 2 chunks could not be read"],"rows_source":1000,"rows_target":null,"chunks":2,"lanes":["exact"],"missing_on_target":0,"missing_on_source":0,"value_differs":0,"not_covered":[],"schema":[],"seconds":61.0,"hash_name":"sha2-256/60","blind_spots":["A collision of a 60-bit sum has a chance of about 2^-60."],"details":{}}');
INSERT INTO "migverify_table_results" VALUES(4,1,1800000002.0,'MISMATCH','{"pair":"audit_log","source":"shop.audit_log","target":"archive.audit_log","verdict":"MISMATCH","reasons":[],"rows_source":1000,"rows_target":1000,"chunks":1,"lanes":["exact"],"missing_on_target":0,"missing_on_source":0,"value_differs":1,"not_covered":[],"schema":[],"seconds":1.25,"hash_name":"sha2-256/60","blind_spots":["A collision of a 60-bit sum has a chance of about 2^-60."],"details":{}}');
INSERT INTO "migverify_table_results" VALUES(5,1,1800000003.0,'MISMATCH','{"pair":"pay","source":"orders (orders: shop.orders)","target":"payments (payments: shop.payments)","verdict":"MISMATCH","reasons":["1 key has unlike values"],"rows_source":10,"rows_target":11,"chunks":1,"lanes":[],"missing_on_target":0,"missing_on_source":0,"value_differs":1,"not_covered":[],"schema":[],"seconds":1.5,"hash_name":"","blind_spots":[],"details":{"recon":{"kind":"same_rows","severity":"critical","owner":"ann","description":"","place":"rules.yaml:7","datasets":["orders","payments"],"counts":{"value mismatch":1,"known exception":1},"money":[["known exception","EUR","9007199254740993.0001"],["value mismatch","EUR","9007199254740993.0001"]],"unexplained":{"EUR":"9007199254740993.0001"},"volume":{"EUR":"90071992547409930.001"},"covered":{"rows_source":10,"rows_target":11,"matched":9,"groups":0,"events":0,"crossed":0},"windows":{"count":1,"first":"","last":"","MISMATCH":1},"anchors":[{"endpoint":"source","flavor":"mysql","how":"consistent snapshot","position":"binlog.000012:4711","until":"","exact":true,"at":1.0}]}}}');
INSERT INTO "migverify_table_results" VALUES(7,1,1800000004.5,'MISMATCH','{"pair":"accounts","source":"shop.accounts","target":"shop.accounts","verdict":"MISMATCH","reasons":[],"rows_source":1000,"rows_target":1000,"chunks":4,"lanes":["exact"],"missing_on_target":0,"missing_on_source":0,"value_differs":1,"not_covered":[],"schema":[],"seconds":1.25,"hash_name":"sha2-256/60","blind_spots":["A collision of a 60-bit sum has a chance of about 2^-60."],"details":{}}');
INSERT INTO "migverify_table_results" VALUES(14,1,1800000007.0,'MISMATCH','{"pair":"workload replay","source":"source","target":"target","verdict":"MISMATCH","reasons":["2 digests differ for certain: error, value"],"rows_source":null,"rows_target":null,"chunks":0,"lanes":[],"missing_on_target":0,"missing_on_source":0,"value_differs":0,"not_covered":[],"schema":[],"seconds":2.5,"hash_name":"","blind_spots":[],"details":{"replay":{"statements":22,"judged":22,"same":20,"different":2,"indeterminate":0,"unjudged":0,"assumed":0,"unproven":0,"shallow":0,"did_not_recur":0,"written":1,"digests":3,"digests_judged":3,"judged_share":1.0,"digests_share":1.0,"indeterminate_share":0.0,"unjudged_share":0.0,"repeated":0,"noisy":0,"by_verdict":{"MATCH":1,"MISMATCH":2,"INCONCLUSIVE":0},"out_of_scope":0,"out_of_scope_kinds":[]}}}');
INSERT INTO "migverify_table_results" VALUES(16,1,1800000009.0,'MATCH','{"pair":"t","source":"shop.t","target":"shop.t","verdict":"MATCH","reasons":[],"rows_source":1000,"rows_target":1000,"chunks":4,"lanes":["exact"],"missing_on_target":0,"missing_on_source":0,"value_differs":0,"not_covered":[],"schema":[],"seconds":1.25,"hash_name":"sha2-256/60","blind_spots":["A collision of a 60-bit sum has a chance of about 2^-60."],"details":{}}');
COMMIT;
