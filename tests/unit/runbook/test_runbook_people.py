"""Attacks on approvals: each one is refused by the command, and found in a journal that was forged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import JournalError, UsageError
from migverify.runbook import people
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.clock import Moment
from migverify.runbook.definition.hashing import runbook_sha
from migverify.runbook.events import Event, EventKind, StepState
from migverify.runbook.fold.table import fold
from migverify.runbook.model import Approval, Person, Policy, Role
from migverify.runbook.page.watch_run import Watcher
from migverify.runbook.record import signatures
from migverify.runbook.record.chain import GENESIS, Draft, event_line
from migverify.runbook.record.journal_file import read_events, verify_journal, verify_run
from migverify.runbook.run import machine
from migverify.runbook.run.machine import Actor
from tests.unit.runbook_places import saved
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, PEOPLE, ROLES, Room, draft, is_set, replace, runbook, step

ALL_ONE = (
    *ROLES[:1],
    Role(name="db-1", person="bob", backup="alice"),
    Role(name="db-2", person="bob", backup="carol"),
    ROLES[3],
)


def ready_for_review(folder: Path, **changes: Any) -> Room:
    room = Room(folder, runbook(step("a"), step("b"), **changes))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert room.state("a") is StepState.AWAITING_REVIEW
    return room


@pytest.mark.parametrize("name", ["bob", "alice", "mallory", "Carol", "c\u0430rol", ""])
def test_only_the_reviewer_accepts_and_under_no_other_spelling(tmp_path: Path, name: str) -> None:
    room = ready_for_review(tmp_path)
    with pytest.raises(UsageError):
        room.say(machine.accept, Actor(name), "a")
    assert room.state("a") is StepState.AWAITING_REVIEW
    room.say(machine.accept, Actor("caro"), "a")  # a declared alias is the person
    assert room.state("a") is StepState.DONE


def test_one_who_holds_both_roles_cannot_review_what_they_did(tmp_path: Path) -> None:
    room = ready_for_review(tmp_path, roles=ALL_ONE)
    with pytest.raises(UsageError, match="bob is dri of a"):
        room.say(machine.accept, BOB, "a")
    room.say(machine.promote, ALICE, "db-2", "bob did it himself")
    room.say(machine.accept, CAROL, "a")


def test_one_who_called_the_step_cannot_review_it(tmp_path: Path) -> None:
    roles = (*ROLES[:2], Role(name="db-2", person="alice", backup="carol"), ROLES[3])
    room = ready_for_review(tmp_path, roles=roles)
    with pytest.raises(UsageError, match="alice is coordinator of a"):
        room.say(machine.accept, Actor("al"), "a")


def test_one_cannot_approve_the_start_and_start(tmp_path: Path) -> None:
    approval = Approval(minimum=1, excluded=(), before="start")
    room = Room(tmp_path, runbook(step("a", approval=approval), roles=ALL_ONE))
    room.say(machine.call, ALICE, "a")
    with pytest.raises(UsageError, match="bob is dri of a"):
        room.say(machine.approve, BOB, "a")
    for actor in (ALICE, CAROL):  # alice promotes herself: not alone
        room.say(machine.promote, actor, "db-1", "bob reviews today")
    room.say(machine.approve, BOB, "a")
    room.say(machine.promote, ALICE, "db-1", "bob is back", "bob")
    with pytest.raises(UsageError, match="0 of 1 approvals"):
        room.say(machine.start, BOB, "a")
    for actor in (ALICE, CAROL):
        room.say(machine.promote, actor, "db-1", "bob reviews after all")
    room.say(machine.start, ALICE, "a")


@pytest.mark.parametrize("word", ["Bob", " bob", "b\u200bob", "\uff42ob", "b\u043eb", "b.o_b"])
def test_two_people_whose_names_look_alike_are_refused(tmp_path: Path, word: str) -> None:
    assert people.identity_problems((*PEOPLE, Person(name=word)))
    with pytest.raises(JournalError, match="share a name"):
        Room(tmp_path, runbook(step("a"), people=(*PEOPLE, Person(name=word))))


def test_two_people_with_one_key_are_refused() -> None:
    twins = (
        Person(name="ann", ssh_key="ssh-ed25519 AAAAC3 laptop"),
        Person(name="zoe", ssh_key="ssh-ed25519 AAAAC3 desk"),
    )
    assert people.identity_problems(twins) == ["ann and zoe share a key"]
    assert people.identity_problems(PEOPLE) == []


def test_an_approval_before_the_start_lapses(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", approval=Approval(before="start")), policy=Policy(sign_off_ttl=600)))
    room.say(machine.call, ALICE, "a")
    room.say(machine.approve, CAROL, "a")
    room.clock.advance(601)
    with pytest.raises(UsageError, match="601 s old, and lapses after 600 s"):
        room.say(machine.start, BOB, "a")
    room.say(machine.approve, CAROL, "a")
    room.say(machine.start, BOB, "a")


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_time_to_live_that_is_no_time_fails_closed(ttl: float) -> None:
    now = Moment(1000.0, 10**9, "b")
    assert people.fresh(now, now, ttl)


def test_approvals_from_the_future_do_not_count() -> None:
    now = Moment(1000.0, 5 * 10**9, "b")
    assert people.fresh(Moment(1000.0, 6 * 10**9, "b"), now, 60) == "it was given in the future"
    assert people.fresh(Moment(1010.0, 1, "other"), now, 60) == "it was given in the future"
    assert people.fresh(Moment(1003.0, 1, "other"), now, 60) == ""  # two machines' clocks
    assert "s old" in people.fresh(Moment(900.0, 1, "other"), now, 60)


def test_evidence_that_changes_voids_what_was_seen_and_signed(tmp_path: Path) -> None:
    room = ready_for_review(tmp_path)
    seen = people.approval_hash(room.status, "a")
    room.say(machine.reject, CAROL, "a", "look again")
    room.settle()
    room.say(machine.resume, ALICE)
    room.say(machine.retry, ALICE, "a")
    room.settle()
    assert room.state("a") is StepState.AWAITING_REVIEW
    assert people.approval_hash(room.status, "a") != seen
    with pytest.raises(UsageError, match="the evidence is not what you saw"):
        room.say(machine.accept, CAROL, "a", seen)
    with pytest.raises(JournalError, match="it signs another step or other evidence"):
        room.record.write(lambda _s, _n: [draft(EventKind.ACCEPTED, "carol", "a", 2, hash=seen)])


def test_an_approval_of_another_step_run_or_purpose_is_refused(tmp_path: Path) -> None:
    first = ready_for_review(tmp_path / "1")
    others = {
        "step": people.approval_hash(first.status, "b"),
        "purpose": people.binding(first.status, "start", "a"),
        "run": people.approval_hash(replace(first.status.copy(), run="r2"), "a"),
    }
    assert people.approval_hash(first.status, "a") not in others.values()
    for digest in others.values():
        with pytest.raises(JournalError, match="signs another step"):
            first.record.write(lambda _s, _n, d=digest: [draft(EventKind.ACCEPTED, "carol", "a", hash=d)])  # type: ignore[misc]


def rewrite(path: Path, change: Callable[[dict[str, Any]], None], *, approvals: bool) -> None:
    """Change the runbook in the first line of a journal, and chain everything anew as its owner can.

    ``approvals``: work out anew what the approvals are bound to, as well.
    """
    head, made, lines = GENESIS, list[Event](), list[bytes]()
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        if not made:
            change(fields["data"]["runbook"])
        elif approvals and "hash" in fields["data"]:
            status = fold(made)
            assert status is not None
            fields["data"]["hash"] = people.binding(status, fields["data"]["of"], fields["step"])
        fields["previous"] = head
        head, raw = event_line({name: value for name, value in fields.items() if name != "sha"})
        made.append(Event(**{**json.loads(raw), "kind": EventKind(fields["kind"])}))
        lines.append(raw)
    path.write_bytes(b"".join(lines))


def other_values(runbook_: dict[str, Any]) -> None:
    runbook_["phases"][0]["steps"][0]["filled_sha"] = "filled with prod-2"


def other_command(runbook_: dict[str, Any]) -> None:
    runbook_["phases"][0]["steps"][0]["effect"]["arguments"]["name"] = "something else"


@pytest.mark.parametrize("change", [other_values, other_command])
@pytest.mark.parametrize("key", ["", "carol"])
def test_an_approval_is_void_when_the_step_has_other_values(
    tmp_path: Path, keys: dict[str, Path], change: Any, key: str
) -> None:
    room = signed_room(tmp_path, keys) if key else ready_for_review(tmp_path)
    before = people.approval_hash(room.status, "a")
    room.say(machine.accept, signed(room, keys[key]) if key else CAROL, "a")
    path = saved(room.record)
    number = len(list(read_events(path)))
    rewrite(path, change, approvals=False)
    assert verify_journal(path) == []  # the chain is whole: whoever owns the file can make one
    assert str(verify_run(path)[0]).startswith(f"line {number}: accepted ")
    rewrite(path, lambda _same: None, approvals=True)
    told = [str(problem) for problem in verify_run(path)]
    assert people.approval_hash(fold(list(read_events(path))[: number - 1]), "a") != before  # type: ignore[arg-type]
    if key:  # only a signature stops somebody who works out the hashes as well
        assert "the signature is not carol's" in told[0]
    else:
        assert told == []


def forge(room: Room, *drafts: Draft) -> str:
    """Append lines that are chained well but were judged by nobody; returns what the verifier says."""
    journal = room.home.open_journal("r1")

    def decide() -> list[Draft]:
        for _ in journal.new():
            pass
        return list(drafts)

    journal.append(decide)
    path = saved(room.record)
    assert verify_journal(path) == []
    problems = verify_run(path)
    return str(problems[0]) if problems else ""


def test_forged_lines_are_found_with_their_number(tmp_path: Path) -> None:
    room = ready_for_review(tmp_path)
    lines = len(list(read_events(saved(room.record))))
    digest = people.approval_hash(room.status, "a")
    told = forge(room, draft(EventKind.ACCEPTED, "bob", "a", hash=digest))
    assert told.startswith(f"line {lines + 1}: accepted of a by bob: bob may not review a")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (draft(EventKind.STARTED, "bob", "b"), "the step is pending, not called"),
        (draft(EventKind.CALLED, "bob", "b"), "the step is pending"),
        (draft(EventKind.CALLED, "", "b"), "nobody did it"),
        (draft(EventKind.CALLED, "alice", "zz"), "there is no such step"),
        (draft(EventKind.CALLED, "alice", "a", 2), "attempt 2, where 1 is"),
        (draft(EventKind.INTENT, "executor-x", "a"), "the executor is"),
        (draft(EventKind.RUN_ENDED, "alice", state="completed"), "2 steps are not done"),
        (draft(EventKind.RUN_ENDED, "alice", state="rolled back"), "not undone and verified: a"),
        (draft(EventKind.RUN_ENDED, "alice", state="dry"), "a rehearsal run does not end dry"),
        (draft(EventKind.WAIVED, "alice", "a", reason="x", by=["alice", "dana"]), "the step is awaiting review"),
        (draft(EventKind.RESUMED, "alice"), "the run is not held"),
        (draft(EventKind.RUN_STARTED, "alice"), "the run was started before"),
        (draft(EventKind.LEASE, "executor-x", epoch=2, person="bob"), "a takeover has a reason"),
        (draft(EventKind.LEASE, "executor-x", epoch=2, person="bob", reason="x", by=["bob", "carol"]),
         "nobody else has agreed"),
        (draft(EventKind.LEASE, "executor-x", epoch=9, person="bob"), "epoch 9 after 1"),
        (draft(EventKind.ROLLBACK_ORDERED, "alice", steps=["b"], then="hold", reason="x"), "the rollback of b is none"),
        (draft(EventKind.APPROVED, "carol", "b", of="start", hash="00", ), "it signs something else"),
        (draft(EventKind.RETRIED, "alice", "a", 2, to="called"), "the step is awaiting review"),
    ],
)  # fmt: skip
def test_arrows_that_do_not_exist_are_found(tmp_path: Path, what: Draft, why: str) -> None:
    assert why in forge(ready_for_review(tmp_path), what)


def test_a_waiver_that_only_claims_a_second_person_is_found(tmp_path: Path) -> None:
    room = ready_for_review(tmp_path)
    room.say(machine.reject, CAROL, "a", "no")
    assert "nobody else has agreed" in forge(
        room, draft(EventKind.WAIVED, "alice", "a", reason="fine", by=["alice", "dana"])
    )


def test_two_persons_at_one_login_show(tmp_path: Path) -> None:
    room = ready_for_review(tmp_path)
    room.say(machine.hold, Actor("alice", "root@laptop"), "x")
    room.say(machine.hold, Actor("carol", "root@laptop"), "x")
    room.say(machine.hold, Actor("dana", "dana@desk"), "x")
    assert people.shared_logins(room.status) == {"root@laptop": ("alice", "carol")}


# -- signatures -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("carol", "mallory"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    return {name: folder / name for name in ("carol", "mallory")}


def signed_room(folder: Path, keys: dict[str, Path]) -> Room:
    line = keys["carol"].with_suffix(".pub").read_text()
    some = tuple(replace(one, ssh_key=line) if one.name == "carol" else one for one in PEOPLE)
    return ready_for_review(folder, people=some, policy=Policy(signed_approvals=True))


def signed(room: Room, key: Path, of: str = "done", at: float | None = None, step_: str = "a") -> Actor:
    moment = room.clock.wall if at is None else at
    text = machine.to_sign(room.status, "carol", of, step_, moment)
    return Actor("carol", signature=signatures.sign(text, key), signed_at=moment)


def test_a_signed_approval_is_accepted_and_counted(tmp_path: Path, keys: dict[str, Path]) -> None:
    room = signed_room(tmp_path, keys)
    with pytest.raises(UsageError, match="wants signed approvals"):
        room.say(machine.accept, CAROL, "a")
    room.say(machine.accept, signed(room, keys["carol"]), "a")
    assert room.state("a") is StepState.DONE
    assert (room.status.signed, room.status.unsigned) == (1, 0)
    assert verify_run(saved(room.record)) == []


@pytest.mark.parametrize("attack", ["key", "purpose", "step", "time", "old", "future", "garbage"])
def test_signatures_of_anything_else_are_refused(tmp_path: Path, keys: dict[str, Path], attack: str) -> None:
    room = signed_room(tmp_path, keys)
    actor = signed(room, keys["mallory" if attack == "key" else "carol"])
    if attack == "purpose":
        actor = signed(room, keys["carol"], of="start")
    elif attack == "step":
        actor = signed(room, keys["carol"], step_="b")
    elif attack == "time":
        actor = replace(actor, signed_at=actor.signed_at + 1)
    elif attack in ("old", "future"):
        actor = signed(room, keys["carol"], at=room.clock.wall + (-99999 if attack == "old" else 999))
    elif attack == "garbage":
        actor = replace(actor, signature="-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n")
    with pytest.raises(UsageError):
        room.say(machine.accept, actor, "a")
    assert room.state("a") is StepState.AWAITING_REVIEW


def test_a_signature_that_was_forged_into_a_journal_is_found(tmp_path: Path, keys: dict[str, Path]) -> None:
    room = signed_room(tmp_path, keys)
    digest = people.approval_hash(room.status, "a")
    told = forge(room, draft(EventKind.ACCEPTED, "carol", "a", hash=digest, of="done", signature="looks like one",
                             signed_at=room.clock.wall))  # fmt: skip
    assert "the signature is not carol's" in told


@pytest.mark.attack(
    "runbook", "A chained line with any text as signature is put into the journal's file",
    "executor, status and page refuse the journal at that line: each of them verifies the signature",
)  # fmt: skip
@pytest.mark.parametrize("key", ["", "mallory"])
def test_whoever_reads_a_forged_approval_refuses_it(tmp_path: Path, keys: dict[str, Path], key: str) -> None:
    room = signed_room(tmp_path, keys)
    actor = signed(room, keys[key]) if key else Actor("carol", signature="looks like one", signed_at=room.clock.wall)
    digest = people.approval_hash(room.status, "a")
    forge(room, draft(EventKind.ACCEPTED, "carol", "a", hash=digest, of="done", signature=actor.signature,
                      signed_at=actor.signed_at))  # fmt: skip
    for read in (room.record.refresh, lambda: room.home.open("r1")):
        with pytest.raises(JournalError, match="the signature is not carol's"):
            read()
    seen = Watcher(room.home, "r1").look()
    assert seen.problem is not None
    assert "the signature is not carol's" in seen.problem.text


def failed_rollback(folder: Path, **more: Any) -> Room:
    """Return a run of two steps done whose rollbacks failed once."""
    room = Room(folder, runbook(step("a"), step("b"), step("c"), **more))
    room.man()
    room.play("a", "b")
    room.world.outcomes["unset b"] = [ActionResult(Outcome.FAILED, "no")]
    room.say(machine.rollback, DANA, "back")
    room.settle()
    return room


@pytest.mark.attack(
    "runbook", "Two persons agree to a rollback, and the second one orders another than the first one agreed to",
    "it counts as a first approval of its own: both have to name the same hash of what is undone",
)  # fmt: skip
def test_both_approvals_of_a_rollback_name_what_is_undone(tmp_path: Path) -> None:
    room = failed_rollback(tmp_path)
    room.say(machine.rollback, DANA, "only b", to="b")
    (given,) = room.status.agreements
    assert given.answer.startswith("undo b, then hold: ")
    room.say(machine.rollback, ALICE, "all of it")
    assert room.status.order is None
    assert room.status.agreements[-1].answer.startswith("undo b, a, then rolled back: ")
    assert given.hash != room.status.agreements[-1].hash
    room.say(machine.rollback, ALICE, "only b", to="b")
    assert room.status.order is not None
    assert room.status.order.steps == ("b",)


@pytest.mark.attack(
    "runbook", "The second of two persons is forged into the journal without a signature, where approvals are signed",
    "the line is illegal: both have to sign",
)  # fmt: skip
def test_who_agrees_second_has_to_sign_too(tmp_path: Path, keys: dict[str, Path]) -> None:
    line = keys["carol"].with_suffix(".pub").read_text()
    some = tuple(replace(one, ssh_key=line) if one.name == "carol" else one for one in PEOPLE)
    room = Room(tmp_path, runbook(step("a", expect=(is_set("never"),)), people=some,
                                  policy=Policy(signed_approvals=True)))  # fmt: skip
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    room.say(machine.waive, signed(room, keys["carol"], of="waive"), "a", "known")
    told = forge(room, draft(EventKind.WAIVED, "dana", "a", reason="known", by=["carol", "dana"]))
    assert "dana has not signed it" in told


@pytest.mark.attack(
    "runbook", "A person's key is replaced by another one in the whole journal",
    "a file of keys kept elsewhere names both fingerprints (`verify-journal --keys`)",
)  # fmt: skip
def test_a_replaced_key_differs_from_the_one_known_outside(keys: dict[str, Path]) -> None:
    lines = {name: path.with_suffix(".pub").read_text().strip() for name, path in keys.items()}
    known = signatures.keys_in(f"# the team\n\ncarol {lines['carol']}\n")
    assert signatures.check_keys([Person(name="carol", ssh_key=lines["carol"]), Person(name="bob")], known) == []
    (why,) = signatures.check_keys([Person(name="carol", ssh_key=lines["mallory"])], known)
    assert signatures.fingerprint(lines["mallory"]) in why
    assert known["carol"] in why
    assert "none in the file" in signatures.check_keys([Person(name="dana", ssh_key=lines["mallory"])], known)[0]
    listed = subprocess.run(["ssh-keygen", "-l", "-f", str(keys["carol"])], capture_output=True, text=True, check=True)
    assert known["carol"] in listed.stdout
    for bad in ("carol", "carol not-a-key AAAA", f"carol {lines['carol']}\ncarol {lines['carol']}"):
        with pytest.raises(UsageError, match="line"):
            signatures.keys_in(bad)


@pytest.mark.attack(
    "runbook", "A DRI approves under a second declared name: another case, other letters, or the same key",
    "the runbook is refused: two of its people may be one",
)  # fmt: skip
@pytest.mark.parametrize("second", ["BOB", "b.o.b", "b\u043eb", "bob\u200b", "robert"])
def test_a_dri_under_two_names_is_one_person(tmp_path: Path, second: str) -> None:
    bob = Person(name="bob", ssh_key="ssh-ed25519 AAAAC3NzaC1lZDI1 bob@one")
    other = Person(name=second, ssh_key="ssh-ed25519  AAAAC3NzaC1lZDI1 robert@two" if second == "robert" else "")
    some = (*(one for one in PEOPLE if one.name != "bob"), bob, other)
    with pytest.raises(JournalError, match=r"share a (name|key)"):
        Room(tmp_path, runbook(step("a"), people=some))


def test_keys_count_in_the_hash_of_a_runbook_whose_approvals_are_signed() -> None:
    data = {"policy": {"signed_approvals": True}, "people": {"carol": {"ssh_key": "ssh-ed25519 AAAA carol@one"}}}
    other = {"policy": {"signed_approvals": True}, "people": {"carol": {"ssh_key": "ssh-ed25519 BBBB carol@one"}}}
    moved = {"policy": {"signed_approvals": True}, "people": {"carol": {"ssh_key": "ssh-ed25519 AAAA carol@two"}}}
    assert runbook_sha(data, []) != runbook_sha(other, [])
    assert runbook_sha(data, []) == runbook_sha(moved, [])
    assert runbook_sha(data | {"policy": {}}, []) == runbook_sha(other | {"policy": {}}, [])


def test_runs_say_how_many_approvals_were_not_signed(tmp_path: Path) -> None:
    room = ready_for_review(tmp_path)
    room.say(machine.accept, CAROL, "a")
    assert (room.status.signed, room.status.unsigned) == (0, 1)
