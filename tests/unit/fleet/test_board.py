"""The board: one page without anything from elsewhere, names escaped; its JSON fits the schema; metrics; live."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from migverify import secrets
from migverify.cli.main import run
from migverify.fleet.board import fleet_report, read_state
from migverify.fleet.live import BoardServer, make_pages
from migverify.fleet.load import load_fleet
from migverify.fleet.model import FleetPart
from migverify.model import Verdict
from migverify.report.render import Format, render
from migverify.secrets import Secret
from migverify_lab.fleet import MadeFleet

HOSTILE = "<script>alert(1)</script>\u202e\"'&"


def schema(name: str) -> Any:
    path = resources.files("migverify.schemas").joinpath(f"output/{name}.schema.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_status_says_who_is_ready_and_why_the_other_is_not(
    ready: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    differs = ready.verify("users", ["users.t1"])
    ready.write()
    assert run(["fleet", "status"]) == 1
    out = capsys.readouterr().out
    assert "Provably ready tonight: orders (1 of 2 services)." in out
    assert f"  users: Proof: 1 table differs in run {differs}." in out
    assert run(["fleet", "status", "--json", "-s", "orders"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ready_tonight"], [one["service"] for one in found["services"]]) == (["orders"], ["orders"])
    assert run(["fleet", "status", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("fleet-status"))
    users = document["services"][1]
    assert (users["standing"], users["mismatches"], users["schema_drift"]) == ("NOT READY", 1, False)
    assert users["reasons"][0]["remedy"].startswith(f"migverify tables diff {differs} --config ")


@pytest.mark.parametrize("password", ["u", "users", "sers/mig"])
def test_commands_name_their_configuration_where_a_password_is_a_part_of_it(
    password: str, fleet: MadeFleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", {Secret(password)})
    fleet.write()
    run(["fleet", "status"])
    assert "migverify tables verify --config users/migverify.yaml  # users: proof" in capsys.readouterr().out
    run(["fleet", "status", "--json"])
    remedies = [one["remedy"] for one in json.loads(capsys.readouterr().out)["services"][1]["reasons"]]
    assert "migverify tables verify --config users/migverify.yaml" in remedies


def test_status_names_a_next_step_for_each_service_that_is_not_ready(
    ready: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    ready.close()
    (ready.folder / "orders" / "runs.db").unlink()
    ready.services["users"].config.write_text("source: [")
    ready.write()
    assert run(["fleet", "status", "--json"]) == 3
    steps = [one["command"] for one in json.loads(capsys.readouterr().out)["next_steps"]]
    assert steps == ["migverify tables verify --config orders/migverify.yaml",
                     "migverify config --config users/migverify.yaml"]  # fmt: skip
    assert run(["fleet", "status"]) == 3
    assert f"  {steps[0]}  # orders: proof" in capsys.readouterr().out


def test_a_wrong_entry_is_a_service_that_is_not_ready_and_the_others_are_judged(
    ready: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [ready.entry("users", owner="?"), {**ready.entry("users"), "name": "goods", "wave": "frist"}]
    ready.write(services=[ready.entry("orders"), *wrong])
    assert run(["fleet", "status"]) == 1
    out = capsys.readouterr().out
    assert "Provably ready tonight: orders (1 of 2 services)." in out
    assert "  users: its entry in fleet.yaml is wrong: services[1].owner: this says who answers" in out
    assert re.search(r"  goods: its entry in fleet.yaml is wrong: .*there is no wave frist, line \d+\.", out)
    assert re.search(r"NOT READY +goods; .*not known", out)
    assert run(["fleet", "status", "-s", "orders", "--json"]) == 3, "its wave counts as a whole"
    capsys.readouterr()
    assert run(["fleet", "status", "-w", "first", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("fleet-status"))
    standings = {one["service"]: (one["standing"], one["wave"], one["date"] != "") for one in document["services"]}
    assert standings == {
        "orders": ("READY", "first", True),
        "users": ("NOT READY", "first", True),
        "goods": ("NOT READY", "frist", False),
    }
    goods = document["services"][2]
    assert [one["text"][:48] for one in goods["reasons"]] == ["its entry is wrong: services[2].wave: there is n"]
    assert {part["standing"] for part in goods["parts"]} == {"NOT KNOWN"}
    report = fleet_report(read_state(load_fleet(ready.folder / "fleet.yaml", with_wrong=True), time.time()))
    forms = {form: render(report, form) for form in Format}
    prometheus = forms[Format.PROMETHEUS]
    assert 'migverify_fleet_service_standing{service="goods",standing="NOT READY"} 1' in prometheus
    assert 'migverify_fleet_service_opens_timestamp_seconds{service="goods"} NaN' in prometheus
    assert "its entry is wrong: services[2].wave: there is no wave frist" in forms[Format.JUNIT]
    assert "its entry in fleet.yaml is wrong" in forms[Format.HTML]
    with served(ready.folder / "fleet.yaml") as server:
        assert ask(server, "/fleet.json")[0] == 200
        assert "migverify_fleet_read 1" in ask(server, "/metrics")[2]


def test_a_wrong_entry_begins_no_verification(ready: MadeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    ready.write(services=[ready.entry("orders"), ready.entry("users", owner="?")])
    for chosen in ([], ["--plan"], ["-s", "orders"]):
        assert run(["fleet", "verify", *chosen]) == 2
        assert "service users: services[1].owner" in capsys.readouterr().err


def test_a_wave_counts_whichever_of_its_services_are_shown(ready: MadeFleet) -> None:
    ready.write(waves=[{"name": "first", "window": {"start": "2200-01-01T22:00", "duration": "1ms"}}])
    assert {run(["fleet", "status", *chosen]) for chosen in ([], ["-s", "orders"], ["-w", "first"])} == {1}


def test_the_age_of_a_difference_is_that_of_its_run_and_the_metric_that_of_the_proof(ready: MadeFleet) -> None:
    ready.verify("users", ["users.t1"])
    later = time.time() + 3_600
    state = read_state(load_fleet(ready.write()), later)
    users = state.views[1]
    proof = users.evidence.verifications[-1]
    assert users.state.part(FleetPart.PROOF).age == later - (users.evidence.verifications[0].ended or 0)
    ages = next(one for one in fleet_report(state).metrics if one.name == "migverify_fleet_proof_age_seconds")
    assert float({labels["service"]: value for labels, value in ages.samples}["users"]) == pytest.approx(
        later - (proof.proved_at or 0), abs=1
    )


def test_the_page_holds_everything_and_names_are_text(
    ready: MadeFleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready.rules("users", Verdict.MISMATCH, money={HOSTILE: "3.50"})
    entries = [ready.entry("orders", owner=HOSTILE, on_call=[HOSTILE, "alice"]), ready.entry("users")]
    ready.write(services=entries)
    page = tmp_path / "fleet.html"
    assert run(["fleet", "board", "-o", str(page)]) == 1
    assert capsys.readouterr().err == f"wrote {page}: 0 of 2 ready\n"
    text = page.read_text()
    assert "aria-sort" not in text.partition("</table>")[0].partition("<table")[2], "rows are by urgency"
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "\u202e" not in text
    assert not re.search(r"(src|href)=\"(?!#|data:)", text)
    assert "http" not in re.sub(r"http-equiv", "", text)
    for word in ("READY", "NOT READY", "NOT KNOWN", "CUT OVER"):
        assert f"> {word} (" in text, "the filter names standings"


def test_every_form_of_the_board_is_made(fleet: MadeFleet, tmp_path: Path) -> None:
    fleet.all_fine("orders")
    state = read_state(load_fleet(fleet.write()), 1_000.0)
    report = fleet_report(state)
    forms = {form: render(report, form) for form in Format}
    assert 'migverify_fleet_service_standing{service="users",standing="NOT READY"} 1' in forms[Format.PROMETHEUS]
    assert 'migverify_fleet_proof_age_seconds{service="users"} NaN' in forms[Format.PROMETHEUS]
    assert forms[Format.JUNIT].count("<testcase") == 3
    json.loads(forms[Format.JSON])
    assert run(["fleet", "board"]) == 2
    assert run(["fleet", "board", "-o", str(tmp_path / "x.html"), "--listen", "127.0.0.1:0"]) == 2
    assert run(["fleet", "board", "--listen", "nowhere"]) == 2
    assert run(["fleet", "board", "-o", str(tmp_path / "x.html"), "--every", "soon"]) == 2
    assert run(["fleet", "board", "-o", str(tmp_path / "x.html"), "--every", "3s"]) == 1
    assert run(["fleet", "board", "-o", str(tmp_path / "x.pdf")]) == 2
    assert not (tmp_path / "x.pdf").exists()
    assert run(["fleet", "board", "-o", str(tmp_path / "x.txt")]) == 1


@contextmanager
def served(path: Path, clock: Any = None) -> Iterator[BoardServer]:
    more = {} if clock is None else {"clock": clock}
    server = BoardServer(lambda: make_pages(path, lambda _: None, 3_600.0), "127.0.0.1", 0, 3_600.0, **more)
    server.start()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server: BoardServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_the_live_board_serves_page_json_and_metrics_and_can_only_be_read(fleet: MadeFleet) -> None:
    fleet.all_fine("orders")
    with served(fleet.write()) as server:
        status, headers, page = ask(server, "/")
        assert (status, "1 of 2 ready" in page, 'http-equiv="refresh"' in page) == (200, True, True)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        jsonschema.validate(json.loads(ask(server, "/fleet.json")[2]), schema("fleet-status"))
        assert "migverify_fleet_read 1" in ask(server, "/metrics")[2]
        assert ask(server, "/other")[0] == 404
        assert ask(server, "/", "POST")[0] == 405
        assert ask(server, "/", Host="evil.example")[0] == 421


def test_a_file_that_is_wrong_and_a_reading_of_long_ago_show_nothing(fleet: MadeFleet) -> None:
    path, now = fleet.write(), [0.0]
    path.write_text("schema_version: 2")
    with served(path, lambda: now[0]) as server:
        assert "NOT KNOWN" in ask(server, "/")[2]
        assert ask(server, "/fleet.json")[0] == 503
        assert "migverify_fleet_read 0" in ask(server, "/metrics")[2]
        now[0] = 4 * 3_600.0
        assert [ask(server, each)[0] for each in ("/", "/fleet.json", "/metrics")] == [503] * 3


def test_a_service_that_is_shown_alone_has_every_reason_with_what_to_do(
    ready: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    differs = ready.verify("users", ["users.t1"])
    ready.ids("users", -3.0)
    ready.write(services=[ready.entry("orders"), ready.entry("users", on_call=[])])
    assert run(["fleet", "status"]) == 1
    assert "(and 2 more)" in capsys.readouterr().out
    assert run(["fleet", "status", "-s", "users"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    at = lines.index(f"users: Proof: 1 table differs in run {differs}.")
    assert lines[at + 1] == f"> migverify tables diff {differs} --config users/migverify.yaml"
    assert lines[at + 2].startswith("users: Ids: an id space has ended")
    assert lines[at + 3 : at + 5] == [
        "users: People: the fleet file names nobody on call.", "> Name people under on_call in the fleet file.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("runbook", "words"),
    [
        ({"path": "nope.yaml"}, "nope.yaml"),
        ({"path": "orders/migverify.yaml"}, "orders/migverify.yaml"),
        ({"environment": "production"}, "no environment production"),
    ],
)
def test_a_runbook_that_cannot_be_read_is_said_where_it_is_not_required(
    ready: MadeFleet, capsys: pytest.CaptureFixture[str], runbook: dict[str, str], words: str
) -> None:
    orders = ready.entry("orders")
    orders["runbook"] = {**orders["runbook"], **runbook}
    ready.write(services=[orders, ready.entry("users")], requires=["proof"])
    assert run(["fleet", "status"]) == 3
    out = capsys.readouterr().out
    assert re.search(r"READY +orders; ", out)
    warning = next(line for line in out.splitlines() if "warning: the runbook of orders cannot be read: " in line)
    assert words in warning
    finding = next(line for line in out.splitlines() if "how long the cutover of orders takes (orders: " in line)
    assert words in finding
    assert "  migverify runbook check " in out
    assert "# orders: why its runbook cannot be read" in out


def test_when_a_window_opens_is_said_with_its_date_in_utc_and_in_its_zone(
    ready: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    window = {"start": "2200-12-08T22:00", "zone": "Europe/Berlin", "duration": "6h"}
    waves = [{"name": "first", "window": window}]
    ready.write(waves=waves, services=[ready.entry("orders", date="2200-12-09"), ready.entry("users")])
    run(["fleet", "status"])
    out = capsys.readouterr().out
    assert "first; 2200-12-09; opens 2200-12-08 21:00 UTC (2200-12-08 22:00 Europe/Berlin)" in out
    ready.write(waves=[{"name": "first", "window": {**window, "zone": "UTC"}}])
    run(["fleet", "status"])
    assert re.search(r"first; 2200-12-08; opens 2200-12-08 22:00 UTC  ", capsys.readouterr().out)


def test_a_wave_without_services_and_a_configuration_that_is_given_twice_are_said(
    ready: MadeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    waves = [{"name": name, "window": {"start": "2200-01-01T22:00", "duration": "4h"}} for name in ("first", "second")]
    ready.write(waves=waves, services=[ready.entry("orders"), {**ready.entry("orders"), "name": "Orders"}])
    run(["fleet", "status"])
    out = capsys.readouterr().out
    assert "warning: wave second has no service" in out
    assert "warning: services orders and Orders have one configuration, " in out
    run(["fleet", "verify", "--plan"])
    assert "fleet.yaml: wave second has no service" in capsys.readouterr().err


def test_the_window_that_closed_is_not_called_people(ready: MadeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    ready.write(waves=[{"name": "first", "window": {"start": "2020-01-01T22:00", "duration": "4h"}}])
    assert run(["fleet", "status", "-s", "orders"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (at,) = [at for at, line in enumerate(lines) if line.startswith("orders: Window: the window of its wave closed")]
    assert lines[at + 1].startswith("> Give the wave another window")
