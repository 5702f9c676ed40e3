"""Whether the reverse watch took over from the forward watch: their order, and what is between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migverify.changes.positions import tso_position
from migverify.config import load_config
from migverify.errors import ChangeError, UsageError
from migverify.model import StoredKind, Verdict
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.tables import armed as armed_module
from migverify.tables import loss as loss_module
from migverify.tables.armed import ArmedRollback, ask_armed, forward_run
from migverify.tables.handover import UnreadChanges
from migverify.tables.run_facts import BEGAN
from migverify.watch.ledger import Ledger
from tests.toy_tables import make_pair

SECOND = 1000 << 18
NOW = int(time.time() * 1000) << 18
PLAIN = 'source: {url: "mysql://app@db1"}\ntarget: {url: "tidb://root@tidb"}\ntables: {include: ["app.*"]}\n'


class Pool:
    """Sessions of servers that nobody asks."""

    @contextmanager
    def session(self, _: object) -> Iterator[None]:
        yield None


class Watches:
    """A forward watch that has ended and a reverse watch that lives, in a store and a ledger."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "migverify.yaml").write_text(PLAIN)
        self.folder, self.config = folder, load_config(folder / "migverify.yaml")
        self.store: ResultStore = open_store(f"sqlite:///{folder}/runs.db")
        self.unread: Any = UnreadChanges()
        monkeypatch.setattr(armed_module, "read_unread", self._read_unread)
        monkeypatch.setattr(loss_module, "current_timestamp", lambda _: NOW)

    def _read_unread(self, *_: object) -> UnreadChanges:
        if isinstance(self.unread, Exception):
            raise self.unread
        found: UnreadChanges = self.unread
        return found

    def start(self, **facts: Any) -> str:
        plan = {"pairs": [{"id": "app.t", "source": "app.t", "target": "app.t"}]}
        return self.store.start_run("watch", "digest", plan, {"watch": True, **facts}, kind=StoredKind.TABLES)

    def ask(
        self, verdict: Verdict | None = Verdict.MATCH, *, forward_began: int = NOW - 90 * SECOND,
        reverse_began: int = NOW - 90 * SECOND, note: tuple[int, str, str] | None = None,
    ) -> ArmedRollback:  # fmt: skip
        forward = self.start(reverse=False)
        if verdict is not None:
            self.store.finish_run(forward, verdict, {BEGAN: {"target": str(tso_position(forward_began))}})
        reverse = self.start(reverse=True, start=str(tso_position(reverse_began)))
        path = self.folder / f"watch-{reverse}.db"
        ledger = Ledger(path)
        ledger.touch({}, {0: (tso_position(NOW - SECOND), 1)}, time.time())
        if note is not None:
            ledger.note(*note)
        prepared: Any = type("P", (), {"pairs": lambda _: iter([make_pair()])})()
        pool: Any = Pool()
        try:
            return ask_armed(
                prepared, self.config, {}, self.store, forward_run(self.store, forward, "digest"),
                self.store.load_run(reverse), path, pool, 10.0,
            )  # fmt: skip
        finally:
            ledger.close()


@pytest.fixture
def watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watches]:
    made = Watches(tmp_path, monkeypatch)
    yield made
    made.store.close()


def test_nothing_between_the_two_watches_is_a_match(watches: Watches) -> None:
    found = watches.ask()
    assert (found.verdict, found.problems, found.unknown) == (Verdict.MATCH, (), ())


def test_a_reverse_watch_that_was_armed_before_is_in_order(watches: Watches) -> None:
    assert watches.ask(reverse_began=NOW - 900 * SECOND).verdict is Verdict.MATCH


@pytest.mark.parametrize(
    ("unread", "more", "why"),
    [
        (UnreadChanges(2, 0), {}, "written on the sources behind the end of watch"),
        (UnreadChanges(0, 1), {}, "0 rows, 1 statement"),
        (UnreadChanges(), {"verdict": Verdict.MISMATCH}, "ended MISMATCH"),
        (UnreadChanges(), {"reverse_began": NOW + 900 * SECOND}, "after the end of watch"),
    ],
)
def test_what_is_between_them_is_a_mismatch(watches: Watches, unread: Any, more: dict[str, Any], why: str) -> None:
    watches.unread = unread
    found = watches.ask(**more)
    assert found.verdict is Verdict.MISMATCH
    assert why in "; ".join(found.problems)


@pytest.mark.parametrize(
    ("unread", "more", "why"),
    [
        (ChangeError("purged"), {}, "purged"),
        (UnreadChanges(), {"verdict": None}, "has not ended"),
        (UnreadChanges(), {"verdict": Verdict.INCONCLUSIVE}, "ended INCONCLUSIVE"),
        (UnreadChanges(), {"note": (0, "stale", "TRUNCATE")}, "app.t: it may hold other rows"),
    ],
)
def test_what_is_not_known_is_inconclusive(watches: Watches, unread: Any, more: dict[str, Any], why: str) -> None:
    watches.unread = unread
    found = watches.ask(**more)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert why in "; ".join(found.unknown)


def test_a_reverse_watch_is_no_forward_watch(watches: Watches) -> None:
    with pytest.raises(UsageError, match="no forward watch"):
        forward_run(watches.store, watches.start(reverse=True), "digest")
