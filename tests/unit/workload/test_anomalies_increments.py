"""Items that transactions add to: their values follow from the writes, or nothing is concluded."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import Verdict
from migverify.workload.anomalies.chain import NO_START, UNEXPLAINED, UNPLACED, UNSURE
from migverify.workload.anomalies.check import check_history
from migverify.workload.anomalies.compare import compare_histories
from migverify.workload.anomalies.history import read_history, write_history
from migverify.workload.anomalies.infer import OPAQUE, infer
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
from tests.unit.workload.test_anomalies import (
    MANY,
    SEEDS,
    Step,
    found,
    history,
    reachable,
    simple_cycles,
    true_edges,
)

G, A = Phenomenon, AnomalyName
KNOWN = {
    "lost update by increments": ("1wx+1 1c 2rx=1 3rx=1 2wx+1 2c 3wx+1 3c", {(G.G_SINGLE, A.LOST_UPDATE)}),
    "lost update behind a value that was set": (
        "1wx=7 1c 2wx+1 2c 3rx=8 4rx=8 3wx+1 3c 4wx=9 4c", {(G.G_SINGLE, A.LOST_UPDATE)}),
    "read skew of two counters": (
        "1wx+1 1wy+1 1c 2rx=1 3wx+1 3wy+1 3c 2ry=2 2c", {(G.G_SINGLE, A.READ_SKEW)}),
    "write skew of two counters": (
        "1wx+1 1wy+1 1c 2rx=1 2ry=1 3rx=1 3ry=1 2wx+1 3wy+-1 2c 3c", {(G.G2_ITEM, A.WRITE_SKEW)}),
    "aborted read of an increment": ("1wx+1 1c 2wx+5 3rx=6 2a 3c", {(G.G1A, A.ABORTED_READ)}),
    "intermediate read of an increment": ("1wx+1 1c 2wx+5 3rx=6 2wx+1 2c 3c", {(G.G1B, A.INTERMEDIATE_READ)}),
    "non-repeatable read of a counter": ("1wx+1 1c 2rx=1 3wx+1 3c 2rx=2 2c", {(G.G_SINGLE, A.NON_REPEATABLE)}),
}  # fmt: skip
SAFE = {
    "one after the other": "1rx=0 1wx+1 1c 2rx=1 2wx+1 2c 3rx=2 3c",
    "up and down": "1rx=0 1wx+3 1c 2rx=3 2wx+-2 2c 3rx=1 3c",
    "behind a value that was set": "1rx=0 1wx=5 1c 2wx+1 2c 3rx=6 3wx+1 3c 4rx=7 4c",
    "twice in one transaction": "1wx+1 1wx+1 1c 2rx=2 2c",
    "read back": "1wx+1 1rx=1 1c 2rx=1 2wx+1 2c 3rx=2 3c",
    "an increment that is rolled back": "1wx+1 1c 2wx+5 2a 3rx=1 3wx+1 3c 4rx=2 4c",
    "an old snapshot": "1rx=0 2wx+1 2wy+1 2c 1ry=0 1c 3rx=1 3ry=1 3c",
}
AMBIGUOUS = {
    "two increments whose order is not known": ("1wx+1 2wx+1 1c 2c 3rx=2 3c", UNPLACED),
    "a value that comes again": ("1wx+1 1c 2wx+-1 2c 3wx+1 3c 4rx=1 4c", UNPLACED),
    "a value that a rolled back increment may have made": ("1wx+1 1c 2wx+1 2a 3wx+1 3c 4rx=2 4c", UNPLACED),
    "a lost increment": ("1rx=0 1wx+1 1c 2wx+1 2c 3rx=1 3c", UNEXPLAINED),
    "an increment that nobody knows the end of": ("1wx+1 2rx=1 2c 3rx=1 3c", UNSURE),
    "a write of unknown value among them": ("1wx+1 1c 2rx=1 2c 3wx? 3c 4rx=1 4c", OPAQUE),
    "a write of any row among them": ("1wx+1 1c 2rx=1 2c 3wt/*? 3c 4rx=1 4c", OPAQUE),
    "two that set a value and one that adds to it": ("1wx=1 2wx=2 3wx+1 1c 2c 3c 4rx=2 4c", UNPLACED),
}


def check(schedule: str, initial: dict[str, str | None] | None = None) -> CheckedHistory:
    return check_history(history(schedule, initial={f"t/{key}": "0" for key in "xyz"} if initial is None else initial))


@pytest.mark.parametrize("name", KNOWN)
def test_known_anomalies_of_increments_are_found(name: str) -> None:
    schedule, expected = KNOWN[name]
    for level in ("READ COMMITTED", "REPEATABLE READ"):
        checked = check_history(history(schedule, initial={"t/x": "0", "t/y": "0"}, level=level))
        assert found(checked) == expected
        assert checked.anomalies[0].isolation == (level,)
        assert checked.usability.share == 1.0


@pytest.mark.parametrize("name", SAFE)
def test_increments_one_after_another_are_no_anomaly(name: str) -> None:
    checked = check(SAFE[name])
    assert not checked.anomalies
    assert checked.usability.share == 1.0
    assert checked.usability.opaque == 0


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_may_be_of_two_versions_is_not_used(name: str) -> None:
    schedule, reason = AMBIGUOUS[name]
    checked = check(schedule)
    assert not checked.anomalies
    assert set(checked.usability.ambiguous) == {reason}


def test_the_value_from_before_follows_from_what_was_read() -> None:
    assert check("1wx+1 1c 2rx=6 2c 3wx+1 3c 4rx=7 4c", {}).usability.share == 1.0
    assert check("1wx+1 1rx=6 1c 2wx+1 2c 4rx=7 4c", {}).usability.share == 1.0
    unknown = check("1wx+1 2rx=6 1c 2c", {})  # it may have been read before the increment, or uncommitted
    assert unknown.usability.ambiguous == {NO_START: 1}
    row = check("1rx=- 1wx=0 1c 2wx+1 2c 3rx=1 3wx+1 3c 4rx=2 4c", {})  # an INSERT found no row, and made it
    assert row.usability.share == 1.0
    assert not row.anomalies


def test_a_lost_increment_is_never_a_match() -> None:
    lost = check("1rx=0 1wx+1 1c 2wx+1 2c 3rx=1 3c 4ry=0 4c 5ry=0 5c 6ry=0 6c")
    fine = check("1rx=0 1wx+1 1c 2wx+1 2c 3rx=2 3c 4ry=0 4c 5ry=0 5c 6ry=0 6c")
    assert lost.usability.share >= 0.8
    compared = compare_histories(fine, lost)
    assert compared.verdict is Verdict.INCONCLUSIVE
    assert "target: 1 read returned a value that does not follow from the writes" in compared.reasons[0]
    assert compare_histories(fine, fine).verdict is Verdict.MATCH


# --- histories that a server with row locks makes ------------------------------------------------------------


@dataclass
class Store:
    """A server with row locks: reads see the last commit, or that of the transaction's snapshot."""

    rng: random.Random
    snapshot: bool
    ups: bool
    versions: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    locks: dict[str, int] = field(default_factory=dict)
    own: dict[int, dict[str, int]] = field(default_factory=dict)
    seen: dict[int, dict[str, int]] = field(default_factory=dict)
    steps: list[tuple[Step, int | None]] = field(default_factory=list)
    rows: int = 0

    def do(self, number: int, kind: str, key: str) -> bool:
        """Carry out one step; False where another transaction has the row."""
        if kind not in "ir" and self.locks.get(key, number) != number:
            return False
        self.seen.setdefault(number, {name: len(chain) for name, chain in self.versions.items()})
        own = self.own.setdefault(number, {})
        if kind == "i":
            self.rows += 1
            key = f"row{self.rows}"
            self.versions[key] = [(-1, None)]
            self.steps.append((Step(number, "r", key, None), None))
        elif kind == "r":
            chain = self.versions[key]
            last = self.seen[number].get(key, 1) if self.snapshot else len(chain)
            by, value = (number, own[key]) if key in own else chain[last - 1]
            self.steps.append((Step(number, "r", key, None if value is None else str(value), made_by=by), None))
            return True
        self.locks[key] = number
        before = own.get(key, self.versions[key][-1][1])
        if kind in "is" or before is None:
            own[key] = self.rng.randint(1, 1000) * 1000
            self.steps.append((Step(number, "w", key, str(own[key])), None))
        else:
            delta = self.rng.randint(1, 2) * (1 if self.ups else self.rng.choice((1, -1)))
            own[key] = before + delta
            self.steps.append((Step(number, "w", key, None, known=False), delta))
        return True

    def end(self, number: int, kind: str) -> None:
        self.steps.append((Step(number, kind), None))
        for key, value in self.own.pop(number, {}).items():
            if kind == "c":
                self.versions[key].append((number, value))
        self.locks = {key: owner for key, owner in self.locks.items() if owner != number}


