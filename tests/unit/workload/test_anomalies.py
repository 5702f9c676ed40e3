"""Known histories have their anomalies; what an executor proves cannot happen is never reported."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.cli.main import run
from migverify.errors import UsageError
from migverify.model import Verdict
from migverify.workload.anomalies.check import check_history
from migverify.workload.anomalies.compare import PermittedBy, compare_histories
from migverify.workload.anomalies.graph import strong_components
from migverify.workload.anomalies.history import FORMAT, read_history, write_history
from migverify.workload.anomalies.infer import infer
from migverify.workload.anomalies.levels import PERMITTED
from migverify.workload.anomalies.model import (
    AnomalyName,
    CheckedHistory,
    Commitment,
    HistoryOperation,
    HistoryTransaction,
    OperationKind,
    Phenomenon,
    TransactionHistory,
)

START = {"x": "0", "y": "0", "z": "0"}
Found = set[tuple[Phenomenon, AnomalyName]]


def history(schedule: str, *, initial: dict[str, str | None] | None = None, level: str = "REPEATABLE READ",
            server: str = "tidb 8.5") -> TransactionHistory:  # fmt: skip
    """Return the history of steps ``1rx=0 1wx=5 1wx? 1wx+1 1c 1a`` (read, write, opaque, increment, commit, abort).

    Each step takes two units of time; ``-`` for a value is an absent row; ``x#3=5`` counts versions.
    """
    steps: dict[str, list[tuple[str, int]]] = {}
    for at, step in enumerate(schedule.split()):
        steps.setdefault(step[0], []).append((step[1:], at * 2 + 1))
    made = []
    for name, own in steps.items():
        outcome, (last, at) = Commitment.UNKNOWN, own[-1]
        if last in ("c", "a"):
            outcome = Commitment.COMMITTED if last == "c" else Commitment.ABORTED
            own = own[:-1]
        operations = tuple(operation(text, when) for text, when in own)
        begin = operations[0].begin if operations else at
        made.append(HistoryTransaction(f"T{name}", name, level, outcome, begin, at, at + 1, operations))
    return TransactionHistory(tuple(made), {} if initial is None else initial, server)


def operation(text: str, at: int) -> HistoryOperation:
    kind = OperationKind.READ if text[0] == "r" else OperationKind.WRITE
    item, equals, value = text[1:].rstrip("?").partition("=")
    item, added, delta = item.partition("+")
    key, _, version = item.partition("#")
    key = key if "*" in key else f"t/{key}"
    return HistoryOperation(kind, key, None if value in ("-", "") else value, at, at + 1, bool(equals),
                            int(version) if version else None, f"{text} of {at}",
                            int(delta) if added else None)  # fmt: skip


def found(checked: CheckedHistory) -> Found:
    return {(each.phenomenon, each.name) for each in checked.anomalies}


def check(schedule: str, **more: object) -> CheckedHistory:
    initial = {f"t/{key}": value for key, value in START.items()}
    return check_history(history(schedule, **{"initial": initial, **more}))  # type: ignore[arg-type]


G, A = Phenomenon, AnomalyName
KNOWN = {
    "dirty write": ("1wx#1=1 2wx#2=2 2wy#1=2 1wy#2=1 1c 2c", {(G.G0, A.DIRTY_WRITE)}),
    "aborted read": ("1wx=101 2rx=101 1a 2c", {(G.G1A, A.ABORTED_READ)}),
    "intermediate read": ("1wx=101 2rx=101 1wx=11 1c 2c", {(G.G1B, A.INTERMEDIATE_READ)}),
    "circular information flow": ("1wx=11 2wy=22 1ry=22 2rx=11 1c 2c", {(G.G1C, A.CIRCULAR)}),
    "lost update": ("1rx=0 2rx=0 1wx=11 1c 2wx=12 2c", {(G.G_SINGLE, A.LOST_UPDATE)}),
    "lost update of a value not known": ("1rx=0 2rx=0 1wx? 1c 2wx=12 2c", {(G.G_SINGLE, A.LOST_UPDATE)}),
    "lost update, unseen by its loser": ("1rx=0 2wx=5 2c 3wx=6 3c 1wx=7 1c", {(G.G_SINGLE, A.LOST_UPDATE)}),
    "non-repeatable read": ("1rx=0 2wx=5 2c 1rx=5 1c", {(G.G_SINGLE, A.NON_REPEATABLE)}),
    "read skew": ("1rx=0 2rx=0 2ry=0 2wx=12 2wy=18 2c 1ry=18 1c", {(G.G_SINGLE, A.READ_SKEW)}),
    "write skew": ("1rx=0 1ry=0 2rx=0 2ry=0 1wx=11 2wy=21 1c 2c", {(G.G2_ITEM, A.WRITE_SKEW)}),
    "write skew of three": ("1rx=0 2ry=0 3rz=0 1wy=1 2wz=2 3wx=3 1c 2c 3c", {(G.G2_ITEM, A.WRITE_SKEW)}),
    "long fork": ("1wx=1 1c 2wy=2 2c 3rx=1 3ry=0 3c 4rx=0 4ry=2 4c", {(G.G2_ITEM, A.LONG_FORK)}),
    "phantom": ("1rx=- 2ry=- 1wy=1 2wx=1 1c 2c", {(G.G2_ITEM, A.PHANTOM)}),
    "row that appears": ("1rx=- 2wx=5 2c 1rx=5 1c", {(G.G_SINGLE, A.PHANTOM)}),
}
SAFE = {
    "one after the other": "1rx=0 1wx=1 1c 2rx=1 2wx=2 2c 3rx=2 3c",
    "the loser aborted": "1rx=0 2rx=0 1wx=11 1c 2wx=12 2a",
    "the reader aborted": "1wx=101 2rx=101 1a 2a",
    "an old snapshot": "1rx=0 2wx=5 2wy=5 2c 1ry=0 1c",
    "its own write": "1rx=0 1wx=5 1rx=5 1wx=6 1rx=6 1c 2rx=6 2c",
    "two blind writes": "1wx=5 2wx=6 1c 2c",
    "an increment by the server": "1wx? 1c 2wx? 2c",
    "an increment, read back": "1wx? 1rx=1 1c 2rx=1 2c",
}
# What may be an anomaly, and may not be one: each rests on a version that is not certain.
AMBIGUOUS = {
    "a value that two wrote": "1rx=0 2wx=5 2c 3wx=5 3c 1rx=5 1c",
    "a value that may be the one before": "2wx=7 2c 3wx=0 3c 1ry=0 1rx=0 4rx=0 4wx=9 4c 1wx=8 1c",
    "a write of unknown value before": "3wx? 3c 1rx=4 2wx=5 2wy=6 2c 1ry=6 1c",
    "a write of any row before": "3wt/*? 3c 1rx=4 2wx=5 2c 1rx=5 1c",
    "a writer of unknown outcome": "1rx=0 2wx=5 1rx=5 1c",
    "a reader of unknown outcome": "1rx=0 2rx=0 1wx=11 1c 2wx=12",
    "a foreign value": "1rx=77 2wx=5 2c 1rx=5 1c 3rx=0 3c",
    "a value that another writes as well": "1rx=0 2wx=5 2c 3wx=5 1rx=5 1c 3c",
}


def before(schedule: str) -> dict[str, str | None]:
    """Return the values from before a schedule; one that finds no row had none."""
    return {"t/x": None, "t/y": None} if "=-" in schedule else {f"t/{key}": "0" for key in "xyz"}


@pytest.mark.parametrize("name", KNOWN)
def test_known_anomalies_are_found_and_nothing_else(name: str) -> None:
    schedule, expected = KNOWN[name]
    initial = before(schedule)
    checked = check_history(history(schedule, initial=initial))
    assert found(checked) == expected
    assert len(checked.anomalies) == 1
    assert checked.complete
    anomaly = checked.anomalies[0]
    assert len(anomaly.transactions) >= 2
    assert anomaly.steps
    assert {name for name, _ in anomaly.statements} == set(anomaly.transactions)


@pytest.mark.parametrize("name", SAFE)
def test_histories_without_an_anomaly_have_none(name: str) -> None:
    checked = check(SAFE[name])
    assert not checked.anomalies
    assert checked.usability.usable == checked.usability.reads


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_rests_on_an_uncertain_version_is_no_anomaly(name: str) -> None:
    checked = check(AMBIGUOUS[name])
    assert not checked.anomalies
    usability = checked.usability
    assert usability.reads - usability.usable == sum(usability.ambiguous.values())
    assert usability.ambiguous or usability.unknown
    assert usability.doubtful


def test_a_value_that_is_known_to_nobody_before_the_history_is_not_used() -> None:
    checked = check("2wx=5 2c 1rx=5 1c", initial={})
    assert checked.usability.usable == 0
    assert dict(checked.usability.ambiguous) == {"the value from before the history is not known": 1}
    assert check("3rx=1 3c 2wx=5 2c 1rx=5 1c", initial={}).usability.share == 1.0  # somebody read it


def test_counted_versions_need_no_unique_values() -> None:
    assert found(check("1rx#0=5 2rx#0=5 1wx#1=5 1c 2wx#2=5 2c", initial={})) == {(G.G_SINGLE, A.LOST_UPDATE)}


def test_what_the_levels_permit_is_what_hermitage_found() -> None:
    update = history(KNOWN["lost update"][0], initial={"t/x": "0"})
    for server, level, note in (
        ("mysql 9.7", "REPEATABLE READ", "documented for mysql"),
        ("tidb 8.5", "REPEATABLE READ", "documented for tidb"),
        ("mysql 9.7", "SERIALIZABLE", "NOT documented"), ("tidb 8.5", "SERIALIZABLE", ""), ("mysql 9.7", "x", ""),
    ):  # fmt: skip
        one = replace(update, server=server,
                      transactions=tuple(replace(each, isolation=level) for each in update.transactions))  # fmt: skip
        both = compare_histories(check_history(one), check_history(one))
        assert [each.permitted for each in both.anomalies] == [PermittedBy.BOTH]
        assert both.anomalies[0].note.startswith(note)
        assert bool(note) == bool(both.anomalies[0].note)
    for (_, level), names in PERMITTED.items():
        assert AnomalyName.DIRTY_WRITE not in names
        assert (AnomalyName.ABORTED_READ in names) == (level == "READ UNCOMMITTED")
        assert (AnomalyName.WRITE_SKEW in names) == (level != "SERIALIZABLE")


SKEW = KNOWN["write skew"][0]


def test_only_what_the_target_alone_permitted_is_a_finding() -> None:
    skew, prevented = check(SKEW), check(SKEW.removesuffix("2c") + "2a")
    ahead = compare_histories(prevented, skew)
    assert ahead.verdict is Verdict.MISMATCH
    assert ahead.reasons == ("1 anomaly on the target that the source did not permit",)
    assert [each.permitted for each in ahead.anomalies] == [PermittedBy.TARGET]
    assert compare_histories(skew, prevented).verdict is Verdict.MATCH
    assert [each.permitted for each in compare_histories(skew, prevented).anomalies] == [PermittedBy.SOURCE]
    assert compare_histories(skew, skew).verdict is Verdict.MATCH


def test_nothing_is_claimed_where_too_little_is_known() -> None:
    skew = check(SKEW)
    lost = compare_histories(check(SKEW.removesuffix(" 2c")), skew)  # the source: nobody knows how T2 ended
    assert (lost.verdict, lost.anomalies[0].permitted) == (Verdict.INCONCLUSIVE, PermittedBy.UNSURE)
    half = check("1rx=0 1c 2wx=5 2c 3wx=5 3c 4rx=5 4c")
    few = compare_histories(half, half)
    assert few.verdict is Verdict.INCONCLUSIVE
    assert "1 of 2 reads (50%) could be used" in few.reasons[0]
    assert compare_histories(half, half, 0.5).verdict is Verdict.MATCH
    empty = check_history(TransactionHistory(()))
    assert compare_histories(empty, empty).verdict is Verdict.INCONCLUSIVE
    other = compare_histories(check("1rx=0 1c"), check("1rx=0 1c 2rx=0 2c"))
    assert "1 transaction is in one of the histories only" in other.reasons
    cut = replace(check("1rx=0 2rx=0 1wy=1 2wx=1 1c 2a"), complete=False)
    assert compare_histories(cut, check("1rx=0 2ry=0 1wy=1 2wx=1 1c 2c")).verdict is Verdict.INCONCLUSIVE


def test_a_search_that_is_cut_off_says_so() -> None:
    initial: dict[str, str | None] = {"t/x": "0", "t/y": "0"}
    assert not check_history(history(SKEW, initial=initial), most_steps=1).complete


# --- histories that an executor makes ------------------------------------------------------------------------


@dataclass
class Step:
    transaction: int
    kind: str
    key: str = ""
    value: str | None = None
    known: bool = True
    made_by: int = -1  # of a read: whose version it is; -1 from before the history


def executed(
    seed: int, mode: str, *, unique: bool = True, spread: bool = True
) -> tuple[TransactionHistory, list[Step]]:
    """Run random transactions and return their history and what really happened.

    ``serial``: one after the other; ``snapshot``: reads see the commits before the first step, the first committer of
    an item wins; ``free``: reads see any version committed so far. Versions are in the order of commits.
    """
    rng = random.Random(seed)
    count = rng.randint(2, 5)
    keys = "xyz"[: rng.randint(1, 3)]
    plans = [[(rng.choice("rrw"), rng.choice(keys)) for _ in range(rng.randint(1, 4))] for _ in range(count)]
    turns = [number for number, plan in enumerate(plans) for _ in range(len(plan) + 1)]
    if mode != "serial":
        rng.shuffle(turns)
    chains: dict[str, list[tuple[int, str | None]]] = {key: [(-1, "start")] for key in keys}
    snapshot: dict[int, dict[str, int]] = {}
    own: dict[int, dict[str, str | None]] = {number: {} for number in range(count)}
    steps: list[Step] = []
    for turn, number in enumerate(turns):
        seen = snapshot.setdefault(number, {key: len(chain) for key, chain in chains.items()})
        if plans[number]:
            kind, key = plans[number].pop(0)
            if kind == "w":
                value = f"v{turn}" if unique else rng.choice(("a", "b", "start"))
                own[number][key] = value
                steps.append(Step(number, "w", key, value, unique or rng.random() > 0.2))
            elif key in own[number]:
                steps.append(Step(number, "r", key, own[number][key], made_by=number))
            else:
                chain = chains[key]
                at = (
                    rng.randrange(len(chain))
                    if mode == "free"
                    else (seen[key] if mode == "snapshot" else len(chain)) - 1
                )
                steps.append(Step(number, "r", key, chain[at][1], made_by=chain[at][0]))
            continue
        conflict = mode == "snapshot" and any(len(chains[key]) > seen[key] for key in own[number])
        aborts = conflict or rng.random() < 0.1
        steps.append(Step(number, "a" if aborts else "c"))
        if not aborts:
            for key, last in own[number].items():
                chains[key].append((number, last))
    return timed(rng, steps, keys, spread=spread, declared=unique or rng.random() < 0.5), steps


def timed(rng: random.Random, steps: list[Step], keys: str, *, spread: bool, declared: bool) -> TransactionHistory:
    """Give each step a time around the moment when it really happened; steps of different transactions overlap."""
    made = []
    for number in sorted({step.transaction for step in steps}):
        own = [(at * 100, step) for at, step in enumerate(steps) if step.transaction == number]
        spans, first = [], own[0][0] - (rng.randint(1, 250) if spread else 1)
        for (at, _), following in zip(own, [*(at for at, _ in own[1:]), own[-1][0] + 250], strict=True):
            last = rng.randint(at + 1, following - 1) if spread else at + 1
            spans.append((first, last))
            first = last if spread else following - 1
        operations = tuple(
            HistoryOperation(OperationKind.READ if step.kind == "r" else OperationKind.WRITE, f"t/{step.key}",
                             step.value if step.known else None, *span, step.known, None, f"{step.kind}{step.key}")
            for (_, step), span in zip(own[:-1], spans[:-1], strict=True)
        )  # fmt: skip
        outcome = Commitment.COMMITTED if own[-1][1].kind == "c" else Commitment.ABORTED
        made.append(HistoryTransaction(f"T{number}", str(number), "", outcome, spans[0][0], *spans[-1], operations))
    return TransactionHistory(tuple(made), {f"t/{key}": "start" for key in keys} if declared else {})


def true_edges(steps: list[Step]) -> set[tuple[int, int, str]]:
    """Return the dependencies that really are, from the executor's own record: Adya's definitions word by word."""
    committed = [step.transaction for step in steps if step.kind == "c"]
    versions: dict[str, list[int]] = {}
    for number in committed:
        for key in {step.key for step in steps if step.transaction == number and step.kind == "w"}:
            versions.setdefault(key, [-1]).append(number)
    edges = {(one, two, "ww") for chain in versions.values() for one, two in pairwise(chain[1:])}
    for step in steps:
        if step.kind != "r" or step.transaction not in committed or step.made_by == step.transaction:
            continue
        if step.made_by >= 0:
            edges.add((step.made_by, step.transaction, "wr"))
        chain = versions.get(step.key, [-1])
        following = chain[chain.index(step.made_by) + 1 :]
        if following and following[0] != step.transaction:
            edges.add((step.transaction, following[0], "rw"))
    return edges


def simple_cycles(edges: set[tuple[int, int, str]]) -> list[list[tuple[int, int, str]]]:
    """Return every cycle without a transaction twice, by trying all ways."""
    cycles = []

    def walk(path: list[tuple[int, int, str]]) -> None:
        for edge in edges:
            if edge[0] != path[-1][1] or edge[1] < path[0][0]:
                continue
            if edge[1] == path[0][0]:
                cycles.append([*path, edge])
            elif edge[1] not in {each[0] for each in path}:
                walk([*path, edge])

    for edge in edges:
        if edge[0] < edge[1]:
            walk([edge])
    return cycles


def brute_force(edges: set[tuple[int, int, str]]) -> set[Phenomenon]:
    kinds = [[kind for *_, kind in cycle].count("rw") for cycle in simple_cycles(edges)]
    names = {0: Phenomenon.G1C, 1: Phenomenon.G_SINGLE}
    return {names.get(number, Phenomenon.G2_ITEM) for number in kinds}


SEEDS = st.integers(0, 1 << 40)
MANY = settings(max_examples=400, deadline=None)


@MANY
@given(SEEDS)
def test_serial_histories_never_have_an_anomaly(seed: int) -> None:
    for unique in (True, False):
        made, steps = executed(seed, "serial", unique=unique)
        assert not simple_cycles(true_edges(steps))
        assert not check_history(made).anomalies


@MANY
@given(SEEDS)
def test_snapshot_isolation_permits_write_skew_alone(seed: int) -> None:
    for unique in (True, False):
        made, _ = executed(seed, "snapshot", unique=unique)
        assert {phenomenon for phenomenon, _ in found(check_history(made))} <= {Phenomenon.G2_ITEM}


def test_the_snapshot_executor_does_permit_write_skew() -> None:
    names = [name for seed in range(300) for _, name in found(check_history(executed(seed, "snapshot")[0]))]
    assert names.count(AnomalyName.WRITE_SKEW) > 2


@MANY
@given(SEEDS)
def test_with_unique_values_all_that_brute_force_finds_is_found(seed: int) -> None:
    made, steps = executed(seed, "free", spread=False)
    checked = check_history(made)
    assert checked.usability.share in (0.0, 1.0)
    expected, actual = brute_force(true_edges(steps)), {each.phenomenon for each in checked.anomalies}
    assert bool(expected) == bool(actual)
    # a lost update of two readers is called so although both dependencies are RW; otherwise the strictest is the same
    if AnomalyName.LOST_UPDATE not in {each.name for each in checked.anomalies}:
        assert not expected or min(map(list(Phenomenon).index, expected)) == min(map(list(Phenomenon).index, actual))


@MANY
@given(SEEDS)
def test_what_is_reported_is_always_true(seed: int) -> None:
    for unique in (True, False):
        made, steps = executed(seed, "free", unique=unique)
        edges = true_edges(steps)
        components = reachable(edges)
        for anomaly in check_history(made).anomalies:
            assert anomaly.phenomenon not in (Phenomenon.G0, Phenomenon.G1A, Phenomenon.G1B)
            numbers = [int(name[1:]) for name in anomaly.transactions]
            assert all((one, two) in components for one in numbers for two in numbers)
            if anomaly.phenomenon is Phenomenon.G_SINGLE:
                assert brute_force(edges) & {Phenomenon.G_SINGLE, Phenomenon.G1C}


def reachable(edges: set[tuple[int, int, str]]) -> set[tuple[int, int]]:
    pairs = {(one, two) for one, two, _ in edges}
    while True:
        more = {(one, last) for one, two in pairs for first, last in pairs if two == first} - pairs
        if not more:
            return pairs
        pairs |= more


@MANY
@given(SEEDS)
def test_dependencies_that_are_inferred_are_paths_that_are(seed: int) -> None:
    made, steps = executed(seed, "free", unique=seed % 2 == 0)
    paths = reachable(true_edges(steps))
    dependencies = infer(made).dependencies
    for number in range(len(dependencies)):
        dependency = dependencies[number]
        assert (dependency.before, dependency.after) in paths, dependency


@MANY
@given(st.integers(1, 12), st.data())
def test_components_are_those_of_mutual_reach(nodes: int, data: st.DataObject) -> None:
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    edges = data.draw(st.lists(pair, max_size=30))
    component = strong_components(nodes, [one for one, _ in edges], [two for _, two in edges])
    paths = reachable({(one, two, "") for one, two in edges})
    for one in range(nodes):
        for two in range(nodes):
            mutual = one == two or ((one, two) in paths and (two, one) in paths)
            assert (component[one] == component[two]) == mutual


@MANY
@given(SEEDS, st.sampled_from(sorted(KNOWN)))
def test_planted_anomalies_are_found_among_others(seed: int, name: str) -> None:
    serial, _ = executed(seed, "serial")
    schedule, expected = KNOWN[name]
    initial = before(schedule)
    planted = history(schedule, initial={f"u{key}": value for key, value in initial.items()})
    moved = tuple(
        replace(each, name=f"P{each.name}", operations=tuple(replace(op, key=f"u{op.key}") for op in each.operations))
        for each in planted.transactions
    )
    both = TransactionHistory((*serial.transactions, *moved), {**serial.initial, **planted.initial})
    assert found(check_history(both)) == expected


# --- files ---------------------------------------------------------------------------------------------------


@MANY
@given(SEEDS)
def test_a_history_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    made, _ = executed(seed, "free", unique=False)
    path = tmp_path_factory.mktemp("history") / "h.jsonl"
    lines = io.StringIO()
    write_history(lines, made)
    path.write_text(lines.getvalue())
    assert read_history(path) == made


GOOD = (
    '{"transaction": "1", "session": "s", "outcome": "committed", "begin": 1, "end": 9,'
    ' "operations": [{"kind": "read", "key": "t/1", "value": "5"}]}'
)
HEAD = f'{{"format": "{FORMAT}"}}'


@pytest.mark.parametrize(("lines", "message"), [
    ("", "line 1: the file is empty"),
    (GOOD, 'line 1: the first line has no "format"'),
    (f"{HEAD}\n{GOOD}\n{GOOD}", "line 3: transaction 1 is there twice"),
    (f"{HEAD}\n{GOOD[:-1]}", "line 2: Expecting ',' delimiter"),
    ("SELECT 1", "bad.jsonl, line 1: Expecting value in column 1; every line has to be one JSON object"),
    (f"{HEAD}\n[]", "line 2: list indices must be"),
    (f"{HEAD}\n{GOOD.replace('committed', 'lost')}", "line 2: outcome 'lost' is none of committed, aborted, unknown"),
    (f"{HEAD}\n{GOOD.replace('read', 'peek')}", "line 2: kind 'peek' is none of read, write"),
    (f"{HEAD}\n{GOOD.replace('t/1', 't/*')}", "line 2: t/*: only writes without a value"),
    (f"{HEAD}\n" + GOOD.replace('"5"', "5"), "line 2: value is neither text nor null"),
    (f"{HEAD}\n" + GOOD.replace('"end": 9', '"end": 0'), "line 2: begin, commit and end are not in this order"),
    (f"{HEAD}\n" + GOOD.replace('"end": 9', '"end": true'), "line 2: end is no whole number"),
    (f"{HEAD}\n" + GOOD.replace('"value"', '"begin": 0, "value"'), "line 2: the times of read t/1 are not within"),
    (f"{HEAD}\n" + GOOD.replace('"outcome"', '"x"'), "line 2: 'outcome' is missing"),
    (f"{HEAD}\n" + GOOD.replace('"value"', '"version": -1, "value"'), "line 2: version is no count"),
    (f"{HEAD}\n" + GOOD.replace('"value": "5"', '"delta": 1'), "line 2: t/1: delta is a whole number, of a write"),
    (f"{HEAD}\n" + GOOD.replace("read", "write").replace('"value"', '"delta": 1, "value"'), "line 2: t/1: delta is"),
    (f"{HEAD}\n" + GOOD.replace("read", "write").replace('"value": "5"', '"delta": "1"'), "line 2: t/1: delta is"),
    (HEAD.replace("}", ', "side": "north"}'), "line 1: side 'north' is neither source nor target"),
    (HEAD.replace("1", "9"), 'line 1: the first line has no "format"'),
])  # fmt: skip
def test_a_bad_line_is_one_clear_error(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(lines)
    with pytest.raises(UsageError) as caught:
        read_history(path)
    assert message in str(caught.value.message)
    assert "--anomalies` writes a history" in caught.value.hint
    with pytest.raises(UsageError, match="cannot be read"):
        read_history(tmp_path / "none.jsonl")


# --- the command ---------------------------------------------------------------------------------------------


def test_the_command_refuses_the_wrong_side_one_server_twice_and_one_file_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {}
    for name, side, identity in (("s", "source", "uuid 1"), ("t", "target", "cluster 1"), ("u", "target", "uuid 1"),
                                 ("old", "", "")):  # fmt: skip
        paths[name] = str(tmp_path / f"{name}.jsonl")
        with Path(paths[name]).open("w") as lines:
            made = history(SKEW, initial={"t/x": "0", "t/y": "0"}, server="tidb 8.5")
            write_history(lines, replace(made, side=side, identity=identity, run="r1"))
    assert run(["workload", "anomalies", paths["s"], paths["t"]]) != 2
    assert run(["workload", "anomalies", paths["old"], paths["t"]]) != 2, "files of earlier releases are compared"
    for first, second, words in (("s", "s", "are one file"), ("t", "t", "are one file"), ("t", "s", "the source has"),
                                 ("t", "u", "the source has"), ("s", "u", "of one server, uuid 1")):  # fmt: skip
        capsys.readouterr()
        assert run(["workload", "anomalies", paths[first], paths[second]]) == 2
        assert words in capsys.readouterr().err


def test_the_command_compares_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    initial: dict[str, str | None] = {"t/x": "0", "t/y": "0"}
    paths = [tmp_path / "source.jsonl", tmp_path / "target.jsonl"]
    for path, schedule, server in zip(paths, (SKEW.removesuffix("2c") + "2a", SKEW), ("mysql 9.7", "tidb 8.5"),
                                      strict=True):  # fmt: skip
        with path.open("w") as lines:
            write_history(lines, history(schedule, initial=initial, server=server))
    source, target = map(str, paths)
    assert run(["workload", "anomalies", source, target]) == 1
    shown = capsys.readouterr().out
    assert "MISMATCH: 1 anomaly on the target that the source did not permit" in shown
    assert "target only: write skew (G2-item) under REPEATABLE READ" in shown
    assert "T1 had read t/y before what T2 wrote to it (rw)" in shown
    assert "T2: wy=21 of 11" in shown
    assert "documented for tidb REPEATABLE READ" in shown
    assert "4 of 4 reads usable (100%)" in shown
    assert run(["workload", "anomalies", target, source, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["verdict"], body["anomalies"][0]["permitted_by"]) == ("MATCH", "source only")
    paths[0].write_text(f"{HEAD}\n")
    assert run(["workload", "anomalies", source, target]) == 3
    assert "no committed transaction read" in capsys.readouterr().out
    assert run(["workload", "anomalies", str(tmp_path), target]) == 2


def test_the_writes_that_make_reads_ambiguous_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Literals do not tell statements apart; those of most reads come first."""

    def one(number: int, kind: OperationKind, key: str, statement: str) -> HistoryTransaction:
        known = kind is OperationKind.READ
        op = HistoryOperation(kind, key, "1" if known else None, number, number, known, None, statement)
        return HistoryTransaction(f"s/{number}", "s", "", Commitment.COMMITTED, number, number, number, (op,))

    made = [one(at, OperationKind.WRITE, f"d.t/{at}/n", f"UPDATE t SET n = n + 1 WHERE id = {at}") for at in (1, 2)]
    made.append(one(3, OperationKind.WRITE, "d.u/*", "DELETE FROM u WHERE a > 5"))
    keys = ("d.t/1/n", "d.t/2/n", "d.t/2/n", "d.u/8")
    made += [one(9 + at, OperationKind.READ, key, "SELECT 1") for at, key in enumerate(keys)]
    checked = check_history(TransactionHistory(tuple(made), {}))
    causes = [(cause.table, cause.statement, cause.reads) for cause in checked.usability.causes]
    assert [(table, reads) for table, _, reads in causes] == [("d.t", 3), ("d.u", 1)]
    assert "`n` = `n` + ?" in causes[0][1]
    assert checked.usability.as_json()["causes"][0]["reads"] == 3
    paths = [tmp_path / name for name in ("source.jsonl", "target.jsonl")]
    for path in paths:
        with path.open("w") as lines:
            write_history(lines, TransactionHistory(tuple(made), {}))
    assert run(["workload", "anomalies", *map(str, paths), "--usable", "30"]) == 3
    out, err = capsys.readouterr()
    assert "3  reads of d.t: UPDATE" in out
    assert "80%" in err
