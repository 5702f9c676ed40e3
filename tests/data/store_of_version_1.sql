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
INSERT INTO "migverify_blobs" VALUES(1,'plan',1,0,X'00FF');
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
INSERT INTO "migverify_chunks" VALUES(1,0,0,1,'[null,["10"],false]','equal',10,10,'18446744073709551616','0',10,10,'18446744073709551616','0',1.5,0.25,0.0,0.0,1,'');
INSERT INTO "migverify_chunks" VALUES(1,0,1,2,'[["10"],["20"],false]','different',10,10,'18446744073709551616','0',NULL,NULL,NULL,NULL,1.75,0.25,0.0,0.0,1,'é😀');
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
INSERT INTO "migverify_finding_heads" VALUES(2,X'02762F4E0B226289235B1E15373ADF76CB48F4C03A58BDCC053A484DBDA7C70E',2,'value mismatch');
INSERT INTO "migverify_finding_heads" VALUES(2,X'11524FA193A2D348AEC3C8C066EB231EB841AB2DBC4ED6090C4C7E31E73A9C4B',3,'value mismatch');
INSERT INTO "migverify_finding_heads" VALUES(2,X'1EB84733E3637D72A12F87E5F271BC074175D61186A6D9728F07C26BB04DEDAC',4,'value mismatch');
INSERT INTO "migverify_finding_heads" VALUES(2,X'3A4FBD8244B87E3205D5349EA3EE9E1CC57390D2764F0FCB79BC5EABC6DA7AE5',7,'');
INSERT INTO "migverify_finding_heads" VALUES(2,X'814611B89DCA0ACB3D27C6495A9EBF878783A724A6F18B731E5DDEB5C7DAA7C9',1,'value mismatch');
INSERT INTO "migverify_finding_heads" VALUES(2,X'D8CC7E926C4DCC4829EFEE19D0B064A2BA232C82D270EE550E13D0C56F2E57F3',6,'value mismatch');
CREATE TABLE migverify_finding_windows (
	scope BIGINT NOT NULL, 
	window_hash BLOB NOT NULL, 
	number BIGINT NOT NULL, 
	PRIMARY KEY (scope, window_hash, number), 
	UNIQUE (scope, number)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_finding_windows" VALUES(2,X'3E23E8160039594A33894F6564E1B1348BBD7A0088D42C4ACB73EEAED59C009D',4);
INSERT INTO "migverify_finding_windows" VALUES(2,X'3E23E8160039594A33894F6564E1B1348BBD7A0088D42C4ACB73EEAED59C009D',5);
INSERT INTO "migverify_finding_windows" VALUES(2,X'3E23E8160039594A33894F6564E1B1348BBD7A0088D42C4ACB73EEAED59C009D',6);
INSERT INTO "migverify_finding_windows" VALUES(2,X'3E23E8160039594A33894F6564E1B1348BBD7A0088D42C4ACB73EEAED59C009D',7);
INSERT INTO "migverify_finding_windows" VALUES(2,X'CA978112CA1BBDCAFAC231B39A23DC4DA786EFF8147C4E72B9807785AFEE48BB',1);
INSERT INTO "migverify_finding_windows" VALUES(2,X'CA978112CA1BBDCAFAC231B39A23DC4DA786EFF8147C4E72B9807785AFEE48BB',2);
INSERT INTO "migverify_finding_windows" VALUES(2,X'CA978112CA1BBDCAFAC231B39A23DC4DA786EFF8147C4E72B9807785AFEE48BB',3);
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
INSERT INTO "migverify_findings" VALUES(2,1,X'814611B89DCA0ACB3D27C6495A9EBF878783A724A6F18B731E5DDEB5C7DAA7C9','value mismatch','{"key":["0"],"window":"a","kind":"value mismatch"}');
INSERT INTO "migverify_findings" VALUES(2,2,X'02762F4E0B226289235B1E15373ADF76CB48F4C03A58BDCC053A484DBDA7C70E','value mismatch','{"key":["1"],"window":"a","kind":"value mismatch"}');
INSERT INTO "migverify_findings" VALUES(2,3,X'11524FA193A2D348AEC3C8C066EB231EB841AB2DBC4ED6090C4C7E31E73A9C4B','value mismatch','{"key":["2"],"window":"a","kind":"value mismatch"}');
INSERT INTO "migverify_findings" VALUES(2,4,X'1EB84733E3637D72A12F87E5F271BC074175D61186A6D9728F07C26BB04DEDAC','value mismatch','{"key":["0"],"window":"b","kind":"value mismatch"}');
INSERT INTO "migverify_findings" VALUES(2,5,X'3A4FBD8244B87E3205D5349EA3EE9E1CC57390D2764F0FCB79BC5EABC6DA7AE5','value mismatch','{"key":["1"],"window":"b","kind":"value mismatch"}');
INSERT INTO "migverify_findings" VALUES(2,6,X'D8CC7E926C4DCC4829EFEE19D0B064A2BA232C82D270EE550E13D0C56F2E57F3','value mismatch','{"key":["2"],"window":"b","kind":"value mismatch"}');
INSERT INTO "migverify_findings" VALUES(2,7,X'3A4FBD8244B87E3205D5349EA3EE9E1CC57390D2764F0FCB79BC5EABC6DA7AE5','','{"key":["1"],"window":"b","kind":""}');
CREATE TABLE migverify_plan_parts (
	run_id VARCHAR(32) NOT NULL, 
	part INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (run_id, part)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_plan_parts" VALUES('20261123T170409-e7b65f',0,X'7801AB562A48CC2C2A56B28A564AD12B518AAD050033A70598');
INSERT INTO "migverify_plan_parts" VALUES('20261123T170409-ff25f2',0,X'7801AB562A2ACD492D56B28A562A48AC548AD501529945087E2D00BBA80AF7');
INSERT INTO "migverify_plan_parts" VALUES('20261123T170410-0a6a1d',0,X'7801AB564A2F4D2C4A2956B28A564ACE484DCE568AAD050049A206F7');
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
INSERT INTO "migverify_row_diff_heads" VALUES(1,X'115175DAFA22E3159003105401F27980690A156EA5190AA769E33A7E1394B09E',2,'value_differs','diverged');
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
INSERT INTO "migverify_row_diffs" VALUES(1,1,X'115175DAFA22E3159003105401F27980690A156EA5190AA769E33A7E1394B09E','["12"]','value_differs','unconfirmed','[["c","1",null,"null",false]]','aa','bb',1,1,'',0.0);
INSERT INTO "migverify_row_diffs" VALUES(1,2,X'115175DAFA22E3159003105401F27980690A156EA5190AA769E33A7E1394B09E','["12"]','value_differs','diverged','[["c","1",null,"null",false]]','aa','bb',1,1,'',2.5);
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
INSERT INTO "migverify_rule_windows" VALUES(2,1,'a','done','{"window":"a","state":"done"}');
INSERT INTO "migverify_rule_windows" VALUES(2,2,'b','done','{"window":"b","state":"done"}');
INSERT INTO "migverify_rule_windows" VALUES(2,3,'b','done','{"window":"b","state":"done"}');
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
INSERT INTO "migverify_run_events" VALUES('20261123T170409-e7b65f',0,'run_started',1.79545344990526294709e+09,'vm process 23700 4fd9c784fe37',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20261123T170409-e7b65f',1,'run_finished',1.79545344999618363378e+09,'vm process 23700 4fd9c784fe37','MISMATCH','{"seconds":1}');
INSERT INTO "migverify_run_events" VALUES('20261123T170409-ff25f2',0,'run_started',1.79545344999680233006e+09,'vm process 23700 a37f91ac955f',NULL,'{}');
INSERT INTO "migverify_run_events" VALUES('20261123T170410-0a6a1d',0,'run_started',1.79545345004073214527e+09,'vm process 23700 889a2a3f47d2',NULL,'{}');
CREATE TABLE migverify_run_kinds (
	run_id VARCHAR(32) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	PRIMARY KEY (run_id)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_run_kinds" VALUES('20261123T170409-e7b65f','tables');
INSERT INTO "migverify_run_kinds" VALUES('20261123T170409-ff25f2','rules');
INSERT INTO "migverify_run_kinds" VALUES('20261123T170410-0a6a1d','guards');
CREATE TABLE migverify_runbook_events (
	run VARCHAR(120) NOT NULL, 
	seq BIGINT NOT NULL, 
	line TEXT NOT NULL, 
	PRIMARY KEY (run, seq)
)
 WITHOUT ROWID

;
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
INSERT INTO "migverify_runs" VALUES('20261123T170409-e7b65f',1,'migverify tables verify','digest-1',1.79545344990526294709e+09,'{"source":"9.7"}');
INSERT INTO "migverify_runs" VALUES('20261123T170409-ff25f2',2,'migverify recon run','digest-2',1.79545344999680233006e+09,'{}');
INSERT INTO "migverify_runs" VALUES('20261123T170410-0a6a1d',3,'migverify check','digest-3',1.79545345004073214527e+09,'{}');
CREATE TABLE migverify_scopes (
	scope INTEGER NOT NULL, 
	run_id VARCHAR(32) NOT NULL, 
	pair_hash BLOB NOT NULL, 
	pair TEXT NOT NULL, 
	PRIMARY KEY (scope), 
	UNIQUE (run_id, pair_hash)
);
INSERT INTO "migverify_scopes" VALUES(1,'20261123T170409-e7b65f',X'9ACE5F20E8D6F7085AE2A7AA44D8B45A0F6BC351E9305188BFF0A290A94D378F','d.t');
INSERT INTO "migverify_scopes" VALUES(2,'20261123T170409-ff25f2',X'9350872D712A127C494D7DC35E46B0BC9E62E288239708E581DFC3A1400154A4','pay');
CREATE TABLE migverify_spans (
	scope BIGINT NOT NULL, 
	span BIGINT NOT NULL, 
	key_range TEXT NOT NULL, 
	PRIMARY KEY (scope, span)
)
 WITHOUT ROWID

;
INSERT INTO "migverify_spans" VALUES(1,0,'[null,["20"],false]');
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
INSERT INTO "migverify_sql_texts" VALUES(1,'source','rows',1,'SELECT 1');
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
COMMIT;
