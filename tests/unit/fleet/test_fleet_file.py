"""The fleet file: what is wrong is said with file, line and key; windows are in their zone."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from migverify.cli.main import run
from migverify.config.reference import json_schema, json_schema_text, markdown
from migverify.config.yaml_text import read_yaml
from migverify.errors import ConfigError
from migverify.fleet import definition
from migverify.fleet.definition import DailyWindow, Fleet, load_fleet

ROOT = Path(__file__).parents[3]
GOOD = """\
schema_version: 1
waves:
  - name: first
    window: {start: 2026-12-01T22:00, zone: Asia/Tokyo, duration: 4h}
services:
  - name: orders
    owner: payments
    wave: first
    date: 2026-12-02
    config: orders/migverify.yaml
limits:
  connections: {"db1:3306": 8}
  verify: {start: '22:00', zone: '+09:00', duration: 6h}
"""


def written(folder: Path, text: str = GOOD) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(text)
    return path


def test_paths_start_at_the_file_and_windows_are_in_their_zone(tmp_path: Path) -> None:
    fleet = load_fleet(written(tmp_path))
    assert fleet.services[0].config == str(tmp_path / "orders/migverify.yaml")
    window = fleet.wave("first").window
    assert datetime.fromtimestamp(window.opens, UTC) == datetime(2026, 12, 1, 13, tzinfo=UTC)
    assert window.closes - window.opens == 4 * 3600
    assert (fleet.limits.of("db1:3306"), fleet.limits.of("db2:3306")) == (8, 16)
    assert load_fleet(written(tmp_path, GOOD.replace("db1", "DB1"))).limits.of("db1:3306") == 8


WRONG = [
    ("schema_version: 1", "schema_version: 2", "fleet.yaml:1:", "schema_version: this takes one of 1"),
    ("wave: first", "wave: frist", "fleet.yaml:8:", "there is no wave frist"),
    ("date: 2026-12-02", "date: 2026-12-03", "fleet.yaml:9:", "is not in the window of wave first"),
    ("date: 2026-12-02", "date: tomorrow", "fleet.yaml:9:", "this is a date"),
    ("owner: payments", "ownr: payments", "fleet.yaml:7:", "unknown key services[0].ownr"),
    ("name: orders", "name: or/ders", "fleet.yaml:6:", "letters, digits"),
    ("zone: Asia/Tokyo", "zone: Asia/Tokio", "fleet.yaml:4:", "no time zone"),
    ("T22:00", "T22:00Z", "fleet.yaml:4:", "`zone` says in which zone"),
    ("duration: 4h", "duration: 0s", "fleet.yaml:4:", "a duration above 0"),
    ("duration: 4h", "duration: 4", "fleet.yaml:4:", "needs a unit"),
    ('"db1:3306": 8', "db1: 8", "fleet.yaml:12:", "a server is host:port"),
    ('"db1:3306": 8', '"db1:3306": 8, "DB1:3306": 9', "fleet.yaml:12:", "there is another limit of DB1:3306"),
    ('"db1:3306": 8', '"db1:3306": 0', "fleet.yaml:12:", "at least 1"),
    ("start: '22:00'", "start: 22:70", "fleet.yaml:13:", "a time of the day"),
    ("    owner", "    store_password_env: A\n    owner", "fleet.yaml:7:", "there is no `store` here"),
    ("    owner", "    store: 'mysql://u:secret@h/d'\n    owner", "fleet.yaml:7:", "password"),
    ("    owner", "    requires: [prof]\n    owner", "fleet.yaml:7:", "requires"),
]


@pytest.mark.parametrize(("before", "after", "place", "words"), WRONG)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, before: str, after: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_fleet(written(tmp_path, GOOD.replace(before, after)))
    assert place in caught.value.message
    assert words in caught.value.line
    assert "secret" not in caught.value.line


def test_a_name_is_given_once(tmp_path: Path) -> None:
    twice = GOOD.replace("limits:", GOOD[GOOD.index("  - name: orders") : GOOD.index("limits:")] + "limits:")
    with pytest.raises(ConfigError, match=r"fleet\.yaml:11:.*another service orders"):
        load_fleet(written(tmp_path, twice))


def test_a_daily_window_passes_midnight() -> None:
    window = DailyWindow.model_validate({"start": "22:00", "zone": "+09:00", "duration": "6h"})

    def at(hour: int, day: int = 1) -> float:
        return datetime(2026, 12, day, hour, tzinfo=UTC).timestamp()

    assert window.closes(at(13)) == window.closes(at(18)) == at(19)  # 22:00 to 04:00 in Japan
    assert window.closes(at(12)) is None
    assert window.closes(at(19)) is None
    assert (window.opens(at(12)), window.opens(at(14))) == (at(13), at(13, 2))


def test_the_schema_is_that_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = resources.files("migverify.schemas").joinpath("fleet.schema.json").read_text(encoding="utf-8")
    assert shipped == json_schema_text(Fleet, definition.TITLE), "write json_schema_text() to migverify/schemas"
    jsonschema.Draft202012Validator.check_schema(json_schema(Fleet, definition.TITLE))
    assert run(["config", "--schema", "fleet"]) == 0
    assert capsys.readouterr().out == shipped


def test_the_example_is_valid() -> None:
    path = ROOT / "examples" / "fleet" / "fleet.yaml"
    fleet = load_fleet(path)
    assert all(Path(service.config).is_file() for service in fleet.services)
    schema = json.loads((ROOT / "migverify" / "schemas" / "fleet.schema.json").read_text())
    jsonschema.validate(read_yaml(path.read_text()).data, schema)


def test_the_page_lists_every_key() -> None:
    path = ROOT / "docs" / "fleet.md"
    begin, end = "<!-- keys -->\n", "<!-- /keys -->"
    head, _, rest = path.read_text().partition(begin)
    text = head + begin + markdown(Fleet) + end + rest.partition(end)[2]
    if os.environ.get("REGEN") == "1":
        path.write_text(text)
    assert path.read_text() == text, "run the tests once with REGEN=1 and look at the change"