def executed(
    seed: int, mode: str, *, ups: bool = True, aborts: bool = True, spread: bool = True
) -> tuple[TransactionHistory, list[Step]]:
    """Run random transactions: ``serial``, or interleaved on a server that reads ``committed`` rows or a ``snapshot``.

    With ``ups`` an item never has a value twice; with ``spread`` statements of different sessions overlap in time.
    """
    rng = random.Random(seed)
    store = Store(rng, mode == "snapshot", ups, {key: [(-1, 5)] for key in "xyz"[: rng.randint(1, 3)]})
    plans = {
        number: [(rng.choice("rruuuisu" if not ups else "rruuui"), "") for _ in range(rng.randint(1, 4))]
        for number in range(rng.randint(2, 7))
    }
    while plans:
        turns = list(plans) if mode != "serial" else [min(plans)]
        rng.shuffle(turns)
        for number in turns:
            if not plans[number]:
                store.end(number, "a" if aborts and rng.random() < 0.1 else "c")
                del plans[number]
                break
            kind, key = plans[number][0][0], rng.choice(sorted(store.versions))
            if store.do(number, kind, key):
                plans[number].pop(0)
                break
        else:  # all wait for one another
            store.end(turns[0], "a")
            del plans[turns[0]]
    return timed(rng, store, spread=spread), [step for step, _ in store.steps]


