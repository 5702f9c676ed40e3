"""Conditions that no journal shows: people, grants, limits, certificates, retention, the watch, the last proof. Pure.

Each is judged from what was read at one moment. What could not be read is UNKNOWN with the reason; a condition is OK
only where something was read that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migverify.guards.model import AnswerState, GuardAnswer
from migverify.model import Verdict
from migverify.runbook.history.readiness import MISSING, NOT_ASKED, OK, UNKNOWN, Condition
from migverify.runbook.model import Runbook
from migverify.runbook.people import CLOCK_SKEW, same_name
from migverify.sql.identity import TableIdentity
from migverify.tables.directions import SILENT_SECONDS, WatchView

__all__ = [
    "ANSWERED",
    "MEASURED",
    "STANDING",
    "LackingOf",
    "LastProof",
    "LogPlace",
    "answered",
    "capacity",
    "following",
    "grants",
    "people",
    "proof",
    "retention",
    "retention_seconds",
    "tables",
    "unknown",
    "watch",
]  # fmt: skip

DAY = 86_400.0
STANDING = ("people", "servers", "grants", "limits", "capacity", "certificate", "retention", "watch", "proof", "tables")
"""Conditions that only a watch of readiness asks, in their order."""
MEASURED = frozenset({"servers", "limits", "capacity", "certificate", "retention", "watch", "proof"})
"""Those whose reasons hold figures of the moment: another figure is no other reason."""
_OF_SERVERS = frozenset({"grants", "limits", "certificate", "retention", "schema", "tables"})
"""Conditions that cannot be known while a server does not answer; ``servers`` says so for all of them."""
ANSWERED: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "servers": ("every server answers and lets the user in", ("reachable",), ""),
    "limits": ("connections and disks have what the work needs", ("connections", "disk"), ""),
    "certificate": ("TLS is in force, and no certificate ends within 14 days", ("tls",),
                    "Renew the server's certificate before the night."),
    "retention": ("the source's binlog and TiDB's versions are kept for as long as they are needed",
                  ("binlog", "gc-life-time", "gc-safe-point"), "Raise the retention, or begin from a newer proof."),
}  # fmt: skip
"""Conditions that ``guard settings`` answers: what is wanted, by which questions, and what to do."""
_REACHABLE = "reachable"
_RETENTION = ("retention", "expire", "purge", "log_bin", "binary logs")
_RETENTION_VALUES = (
    ("binlog retention hours", 3600.0), ("binlog_expire_logs_seconds", 1.0), ("expire_logs_days", DAY),
)  # fmt: skip
"""Answers that say how long a binlog is kept, what counts first in front, with the seconds of their unit."""
_FEW = 8


def unknown(id_: str, reason: str, do: str = "") -> Condition:
    """Return a condition that could not be read."""
    return Condition(id_, UNKNOWN, _wants(id_), "not known", (reason,), do)


def _wants(id_: str) -> str:
    return ANSWERED[id_][0] if id_ in ANSWERED else _WANTS[id_]


_WANTS = {
    "people": "the people of the last drill are still there, with their keys",
    "grants": "the users have every grant that the commands need (`config --grants`)",
    "capacity": "the last asking of `guard capacity` fails nothing",
    "watch": "the watch of tables is alive, and finds no difference",
    "proof": "a verification of all tables is MATCH and new enough",
    "tables": "the tables are defined as the last proof read them",
}


def _condition(id_: str, missing: Iterable[str], not_known: Iterable[str], found: str, do: str = "") -> Condition:
    bad, open_ = tuple(missing), tuple(not_known)
    state = MISSING if bad else UNKNOWN if open_ else OK
    return Condition(id_, state, _wants(id_), found, (*bad, *open_), do if state != OK else "")


def following(conditions: Iterable[Condition]) -> frozenset[str]:
    """Return the conditions that are not known because a server does not answer."""
    some = {one.id: one.state for one in conditions}
    if some.get("servers") != UNKNOWN:
        return frozenset()
    return frozenset(id_ for id_ in _OF_SERVERS if some.get(id_) == UNKNOWN)


# --- what guards answer -------------------------------------------------------------------------------------------


def answered(id_: str, answers: Sequence[GuardAnswer]) -> Condition:
    """Judge a condition by the answers of ``guard settings``; a server that was not reached leaves it unknown."""
    _, questions, do = ANSWERED[id_]
    silent = [one for one in answers if _question(one) == _REACHABLE and one.state is not AnswerState.PASS]
    own = [one for one in answers if _question(one) in questions and _concerns(id_, one) and one not in silent]
    failed = [one for one in own if one.state is AnswerState.FAIL]
    open_ = [f"{one.subject} was not asked: {one.value}" for one in silent]
    open_ += [f"{_shown(one)} is not known" for one in own if one.state is AnswerState.INCONCLUSIVE]
    if not own and not open_:
        open_ = ["no server answered"]
    denied = [one for one in own if one.state is AnswerState.INCONCLUSIVE and "denied" in one.value.lower()]
    remedy = "Grant what is denied: migverify config --grants --for 'guard settings'" if denied and not failed else do
    todo = next((one.todo for one in failed if one.todo), "") or remedy
    found = "; ".join(_shown(one) for one in own[:_FEW])
    return _condition(id_, map(_shown, failed), open_, found, todo)


def _question(answer: GuardAnswer) -> str:
    return answer.name.partition(" ")[0]


def _concerns(id_: str, answer: GuardAnswer) -> bool:
    """Whether an answer is of this condition: of the questions about a binlog only those about how long it is kept."""
    if id_ != "retention" or _question(answer) != "binlog":
        return True
    return any(word in answer.name for word in _RETENTION)


def _shown(answer: GuardAnswer) -> str:
    return f"{answer.subject}: {answer.name}: {answer.value}"


def capacity(answers: Sequence[GuardAnswer] | None, asked: float | None, now: float, max_age: float) -> Condition:
    """Judge what ``guard capacity`` found last; None where it was never asked."""
    if answers is None or asked is None:
        return Condition("capacity", NOT_ASKED, _wants("capacity"), "`guard capacity` was never asked")
    age = now - asked
    failed = [_shown(one) for one in answers if one.state is AnswerState.FAIL]
    open_ = [f"{_shown(one)} is not known" for one in answers if one.state is AnswerState.INCONCLUSIVE]
    if ahead := _ahead("it was asked", age):
        open_.append(ahead)
    elif age > max_age:
        open_.append(f"its answers are {age / DAY:.1f} days old, and at most {max_age / DAY:g} count")
    if not answers:
        open_.append("it has no answers")
    return _condition("capacity", failed, open_, f"{len(answers)} answers", "Ask again: migverify guard capacity")


def _ahead(words: str, age: float) -> str:
    """Return that evidence is of the future, or of no time at all; empty where it is not.

    By its age it would be fresh until the clock has caught up, even if it is gone.
    """
    if age >= -CLOCK_SKEW:
        return ""
    return f"{words} {-age / DAY:.1f} days after now: a clock is wrong" if age < 0 else f"it is not known when {words}"


# --- grants and people ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LackingOf:
    """What one endpoint's account lacks, by the object of ``GRANT ... ON``; ``problem`` says why it is not known."""

    endpoint: str
    account: str = ""
    privileges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    statements: tuple[str, ...] = ()
    problem: str = ""


