"""migverify.yaml -> Config: what is understood, and what each mistake says."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.cli.main import run
from migverify.config import (
    Config,
    comparison_digest,
    describe,
    full_digest,
    load_config,
    override_for,
    shard_of,
)
from migverify.config.urls import check_store_url, parse_endpoint_url
from migverify.errors import ConfigError, ExitCode

SMALL = """\
source: {url: "mysql://app@db1"}
target: {url: "tidb://root@tidb"}
"""


def load(folder: Path, text: str, **environment: str) -> Config:
    path = folder / "migverify.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, environment=environment)


def refused(folder: Path, text: str, **environment: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **environment)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def test_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    assert [endpoint.name for endpoint in config.endpoints] == ["source", "target"]
    assert (config.sources[0].host, config.sources[0].port, config.sources[0].user) == ("db1", 3306, "app")
    assert config.target.port == 4000
    assert config.store.url == f"sqlite:///{tmp_path}/.migverify/runs.db"
    assert config.limits.chunk_rows == 32768
    assert config.limits.max_threads_running is None
    assert config.recheck.rounds == 3
    assert (config.consistency, config.hash, config.spark.master) == ("auto", "auto", "local[*]")
    assert config.report.values is False
    assert config.shards == ("",)


def test_everything_reaches_the_config(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """\
sources:
  eu: &shard
    url: mysql://app%40x@db1:3307/
    password_env: EU_PASSWORD
    tls: {ca: ca.pem}
    connections: 8
    query_seconds: 30
    session: {max_join_size: 5, foo_bar: true, zone: 12:30:00}
  us: {<<: *shard, url: "mysql://[::1]@[::1]:3308", connections: 2}
target: {host: tidb, port: 4001, user: root, password_command: "pass x", snapshot: 2026-01-31 12:00:00,
         resource_group: slow, low_priority: false}
