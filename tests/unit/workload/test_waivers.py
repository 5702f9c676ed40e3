"""Waivers: whole, or refused with their place; expired ones count no more; an unchecked scope covers nothing."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from migverify.cli.main import app
from migverify.config.reference import json_schema
from migverify.config.yaml_text import read_yaml
from migverify.errors import ConfigError
from migverify.workload.catalogue.waivers import TITLE, Waiver, WaiverScope, WaiversDocument, load_waivers

TODAY = date(2026, 6, 1)
DIGEST = "ab" * 32
WHOLE = f"""\
waivers:
- entry: xa-001
  owner: payments
  reason: no transaction manager asks for it
  expires: 2026-12-31
- digest: {DIGEST}
  owner: orders
  reason: repaired in release 12
  expires: 2026-06-01
  scope: {{database: shop, user: app, aspects: [row-count, error], count: 5}}
"""


def write(path: Path, text: str) -> Path:
    file = path / "waivers.yaml"
    file.write_text(text)
    return file


def test_both_are_read(tmp_path: Path) -> None:
    file = write(tmp_path, WHOLE)
    found = load_waivers(file, today=TODAY)
    assert [one.owner for one in found.holding] == ["payments", "orders"]
    assert found.expired == ()
    assert found.holding[0].where == f"{file}:2:3"
    jsonschema.validate(read_yaml(WHOLE, variables=False).data, json_schema(WaiversDocument, TITLE))


def test_the_last_day_counts_and_the_next_does_not(tmp_path: Path) -> None:
    file = write(tmp_path, WHOLE)
    assert len(load_waivers(file, today=date(2026, 6, 1)).holding) == 2
    found = load_waivers(file, today=date(2026, 6, 2))
    assert [one.owner for one in found.expired] == ["orders"]
    assert found.notes() == [
        f"{file}:6:3: the waiver of orders for {DIGEST} expired on 2026-06-01; it counts no more"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "replaced", "message", "row"),
    [
        ("  owner: payments\n", "", "the key .*owner is missing", 2),
        ("  owner: payments\n", "  owner: ''\n", "owner: this must not be empty", 3),
        ("  owner: payments\n", "  owner:\n", "this key has no value", 3),
        ("  reason: no transaction manager asks for it\n", "", "the key .*reason is missing", 2),
        ("  expires: 2026-12-31\n", "", "the key .*expires is missing", 2),
        ("  expires: 2026-12-31\n", "  expires: never\n", "takes a day", 5),
        ("  expires: 2026-12-31\n", "  expires: 2026-02-30\n", "takes a day", 5),
        ("  expires: 2026-12-31\n", "  expires: 2036-12-31\n", "at most 366 days", 5),
        ("- entry: xa-001\n  owner", "- owner", "an entry of the catalogue, or a digest", 2),
        ("entry: xa-001", "entry: nothing-001", "no entry 'nothing-001'", 2),
        (f"digest: {DIGEST}", "digest: abc", "hexadecimal", 6),
        ("aspects: [row-count, error]", "aspects: [smell]", "this takes one of", 10),
        ("count: 5", "count: many", "whole number", 10),
        ("  owner: payments\n", "  ownr: payments\n", "unknown key .*ownr", 3),
    ],
)
def test_what_is_not_whole_is_refused_with_its_place(
    tmp_path: Path, line: str, replaced: str, message: str, row: int
) -> None:
    assert line in WHOLE
    file = write(tmp_path, WHOLE.replace(line, replaced, 1))
    with pytest.raises(ConfigError, match=message) as caught:
        load_waivers(file, today=TODAY)
    assert f"{file}:{row}:" in caught.value.message


@pytest.mark.parametrize("text", ["", "waivers\n", "other: []\n", "waivers: {}\n", "waivers: [1]\n", "waivers: ]\n"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"waivers\.yaml"):
        load_waivers(write(tmp_path, text), today=TODAY)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file of waivers"):
        load_waivers(tmp_path / "absent.yaml")


def made(**more: object) -> Waiver:
    return Waiver(owner="o", reason="r", expires=TODAY, **more)  # type: ignore[arg-type]


def test_entry_and_digest() -> None:
    assert made(entry="xa-001").covers(DIGEST, "error", ["xa-001"])
    assert not made(entry="xa-001").covers(DIGEST, "error", ["handler-001"])
    assert not made(entry="xa-001").covers(DIGEST, "error", [])
    assert made(digest=DIGEST).covers(DIGEST.upper(), "error", [])
    assert not made(digest=DIGEST).covers("cd" * 32, "error", [])
    assert not made(entry="xa-001", digest=DIGEST).covers("cd" * 32, "error", ["xa-001"])


def test_a_scope_narrows_and_what_cannot_be_checked_is_not_covered() -> None:
    one = made(digest=DIGEST, scope=WaiverScope(database="shop"))
    assert one.covers(DIGEST, "error", [], databases=["shop"])
    assert not one.covers(DIGEST, "error", [], databases=["shop", "other"])
    assert not one.covers(DIGEST, "error", [])
    user = made(digest=DIGEST, scope=WaiverScope(user="app"))
    assert user.covers(DIGEST, "error", [], users=["app"])
    assert not user.covers(DIGEST, "error", [])
    count = made(digest=DIGEST, scope=WaiverScope(count=5))
    assert count.covers(DIGEST, "error", [], count=5)
    assert not count.covers(DIGEST, "error", [], count=6)
    assert not count.covers(DIGEST, "error", [])
    aspect = made(digest=DIGEST, scope=WaiverScope(aspects=("error",)))
    assert aspect.covers(DIGEST, "error", [])
    assert not aspect.covers(DIGEST, "value", [])


def test_the_command_says_what_holds(tmp_path: Path) -> None:
    text = WHOLE.replace("2026-12-31", date.today().isoformat()).replace("2026-06-01", "2020-01-01")
    run = CliRunner().invoke(app, ["config", "--waivers", str(write(tmp_path, text))])
    assert run.exit_code == 0, run.output
    assert "xa-001" in run.output
    assert "expired on 2020-01-01" in run.output