def timed(rng: random.Random, store: Store, *, spread: bool) -> TransactionHistory:
    """Give each step times around its moment; now and then a transaction of one statement is its own commit."""
    made = []
    for number in sorted({step.transaction for step, _ in store.steps}):
        own = [(at * 100, step, delta) for at, (step, delta) in enumerate(store.steps) if step.transaction == number]
        operations, clock = [], own[0][0] - (rng.randint(1, 250) if spread else 1)
        begin = clock
        for (at, step, delta), following in zip(own, [*(at for at, *_ in own[1:]), own[-1][0] + 250], strict=True):
            end = rng.randint(at + 1, following - 1) if spread else at + 1
            if step.kind in "rw":
                operations.append(HistoryOperation(
                    OperationKind.READ if step.kind == "r" else OperationKind.WRITE, f"t/{step.key}",
                    step.value, clock, end, step.known, None, f"{step.kind}{step.key}", delta,
                ))  # fmt: skip
            commit, clock = clock, end
        outcome = Commitment.COMMITTED if own[-1][1].kind == "c" else Commitment.ABORTED
        if len(operations) == 1 and outcome is Commitment.COMMITTED and rng.random() < 0.5:
            operations, commit = [replace(operations[0], begin=begin, end=clock)], begin
        made.append(HistoryTransaction(f"T{number}", str(number), "", outcome, begin, commit, clock, tuple(operations)))
    declared: dict[str, str | None] = {f"t/{key}": "5" for key in "xyz"}
    return TransactionHistory(tuple(made), declared if rng.random() < 0.5 else {})