store: postgresql://u@h/db
store_password_env: STORE_PASSWORD
limits: {chunk_seconds: 1, pause_file: pause, max_row_diffs: 0}
recheck: {delay: 0.5, rounds: 1}
consistency: live
report: {values: true}
hash: md5
spark: {master: "spark://m:7077", conf: {spark.executor.cores: 2, spark.x: false}}
""".replace("[::1]@", "app@"),
    )
    eu, us = config.sources
    assert (eu.name, us.name, config.shards) == ("source.eu", "source.us", ("eu", "us"))
    assert (eu.host, eu.port, eu.user, eu.connections, eu.query_seconds) == ("db1", 3307, "app@x", 8, 30.0)
    assert (us.host, us.port, us.user, us.connections) == ("::1", 3308, "app", 2)
    assert us.password_env == "EU_PASSWORD"
    assert eu.tls.mode == "verify-identity"
    assert eu.session == (("max_join_size", "5"), ("foo_bar", "ON"), ("zone", "12:30:00"))
    assert shard_of(us) == "us"
    assert shard_of(config.target) == ""
    target = config.target
    assert (target.host, target.port, target.user) == ("tidb", 4001, "root")
    assert (target.password_command, target.snapshot) == ("pass x", "2026-01-31 12:00:00")
    assert (target.resource_group, target.low_priority) == ("slow", False)
    assert (config.store.url, config.store.password_env) == ("postgresql://u@h/db", "STORE_PASSWORD")
    assert config.limits.pause_file == str(tmp_path / "pause")
    assert config.limits.max_row_diffs == 0
    assert (config.recheck.delay, config.recheck.rounds) == (0.5, 1)
    assert (config.consistency, config.hash, config.report.values) == ("live", "md5", True)
    assert config.spark.conf == {"spark.executor.cores": "2", "spark.x": "false"}
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  (our own bytes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("target: {url: 'tidb://r@t'}", "`source` is missing"),
        (SMALL + "sources: {a: {url: 'mysql://r@t'}}", "both `source` and `sources`"),
        ("source: {url: 'mysql://r@t'}", "the key target is missing"),
        (SMALL + "limts: {}", ":3:1: unknown key limts\n  Did you mean limits?"),
        (SMALL + "limits:\n  chunk_row: 5", ":4:3: unknown key limits.chunk_row\n  Did you mean chunk_rows?"),
        (SMALL + "chunk_rows: 5", "unknown key chunk_rows\n  Did you mean limits.chunk_rows?"),
        (SMALL + "routes: [{form: a.b, to: c.d}]", "unknown key routes[0].form - Did you mean from?"),
        (SMALL + "limits: {retries: '3'}", ":3:10: limits.retries: this takes a whole number"),
        (SMALL + "limits: {retries: true}", "limits.retries: this takes a whole number"),
        (SMALL + "limits: {retries: -1}", "limits.retries: this takes a number at least 0"),
        (SMALL + "limits: {chunk_seconds: .nan}", "limits.chunk_seconds: this takes a"),
        (SMALL + "limits: {chunk_rows: 10, max_chunk_rows: 9}", "`max_chunk_rows` is below `chunk_rows`"),
        (SMALL + "hash: crc32", "hash: this takes one of 'auto', 'sha2', 'md5' or 'sha1'"),
        (SMALL + "report: {values: no}", "report.values: this takes true or false"),
        (SMALL + "tables: {include: app.*}", "tables.include: this takes a list"),
        (SMALL + "tables: {include: []}", "tables.include: this must not be empty"),
        (SMALL + "tables: {include: }", "tables.include: this key has no value"),
        (SMALL + "tables: {include: [app]}", "tables.include[0]: a pattern is database.table"),
        (SMALL + "tables: {include: ['app./(/']}", "not a regular expression"),
        (SMALL + "routes: [{from: a.b, to: 'c.*'}]", "more *"),
        (SMALL + "routes: [{from: 'a.*', to: 'c.{2}'}]", "`to` names {2}, but `from` captures 1"),
        (SMALL + "overrides: [{table: a.b, where: 'x -- y'}]", "overrides[0].where: the condition holds a comment"),
        (SMALL + "overrides: [{table: a.b, where: {source: 'a) or (b'}}]", "overrides[0].where.source: the condition"),
        (SMALL + "overrides: [{table: a.b, float_tolerance: 0}]", "this takes a number above 0"),
        (SMALL + "overrides: [{table: a.b, key: [a, a]}]", "named twice"),
        (SMALL + "overrides: [{table: a.b, rename: {a: x, b: x}}]", "renamed to the same"),
        (SMALL + "overrides: [{table: a.b, immutable_before: {column: c, value: soon}}]", "ISO date"),
        (SMALL + "store: runs.db", "SQLAlchemy URL"),
        (SMALL + "store: sqlite://runs.db", "three slashes"),
        ("", "the file is empty"),
        ("- a\n", "this takes a mapping"),
        (SMALL + "source: {}", ":3:1: the key 'source' occurs twice; first in line 1"),
        (SMALL + "limits: {retries: 1, retries: 2}", "the key 'retries' occurs twice"),
        (SMALL + "limits: [1\n", "not valid YAML"),
        (SMALL + "limits: !!python/object:os.system {}", "tags"),
        (SMALL + "\x01", "not valid YAML"),
        (SMALL + "x: &a [*a]", "leads back into itself"),
        (SMALL + "reverse:\n  carrier: {format: canal-json, files: [x], time_zone: Asia/Tokio}",
         ":4:45: reverse.carrier.time_zone: this is no time zone that is known here. Give UTC, an offset like +09:00"),
        (SMALL + "reverse: {carrier: {format: canal-json, files: [x], time_zone: '+99:00'}}", "this is no time zone"),
        (SMALL + "consistency: ${MODE}", ":3:14: the environment variable MODE is not set"),
        (SMALL + "consistency: ${no such}", "takes the name of an environment variable"),
        (SMALL + "sources: ", "x"),
        ("sources: {a.b: {url: 'mysql://u@h'}}\ntarget: {url: 'tidb://u@h'}", "names of shards"),
        ("source: {url: 'mysql://u@h', host: h}\ntarget: {url: 'tidb://u@h'}", "give either `url`"),
        ("source: {host: h}\ntarget: {url: 'tidb://u@h'}", "`user` is missing"),
        ("source: {tls: {}}\ntarget: {url: 'tidb://u@h'}", "`url` is missing"),
        ("source: {url: 'mysql://u@h', tls: {mode: preferred, ca: x}}\ntarget: {url: 'tidb://u@h'}", "verify-ca"),
        ("source: {url: 'mysql://u@h', snapshot: \"a'b\"}\ntarget: {url: 'tidb://u@h'}", "date and time or a TSO"),
        ("source: {url: 'mysql://u@h', session: {'a b': 1}}\ntarget: {url: 'tidb://u@h'}", "session variables"),
        ("source: {url: 'mysql://u@h', session: {TX_isolation: x}}\ntarget: {url: 'tidb://u@h'}", "tx_isolation: pin"),
        ("source: {url: 'mysql://u@h'}\ntarget: {url: 'tidb://u@h', session: {tidb_snapshot: x}}", "see `snapshot`"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, text: str, expected: str) -> None:
    if expected == "x":  # an empty `sources:` beside `source:` is no second source
        assert load(tmp_path, text).shards == ("",)
        return
    message = str(refused(tmp_path, text))
    assert "migverify.yaml" in message
    assert expected in message or expected.replace(" - ", "\n  ") in message


def test_aliases_that_repeat_too_much_are_refused_at_once(tmp_path: Path) -> None:
    lines = [f"x0: &x0 [{', '.join('lol' for _ in range(10))}]"]
    lines += [f"x{n}: &x{n} [{', '.join(f'*x{n - 1}' for _ in range(10))}]" for n in range(1, 12)]
    begun = time.process_time()
    message = str(refused(tmp_path, SMALL + "\n".join(lines)))
    assert time.process_time() - begun < 2.0
    assert "migverify.yaml:8:5: more than 1,000,000 values, counted with what its aliases repeat" in message
    deep = "\n".join(["x0: &x0 [a]", *(f"x{n}: &x{n} [*x{n - 1}]" for n in range(1, 2000))])
    assert "nested deeper than 64 levels by its aliases" in str(refused(tmp_path, SMALL + deep))
    assert "leads back into itself" in str(refused(tmp_path, SMALL + "x: &a {<<: {y: [1, *a]}}"))


def test_aliases_repeat_what_they_name(tmp_path: Path) -> None:
    shared = (
        SMALL
        + "limits: &l {retries: 3}\ntables: {include: &i [a.b], exclude: *i}\nrecheck: {<<: [{delay: 1}, {rounds: 4}]}"
    )
    config = load(tmp_path, shared)
    assert [one.text for one in config.tables.exclude] == ["a.b"]
    assert (config.recheck.delay, config.recheck.rounds) == (1, 4)


def test_queries_of_rules_have_a_time_limit_where_the_endpoint_has_none(tmp_path: Path) -> None:
    own = SMALL.replace('db1"', 'db1", query_seconds: 7')
    assert [one.query_seconds for one in load(tmp_path, own).rule_endpoints] == [7, 3600]
    shorter = load(tmp_path, own + "limits: {rule_query_seconds: 60}")
    assert [one.query_seconds for one in shorter.rule_endpoints] == [7, 60]
    assert [one.query_seconds for one in shorter.all_endpoints] == [7, 0]
    none = load(tmp_path, SMALL + "limits: {rule_query_seconds: 0}")
    assert [one.query_seconds for one in none.rule_endpoints] == [0, 0]
    assert describe(none)["limits"]["rule_query_seconds"] == 0
    assert "rule_query_seconds" not in describe(load(tmp_path, SMALL))["limits"]


def test_missing_file_points_at_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="migverify init"):
        load_config(tmp_path / "migverify.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "migverify.yaml"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(path)


def test_several_mistakes_are_reported_at_once_in_order(tmp_path: Path) -> None:
    message = str(refused(tmp_path, SMALL + "hash: x\nlimts: {}\nlimits: {retries: x}\n"))
    assert message.index(":3:1:") < message.index(":4:1:") < message.index(":5:10:")
    assert "Did you mean limits?" in message


def test_variables(tmp_path: Path) -> None:
    text = """\
