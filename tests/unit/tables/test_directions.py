"""Both directions of one configuration as one view, from a store and ledgers: no server is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migverify.changes.positions import shown_timestamp, tso_position
from migverify.cli.main import run
from migverify.config import load_config
from migverify.config.digest import comparison_digest
from migverify.model import StoredKind, Verdict
from migverify.store import run_leases
from migverify.store.open import open_store
from migverify.tables.directions import SILENT_SECONDS, both_directions
from migverify.tables.handover import UnreadChanges
from migverify.tables.last_status import LAST_STATUS, LastStatus
from migverify.tables.run_facts import BEGAN, HAND_OVER, THROUGH
from migverify.watch.ledger import Ledger
from migverify.watch.run import DRAIN

SECOND = 1000 << 18
NOW = int(time.time() * 1000) << 18
PLAIN = """\
source: {url: "mysql://app@db1"}
target: {url: "tidb://root@tidb"}
tables: {include: ["app.*"]}
store: "sqlite:///runs.db"
"""


class Watches:
    """Watches of one configuration, as they are in its store and its folder of ledgers."""

    def __init__(self, folder: Path) -> None:
        (folder / "migverify.yaml").write_text(PLAIN)
        self.config = load_config(folder / "migverify.yaml")
        self.digest = comparison_digest(self.config)
        self.store = open_store("sqlite:///runs.db")
        self.ledgers = folder / ".migverify"

    def start(self, *, digest: str | None = None, **facts: Any) -> str:
        plan: dict[str, Any] = {"pairs": [{"id": "app.t", "source": "app.t", "target": "app.t"}]}
        known = {"watch": True, **facts}
        return self.store.start_run("watch", digest or self.digest, plan, known, kind=StoredKind.TABLES)

    def keep(self, run_id: str, kind: str, text: str) -> None:
        """Keep what a watch says of itself in its ledger."""
        with closing(Ledger(self.ledgers / f"watch-{run_id}.db")) as ledger:
            ledger.touch({}, {0: (tso_position(NOW), 1)}, time.time())
            ledger.keep(kind, text)

    def forward(self, verdict: Verdict | None = Verdict.MATCH) -> str:
        """Return a forward watch, ended unless ``verdict`` is None."""
        made = self.start(reverse=False, start="binlog.000002:4")
        if verdict is not None:
            self.store.finish_run(made, verdict, {
                THROUGH: {"source": {"file": "binlog.000003", "offset": 99, "gtids": ""}},
                BEGAN: {"target": str(tso_position(NOW - 90 * SECOND))},
                LAST_STATUS: status(verdict, as_of="binlog.000003:99"),
            })  # fmt: skip
        return made

    def reverse(self, forward: str = "", *, began: int = NOW - 90 * SECOND, **facts: Any) -> str:
        """Return a reverse watch that runs."""
        return self.start(reverse=True, start=str(tso_position(began)), since=forward, **facts)

    def view(self) -> Any:
        return both_directions(self.config, self.digest, self.store, self.ledgers)


def status(verdict: Verdict, *, as_of: str = "", at: float | None = None, **more: Any) -> str:
    figures = {"open_keys": 0, "oldest_seconds": None, "diverged": 0, "reason": "", "read": as_of, **more}
    return LastStatus(at=time.time() if at is None else at, verdict=verdict, as_of=as_of, **figures).as_text()


@pytest.fixture
def watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watches]:
    monkeypatch.chdir(tmp_path)
    for name in ("MIGVERIFY_RUNS", "MIGVERIFY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    made = Watches(tmp_path)
    yield made
    made.store.close()


def test_without_a_watch_there_is_no_view(watches: Watches) -> None:
    watches.start(digest="of another configuration")
    assert watches.view() is None


def test_both_directions_and_their_hand_over(watches: Watches) -> None:
    forward = watches.forward()
    reverse = watches.reverse(forward)
    watches.keep(reverse, LAST_STATUS, status(
        Verdict.INCONCLUSIVE, as_of=shown_timestamp(NOW), open_keys=41, oldest_seconds=2.0, reason="41 keys",
    ))  # fmt: skip
    watches.keep(reverse, HAND_OVER, UnreadChanges().as_text(forward))
    found = watches.view()
    assert (found.forward.run_id, found.forward.state, found.forward.verdict) == (forward, "ended", Verdict.MATCH)
    assert (found.forward.through, found.forward.last.as_of) == ("binlog.000003:99", "binlog.000003:99")
    assert (found.reverse.run_id, found.reverse.state, found.reverse.reason) == (reverse, "alive", "41 keys")
    assert (found.reverse.last.open_keys, found.reverse.last.oldest_seconds) == (41, 2.0)
    assert found.reverse.began == shown_timestamp(NOW - 90 * SECOND)
    assert (found.hand_over.verdict, found.hand_over.unread) == (Verdict.MATCH, UnreadChanges())


@pytest.mark.parametrize(
    ("verdict", "began", "unread", "expected", "why"),
    [
        (None, -90, None, Verdict.INCONCLUSIVE, "has not ended"),
        (Verdict.INCONCLUSIVE, -90, UnreadChanges(), Verdict.INCONCLUSIVE, "ended INCONCLUSIVE"),
        (Verdict.MATCH, -90, None, Verdict.INCONCLUSIVE, "is not known here; migverify tables armed"),
        (Verdict.MATCH, -90, UnreadChanges(2, 1), Verdict.MISMATCH, "2 rows, 1 statement"),
        (Verdict.MATCH, 900, UnreadChanges(), Verdict.MISMATCH, "after the end of watch"),
        (Verdict.MISMATCH, -90, UnreadChanges(), Verdict.MISMATCH, "ended MISMATCH"),
    ],
)
def test_a_hand_over_is_proved_only_by_what_was_read(
    watches: Watches, verdict: Verdict | None, began: int, unread: UnreadChanges | None, expected: Verdict, why: str
) -> None:
    forward = watches.forward(verdict)
    reverse = watches.reverse(forward, began=NOW + began * SECOND)
    if unread is not None:
        watches.keep(reverse, HAND_OVER, unread.as_text(forward))
    found = watches.view().hand_over
    assert found.verdict is expected
    assert why in "; ".join([*found.problems, *found.unknown])


def test_a_verification_after_the_forward_watch_is_a_hand_over_too(watches: Watches) -> None:
    """Where a feed was broken, that is how to go on: what lies between the two watches is proved by it."""
    watches.forward()
    proof = watches.store.start_run("tables verify", watches.digest, {}, {}, kind=StoredKind.TABLES)
    watches.reverse(proof, began=NOW + 900 * SECOND)
    assert watches.view().hand_over.verdict is Verdict.MISMATCH, "it has not ended"
    watches.store.finish_run(proof, Verdict.INCONCLUSIVE, {})
    assert watches.view().hand_over.verdict is Verdict.MISMATCH
    watches.store.finish_run(proof, Verdict.MATCH, {})
    found = watches.view().hand_over
    assert (found.verdict, found.unread, found.problems) == (Verdict.MATCH, None, ())


def test_a_verification_before_the_forward_watch_ended_is_no_hand_over(watches: Watches) -> None:
    proof = watches.store.start_run("tables verify", watches.digest, {}, {}, kind=StoredKind.TABLES)
    watches.store.finish_run(proof, Verdict.MATCH, {})
    watches.forward()
    watches.reverse(proof, began=NOW + 900 * SECOND)
    assert watches.view().hand_over.verdict is Verdict.MISMATCH


def test_a_forward_watch_that_went_on_has_another_end(watches: Watches) -> None:
    forward = watches.forward()
    reverse = watches.reverse(forward)
    watches.keep(reverse, HAND_OVER, UnreadChanges().as_text(forward))
    watches.store.resume_run(forward)
    watches.store.finish_run(forward, Verdict.MATCH, {})
    found = watches.view().hand_over
    assert (found.verdict, found.unread) == (Verdict.INCONCLUSIVE, None)


@pytest.mark.attack(
    "reverse", "a watch hangs, or its ledger cannot be read, after a MATCH",
    "`migverify status`: INCONCLUSIVE with the age of its last status",
)  # fmt: skip
@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (None, "has not kept a status yet"),
        (status(Verdict.MATCH, at=time.time() - SILENT_SECONDS - 100), "its last status (MATCH) is"),
        ('{"at": 1}', "has not kept a status yet"),
    ],
)
def test_what_was_said_long_ago_is_not_the_verdict_of_now(watches: Watches, kept: str | None, why: str) -> None:
    reverse = watches.reverse()
    if kept is not None:
        watches.keep(reverse, LAST_STATUS, kept)
    found = watches.view()
    assert (found.reverse.state, found.reverse.verdict) == ("alive", Verdict.INCONCLUSIVE)
    assert why in found.reverse.reason
    assert (found.forward, found.hand_over) == (None, None)


def test_a_watch_that_was_killed_is_inconclusive_with_the_command_to_go_on(
    watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverse = watches.reverse()
    watches.keep(reverse, LAST_STATUS, status(Verdict.MATCH))
    monkeypatch.setattr(run_leases, "has_ended", lambda *_, **__: True)
    found = watches.view().reverse
    assert (found.state, found.verdict, found.last.verdict) == ("not alive", Verdict.INCONCLUSIVE, Verdict.MATCH)
    assert f"migverify tables watch --reverse --resume {reverse}" in found.reason


def test_a_proof_beside_the_service_is_not_taken_for_it(watches: Watches) -> None:
    service = watches.reverse()
    proof = watches.reverse(**{DRAIN: True})
    watches.store.finish_run(proof, Verdict.MATCH, {LAST_STATUS: status(Verdict.MATCH, as_of=shown_timestamp(NOW))})
    found = watches.view()
    assert (found.reverse.run_id, found.proof.run_id) == (service, proof)
    assert (found.proof.verdict, found.proof.last.as_of) == (Verdict.MATCH, shown_timestamp(NOW))


def test_status_shows_them_side_by_side(watches: Watches, capsys: pytest.CaptureFixture[str]) -> None:
    forward = watches.forward()
    reverse = watches.reverse(forward, sweep=5.0)
    as_of = shown_timestamp(NOW)
    watches.keep(reverse, LAST_STATUS, status(Verdict.MATCH, as_of=as_of, open_keys=1, oldest_seconds=2.0))
    watches.keep(reverse, HAND_OVER, UnreadChanges().as_text(forward))
    assert run(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["directions"]
    assert (document["forward"]["run"], document["reverse"]["run"]) == (forward, reverse)
    assert (document["reverse"]["as_of"], document["reverse"]["open_keys"]) == (as_of, 1)
    assert document["hand_over"]["verdict"] == "MATCH"
    assert run(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line[:11].strip(): (line[11:69].strip(), line[69:].strip()) for line in lines if line[:1].isalpha()}
    assert rows["run"] == (forward, reverse)
    assert rows["verdict"] == ("MATCH", "MATCH")
    assert rows["as of"] == ("binlog.000003:99", as_of)
    assert rows["open"] == ("0 keys", "1 key, oldest 2 seconds")
    assert rows["sweep"] == ("", "each range within 5 minutes, no changefeed")
    assert any(line.startswith("hand-over: MATCH: nothing was unread, as of ") for line in lines)
    assert "  what was written on the sources since then, while the target is closed: migverify tables armed" in lines


def test_one_direction_alone_names_the_other(watches: Watches, capsys: pytest.CaptureFixture[str]) -> None:
    watches.forward()
    assert run(["status"]) == 0
    assert "no reverse watch: start one: migverify tables watch --reverse --since RUN\n" in capsys.readouterr().out


def test_a_watch_of_other_servers_in_the_same_store_is_not_of_the_configuration(watches: Watches) -> None:
    mine = watches.forward()
    other = {"source": {"host": "staging", "port": 3306}, "target": {"host": "tidb", "port": 4000}}
    watches.start(reverse=False, start="binlog.000002:4", endpoints=other)
    assert watches.view().forward.run_id == mine
