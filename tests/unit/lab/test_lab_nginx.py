"""The lab's nginx without nginx: ledgers that are held against each other, folders that are found again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migverify.config.yaml_text import read_yaml
from migverify.errors import LabError
from migverify.runbook.traffic.document import load_traffic
from migverify_lab.nginx import NginxFleet, make
from migverify_lab.nginx_load import LEDGER, balance
from migverify_lab.nginx_sides import HttpSide


def ledgers(folder: Path, **lines: list[str]) -> Path:
    for name, content in lines.items():
        (folder / (f"{name}.ledger" if name else LEDGER)).write_text("".join(f"{line}\n" for line in content))
    return folder


GOOD = {
    "old": ["1\tk\t0"], "new": ["2\tk\t0"],
    "": ["T 1 1.0", "A 1 1.1 old", "T 2 1.0", "A 2 1.1 new", "T 3 1.0", "U 3 1.1 502"],
}  # fmt: skip


def test_ledgers_that_agree(tmp_path: Path) -> None:
    found = balance(ledgers(tmp_path, **GOOD))
    assert found.good
    assert (found.acked, found.unknown, found.written) == (2, 1, {"old": 1, "new": 1})


@pytest.mark.parametrize(
    ("name", "lines", "what"),
    [
        ("old", [], "lost"), ("new", ["2\tk\t0", "1\tk\t0"], "twice"), ("old", ["1\tk\t0", "1\tk\t0"], "twice"),
        ("", ["T 1 1.0", "A 1 1.1 new", "T 2 1.0"], "elsewhere"), ("", ["T 1 1.0", "A 1 1.1 old"], "never_tried"),
    ],
)  # fmt: skip
def test_a_write_that_is_lost_doubled_or_elsewhere_is_found(
    tmp_path: Path, name: str, lines: list[str], what: str
) -> None:
    found = balance(ledgers(tmp_path, **GOOD | {name: lines}))
    assert not found.good
    assert len(getattr(found, what)) == 1


def test_a_write_without_a_yes_may_be_there_or_not(tmp_path: Path) -> None:
    assert balance(ledgers(tmp_path, **GOOD | {"new": ["2\tk\t0", "3\tk\t0"]})).good


def test_nothing_at_all_is_not_good(tmp_path: Path) -> None:
    assert not balance(tmp_path).good


def test_a_side_writes_before_it_says_yes(tmp_path: Path) -> None:
    side = HttpSide("new", tmp_path)
    assert asyncio.run(side._answer("/pay?id=7&key=k")) == (200, "new")
    assert (tmp_path / "new.ledger").read_text().startswith("7\tk\t")
    asyncio.run(side._answer("/fault?errors=1&delay=0"))
    assert asyncio.run(side._answer("/pay?id=8&key=k"))[0] == 500
    assert "8\t" not in (tmp_path / "new.ledger").read_text()
    assert asyncio.run(side._answer("/up"))[0] == 200


def test_a_world_is_found_again(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no nginx of the lab"):
        NginxFleet(tmp_path)
    world = make(tmp_path / "lab", 2, ("nginx",))
    assert NginxFleet(tmp_path / "lab") == world
    with pytest.raises(LabError, match="already"):
        make(tmp_path / "lab", 2, ("nginx",))
    ports = [world.old, world.new, *(port for one in world.instances for port in (one.port, one.status))]
    assert len(set(ports)) == 6
    world.traffic.write_text(world.traffic_text())
    assert load_traffic(world.traffic).writes
    assert isinstance(read_yaml(world.traffic_text()).data, dict)
    with pytest.raises(LabError, match="no instance"):
        world.instance("z")
