"""The evidence of a store: what is there is read, what is not there is not known, and damage is never GO."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from migverify.decision import read_replays
from migverify.decision.decide import decide
from migverify.decision.joins import JoinedEvidence, forecast_evidence, shadow_evidence, shadow_replays, shadow_runs
from migverify.decision.model import (
    Decision,
    DecisionPart,
    DecisionRules,
    EvidenceReason,
    ReasonKind,
    Standing,
)
from migverify.decision.run import evidence
from migverify.model import StoredKind, Verdict
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.workload.catalogue.waivers import Waiver
from migverify.workload.forecast.model import DigestUse, LevelForecast, LevelState, LoadForecast, LoadLimit
from migverify.workload.forecast.store import write_forecast
from tests.unit import decision_store as made
from tests.unit.decision_store import BASIS, all_fine, reading

TOMORROW = datetime.now(UTC).date() + timedelta(days=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as opened:
        yield opened


@pytest.fixture
def forecast(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give replays a latency forecast."""

    def give(*reasons: EvidenceReason) -> None:
        joined = JoinedEvidence("", None, None, None, reasons, "p99 holds up to 1.4x of the captured rate")
        monkeypatch.setattr(read_replays, "latency_forecast", lambda *_: joined)

    give()
    return give


def decision(store: ResultStore, now: float | None = None, **changes: Any) -> Decision:
    asked = reading(store, **changes)
    return decide(evidence(asked, time.time() if now is None else now), asked.rules)


def part(found: Decision, name: DecisionPart) -> tuple[Standing, list[str]]:
    one = next(one for one in found.parts if one.part is name)
    return one.standing, [f"{each.reason.kind}: {each.reason.text}" for each in one.reasons]


@pytest.mark.usefixtures("forecast")
def test_a_service_whose_parts_are_all_fine_is_go(store: ResultStore) -> None:
    all_fine(store)
    found = decision(store)
    assert (found.standing, found.reasons) == (Standing.GO, ())
    assert all(one.evidence.run and one.age is not None and one.age < 60 for one in found.parts)


def test_an_empty_store_is_not_known_and_says_what_to_run(store: ResultStore) -> None:
    found = decision(store)
    assert found.standing is Standing.NOT_KNOWN
    assert [one.part for one in found.reasons][:7] == list(DecisionPart)
    assert all(one.reason.remedy for one in found.reasons)
    assert found.reasons[0].reason.remedy == "migverify workload replay captures/peak"


HARM: list[tuple[DecisionPart, dict[str, Any], str]] = [
    (DecisionPart.ANSWERS, {"replay": {"differs": True}}, "differs: SELECT"),
    (DecisionPart.ANOMALIES, {"anomalies": {"lost": True}}, "lost update that the source does not permit"),
    (DecisionPart.LATENCY, {"replay": {"missed": True}}, "service level payments was missed"),
    (DecisionPart.PLANS, {"plans": {"scan": True}}, "index lost: index k of the source"),
    (DecisionPart.HOTSPOTS, {"hotspots": {"hot": True}}, "insert order of target/shop.orders: 2,400 rows/s"),
    (DecisionPart.CONFLICTS, {"conflicts": {"cause": "other transaction"}}, "9007 write conflict: other transaction"),
    (DecisionPart.CLIENTS, {"clients": {"differs": True}}, "pymysql/none: values/default behaves otherwise"),
]


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(("name", "harm", "words"), HARM)
def test_harm_of_each_part_is_no_go_and_named_first(
    store: ResultStore, name: DecisionPart, harm: dict[str, Any], words: str
) -> None:
    all_fine(store, **harm)
    found = decision(store)
    assert found.standing is Standing.NO_GO
    assert {one.part for one in found.reasons} == {name}, "and no other part has one"
    assert words in found.reasons[0].reason.text or words in " ".join(one.reason.text for one in found.reasons)
    assert found.reasons[0].reason.remedy
    assert made.SECRET not in json.dumps(found.as_json())


@pytest.mark.usefixtures("forecast")
def test_all_harm_at_once_comes_in_the_order_of_harm(store: ResultStore) -> None:
    replay = {"differs": True, "missed": True}
    all_fine(store, **{**{key: value for _, more, _ in HARM for key, value in more.items()}, "replay": replay})
    parts = [one.part for one in decision(store).reasons if one.reason.kind is ReasonKind.HARM]
    assert list(dict.fromkeys(parts)) == list(DecisionPart)


@pytest.mark.usefixtures("forecast")
def test_the_remedy_of_a_plan_is_its_sql(store: ResultStore) -> None:
    all_fine(store, plans={"scan": True})
    assert decision(store).reasons[0].reason.remedy.startswith("ALTER TABLE `shop`.`orders` ADD INDEX")


DOUBTS: list[tuple[DecisionPart, dict[str, Any], str]] = [
    (DecisionPart.ANSWERS, {"replay": {"ends": False}}, "interrupted"),
    (DecisionPart.ANSWERS, {"replay": {"sides": ["target"]}}, "one side alone"),
    (DecisionPart.ANSWERS, {"replay": {"selection": {"digests": ["ab"]}}}, "chosen by digests"),
    (DecisionPart.ANSWERS, {"replay": {"selection": {"limit": 5}}}, "chosen by limit"),
    (DecisionPart.ANOMALIES, {"anomalies": {"share": 5, "usable": 0.5}}, "50% of the reads"),
    (DecisionPart.ANOMALIES, {"replay": {"writes": False}}, "asked no writes"),
    (DecisionPart.PLANS, {"plans": {"ends": False}}, "interrupted"),
    (DecisionPart.PLANS, {"plans": {"doubt": True}}, "ANALYZE TABLE t"),
    (DecisionPart.PLANS, {"plans": {"digests": ["ab"]}}, "some digests alone"),
    (DecisionPart.PLANS, {"plans": {"counted": 3}}, "holds 2 digests"),
    (DecisionPart.HOTSPOTS, {"hotspots": {"ends": False}}, "interrupted"),
    (DecisionPart.HOTSPOTS, {"hotspots": {"unasked": ["source: no answer"]}}, "no answer"),
    (DecisionPart.HOTSPOTS, {"hotspots": {"fail_rate": 9e9}}, "weaker limits"),
    (DecisionPart.HOTSPOTS, {"hotspots": {"fail_rate": 2_001.0}}, "weaker limits"),
    (DecisionPart.HOTSPOTS, {"hotspots": {"fail_rate": float("nan")}}, "weaker limits"),
    (DecisionPart.CONFLICTS, {"conflicts": {"cause": "UNKNOWN"}}, "without a cause"),
    (DecisionPart.CONFLICTS, {"conflicts": {"left_out": 3}}, "3 more were left out"),
    (DecisionPart.CLIENTS, {"clients": {"ends": False}}, "did not come to their end"),
    (DecisionPart.CLIENTS, {"clients": {"scenarios": ["values"]}}, "scenarios were left out"),
]


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(("name", "doubt", "words"), DOUBTS)
def test_what_is_not_whole_is_not_known(
    store: ResultStore, name: DecisionPart, doubt: dict[str, Any], words: str
) -> None:
    all_fine(store, **doubt)
    found = decision(store)
    standing, texts = part(found, name)
    assert (found.standing, standing) == (Standing.NOT_KNOWN, Standing.NOT_KNOWN)
    assert any(words in each for each in texts), texts