def grants(found: Sequence[LackingOf]) -> Condition:
    """Judge the grants of all accounts."""
    lacking = [
        f"{one.endpoint}: {one.account} lacks {', '.join(words)} on {where}"
        for one in found if not one.problem
        for where, words in one.privileges.items()
    ]  # fmt: skip
    open_ = [f"{one.endpoint}: {one.problem}" for one in found if one.problem]
    if not found:
        open_.append("no account was asked")
    # With the server before them: on the other one they would grant what nobody needs.
    do = (
        " ".join(f"On {one.endpoint}: {' '.join(one.statements)}" for one in found if one.statements)
        or "migverify config --grants"
    )
    accounts = ", ".join(f"{one.endpoint} {one.account}" for one in found if not one.problem)
    return _condition("grants", lacking, open_, f"{accounts} lack nothing", do)


def people(book: Runbook, drilled: Runbook | None, run: str, acted: Sequence[str] = ()) -> Condition:
    """Judge whether those of the last drill are still there, with their keys.

    Parameters
    ----------
    drilled
        The runbook as the last drill ran it; None: there is no drill, which is a condition of its own.
    acted
        Who said something in that drill, by the names of its runbook.
    """
    if drilled is None:
        return Condition("people", NOT_ASKED, _wants("people"), "there is no drill to compare with")
    now = {same_name(name): one for one in book.people.values() for name in (one.name, *one.aliases)}
    missing = []
    played = {role.person: name for name, role in drilled.roles.items()}
    for one in drilled.people.values():
        person = next((now[sign] for sign in map(same_name, (one.name, *one.aliases)) if sign in now), None)
        if person is None:
            if one.name in acted or (book.policy.readiness.full_cast_last and one.name in played):
                part = played.get(one.name, "acted")
                missing.append(f"{one.name} left: {part} in {run}, and none of the people any more")
        elif one.ssh_key and not person.ssh_key:
            missing.append(f"{person.name} had a key in {run}, and has none any more")
        elif one.ssh_key and one.ssh_key.split()[:2] != person.ssh_key.split()[:2]:
            missing.append(f"the key of {person.name} is another one than in {run}")
    if book.policy.signed_approvals:
        holders = dict.fromkeys(role.person for role in book.roles.values())
        keyless = [name for name in holders if name in book.people and not book.people[name].ssh_key]
        missing += [f"{name} has no key, and approvals are to be signed" for name in keyless]
    do = "Hold a drill with those who are there now, or put the person or the key back."
    return _condition("people", missing, (), f"{len(book.people)} people", do)


