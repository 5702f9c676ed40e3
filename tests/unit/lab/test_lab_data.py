"""The tables of the lab as data: no server needed."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from migverify.errors import LabError, UsageError
from migverify_lab import compose, museum, museum_loader, tidb, tpch


def test_every_row_of_the_museum_has_a_value_for_every_column():
    for table in museum.TABLES:
        assert {len(row) for row in table.rows} <= {len(table.columns)}, table.name
        assert len(set(table.columns)) == len(table.columns)
        assert set(table.key) <= set(table.columns)
        assert table.note


def test_the_museum_shows_every_shared_type():
    text = " ".join(table.ddl_source + table.ddl_target for table in museum.TABLES).upper()
    kinds = (
        "TINYINT SMALLINT MEDIUMINT INT BIGINT DECIMAL FLOAT DOUBLE DATE DATETIME TIMESTAMP TIME YEAR CHAR VARCHAR "
        "TINYTEXT TEXT MEDIUMTEXT LONGTEXT BINARY VARBINARY TINYBLOB BLOB MEDIUMBLOB LONGBLOB BIT ENUM SET JSON BOOL"
    )
    for kind in kinds.split():
        assert re.search(rf"\b{kind}\b", text), kind
    for charset in ("UTF8MB4", "UTF8MB3", "LATIN1", "ASCII", "GBK"):
        assert charset in text


def test_rows_go_in_by_the_same_literals_on_both_sides():
    for table in museum.TABLES:
        source, target = (table.insert_statements(side, "d") for side in ("source", "target"))
        named = [
            text.replace(museum.quote_name(table.name), museum.quote_name(table.name_on("target")), 1)
            for text in source
        ]
        assert named == target


def test_the_wide_table_waits_to_be_asked():
    assert "wide" not in {table.name for table in museum_loader.choose()}
    assert [table.name for table in museum_loader.choose(("wide",))] == ["wide"]
    assert len(museum_loader.choose(("wide",))[0].columns) == 1000
    with pytest.raises(UsageError, match="no table nowhere"):
        museum_loader.choose(("nowhere",))


def test_tpch_tables_and_parts():
    assert [table.name for table in tpch.choose(("lineitem", "orders"))] == ["orders", "lineitem"]
    lineitem = tpch.choose(("lineitem",))[0]
    assert lineitem.key == ("l_orderkey", "l_linenumber")
    assert "PRIMARY KEY (l_orderkey, l_linenumber)" in lineitem.ddl("d")
    assert lineitem.parts(0.001) == 1
    assert lineitem.parts(10) > 100
    assert tpch.choose(("nation",))[0].parts(1000) == 1


@pytest.mark.parametrize(("scale", "unique"), [(0.01, True), (0.012, False), (0.001, False), (0.3, True), (1, True)])
def test_partsupp_is_refused_only_where_its_formula_repeats(scale, unique):
    assert tpch.partsupp_is_unique(scale) is unique
    suppliers, parts = int(10_000 * scale), int(200_000 * scale)
    if parts <= 10_000:
        keys = [
            (part, (part + i * (suppliers // 4 + (part - 1) // suppliers)) % suppliers)
            for part in range(1, parts + 1)
            for i in range(4)
        ]
        assert (len(set(keys)) == len(keys)) is unique


def test_the_module_files_of_the_build_are_complete():
    data = files("migverify_lab") / "data"
    modules = (data / "tidb-go.mod").read_text()
    sums = (data / "tidb-go.sum").read_text()
    for name, version in re.findall(r"^\s*(github\.com/pingcap/\S+) (v\S+)", modules, re.MULTILINE):
        replaced = re.search(rf"{re.escape(name)} => (\S+) (v\S+)", modules)
        wanted = " ".join(replaced.groups()) if replaced else f"{name} {version}"
        assert f"{wanted} h1:" in sums, name


def test_a_failed_build_says_what_the_compiler_said(tmp_path, monkeypatch):
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\nif [ \"$1\" = env ]; then echo go1.26.0; exit; fi\necho 'no space left on device' >&2\nexit 1\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("MIGVERIFY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(LabError, match="no space left on device"):
        tidb.provide(lambda _: None)
    left = [path.name for path in (tmp_path / "cache").iterdir() if not path.name.endswith(".lock")]
    assert left == []


def test_a_build_goes_through_one_rename_and_tells_its_progress(tmp_path, monkeypatch):
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "env) echo go1.25.9;;\n"
        'build) echo \'a/b\' >&2; shift 4; echo binary > "$1"; chmod +x "$1"; sleep 0.3;;\n'
        "esac\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("MIGVERIFY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tidb, "PROGRESS_SECONDS", 0.05)
    told = []
    assert tidb.provide(told.append) == (str(tmp_path / "cache" / tidb.BINARY_NAME),)
    assert tidb.find() is not None
    assert told[0] == tidb.BUILD_NOTE
    assert any("compiling, 1 modules and packages so far" in line for line in told)
    told.clear()
    tidb.provide(told.append)
    assert told == []


def test_compose_projects_belong_to_their_folder(tmp_path):
    assert compose.project_name(tmp_path / "a") == compose.project_name(tmp_path / "a")
    assert compose.project_name(tmp_path / "a") != compose.project_name(tmp_path / "b")
    assert compose.compose_file().name == "docker-compose.yml"


def test_compose_gets_its_ports_and_a_failure_is_told(tmp_path, monkeypatch):
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$@ $MIGVERIFY_SOURCE_PORT $MIGVERIFY_TARGET_PORT" >> "$LOG"\nexit ${RC:-0}\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    compose.up(tmp_path / "lab", {"source": 1234, "target": 2345})
    compose.down(tmp_path / "lab", purge=True)
    first, second = (tmp_path / "log").read_text().splitlines()
    assert first.endswith("up --detach source target 1234 2345")
    assert "down --volumes" in second
    monkeypatch.setenv("RC", "17")
    with pytest.raises(LabError, match="ended with 17"):
        compose.up(tmp_path / "lab", {})


def test_a_client_without_an_engine_does_not_count(tmp_path, monkeypatch):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    compose.engine_answers.cache_clear()
    assert compose.engine_answers() is False
    docker.write_text("#!/bin/sh\nexit 0\n")
    compose.engine_answers.cache_clear()
    assert compose.engine_answers() is True
    compose.engine_answers.cache_clear()


def test_the_compose_file_has_both_sides_and_spark():
    import yaml

    services = yaml.safe_load(compose.compose_file().read_text())["services"]
    assert services["source"]["image"].startswith("mysql:8.4")
    assert "tidb" in services["target"]["image"]
    assert all(services[name]["profiles"] == ["spark"] for name in services if name.startswith("spark"))
    for service in services.values():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))