source: {url: "mysql://${USER_NAME}@${HOST:-db9}", connections: 4}
target: {host: t, user: u, port: ${PORT}}
spark: {conf: {a: "$${literal}", b: "${EMPTY}", c: ${WORD}, d: "${NUMBER}"}}
"""
    text = text.replace("port: ${PORT}}", "port: 1}").replace("c: ${WORD}", 'c: "${WORD}"')
    config = load(tmp_path, text, USER_NAME="me", EMPTY="", WORD="no", NUMBER="7")
    assert (config.sources[0].user, config.sources[0].host) == ("me", "db9")
    assert dict(config.spark.conf) == {"a": "${literal}", "b": "", "c": "no", "d": "7"}
    block = "source:\n  host: h\n  user: u\n  port: ${PORT}\ntarget: {url: 'tidb://u@h'}\n"
    assert load(tmp_path, block, PORT="3310").sources[0].port == 3310
    assert "whole number" in str(refused(tmp_path, block.replace("${PORT}", '"${PORT}"'), PORT="3310"))
    assert "whole number" in str(refused(tmp_path, block, PORT=""))


SECRETS = ["hunter2", "@:/%#'\"\\ ", "pa/ss@w:rd", "ünï🙈cødé", "a?b#c", "%41%", "3306x", "p w", "*star", "&anc"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "template",
    ["mysql://root:{}@db:3306", "mysql://root:{}@db", "mysql://root:{}", "mysql://{}", "mysql:{}", "{}",
     "tidb://u@h:{}", "mysql://u@h/{}", "mysql://u@[{}"],
)  # fmt: skip
def test_no_part_of_a_url_shows_in_a_message(tmp_path: Path, template: str, secret: str) -> None:
    url = template.format(secret)
    with pytest.raises(ValueError, match=r"URL|user name|port|IPv6") as caught:
        parse_endpoint_url(url)
    assert secret.strip() not in str(caught.value)
    assert caught.value.__cause__ is None
    quoted = "'" + url.replace("'", "''") + "'"
    message = str(refused(tmp_path, f"source: {{url: {quoted}}}\ntarget: {{url: 'tidb://u@h'}}\n"))
    assert secret.strip() not in message


@pytest.mark.parametrize("key", ["password", "passwd", "pasword_env", "password_env", "url", "host", "port"])
@pytest.mark.parametrize(
    "secret", ["hunter2/x", "*hunter2/x", "&hunter2/x", "!hunter2/x", "[hunter2/x", "hunter2/x: y"]
)
def test_no_value_shows_in_a_message(tmp_path: Path, key: str, secret: str) -> None:
    message = str(refused(tmp_path, f"source:\n  user: u\n  port: {{}}\n  {key}: {secret}\n"))
    assert "hunter2" not in message


def test_password_key_is_explained(tmp_path: Path) -> None:
    error = refused(tmp_path, "source: {url: 'mysql://u@h', password: hunter2}\ntarget: {url: 'tidb://u@h'}\n")
    assert "password_env" in error.hint


@given(st.text(st.characters(exclude_characters=":@/", exclude_categories=["Cs"]), min_size=1))
def test_user_names_survive_percent_encoding(user: str) -> None:
    from urllib.parse import quote

    address = parse_endpoint_url(f"mysql://{quote(user, safe='')}@h:1")
    assert (address.user, address.host, address.port) == (user, "h", 1)


@given(st.text())
def test_any_url_is_understood_or_refused(text: str) -> None:
    refusals = set()
    for check in (parse_endpoint_url, check_store_url):
        for url in (text, "mysql://" + text, "mysql://u@" + text, f"mysql://u%{text}@h"):
            try:
                check(url)
            except ValueError as error:
                refusals.add(type(error))
    assert refusals <= {ValueError}  # not a kind of it, whose message would show the text


def test_percent_encoding_that_is_not_utf8() -> None:
    with pytest.raises(ValueError, match="UTF-8"):
        parse_endpoint_url("mysql://%ff@h")


@pytest.mark.parametrize(
    "url", ["mysql://u:p@h", "postgresql+psycopg://u:p@h/d", "x://h/d?user=u&Password=p", "m://u:@h"]
)
def test_store_password_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="store_password_env"):
        check_store_url(url)


def test_a_store_has_a_variable_or_a_command_for_its_password(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL + "store_password_command: echo ${PW}\n")
    assert (config.store.password_env, config.store.password_command) == (None, "echo ${PW}")
    both = "store_password_command: echo x\nstore_password_env: PW\n"
    assert "either `store_password_env` or `store_password_command`" in str(refused(tmp_path, SMALL + both))


def test_comparison_digest_ignores_how_but_not_what(tmp_path: Path) -> None:
    base = load(tmp_path, SMALL)
    same = [
        SMALL.replace("db1", "db2:3307").replace("app@", "other@"),
        SMALL + "limits: {chunk_rows: 5}",
        SMALL + "store: 'sqlite:///x.db'",
        SMALL + "recheck: {rounds: 9}",
        SMALL + "report: {values: true}",
        SMALL + "spark: {master: 'local[1]'}",
        SMALL.replace('"}', '", password_env: X, connections: 9, tls: {mode: required}}'),
    ]
    other = [
        SMALL + "tables: {include: [app.*]}",
        SMALL + "tables: {exclude: [app.*]}",
        SMALL + "routes: [{from: a.b, to: c.d}]",
        SMALL + "routes: [{from: a.b, to: c.d, shard: x}]",
        SMALL + "overrides: [{table: a.b, where: x}]",
        SMALL + "overrides: [{table: a.b, ignore: [x]}]",
        SMALL + "overrides: [{table: a.b, float_tolerance: 0.1}]",
        SMALL + "consistency: live",
        SMALL + "hash: md5",
        SMALL.replace('tidb"}', 'tidb", snapshot: 5}'),
        SMALL.replace('tidb"}', 'tidb", session: {a: 1}}'),
        SMALL.replace('source: {url: "mysql://app@db1"}', 'sources: {a: {url: "mysql://app@db1"}}'),
    ]
    digests = {comparison_digest(base)}
    for text in same:
        config = load(tmp_path, text)
        assert comparison_digest(config) == comparison_digest(base), text
        assert full_digest(config) != full_digest(base), text
    for text in other:
        digests.add(comparison_digest(load(tmp_path, text)))
    assert len(digests) == len(other) + 1
    (tmp_path / "elsewhere.yaml").write_text(SMALL, encoding="utf-8")
    assert full_digest(load_config(tmp_path / "elsewhere.yaml")) == full_digest(base)


def test_description_holds_no_secret(tmp_path: Path) -> None:
    text = SMALL.replace('db1"}', 'db1", password_command: "echo hunter2"}') + "store_password_command: echo hunter2\n"
    config = load(tmp_path, text + "spark: {conf: {spark.hadoop.fs.s3a.secret.key: hunter2}}")
    assert "hunter2" not in str(describe(config))


def test_overrides_merge_in_order(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        SMALL
        + """\