# --- the watch, the proof, and the log that they rest on --------------------------------------------------------------


def watch(view: WatchView | None, now: float, max_lag: float) -> Condition:
    """Judge the newest watch of tables; one that was begun has to be alive until the night."""
    if view is None:
        return Condition("watch", NOT_ASKED, _wants("watch"), "no watch of tables was begun")
    about = f"watch {view.run_id}"
    do = f"Go on with it: migverify tables watch --resume {view.run_id}"
    if view.state != "alive":
        return _condition(
            "watch", [f"{about} is {view.state}: {view.reason or 'it watches no more'}"], (), view.state, do
        )
    last = view.last
    if last is None:
        return _condition("watch", (), [f"{about}: {view.reason or 'it has kept no status'}"], "no status", do)
    missing, open_ = [], []
    if ahead := _ahead(f"{about} kept its last status", now - last.at):
        open_.append(ahead)
    elif now - last.at > SILENT_SECONDS:
        missing.append(f"{about} is stalled: its last status is {now - last.at:,.0f} s old")
    elif last.oldest_seconds is not None and not last.oldest_seconds <= max_lag:
        missing.append(f"{about} is behind: the oldest open key was written {last.oldest_seconds:,.0f} s ago")
    elif last.verdict is Verdict.MISMATCH:
        missing.append(f"{about} is MISMATCH: {last.reason}")
    elif last.verdict is not Verdict.MATCH:
        open_.append(f"{about} is {last.verdict}: {last.reason}")
    return _condition("watch", missing, open_, f"{last.verdict} as of {last.as_of or 'its begin'}", do)