def test_without_a_forecast_the_latency_is_not_known(store: ResultStore, request: pytest.FixtureRequest) -> None:
    all_fine(store)
    found = decision(store)
    assert (found.standing, [one.part for one in found.reasons]) == (Standing.NOT_KNOWN, [DecisionPart.LATENCY])
    give = request.getfixturevalue("forecast")
    give(EvidenceReason(ReasonKind.HARM, "p99 passes 2 s at 1.1x of the captured rate", "add a node"))
    assert part(decision(store), DecisionPart.LATENCY)[0] is Standing.NO_GO


OTHERS = [
    replace(BASIS, pair={"source": "db:3306", "target": "other:4000"}),
    replace(BASIS, schema="6" * 64),
    replace(BASIS, configuration="d" * 64),
    replace(BASIS, capture="beef" * 16),
    replace(BASIS, versions={"source": "mysql 9.7.4", "target": "tidb 8.5.1"}),
]


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize("other", OTHERS)
def test_evidence_of_another_service_says_nothing(store: ResultStore, other: Any) -> None:
    all_fine(store)
    found = decision(store, service=other)
    assert found.standing is Standing.NOT_KNOWN
    capture_alone = other.capture != BASIS.capture
    standings = {one.part: one.standing for one in found.parts}
    assert (standings.pop(DecisionPart.CLIENTS) is Standing.GO) is capture_alone, "clients rest on no capture"
    assert set(standings.values()) == {Standing.NOT_KNOWN}


@pytest.mark.usefixtures("forecast")
def test_runs_of_another_service_in_the_same_store_neither_help_nor_hide(store: ResultStore) -> None:
    all_fine(store, replay={"differs": True})
    other = replace(BASIS, pair={"source": "x:1", "target": "y:2"})
    all_fine(store, **{name: {"basis": other} for name in
                       ("replay", "anomalies", "plans", "hotspots", "conflicts", "clients")})  # fmt: skip
    assert decision(store).standing is Standing.NO_GO
    assert decision(store, service=other).standing is Standing.GO


UNCLEAR: dict[str, Any] = {
    "no basis": None,
    "another name of the same source": replace(BASIS, pair={"source": "db.corp.example:3306", "target": "tidb:4000"}),
    "other names of both": replace(BASIS, pair={"source": "10.0.0.1:3306", "target": "10.0.0.2:4000"}),
    "another capture": replace(BASIS, capture="beef" * 16),
}
ELSEWHERE: dict[str, Any] = {
    "another pair": replace(BASIS, pair={"source": "x:1", "target": "y:2"},
                            identities={"source": "uuid-2", "target": "cluster 8, made 2026-01-01"}),
    "another target of the same source": replace(BASIS, pair={"source": "db:3306", "target": "y:2"},
                                                 identities={**BASIS.identities, "target": "cluster 8"}),
    "another pair that did not tell who it is": replace(BASIS, pair={"source": "x:1", "target": "y:2"}, identities={}),
    "a service that shares the servers": replace(BASIS, capture="beef" * 16, configuration="d" * 64),
}  # fmt: skip


def each_part(bases: dict[str, Any]) -> list[Any]:
    """Return parameters: every part with every basis that says something of it; clients rest on no capture."""
    return [
        pytest.param(name, basis, id=f"{name}, {words}")
        for words, basis in bases.items()
        for name in DecisionPart
        if name is not DecisionPart.CLIENTS or basis is None or basis.capture == BASIS.capture
    ]


def newer_harm(store: ResultStore, name: DecisionPart, basis: Any) -> str:
    """Write a whole run that proves harm to a part; return its id."""
    if name in (DecisionPart.ANSWERS, DecisionPart.LATENCY):
        return made.replay(store, basis=basis, differs=True, missed=True)
    if name is DecisionPart.ANOMALIES:
        return made.anomalies(store, made.replay(store, basis=basis), basis=basis, lost=True)
    if name is DecisionPart.CONFLICTS:
        return made.conflicts(store, made.replay(store, basis=basis), basis=basis, cause="other transaction")
    if name is DecisionPart.PLANS:
        return made.plans(store, basis=basis, scan=True)
    if name is DecisionPart.HOTSPOTS:
        return made.hotspots(store, basis=basis, hot=True)
    return made.clients(store, basis=basis, differs=True)


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(("name", "basis"), each_part(UNCLEAR))
def test_newer_harm_that_may_be_of_the_service_is_not_known(store: ResultStore, name: DecisionPart, basis: Any) -> None:
    all_fine(store)
    run = newer_harm(store, name, basis)
    found = decision(store)
    assert (found.standing, part(found, name)[0]) == (Standing.NOT_KNOWN, Standing.NOT_KNOWN)
    assert any(f"run {run} found harm" in each and "not counted" in each for each in part(found, name)[1])
    all_fine(store)
    assert decision(store).standing is Standing.GO, "a newer run of the service shows that it is gone"


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(("name", "basis"), each_part(ELSEWHERE))
def test_newer_harm_of_another_service_is_nothing(store: ResultStore, name: DecisionPart, basis: Any) -> None:
    all_fine(store)
    newer_harm(store, name, basis)
    assert decision(store).standing is Standing.GO


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize("name", list(DecisionPart))
def test_names_of_servers_have_no_case(store: ResultStore, name: DecisionPart) -> None:
    shouted = replace(BASIS, pair={side: address.upper() for side, address in BASIS.pair.items()})
    all_fine(store)
    assert decision(store, service=shouted).standing is Standing.GO
    newer_harm(store, name, shouted)
    assert part(decision(store), name)[0] is Standing.NO_GO
    other = replace(shouted, identities={**BASIS.identities, "source": "uuid-2"})
    assert part(decision(store, service=other), name)[0] is Standing.NOT_KNOWN, "another server, and no clone"
    clones = DecisionRules(clones=(shouted.pair,))
    assert part(decision(store, service=replace(BASIS, pair={"source": "x:1", "target": "y:2"}), rules=clones), name)[
        0
    ] is Standing.NO_GO  # fmt: skip


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ({"source": {"address": "DB:3306"}, "target": {"address": "tidb:4000"}}, Standing.NOT_KNOWN),
        ({"source": {"address": "x:1"}, "target": {"address": "tidb:4000"}}, Standing.GO),
        ({"source": "mysql 9.7.4", "target": "tidb 8.5.0"}, Standing.NOT_KNOWN),
        ({}, Standing.NOT_KNOWN),
    ],
)
def test_a_run_without_basis_is_of_the_servers_that_it_names(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, endpoints: dict[str, Any], expected: Standing
) -> None:
    all_fine(store)
    with monkeypatch.context() as patched:
        patched.setattr(made, "facts", lambda *_, **more: {"endpoints": endpoints, **more})
        made.plans(store, scan=True)
    assert decision(store).standing is expected


