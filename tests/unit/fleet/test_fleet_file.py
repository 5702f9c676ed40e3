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
from migverify.fleet.definition import DailyWindow, Fleet
from migverify.fleet.load import load_fleet

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
    ("name: orders", "name: " + "o" * 101, "fleet.yaml:6:", "services[0].name: this takes at most 100 characters"),
    ("owner: payments", "owner: " + "o" * 101, "fleet.yaml:7:", "services[0].owner: this takes at most 100 characters"),
    ("owner: payments", "owner: '?'", "fleet.yaml:7:", "service orders: services[0].owner: this says who answers"),
    ("owner: payments", "owner: '  '", "fleet.yaml:7:", "who answers for the service"),
    ("owner: payments", "owner: ''", "fleet.yaml:7:", "this must not be empty"),
    ("owner: payments", "owner:", "fleet.yaml:7:", "this key has no value"),
    ("zone: Asia/Tokyo", "zone: Asia/Tokio", "fleet.yaml:4:", "no time zone"),
    ("T22:00", "T22:00Z", "fleet.yaml:4:", "`zone` says in which zone"),
    ("2026-12-01T22:00", "9999-12-31T22:00", "fleet.yaml:4:", "the year 9999 is not in 1970 to 8999"),
    ("2026-12-01T22:00", "0001-01-01T00:00", "fleet.yaml:4:", "the year 1 is not in"),
    ("duration: 4h", "duration: 99999999d", "fleet.yaml:4:", "longer than 100 years"),
    ("duration: 4h", "duration: 0s", "fleet.yaml:4:", "a duration above 0"),
    ("duration: 4h", "duration: 4", "fleet.yaml:4:", "needs a unit"),
    ('"db1:3306": 8', "db1: 8", "fleet.yaml:12:", "a server is host:port"),
    ('"db1:3306": 8', '"db1:3306": 8, "DB1:3306": 9', "fleet.yaml:12:", "there is another limit of DB1:3306"),
    ('"db1:3306": 8', '"db1:3306": 0', "fleet.yaml:12:", "at least 1"),
    ("start: '22:00'", "start: 22:70", "fleet.yaml:13:", "a time of the day"),
    ("    owner", "    store_password_env: A\n    owner", "fleet.yaml:7:", "there is no `store` here"),
    ("    owner", "    store: 'mysql://u:secret@h/d'\n    owner", "fleet.yaml:7:", "password"),
    ("    owner", "    requires: [prof]\n    owner", "fleet.yaml:7:", "requires"),
    ("duration: 6h", "duration: 25h", "fleet.yaml:13:", "limits.verify.duration: this is at most a day"),
]


@pytest.mark.parametrize(("before", "after", "place", "words"), WRONG)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, before: str, after: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_fleet(written(tmp_path, GOOD.replace(before, after)))
    assert place in caught.value.message
    assert words in caught.value.line
    assert "secret" not in caught.value.line


MANY = """\
schema_version: 1
waves:
  - name: first
    window: {start: 2026-12-01T22:00, zone: Asia/Tokyo, duration: 4h}
services:
  - {name: orders, owner: payments, wave: first, config: orders/migverify.yaml}
  - name: users
    owner: "?"
    wave: frist
    config: users/migverify.yaml
  - some text
  - {name: goods, ownr: stock, wave: first, config: goods/migverify.yaml}
  - {name: bills, owner: payments, wave: first, date: 2027-01-01, config: bills/migverify.yaml}
  - {name: goods, owner: stock, wave: first, config: goods/migverify.yaml}
"""
PROBLEMS = [
    "fleet.yaml:8:5: service users: services[1].owner: this says who answers for the service: a team or a person",
    "fleet.yaml:9:5: service users: services[1].wave: there is no wave frist - The waves are first.",
    "fleet.yaml:11:5: services[2]: this takes a mapping (name: value)",
    "fleet.yaml:12:5: service goods: the key services[3].owner is missing",
    "fleet.yaml:12:6: service goods: services[3].name: there is another service goods (line 14)",
    "fleet.yaml:12:19: service goods: unknown key services[3].ownr - Did you mean owner?",
    "fleet.yaml:13:49: service bills: services[4].date: 2027-01-01 is not in the window of wave first",
    "fleet.yaml:14:6: services[5].name: there is another service goods (line 12)",
]


