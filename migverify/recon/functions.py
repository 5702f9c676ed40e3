"""Functions that SQL of a rule may call, and words that may stand before a parenthesis: data of ``statements``.

A name that is not here may be a stored function, and those may write. The list is what MySQL, MariaDB and TiDB build
in, less what locks, waits, writes, reads files or depends on the session.
"""

from __future__ import annotations

_TEXT = """
ascii bin bit_length char char_length character_length chr collation charset coercibility concat concat_ws elt
export_set field find_in_set format from_base64 hex insert instr lcase left length locate lower lpad ltrim make_set mid
natural_sort_key oct octet_length ord position quote repeat replace reverse right rpad rtrim sformat soundex space
strcmp substr substring substring_index to_base64 to_char translate trim ucase unhex upper weight_string regexp_instr
regexp_like regexp_replace regexp_substr convert cast match against
"""
_NUMBERS = """
abs acos asin atan atan2 ceil ceiling conv cos cot crc32 crc32c degrees div exp floor greatest interval least ln log
log10 log2 mod pi pow power radians round sign sin sqrt tan truncate bit_count bitand bitor bitxor bitneg
"""
_TIMES = """
add_months adddate addtime convert_tz curdate current_date current_time current_timestamp curtime date date_add
date_format date_sub datediff day dayname dayofmonth dayofweek dayofyear extract from_days from_unixtime get_format hour
last_day localtime localtimestamp makedate maketime microsecond minute month monthname now period_add period_diff
quarter sec_to_time second str_to_date subdate subtime time time_format time_to_sec timediff timestamp timestampadd
timestampdiff to_days to_seconds unix_timestamp utc_date utc_time utc_timestamp week weekday weekofyear year yearweek
"""
_VALUES = """
any_value case coalesce default grouping if ifnull isnull name_const nullif nvl nvl2 values row exists
bin_to_uuid uuid_to_bin is_uuid uuid_timestamp uuid_version
inet_aton inet_ntoa inet6_aton inet6_ntoa is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6
aes_decrypt aes_encrypt compress decode encode md5 password sha sha1 sha2 sm3 statement_digest statement_digest_text
uncompress uncompressed_length database schema version tidb_version
tidb_parse_tso tidb_parse_tso_logical tidb_shard vitess_hash format_bytes
"""
_JSON = """
json_array json_array_append json_array_insert json_compact json_contains json_contains_path json_depth json_detailed
json_equals json_exists json_extract json_insert json_keys json_length json_loose json_merge json_merge_patch
json_merge_preserve json_normalize json_object json_overlaps json_pretty json_query json_quote json_remove json_replace
json_schema_valid json_search json_set json_storage_free json_storage_size json_table json_type json_unquote json_valid
json_value extractvalue updatexml column_get column_exists column_json
"""
_AGGREGATES = """
approx_count_distinct approx_percentile avg bit_and bit_or bit_xor count group_concat json_arrayagg json_objectagg max
median min percentile_cont percentile_disc std stddev stddev_pop stddev_samp sum var_pop var_samp variance
cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
"""
_SPATIAL = """
st_area st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_contains st_distance st_distance_sphere st_equals
st_geohash st_geomfromgeojson st_geomfromtext st_geomfromwkb st_geometrytype st_intersects st_isvalid st_latitude
st_length st_longitude st_srid st_swapxy st_within st_x st_y point
vec_as_text vec_cosine_distance vec_dims vec_from_text vec_l1_distance vec_l2_distance vec_l2_norm
vec_negative_inner_product
"""
_KEYWORDS = """
all and any as between binary both by columns cross distinct distinctrow else end escape except filter for force from
group having ignore in index intersect is join key lateral leading like limit natural nested not of offset on or order
ordinality over partition path recursive regexp rlike select separator some straight_join then trailing union use using
when where window with within xor
bigint bit character decimal dec double fixed float int integer mediumint nchar nvarchar numeric real signed smallint
tinyint unsigned varbinary varchar datetime vector
"""

BUILT_IN = frozenset(
    " ".join((_TEXT, _NUMBERS, _TIMES, _VALUES, _JSON, _AGGREGATES, _SPATIAL, _KEYWORDS)).split()
)  # fmt: skip
"""Names, in lower case, that may stand before a parenthesis."""

_UNSPACED = """
adddate bit_and bit_or bit_xor cast count curdate curtime date_add date_sub extract group_concat json_arrayagg
json_objectagg max mid min now position std stddev stddev_pop stddev_samp subdate substr substring sum trim
var_pop var_samp variance
"""

UNSPACED = frozenset(_UNSPACED.split())
"""Built in only where the parenthesis follows at once: with a space a stored function of that name is called.

Source: the MySQL manual, "Function Name Parsing and Resolution", for a session without IGNORE_SPACE.
"""

_LOCKS = "takes or looks at a lock"
_WAITS = "waits"
_SEQUENCE = "changes a sequence"
_SESSION = "depends on the session"

REFUSED = {
    "sleep": _WAITS, "benchmark": _WAITS, "master_pos_wait": _WAITS, "source_pos_wait": _WAITS,
    "master_gtid_wait": _WAITS, "wait_for_executed_gtid_set": _WAITS, "wait_until_sql_thread_after_gtids": _WAITS,
    "get_lock": _LOCKS, "release_lock": _LOCKS, "release_all_locks": _LOCKS, "is_free_lock": _LOCKS,
    "is_used_lock": _LOCKS,
    "load_file": "reads a file of the server",
    "nextval": _SEQUENCE, "setval": _SEQUENCE, "lastval": _SESSION,
    "last_insert_id": _SESSION, "found_rows": _SESSION, "row_count": _SESSION, "connection_id": _SESSION,
    "current_user": _SESSION, "session_user": _SESSION, "system_user": _SESSION, "user": _SESSION,
    "current_role": _SESSION, "getvar": _SESSION, "setvar": "assigns a variable", "sysdate": _SESSION,
    "rand": "gives another answer at each read", "random_bytes": "gives another answer at each read",
    "uuid": "gives another answer at each read", "uuid_short": "gives another answer at each read",
    "uuid_v4": "gives another answer at each read", "uuid_v7": "gives another answer at each read",
    "sys_exec": "runs a program", "sys_eval": "runs a program",
}  # fmt: skip
"""Built-in functions that a rule may not call, and why."""

MEANINGLESS = frozenset({"current_user", "current_role"})
"""Words that call a function without a parenthesis, and that a rule may not use."""