@pytest.mark.usefixtures("forecast")
def test_clients_of_servers_of_their_own_say_nothing_of_the_service(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_fine(store)
    begin = store.start_run
    with monkeypatch.context() as patched:
        patched.setattr(
            store, "start_run",
            lambda command, *rest, **more: begin(f"migverify {command} --own-servers", *rest, **more),
        )  # fmt: skip
        made.clients(store, basis=None, differs=True)
    assert decision(store).standing is Standing.GO


@pytest.mark.usefixtures("forecast")
def test_histories_without_basis_and_replay_that_show_an_anomaly_are_not_known(store: ResultStore) -> None:
    all_fine(store)
    made.anomalies(store, "", basis=None, lost=True)
    assert part(decision(store), DecisionPart.ANOMALIES)[0] is Standing.NOT_KNOWN


@pytest.mark.usefixtures("forecast")
def test_evidence_of_named_clones_counts(store: ResultStore) -> None:
    clones = {"source": "clone:1", "target": "clone:2"}
    of_clones = {"basis": replace(BASIS, pair=clones)}
    all_fine(store, replay=of_clones, anomalies=of_clones, conflicts=of_clones)
    assert decision(store).standing is Standing.NOT_KNOWN
    assert decision(store, rules=DecisionRules(clones=(clones,))).standing is Standing.GO


@pytest.mark.usefixtures("forecast")
def test_the_last_whole_run_counts_and_newer_parts_add_harm_alone(store: ResultStore) -> None:
    all_fine(store)
    made.replay(store, selection={"digests": ["ab"]})
    assert decision(store).standing is Standing.GO, "a look at one digest takes no evidence away"
    partial = made.replay(store, selection={"digests": ["ab"]}, differs=True)
    found = decision(store)
    assert found.standing is Standing.NO_GO
    assert found.reasons[0].run == partial
    made.replay(store, selection={"digests": ["ab"]})
    assert decision(store).standing is Standing.NO_GO, "a part that is fine says nothing of the harm before"
    recorded = made.replay(store)
    made.anomalies(store, recorded)
    made.conflicts(store, recorded)
    assert decision(store).standing is Standing.GO, "a whole replay does"


@pytest.mark.usefixtures("forecast")
def test_old_evidence_and_that_of_the_future(store: ResultStore) -> None:
    all_fine(store)
    now = time.time()
    assert decision(store, now + 6.9 * 86_400).standing is Standing.GO
    late = decision(store, now + 7.1 * 86_400)
    assert late.standing is Standing.NOT_KNOWN
    assert {one.standing for one in late.parts} == {Standing.NOT_KNOWN}
    behind = decision(store, now - 3_600)
    assert "ahead of now" in behind.reasons[0].reason.text
    assert {one.standing for one in behind.parts} == {Standing.NOT_KNOWN}


@pytest.mark.usefixtures("forecast")
def test_histories_compared_again_are_as_old_as_their_replay(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made.clock(monkeypatch, time.time() - 30 * 86_400):
        recorded = made.replay(store)
    made.anomalies(store, recorded)
    made.conflicts(store, recorded)
    found = decision(store)
    for name in (DecisionPart.ANOMALIES, DecisionPart.CONFLICTS):
        standing, texts = part(found, name)
        assert standing is Standing.NOT_KNOWN
        assert any("30 days old" in each for each in texts)


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(
    ("days", "expected"), [(6.9, Standing.GO), (7.1, Standing.NOT_KNOWN), (30, Standing.NOT_KNOWN)]
)
def test_a_replay_that_was_resumed_is_as_old_as_its_begin(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, days: float, expected: Standing
) -> None:
    with made.clock(monkeypatch, time.time() - days * 86_400):
        begun = made.replay(store, ends=False)
    recorded = made.replay(store, resumed=begun)
    made.anomalies(store, recorded)
    made.conflicts(store, recorded)
    found = decision(store)
    for name in (DecisionPart.ANSWERS, DecisionPart.ANOMALIES, DecisionPart.LATENCY, DecisionPart.CONFLICTS):
        assert part(found, name)[0] is expected, name


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(("days", "expected"), [(0.9, Standing.GO), (6.9, Standing.GO), (7.1, Standing.NOT_KNOWN)])
def test_a_replay_of_days_is_as_old_as_its_begin(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, days: float, expected: Standing
) -> None:
    began, now = iter([time.time() - days * 86_400]), time.time()
    with monkeypatch.context() as patched:
        patched.setattr("migverify.store.runs.time.time", lambda: next(began, now))
        recorded = made.replay(store)
    made.anomalies(store, recorded)
    made.conflicts(store, recorded)
    found = decision(store)
    taken = {one.part: one.evidence.taken for one in found.parts}
    for name in (DecisionPart.ANSWERS, DecisionPart.ANOMALIES, DecisionPart.LATENCY, DecisionPart.CONFLICTS):
        assert part(found, name)[0] is expected, name
        assert taken[name] == pytest.approx(now - (days * 86_400 if days > 1 else 0), abs=60)


@pytest.mark.usefixtures("forecast")
def test_a_run_that_ended_in_the_future_is_not_known_whatever_it_is_as_old_as(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = all_fine(store)
    begun = made.replay(store, ends=False)
    with made.clock(monkeypatch, time.time() + 3_600):
        made.replay(store, resumed=begun)
        made.anomalies(store, runs["replay"])
        made.conflicts(store, runs["replay"])
    found = decision(store)
    for name in (DecisionPart.ANSWERS, DecisionPart.ANOMALIES, DecisionPart.LATENCY, DecisionPart.CONFLICTS):
        standing, texts = part(found, name)
        assert standing is Standing.NOT_KNOWN
        assert any("ended in the future" in each for each in texts), texts


@pytest.mark.usefixtures("forecast")
def test_histories_of_no_known_replay_prove_nothing(store: ResultStore) -> None:
    recorded = all_fine(store)["replay"]
    for name in ("", "20200101T000000-abcdef", made.plans(store)):
        made.anomalies(store, name)
        assert part(decision(store), DecisionPart.ANOMALIES)[0] is Standing.NOT_KNOWN
    made.anomalies(store, recorded)
    assert part(decision(store), DecisionPart.ANOMALIES)[0] is Standing.GO


def waiver(expires: date = TOMORROW, **more: Any) -> Waiver:
    return Waiver(owner="ann", reason="the report sorts by itself", expires=expires, **more)


@pytest.mark.usefixtures("forecast")
def test_what_was_waived_is_shown_with_who_and_why_until_it_lapses(store: ResultStore) -> None:
    digests = made.tally(differs=True).digests
    waivers = [waiver(digest=digest) for digest in digests]
    all_fine(store, replay={"differs": True, "waivers": waivers})
    accepted = decision(store, waivers=waivers)
    assert accepted.standing is Standing.GO
    shown = [one.reason.waiver for one in accepted.parts[0].of_kind(ReasonKind.WAIVED)]
    assert shown
    assert all(one == f"ann, until {TOMORROW}: the report sorts by itself" for one in shown)
    lapsed = decision(store)
    assert lapsed.standing is Standing.NO_GO
    assert "which does not hold any more" in lapsed.reasons[0].reason.text


@pytest.mark.usefixtures("forecast")
def test_known_differences_of_clients_are_waived_by_their_entry(store: ResultStore) -> None:
    from migverify.workload.catalogue.load import load

    entry = load().entries[0].id
    all_fine(store, clients={"differs": True, "known": (entry,)})
    assert decision(store).standing is Standing.NO_GO
    assert decision(store, waivers=[waiver(entry=entry)]).standing is Standing.GO
    assert decision(store, waivers=[waiver(digest="a" * 64)]).standing is Standing.NO_GO


@pytest.mark.usefixtures("forecast")
def test_clients_of_the_service_must_be_named_and_run(store: ResultStore) -> None:
    all_fine(store)
    unnamed = part(decision(store, clients=()), DecisionPart.CLIENTS)
    assert unnamed[0] is Standing.NOT_KNOWN
    assert any("not configured" in each for each in unnamed[1])
    assert part(decision(store, clients=("mysqlclient/none",)), DecisionPart.CLIENTS)[0] is Standing.NOT_KNOWN
    made.clients(store, scenarios=["values"])
    assert part(decision(store, scenarios=("values",)), DecisionPart.CLIENTS)[0] is Standing.GO
    assert part(decision(store, scenarios=("values", "errors")), DecisionPart.CLIENTS)[0] is Standing.NOT_KNOWN


SHADOW = EvidenceReason(ReasonKind.HARM, "answers differ since 12:00", "migverify report shadow")


@pytest.mark.usefixtures("forecast")
def test_a_shadow_replay_takes_nothing_away_and_makes_no_replay_fresher(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = JoinedEvidence("shadow", time.time(), time.time() - 60, replace(BASIS, capture=""), (), "2 days")

    def shadow(*reasons: EvidenceReason, **changes: Any) -> tuple[Standing, list[str]]:
        given = replace(joined, reasons=reasons, **changes)
        monkeypatch.setattr(read_replays, "shadow_replays", lambda *_: (given,))
        return part(decision(store), DecisionPart.ANSWERS)

    alone = shadow()
    assert alone[0] is Standing.NOT_KNOWN
    assert any("answers to writes are not known" in each for each in alone[1])
    with made.clock(monkeypatch, time.time() - 30 * 86_400):
        made.replay(store)
    old = time.time() - 40 * 86_400
    stale = shadow()
    assert stale[0] is Standing.NOT_KNOWN, "one read of the log asks the capture's statements as little as its writes"
    assert any("30 days old" in each for each in stale[1])
    assert shadow(taken=old)[0] is Standing.NOT_KNOWN
    assert shadow(SHADOW)[0] is Standing.NO_GO
    assert shadow(SHADOW, taken=old)[0] is Standing.NO_GO, "harm counts where it is older, too"
    made.replay(store)
    assert shadow()[0] is Standing.GO
    doubt = EvidenceReason(ReasonKind.DOUBT, "a gap in the log")
    assert shadow(doubt, taken=time.time())[0] is Standing.NOT_KNOWN
    assert shadow(doubt, taken=old)[0] is Standing.GO, "a whole replay began after it"
    made.replay(store, ends=False)
    assert shadow()[0] is Standing.NOT_KNOWN, "nor does it take a doubt away"
    made.replay(store, differs=True)
    assert shadow()[0] is Standing.NO_GO, "a replay showed harm, and only a replay takes it away"


def follow(
    store: ResultStore, *, at: float, differs: str = "", final: bool = True, basis: Any = BASIS,
    verdict: str = "", reasons: tuple[str, ...] = (),
) -> str:  # fmt: skip
    """Write a shadow replay; ``differs`` is the digest of a read whose answers differ."""
    facts = made.facts(None if basis is None else replace(basis, capture=""), shadow=True)
    run = store.start_run("workload replay --follow", "d", {}, facts, kind=StoredKind.REPLAY)
    bad = [{"verdict": "MISMATCH", "text": "", "digest": differs, "different": 4}] if differs else []
    status = {"log": "slow.log", "at": at, "verdict": verdict or ("MISMATCH" if bad else "MATCH"),
              "reasons": list(reasons), "counts": {"reads": 1}, "hours": [],
              "digests_by_verdict": {"MISMATCH": len(bad)}, "digests": bad, "final": final}  # fmt: skip
    store.add_window(run, "workload shadow", {"window": "", "state": "done", "shadow": status}, [])
    if final:
        store.finish_run(run, Verdict(str(status["verdict"])), {})
    return run


@pytest.mark.usefixtures("forecast")
def test_a_newer_shadow_replay_of_one_read_hides_no_harm_of_another(store: ResultStore) -> None:
    all_fine(store)
    bad = follow(store, at=time.time(), differs="e" * 64)
    assert decision(store).standing is Standing.NO_GO
    follow(store, at=time.time())
    found = decision(store)
    assert (found.standing, found.reasons[0].run) == (Standing.NO_GO, bad)
    made.replay(store)
    assert decision(store).standing is Standing.NO_GO, "the replay did not ask that statement"


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize("basis", [each for each in UNCLEAR.values() if each is None or each.pair != BASIS.pair])
def test_harm_of_a_shadow_replay_that_may_be_of_the_service_is_not_known(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, basis: Any
) -> None:
    all_fine(store)
    (digest,) = made.tally().digests
    follow(store, at=time.time(), basis=basis, verdict="INCONCLUSIVE", reasons=("a gap in the log",))
    assert decision(store).standing is Standing.GO, "it is no evidence, and found nothing"
    run = follow(store, at=time.time(), basis=basis, differs=digest)
    standing, texts = part(decision(store), DecisionPart.ANSWERS)
    assert (standing, len(texts)) == (Standing.NOT_KNOWN, 1)
    assert f"run {run} found harm" in texts[0]
    with made.clock(monkeypatch, time.time() + 30):
        made.replay(store)
    assert part(decision(store), DecisionPart.ANSWERS)[0] is Standing.GO, "a later replay asked the same"


@pytest.mark.usefixtures("forecast")
def test_harm_of_a_shadow_replay_is_not_lost_behind_a_thousand_other_runs(store: ResultStore) -> None:
    follow(store, at=time.time(), differs="e" * 64)
    for _ in range(1_000):
        store.start_run("guard ids", "d", {}, {}, kind=StoredKind.GUARDS)
    all_fine(store)
    assert decision(store).standing is Standing.NO_GO


@pytest.mark.usefixtures("forecast")
def test_harm_of_a_shadow_replay_ends_where_a_later_whole_replay_asked_the_same(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_fine(store)
    (digest,) = made.tally().digests
    follow(store, at=time.time(), differs=digest)
    assert decision(store).standing is Standing.NO_GO
    with made.clock(monkeypatch, time.time() + 20):
        made.replay(store, selection={"limit": 5})
    assert decision(store).standing is Standing.NO_GO
    with made.clock(monkeypatch, time.time() + 30):
        made.replay(store)
    assert part(decision(store), DecisionPart.ANSWERS)[0] is Standing.GO


@pytest.mark.usefixtures("forecast")
def test_harm_of_a_shadow_replay_is_accepted_by_its_digest(store: ResultStore) -> None:
    all_fine(store)
    follow(store, at=time.time(), differs="e" * 64)
    answers = decision(store, waivers=[waiver(digest="e" * 64)]).parts[0]
    assert [one.reason.waiver for one in answers.of_kind(ReasonKind.WAIVED)] == [
        f"ann, until {TOMORROW}: the report sorts by itself"
    ]
    assert answers.of_kind(ReasonKind.HARM) == ()
    assert decision(store, waivers=[waiver(digest="f" * 64)]).standing is Standing.NO_GO


@pytest.mark.usefixtures("forecast")
def test_a_shadow_replay_that_goes_on_and_is_silent_is_not_known(store: ResultStore) -> None:
    all_fine(store)
    now = time.time()
    follow(store, at=now, final=False)
    assert decision(store, now + 300).standing is Standing.GO
    standing, texts = part(decision(store, now + 1_500), DecisionPart.ANSWERS)
    assert standing is Standing.NOT_KNOWN
    assert texts == ["not known: a shadow replay goes on, or was cut off: it was last recorded 25 min ago"]


@pytest.mark.usefixtures("forecast")
def test_a_shadow_replay_that_recorded_nothing_is_not_known(store: ResultStore) -> None:
    all_fine(store)
    facts = made.facts(replace(BASIS, capture=""), shadow=True)
    store.start_run("workload replay --follow", "d", {}, facts, kind=StoredKind.REPLAY)
    standing, texts = part(decision(store, time.time() + 1_500), DecisionPart.ANSWERS)
    assert standing is Standing.NOT_KNOWN
    assert any("has recorded nothing yet" in each for each in texts)


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize("kind", ["anomalies", "conflicts"])
def test_comparing_an_older_replay_again_takes_no_harm_away(store: ResultStore, kind: str) -> None:
    name = DecisionPart(kind)
    older = all_fine(store)["replay"]
    harm = {"anomalies": {"lost": True}, "conflicts": {"cause": "other transaction"}}[kind]
    newest = all_fine(store, **{kind: harm})["replay"]
    again = {"anomalies": made.anomalies, "conflicts": made.conflicts}[kind]
    assert part(decision(store), name)[0] is Standing.NO_GO
    again(store, older)
    assert part(decision(store), name)[0] is Standing.NO_GO
    again(store, newest)
    assert part(decision(store), name)[0] is Standing.NO_GO, "the same replay is asked again, its harm stays"
    made.replay(store)
    standing, texts = part(decision(store), name)
    assert standing is Standing.NO_GO
    assert any("nothing of the last whole one" in each for each in texts)
    all_fine(store)
    assert part(decision(store), name)[0] is Standing.GO


@pytest.mark.usefixtures("forecast")
def test_harm_of_histories_of_a_newer_part_counts(store: ResultStore) -> None:
    all_fine(store)
    made.anomalies(store, made.replay(store, selection={"limit": 5}), lost=True)
    assert part(decision(store), DecisionPart.ANOMALIES)[0] is Standing.NO_GO


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize("sides", [(), ("", ""), ("target", "source"), ("source", "source")])
def test_histories_that_do_not_say_their_sides_are_doubted(store: ResultStore, sides: tuple[str, ...]) -> None:
    all_fine(store, anomalies={"sides": sides})
    standing, texts = part(decision(store), DecisionPart.ANOMALIES)
    assert standing is Standing.NOT_KNOWN
    assert any("which of them is the source's" in each for each in texts)


def test_service_levels_are_those_of_the_configuration_not_of_the_command(store: ResultStore) -> None:
    tight, loose = replace(level(), name="tight"), replace(level(), name="loose")
    levels = {"loose": None, "tight": 1.3}

    def judged_(*forecasts: LevelForecast) -> tuple[Standing, list[str]]:
        write_forecast(store, made.replay(store, level="loose"), load(*forecasts))
        return part(decision(store, levels=levels), DecisionPart.LATENCY)

    assert judged_(loose, tight)[0] is Standing.GO
    missed = replace(tight, at_headroom=MISSED)
    assert judged_(loose, missed)[0] is Standing.NO_GO
    assert judged_(loose)[0] is Standing.NO_GO, "a level that is left out is not judged"
    assert judged_(loose, replace(tight, headroom=1.0))[0] is Standing.NO_GO, "nor is one at a weaker load"
    assert judged_(loose, replace(tight, headroom=None, at_headroom=None))[0] is Standing.NO_GO
    assert judged_(loose, tight)[0] is Standing.GO
    assert judged_(loose, replace(tight, captured=MISSED, headroom=1.0))[0] is Standing.NO_GO, (
        "and harm of a newer part counts"
    )


def test_a_replay_without_all_levels_is_not_known_and_says_which(store: ResultStore) -> None:
    write_forecast(store, made.replay(store, level="loose"), load(replace(level(headroom=1.0), name="loose")))
    found = decision(store, levels={"loose": 2.5, "tight": None})
    standing, texts = part(found, DecisionPart.LATENCY)
    assert standing is Standing.NOT_KNOWN
    assert any("service levels were left out: tight" in each for each in texts)
    assert any("loose was judged at 1x, the configuration asks for 2.5x" in each for each in texts)
    assert "--slo loose --slo tight" in found.parts[2].evidence.again
    assert "NAME" not in found.parts[2].evidence.again


def test_shadow_replays_of_the_service_are_found_and_are_no_replays_of_a_capture(store: ResultStore) -> None:
    made.replay(store)
    plan = {"kind": "replay", "capture": "/var/log/general.log", "sides": ["source", "target"]}
    for basis in (BASIS, replace(BASIS, pair={"source": "x:1", "target": "y:2"})):
        facts = made.facts(replace(basis, capture=""), shadow=True)
        run = store.start_run("workload replay --follow", "h", plan, facts, kind=StoredKind.REPLAY)
        if basis is BASIS:
            mine = run
    assert [one.run_id for one in shadow_runs(reading(store))] == [mine]
    assert decision(store).parts[0].standing is Standing.GO


@pytest.mark.usefixtures("forecast")
def test_plans_that_asked_less_take_no_harm_away(store: ResultStore) -> None:
    def standing() -> Standing:
        return part(decision(store), DecisionPart.PLANS)[0]

    all_fine(store)
    made.plans(store, samples=1)
    assert standing() is Standing.GO, "a look at one call takes no evidence away"
    made.plans(store, scan=True)
    made.plans(store, samples=1)
    assert standing() is Standing.NO_GO, "nor harm"
    made.plans(store)
    assert standing() is Standing.GO
    for more in ({"analyze": True}, {"since": True}, {"samples": 10}):
        made.plans(store, scan=True, **more)
        made.plans(store)
        assert standing() is Standing.NO_GO, f"what {more} alone shows is not gone"
        made.plans(store, **more)
        assert standing() is Standing.GO


HARMFUL = [
    (DecisionPart.ANSWERS, lambda store, **how: made.replay(store, **how), {"differs": True}),
    (DecisionPart.LATENCY, lambda store, **how: made.replay(store, **how), {"missed": True}),
    (DecisionPart.PLANS, lambda store, **how: made.plans(store, **how), {"scan": True}),
    (DecisionPart.HOTSPOTS, lambda store, **how: made.hotspots(store, **how), {"hot": True}),
    (DecisionPart.CLIENTS, lambda store, **how: made.clients(store, **how), {"differs": True}),
]  # fmt: skip


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize(("name", "make", "harm"), HARMFUL, ids=[str(name) for name, _, _ in HARMFUL])
def test_a_run_that_goes_on_or_was_cut_off_takes_no_harm_away(
    store: ResultStore, name: DecisionPart, make: Callable[..., str], harm: dict[str, bool]
) -> None:
    all_fine(store)
    bad = make(store, **harm)
    for _ in range(2):
        make(store, ends=False)
        standing, texts = part(decision(store), name)
        assert standing is Standing.NO_GO
        assert len(texts) == len(set(texts)), "each is said once"
    assert decision(store).reasons[0].run == bad
    make(store, ends=False, basis=replace(BASIS, schema="6" * 64))
    assert part(decision(store), name)[0] is Standing.NO_GO
    make(store)
    assert part(decision(store), name)[0] is Standing.GO, "a whole run that ended shows that it is gone"


@pytest.mark.usefixtures("forecast")
def test_plans_that_asked_more_keep_their_harm_once_while_a_newer_run_goes_on(store: ResultStore) -> None:
    all_fine(store)
    good = made.plans(store)
    made.plans(store, scan=True, since=good)
    for since in ("", good):
        made.plans(store, since=since, ends=False)
        standing, texts = part(decision(store), DecisionPart.PLANS)
        assert standing is Standing.NO_GO
        assert len(texts) == len(set(texts))
    made.plans(store)
    made.plans(store, since=good, ends=False)
    assert part(decision(store), DecisionPart.PLANS)[0] is Standing.NO_GO, "what was cut off shows nothing"
    made.plans(store, since=good)
    assert part(decision(store), DecisionPart.PLANS)[0] is Standing.GO


@pytest.mark.usefixtures("forecast")
def test_plans_since_a_baseline_that_has_the_worse_plan_take_no_harm_away(store: ResultStore) -> None:
    def standing() -> Standing:
        return part(decision(store), DecisionPart.PLANS)[0]

    all_fine(store)
    oldest, some, good = made.plans(store), made.plans(store, digests=["ab"]), made.plans(store)
    bad = made.plans(store, scan=True, since=good)
    for later in (bad, made.plans(store), some, True, ""):
        made.plans(store, since=later)
        found = decision(store)
        assert found.standing is Standing.NO_GO, f"since {later}"
        assert found.reasons[0].run == bad
    made.plans(store, doubt=True, since=good)
    made.plans(store)
    assert standing() is Standing.NO_GO, "what is left open shows nothing"
    made.plans(store, since=good, ends=False)
    made.plans(store)
    assert standing() is Standing.NO_GO, "nor what was cut off"
    made.plans(store, since=good, basis=replace(BASIS, schema="6" * 64))
    made.plans(store)
    assert standing() is Standing.NO_GO, "nor what is of other definitions"
    made.plans(store, since=oldest)
    assert standing() is Standing.GO
    made.plans(store, scan=True, since=good)
    assert standing() is Standing.NO_GO
    made.plans(store, since=good)
    assert standing() is Standing.GO
    made.plans(store, since=bad)
    assert standing() is Standing.GO


@pytest.mark.usefixtures("forecast")
def test_the_baseline_of_plans_of_an_earlier_release_is_read_from_their_command(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def standing() -> Standing:
        return part(decision(store), DecisionPart.PLANS)[0]

    monkeypatch.setattr(made, "SINCE_RUN", "not kept")
    good = all_fine(store)["plans"]
    made.plans(store, scan=True, since=True, command="migverify workload plans peak --since last")
    made.plans(store, since=True, command="migverify workload plans peak --since last")
    assert standing() is Standing.NO_GO
    made.plans(store, since=True, command=f"migverify workload plans peak --since={good}")
    assert standing() is Standing.GO


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize("more", [{"analyze": True}, {"since": True}, {"samples": 10}])
def test_plans_that_asked_more_and_were_cut_off_or_may_be_of_the_service_keep_their_harm(
    store: ResultStore, more: dict[str, Any]
) -> None:
    all_fine(store)
    made.plans(store, scan=True, basis=None, **more)
    made.plans(store)
    assert part(decision(store), DecisionPart.PLANS)[0] is Standing.NOT_KNOWN
    made.plans(store, scan=True, ends=False, **more)
    made.plans(store)
    assert part(decision(store), DecisionPart.PLANS)[0] is Standing.NO_GO
    made.plans(store, **more)
    assert part(decision(store), DecisionPart.PLANS)[0] is Standing.GO


def test_plans_of_one_call_alone_are_not_known_and_the_usual_number_is_that_of_the_command(store: ResultStore) -> None:
    from inspect import signature

    from migverify.cli.workload_plans import plans
    from migverify.decision.read_plans import USUAL_SAMPLES

    assert signature(plans).parameters["samples"].default == USUAL_SAMPLES
    made.plans(store, samples=1)
    standing, texts = part(decision(store), DecisionPart.PLANS)
    assert standing is Standing.NOT_KNOWN
    assert any("1 calls of a digest were explained, 3 are usual" in each for each in texts)


@pytest.mark.usefixtures("forecast")
def test_harm_of_newer_parts_under_other_definitions_is_neither_counted_nor_gone(store: ResultStore) -> None:
    all_fine(store)
    run = made.replay(store, selection={"limit": 5}, differs=True, basis=replace(BASIS, schema="6" * 64))
    standing, texts = part(decision(store), DecisionPart.ANSWERS)
    assert standing is Standing.NOT_KNOWN
    assert any(f"run {run} found harm" in each and "definitions" in each for each in texts)
    made.replay(store, selection={"limit": 5}, differs=True)
    assert part(decision(store), DecisionPart.ANSWERS)[0] is Standing.NO_GO


@pytest.mark.usefixtures("forecast")
def test_remedies_are_the_commands_of_the_evidence(store: ResultStore) -> None:
    plans = "migverify workload plans captures/peak --config 'my rw.yaml' --accept-write-grants --try"
    replay = "migverify workload replay captures/peak --writes --slo loose --headroom 1 --config rw.yaml"
    recorded = made.replay(store, command=replay)
    made.plans(store, doubt=True, command=plans)
    asked = decision(store, levels={"loose": None, "tight and tidy": 2.0}, options=" --config migverify.yaml")
    again = {one.part.value: one.evidence.again for one in asked.parts}
    assert again["plans"] == plans.removesuffix(" --try")
    assert again["answers"] == replay
    assert again["latency"] == (
        "migverify workload replay captures/peak --writes --config rw.yaml --slo loose --slo 'tight and tidy'"
    )
    assert again["anomalies"] == f"{replay} --anomalies"
    assert recorded
    made.plans(store, doubt=True, command="migverify workload plans x --store mysql://u:***@h/d")
    hidden = decision(store, options=" --config rw.yaml")
    assert hidden.parts[3].evidence.again == "migverify workload plans captures/peak --config rw.yaml"


def test_statistics_are_taken_before_plans_are_asked_again(store: ResultStore) -> None:
    made.plans(store, doubt="shop.orders has stale statistics: ANALYZE TABLE `shop`.`orders`")
    remedies = [one.reason.remedy for one in decision(store).parts[3].reasons]
    assert remedies == ["on the target: ANALYZE TABLE `shop`.`orders`; then migverify workload plans captures/peak"]


DAMAGE = [
    "UPDATE migverify_findings SET body = '{}'",
    "UPDATE migverify_findings SET body = 'x'",
    'UPDATE migverify_rule_windows SET body = \'{"window": "", "state": "done"}\'',
    "UPDATE migverify_rule_windows SET body = '[]'",
    "DELETE FROM migverify_findings",
    "DELETE FROM migverify_finding_heads",
    "DELETE FROM migverify_rule_windows",
    "DELETE FROM migverify_table_results",
    "DELETE FROM migverify_run_events WHERE event = 'run_finished'",
    "DELETE FROM migverify_plan_parts",
    "UPDATE migverify_plan_parts SET content = x'00'",
    "UPDATE migverify_runs SET facts = '{}'",
    'UPDATE migverify_runs SET facts = \'{"basis": {"pair": 1}}\'',
    "DELETE FROM migverify_run_kinds",
    "DELETE FROM migverify_scopes",
]


@pytest.mark.usefixtures("forecast")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_store_that_was_cut_or_changed_is_never_go(store: ResultStore, damage: str) -> None:
    all_fine(store)
    with store.engine.begin() as connection:
        connection.execute(text(damage))
    store._scopes.clear()
    found = decision(store)
    assert found.standing is Standing.NOT_KNOWN
    assert found.reasons


@pytest.mark.usefixtures("forecast")
def test_a_verdict_that_was_changed_to_match_is_found(store: ResultStore) -> None:
    all_fine(store, replay={"differs": True}, plans={"scan": True}, hotspots={"hot": True})
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE migverify_run_events SET verdict = 'MATCH' WHERE verdict IS NOT NULL"))
        connection.execute(text("UPDATE migverify_rule_windows SET body = replace(body, 'MISMATCH', 'MATCH')"))
    found = decision(store)
    assert found.standing is Standing.NO_GO
    assert {one.part for one in found.reasons} >= {DecisionPart.ANSWERS, DecisionPart.PLANS, DecisionPart.HOTSPOTS}


MET, MISSED, OPEN = LevelState.MET, LevelState.MISSED, LevelState.NOT_KNOWN


def level(captured: LevelState = MET, headroom: float | None = 1.3, at: LevelState | None = MET) -> LevelForecast:
    limit = LoadLimit(None, False, None, False)
    return LevelForecast("payments", "", 0.99, 2.0, (), (), limit, captured, headroom, at, ("p99 is 3 s",))


def load(*levels: LevelForecast, reasons: tuple[str, ...] = ()) -> LoadForecast:
    use = DigestUse("d" * 64, "SELECT ?", 0.5, 1.0, 2.0, 0.1, 3)
    return LoadForecast(60.0, 1.0, 2.0, 10.0, None, None, None, (), levels, (use,), reasons)


@pytest.mark.parametrize(
    ("forecast_", "kinds"),
    [
        (load(level()), []),
        (load(), ["not known"]),
        (load(level(MISSED)), ["harm"]),
        (load(level(at=MISSED)), ["harm"]),
        (load(level(OPEN), level()), ["not known"]),
        (load(level(at=None)), ["not known"]),
        (load(level(headroom=None, at=None)), []),
        (load(level(), reasons=("the capture covers 3 s",)), ["not known"]),
    ],
)
def test_a_forecast_is_read_by_the_states_of_its_levels(
    store: ResultStore, forecast_: LoadForecast, kinds: list[str]
) -> None:
    run = store.load_run(made.replay(store))
    found = forecast_evidence(reading(store), forecast_, run, "migverify workload replay peak --slo payments")
    assert [one.kind.value for one in found.reasons] == kinds
    assert all(one.remedy for one in found.reasons)
    assert (found.run, found.basis, found.covered) == (run.run_id, BASIS, "busy with SELECT ? 50%")


def test_the_forecast_of_a_replay_is_the_evidence_of_latency(store: ResultStore) -> None:
    runs = all_fine(store)
    assert part(decision(store), DecisionPart.LATENCY)[0] is Standing.NOT_KNOWN
    write_forecast(store, runs["replay"], load(level()))
    assert decision(store).standing is Standing.GO
    runs = all_fine(store)
    write_forecast(store, runs["replay"], load(level(at=MISSED)))
    found = decision(store)
    assert (found.standing, found.reasons[0].part) == (Standing.NO_GO, DecisionPart.LATENCY)
    runs = all_fine(store, replay={"missed": True})
    write_forecast(store, runs["replay"], load(level(MISSED)))
    assert len(decision(store).reasons) == 1, "what the replay judged itself is said once"


def test_the_last_status_of_a_shadow_replay_is_joined(store: ResultStore) -> None:
    assert shadow_replays(reading(store)) == ()
    run = store.start_run("workload replay --follow", "d", {}, made.facts(replace(BASIS, capture=""), shadow=True),
                          kind=StoredKind.REPLAY)  # fmt: skip
    (found,) = shadow_replays(reading(store))
    assert found.reasons == (), "it began a moment ago"
    bad = {"verdict": "MISMATCH", "text": "SELECT ?", "digest": "d" * 64, "different": 4}
    status = {"log": "slow.log", "at": 1000.0, "verdict": "MISMATCH", "reasons": [], "counts": {"reads": 9},
              "hours": [], "digests_by_verdict": {}, "digests": [bad], "final": True}  # fmt: skip
    store.add_window(run, "workload shadow", {"window": "", "state": "done", "shadow": status}, [])
    (found,) = shadow_replays(reading(store))
    assert (found.run, found.taken, found.covered) == (run, 1000.0, "shadow replay, 9 reads")
    assert [one.kind for one in found.reasons] == [ReasonKind.HARM, ReasonKind.DOUBT]


@dataclass(frozen=True)
class Shadow:
    run_id: str
    verdict: Verdict = Verdict.MATCH
    reasons: tuple[str, ...] = ()
    digests: tuple[dict[str, Any], ...] = ()
    at: float = 1.0
    counts: dict[str, int] = field(default_factory=dict)
    digests_by_verdict: dict[str, int] = field(default_factory=dict)
    is_over: bool = True


def test_a_shadow_replay_is_read_by_its_digests(store: ResultStore) -> None:
    run = store.load_run(made.replay(store))
    bad = {"verdict": "MISMATCH", "text": "SELECT ?", "digest": "d" * 64, "different": 4}
    for status, kinds in (
        (Shadow(run.run_id), []),
        (Shadow(run.run_id, Verdict.INCONCLUSIVE, ("a gap in the log",)), ["not known"]),
        (Shadow(run.run_id, Verdict.INCONCLUSIVE), ["not known"]),
        (Shadow(run.run_id, Verdict.MISMATCH, (), (bad,)), ["harm", "not known"]),
        (Shadow(run.run_id, Verdict.MISMATCH, ("x",)), ["harm", "not known"]),
    ):
        assert [one.kind.value for one in shadow_evidence(reading(store), status, run).reasons] == kinds