def said(path: Path, **more: bool) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_fleet(path, **more)
    return [line.removeprefix(f"{path.parent}/") for line in caught.value.message.splitlines()]


def test_all_problems_are_said_at_once_with_line_and_service(tmp_path: Path) -> None:
    head, *lines = said(written(tmp_path, MANY))
    assert head == "fleet.yaml: 8 problems"
    assert [line[: len(words)] for line, words in zip(lines, PROBLEMS, strict=True)] == PROBLEMS
    more = "".join(f"  - {{name: s{at}, owner: '-', wave: first, config: c.yaml}}\n" for at in range(40))
    assert said(written(tmp_path, MANY + more))[0] == "fleet.yaml: 48 problems"
    assert len(said(written(tmp_path, MANY + more))) == 49


def test_what_is_wrong_of_the_file_as_a_whole_is_said_with_what_is_wrong_of_its_services(tmp_path: Path) -> None:
    whole = MANY.replace("schema_version: 1", "schema_version: 2\nlimits: {connections: {db1: 3}}")
    for text, count in ((whole, 10), (MANY.replace("duration: 4h", "duration: 4"), 8)):
        lines = said(written(tmp_path, text), with_wrong=True)
        assert lines[0] == f"fleet.yaml: {count} problems"
        assert lines == said(written(tmp_path, text))


def test_the_headline_of_several_problems_names_the_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_fleet(
            written(tmp_path, GOOD.replace("wave: first", "wave: frist").replace("owner: payments", "owner: '?'"))
        )
    assert caught.value.headline.startswith(f"{tmp_path}/fleet.yaml: 2 problems, the first: {tmp_path}/fleet.yaml:7:")
    assert "\n" not in caught.value.headline
    assert ConfigError("one problem").headline == "one problem"


@pytest.mark.parametrize("text", ["services: [", "schema_version: 1", "[]", "text", "waves: []\nservices: []\n"])
def test_a_file_without_services_is_one_error(tmp_path: Path, text: str) -> None:
    assert said(written(tmp_path, text), with_wrong=True) == said(written(tmp_path, text))


def test_a_wrong_entry_leaves_the_others_and_what_is_right_of_it(tmp_path: Path) -> None:
    fleet = load_fleet(written(tmp_path, MANY), with_wrong=True)
    names = ["orders", "users", "services[2]", "goods", "bills", "services[5]"]
    assert [service.name for service in fleet.services] == names
    assert list(fleet.wrong) == names[1:]
    assert [(one.words, one.order[0]) for one in fleet.wrong["users"]] == [
        ("services[1].owner: this says who answers for the service: a team or a person", 8),
        ("services[1].wave: there is no wave frist", 9),
    ]
    users = fleet.services[1]
    assert (users.owner, users.wave, users.config) == ("not known", "frist", str(tmp_path / "users/migverify.yaml"))
    assert load_fleet(written(tmp_path), with_wrong=True).wrong == {}


def test_a_wrong_part_is_one_problem_with_the_one_that_was_meant(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("    owner", "    requires: [prof]\n    owner"))
    with pytest.raises(ConfigError) as caught:
        load_fleet(path)
    assert caught.value.message.endswith(
        "services[0].requires[0]: this takes one of 'proof', 'watch', 'rules', 'decision', 'schema', 'ids', 'drills' or"
        " 'people'"
    )
    assert caught.value.hint == "Did you mean proof?"


def test_what_is_probably_not_meant_is_a_warning(tmp_path: Path) -> None:
    more = """\
  - {name: Orders, owner: payments, wave: first, config: orders/migverify.yaml}
limits:
"""
    wave = "  - {name: second, window: {start: 2026-12-08T22:00, duration: 4h}}\nservices:\n"
    assert load_fleet(written(tmp_path)).warnings == []
    fleet = load_fleet(written(tmp_path, GOOD.replace("limits:\n", more).replace("services:\n", wave)))
    assert fleet.warnings == [
        "wave second has no service",
        f"services orders and Orders have one configuration, {tmp_path / 'orders/migverify.yaml'}",
    ]


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