@MANY
@given(SEEDS)
def test_serial_increments_and_inserts_never_have_an_anomaly(seed: int) -> None:
    made, _ = executed(seed, "serial", aborts=False, spread=False)
    checked = check_history(made)
    assert not checked.anomalies
    if made.initial:
        assert checked.usability.usable == checked.usability.reads
    for ups in (True, False):
        checked = check_history(executed(seed, "serial", ups=ups)[0])
        assert not checked.anomalies
        assert UNEXPLAINED not in checked.usability.ambiguous


@MANY
@given(SEEDS, st.sampled_from(("serial", "committed", "snapshot")), st.booleans())
def test_dependencies_of_increments_are_paths_that_are(seed: int, mode: str, ups: bool) -> None:
    made, steps = executed(seed, mode, ups=ups)
    paths = reachable(true_edges(steps))
    inferred = infer(made)
    assert not inferred.dirty
    for number in range(len(inferred.dependencies)):
        dependency = inferred.dependencies[number]
        assert (dependency.before, dependency.after) in paths, dependency
    assert UNEXPLAINED not in inferred.usability.ambiguous
    if not simple_cycles(true_edges(steps)):
        assert not check_history(made).anomalies


@MANY
@given(SEEDS, st.sampled_from(sorted(KNOWN)))
def test_planted_anomalies_of_increments_are_found_among_others(seed: int, name: str) -> None:
    serial, _ = executed(seed, "serial")
    schedule, expected = KNOWN[name]
    planted = history(schedule, initial={"u/x": "0", "u/y": "0"})
    moved = tuple(
        replace(each, name=f"P{each.name}",
                operations=tuple(replace(op, key=f"u{op.key[1:]}") for op in each.operations))
        for each in planted.transactions
    )  # fmt: skip
    both = TransactionHistory((*serial.transactions, *moved), {**serial.initial, **planted.initial})
    assert found(check_history(both)) == expected


@MANY
@given(SEEDS)
def test_a_history_with_increments_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    made, _ = executed(seed, "committed")
    path = tmp_path_factory.mktemp("history") / "h.jsonl"
    lines = io.StringIO()
    write_history(lines, made)
    path.write_text(lines.getvalue())
    assert read_history(path) == made


def test_a_release_that_knows_no_increments_takes_them_for_unknown_values() -> None:
    made = history(SAFE["one after the other"], initial={"t/x": "0"})
    earlier = tuple(
        replace(each, operations=tuple(replace(op, delta=None) for op in each.operations)) for each in made.transactions
    )
    assert check_history(replace(made, transactions=earlier)).usability.ambiguous == {OPAQUE: 2}


def test_a_hot_counter_is_followed_at_any_length() -> None:
    """Autocommit increments of which each overlaps the next one: who made which value is not known, the sum is."""
    rng = random.Random(5)
    made = []
    for number in range(3_000):
        begin = number * 10
        cluster = number % 10 < 4  # four overlap, then six follow one another
        kind, value, delta = OperationKind.WRITE, None, 1
        end = begin + (15 if cluster else 5)
        op = HistoryOperation(kind, "t/x", value, begin, end, False, None, "add", delta)
        made.append(
            HistoryTransaction(f"W{number}", f"w{number % 4}", "", Commitment.COMMITTED, begin, begin, end, (op,))
        )
        if not cluster and rng.random() < 0.5:
            read = HistoryOperation(OperationKind.READ, "t/x", str(number + 1), begin + 6, begin + 7)
            made.append(
                HistoryTransaction(
                    f"R{number}", "r", "", Commitment.COMMITTED, begin + 6, begin + 6, begin + 7, (read,)
                )
            )
    checked = check_history(TransactionHistory(tuple(made), {"t/x": "0"}))
    assert not checked.anomalies
    assert checked.usability.reads > 800
    assert checked.usability.share > 0.8
    assert set(checked.usability.ambiguous) <= {UNPLACED}