overrides:
  - {table: "app.*", key: [a], ignore: [x], rename: {a: b, c: d}, where: "1 = 1", float_tolerance: 0.1}
  - {table: "app.t*", ignore: [y, x], rename: {a: e}, float_tolerance: {f: 0.2}}
  - {table: "app.tt", key: [k, l], where: {target: "z = ')--'"},
     immutable_before: {column: c, value: "2026-01-31T09:00:00.5+09:00"}}
""",
    )
    nothing = override_for(config, "other", "t")
    assert (nothing.key, nothing.ignore, nothing.tolerance("f"), nothing.rename) == (None, (), None, {})
    first = override_for(config, "app", "a")
    assert (first.key, first.where.source, first.where.target) == (("a",), "1 = 1", "1 = 1")
    last = override_for(config, "app", "tt")
    assert last.key == ("k", "l")
    assert last.ignore == ("x", "y")
    assert last.rename == {"a": "e", "c": "d"}
    assert (last.where.source, last.where.target) == ("1 = 1", "z = ')--'")
    assert (last.tolerance("f"), last.tolerance("g")) == (0.2, 0.1)
    assert last.immutable_before is not None
    assert last.immutable_before.value == "2026-01-31 00:00:00.500000"


def test_importing_the_config_loads_neither_pydantic_nor_a_driver() -> None:
    code = "import sys, migverify.config; print(sorted({'pydantic', 'pymysql', 'sqlalchemy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_filled_in_password_does_not_become_a_name(tmp_path: Path) -> None:
    text = "source: {url: 'mysql://u@h', password_env: '${PW}'}\ntarget: {url: 'tidb://u@h'}\n"
    message = str(refused(tmp_path, text, PW="hunter2"))
    assert "password_env takes the name of a variable" in message
    assert "hunter2" not in message
    assert "takes the name" in str(refused(tmp_path, SMALL + 'store_password_env: "${PW}"', PW="hunter2"))
    config = load(tmp_path, text.replace("env: '${PW}'", "command: 'echo ${PW}'"), PW="hunter2")
    assert config.sources[0].password_command == "echo ${PW}"


def test_check_opens_certificate_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "migverify.yaml"
    path.write_text("source: {url: 'mysql://u@h', tls: {ca: /nowhere/ca.pem}}\ntarget: {url: 'tidb://u@h'}\n")
    assert run(["config", "-c", str(path)]) == 2
    assert "source: tls.ca: /nowhere/ca.pem: No such file" in capsys.readouterr().err


def test_a_store_on_a_server_is_verified_as_an_endpoint_is(tmp_path: Path) -> None:
    assert load(tmp_path, SMALL + "store: mysql+pymysql://u@db/x\n").store.tls.mode == "verify-identity"
    assert load(tmp_path, SMALL + "store: mysql+pymysql://u@127.0.0.1/x\n").store.tls.mode == "preferred"
    text = "store: mysql+pymysql://u@db/x\nstore_tls: {mode: required}\n"
    assert load(tmp_path, SMALL + text).store.tls.mode == "required"


@pytest.mark.attack("configuration", "a mistyped key that holds a password", "the place is named, the key is not shown")
@pytest.mark.parametrize("line", ["pasword=hunter2: 3", "pasword:hunter2: x", "store_password_env hunter2: x"])
def test_a_key_that_is_no_name_is_not_shown(tmp_path: Path, line: str) -> None:
    error = refused(tmp_path, SMALL + line)
    assert ":3:1: unknown key; it is not shown" in str(error)
    assert "hunter2" not in str(error)