@dataclass(frozen=True, slots=True)
class LastProof:
    """The newest verification of all tables: ``began`` is Unix time, and no table was read before.

    ``differs`` are the runs that found tables to differ since the proof read them whole, the newest first;
    ``left_out`` says how many tables the configuration has compared in part, and how many it excludes. ``layouts``
    are the fingerprints of the tables' definitions as it read them, by ``endpoint/database.table``, and ``identities``
    which tables these names meant.
    """

    run_id: str
    verdict: Verdict
    began: float
    differs: tuple[str, ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    left_out: str = ""
    identities: Mapping[str, TableIdentity] = field(default_factory=dict)


def tables(
    newest: LastProof | None, now: Mapping[str, str], identities: Mapping[str, TableIdentity] | None = None
) -> Condition:
    """Judge whether a proof is of the tables that are there: it says nothing of a column that came or went since.

    Parameters
    ----------
    now
        Fingerprints of the definitions of now, as ``LastProof.layouts``.
    identities
        Which tables the names mean now, as ``LastProof.identities``: what was emptied, restored or swapped is defined
        as before, and its rows are others.
    """
    if newest is None:
        return Condition("tables", NOT_ASKED, _wants("tables"), "no verification of all tables is in the store")
    about, read, do = f"run {newest.run_id}", newest.layouts, "migverify tables verify"
    new = sorted(name for name in now.keys() - read.keys() if name.startswith("source"))
    if not read:
        return _condition("tables", (), [f"{about} kept no definitions"], about, do)
    changed = [f"{name} is gone since {about}" for name in sorted(read.keys() - now.keys())]
    others = sorted(name for name in read.keys() & now.keys() if read[name] != now[name])
    changed += [f"{name} is defined otherwise than {about} read it" for name in others]
    changed += [f"{name} is new since {about}" for name in new]
    as_before = {name: one for name, one in (identities or {}).items() if read.get(name) == now.get(name)}
    others = sorted(_replaced(newest.identities, as_before))
    replaced = [
        f"{name} was emptied, swapped, restored or rebuilt since {about}: its rows are not known" for name in others
    ]
    for some in (changed, replaced):
        if len(some) > _FEW:
            some[_FEW:] = [f"{len(some) - _FEW:,} more are"]
    return _condition("tables", changed, replaced, f"{len(read):,} definitions as {about} read them", do)


def _replaced(then: Mapping[str, TableIdentity], now: Mapping[str, TableIdentity]) -> Iterator[str]:
    """Yield the names that mean another table.

    A server that was made anew by the same script has the same ids: there every table is younger.
    """
    both = then.keys() & now.keys()
    kept = {name.partition("/")[0] for name in both if then[name].changed_at == now[name].changed_at}
    for name in both:
        if name.partition("/")[0] not in kept or then[name].is_replaced_by(now[name]):
            yield name


def proof(newest: LastProof | None, now: float, max_age: float) -> Condition:
    """Judge the newest verification of all tables of the configuration."""
    do = "migverify tables verify, or `--since` the last one"
    if newest is None:
        return _condition("proof", ["no verification of all tables is in the store"], (), "none", do)
    age, about = now - newest.began, f"run {newest.run_id}"
    differ = "tables differ in run {}"  # one reason, while that run goes on and after it: it is announced once
    if newest.verdict is Verdict.MISMATCH:
        return _condition("proof", [differ.format(newest.run_id)], (), about, "migverify tables verify")
    if newest.verdict is not Verdict.MATCH:
        return _condition("proof", (), [f"{about} is {newest.verdict}"], about, do)
    if newest.differs:
        about += ", which read them whole before"
        return _condition("proof", map(differ.format, newest.differs), (), about, "migverify tables verify")
    if ahead := _ahead(f"{about} began", age):
        return _condition("proof", (), [ahead], about, "Set the clocks right, then migverify tables verify.")
    late = [f"{about} is {age / DAY:.1f} days old, and at most {max_age / DAY:g} count"] if age > max_age else []
    left_out = f"; {newest.left_out}" if newest.left_out else ""
    return _condition("proof", late, (), f"{about}, {age / DAY:.1f} days old{left_out}", do)


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A binlog file of a source from which something goes on.

    Parameters
    ----------
    who
        What goes on from there: the watch, or the last proof.
    files
        The files that the server has, the oldest first.
    closed
        When the next file was begun, Unix time; None: it is the newest one, or that is not known.
    seconds
        How long files are kept; 0 for ever, None: not known.
    """

    source: str
    who: str
    file: str
    files: tuple[str, ...] = ()
    closed: float | None = None
    seconds: float | None = None
    problem: str = ""


def retention(places: Sequence[LogPlace], answers: Sequence[GuardAnswer], now: float, left: float = DAY) -> Condition:
    """Judge whether the binlog that watch or proof go on from is kept for a day more, and how long logs are kept."""
    settings = answered("retention", answers)
    missing, open_ = [], []
    for one in places:
        about = f"{one.source}: {one.file}, from which {one.who} goes on,"
        if one.problem:
            open_.append(f"{one.source}: whether the log of {one.who} is there is not known: {one.problem}")
        elif one.file not in one.files:
            missing.append(f"{about} is purged")
        elif one.file != one.files[-1]:
            if one.seconds is None or one.closed is None:
                open_.append(f"{about} is kept for a time that is not known")
            elif one.seconds and one.closed + one.seconds - now < left:
                hours = max(0.0, one.closed + one.seconds - now) / 3600
                missing.append(f"{about} is purged in {hours:.1f} h")
    if settings.state == MISSING:
        missing += settings.reasons
    elif settings.state == UNKNOWN:
        open_ += settings.reasons
    return _condition("retention", missing, open_, settings.found, settings.do or ANSWERED["retention"][2])


def retention_seconds(source: str, answers: Sequence[GuardAnswer]) -> float | None:
    """Return how long a source keeps its binlog by the answers about it: 0 for ever, None where that is not known."""
    values = {one.name.removeprefix("binlog "): one.value for one in answers if one.subject == source}
    if values.get("binlog_expire_logs_auto_purge") == "OFF":
        return 0.0
    for name, unit in (
        ("binlog retention hours", 3600.0),
        ("binlog_expire_logs_seconds", 1.0),
        ("expire_logs_days", DAY),
    ):
        try:
            return float(values[name]) * unit
        except (KeyError, ValueError):
            continue
    return None
