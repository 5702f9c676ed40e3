"""What a plan of the tables refuses before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from migverify.config import load_config
from migverify.errors import ConfigError
from migverify.tables.overrides import refuse_unfit_excludes, refuse_unfit_overrides
from migverify.tables.pairs import FoundPair
from migverify.tables.prepare import _refuse_empty
from tests.definitions import column, table

CONFIG = """\
source: {url: "mysql://reader@db1/"}
target: {url: "tidb://reader@db2/"}
tables: {include: ["app.*"]}
"""


def test_tables_that_a_user_may_not_read_look_like_none_and_the_hint_says_so(tmp_path: Path) -> None:
    path = tmp_path / "migverify.yaml"
    path.write_text(CONFIG)
    with pytest.raises(ConfigError, match=r"no table fits tables\.include \(app\.\*\)") as caught:
        _refuse_empty(load_config(path), [], [])
    assert "only tables that it may read: `migverify config --grants`" in caught.value.hint


def unfit(folder: Path, overrides: str, tables: dict[str, str], known: tuple[str, ...] = ()) -> str:
    """Return what is refused of overrides over tables (name to columns) that are read, and others that are known."""
    path = folder / "migverify.yaml"
    path.write_text(CONFIG + overrides)
    found = [
        FoundPair(
            ("app", name),
            (table(*map(column, columns.split()), name=f"app.{name}"),),
            table(*map(column, (columns + " on_target").split()), name=f"app.{name}", endpoint="target"),
        )
        for name, columns in tables.items()
    ]
    try:
        refuse_unfit_overrides(load_config(path), found, [("app", name) for name in (*tables, *known)])
    except ConfigError as error:
        return f"{error.message} {error.hint}"
    return ""


def test_a_pattern_of_overrides_that_fits_no_table_is_refused(tmp_path: Path) -> None:
    overrides = "overrides:\n- {table: app.*, ignore: [b]}\n- {table: app.paymnts, where: 'id < 9'}\n"
    refused = unfit(tmp_path, overrides, {"payments": "id b"})
    assert refused.startswith(f"{tmp_path}/migverify.yaml:6:4: overrides: no table fits app.paymnts")
    assert not unfit(tmp_path, overrides, {"payments": "id b"}, known=("paymnts",)), "--tables leaves it out today"


@pytest.mark.parametrize(
    ("entry", "place", "words"),
    [
        ("ignore: [id, nothing]", "5:31", "ignore of app.a names nothing"),
        ("rename: {nothing: on_target}", "5:27", "rename of app.a names nothing"),
        ("float_tolerance: {Id: 0.1}", "5:36", "float_tolerance of app.a names Id"),
        ("immutable_before: {column: at, value: 2026-01-01}", "5:37", "immutable_before of app.a names at"),
        ("key: [id, nothing]", "5:18", "the key of app.a names nothing"),
    ],
)
def test_a_column_of_overrides_that_no_table_has_is_refused(tmp_path: Path, entry: str, place: str, words: str) -> None:
    refused = unfit(tmp_path, f"overrides:\n- {{table: app.a, {entry}}}\n", {"a": "id b"})
    assert refused.startswith(f"{tmp_path}/migverify.yaml:{place}: overrides: {words}: no such column"), refused
    assert "There are id, b" in refused


@pytest.mark.parametrize(
    "entry", ["ignore: [ID, on_target]", "rename: {ID: b}", "float_tolerance: 0.1", "float_tolerance: {id: 0.1}"]
)
def test_columns_of_either_side_and_case_and_of_some_tables_of_a_pattern_are_known(tmp_path: Path, entry: str) -> None:
    overrides = f"overrides:\n- {{table: app.*, {entry}}}\n"
    assert not unfit(tmp_path, overrides, {"a": "id b", "other": "c"})
    assert not unfit(tmp_path, overrides, {"other": "c"}, known=("a",)), "the table with the column is left out today"


def test_all_that_is_wrong_with_overrides_is_one_error(tmp_path: Path) -> None:
    overrides = "overrides:\n- {table: app.b}\n- {table: app.a, ignore: [x, y]}\n"
    assert unfit(tmp_path, overrides, {"a": "id"}).startswith(f"{tmp_path}/migverify.yaml: 3 problems\n")


def test_a_table_of_exclude_that_is_nowhere_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "migverify.yaml"
    path.write_text(CONFIG.replace('["app.*"]', '["app.*"], exclude: ["app.tmp_*", app.t9]'))
    config = load_config(path)
    refuse_unfit_excludes(config, [])
    with pytest.raises(ConfigError, match=r"migverify\.yaml:3:53: tables\.exclude: there is no table app\.t9"):
        refuse_unfit_excludes(config, [config.tables.exclude[1]])
