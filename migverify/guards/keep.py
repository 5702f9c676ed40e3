"""Answers of guards in the result store: every run keeps all of them, so that later runs can tell a trend.

A guard of a run is kept like a rule: one body, and one finding for each answer, by subject and name. A later answer of
the same run supersedes; one that is not given any more is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from migverify.errors import StoreError
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult, worst
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.store.results import RUNS_SEARCHED, ResultStore
from migverify.tables.run_facts import endpoint_addresses

PAGE = 1000
_SCOPE = "guard/"


def scope(guard: str) -> str:
    """Return the name under which a guard's answers are kept."""
    return _SCOPE + guard


def begin(store: ResultStore, command: str, guards: Sequence[str], facts: Mapping[str, Any]) -> str:
    """Begin a run of guards and return its id. ``command`` is the command line's text, without secrets."""
    return store.start_run(command, "", {"guards": list(guards)}, dict(facts), kind=StoredKind.GUARDS)


class GuardRecorder:
    """Writes the answers of one run: all of the first asking, then what changed.

    Parameters
    ----------
    run_id
        A run that ``begin`` made.
    """

    def __init__(self, store: ResultStore, run_id: str) -> None:
        self._store, self.run_id = store, run_id
        self._known: dict[str, dict[tuple[str, str], tuple[AnswerState, str]]] = {}

    def add(self, result: GuardResult) -> list[GuardAnswer]:
        """Keep an asking; return the answers whose state or value is new since the one before, all at first."""
        known = self._known.setdefault(result.guard, {})
        reported = {(answer.subject, answer.name): answer for answer in result.answers}
        new = [answer for key, answer in reported.items() if known.get(key) != (answer.state, answer.value)]
        gone = [key for key in known if key not in reported]
        findings = [_finding(answer) for answer in new]
        findings += [{"key": list(key), "window": "", "kind": ""} for key in gone]
        body = {"window": "", "state": result.state.value, "started": result.started, "seconds": result.seconds,
                "unasked": list(result.unasked), "facts": dict(result.facts), "answers": len(reported)}  # fmt: skip
        self._store.add_window(self.run_id, scope(result.guard), body, findings)
        for key in gone:
            del known[key]
        known.update({key: (answer.state, answer.value) for key, answer in reported.items()})
        return new

    def finish(self, results: Sequence[GuardResult], facts: Mapping[str, Any] | None = None) -> Verdict:
        """End the run with the worst verdict of the last asking of each guard, and return it."""
        verdict = worst(results)
        reasons = [reason for result in results for reason in result.reasons]
        self._store.finish_run(self.run_id, verdict, {**(facts or {}), "reasons": reasons})
        return verdict


def _finding(answer: GuardAnswer) -> dict[str, Any]:
    return {"key": [answer.subject, answer.name], "window": "", "kind": answer.state.value, **answer.as_json()}


def guards_of(info: RunInfo) -> list[str]:
    """Return the guards a run asked; none for a run of another kind."""
    named = info.plan.get("guards")
    return [str(name) for name in named] if isinstance(named, list) else []


def body(store: ResultStore, run_id: str, guard: str) -> dict[str, Any] | None:
    """Return the last body of a guard in a run: state, seconds, what was not asked; None where it never answered."""
    found = None
    for found in store.windows(run_id, scope(guard)):  # noqa: B007 - the last one counts
        pass
    return found


def answers(store: ResultStore, run_id: str, guard: str) -> Iterator[GuardAnswer]:
    """Yield the last answers of a guard in a run, streamed."""
    after = 0
    while page := store.findings(run_id, scope(guard), after=after, limit=PAGE):
        for number, finding in page:
            after = number
            yield _answer(finding)
        if len(page) < PAGE:
            return


def earlier(store: ResultStore, guard: str, servers: Mapping[str, str]) -> Iterator[RunInfo]:
    """Yield runs that asked a guard of these servers, the newest first; runs of other servers may share the store.

    ``servers`` are their addresses by the names of the endpoints (``Scope.servers``).
    """
    for info in store.runs(RUNS_SEARCHED):
        if info.kind is not StoredKind.GUARDS or not servers.items() <= endpoint_addresses(info.facts).items():
            continue
        if guard in guards_of(whole := store.load_run(info.run_id)):
            yield whole


def history(store: ResultStore, guard: str, servers: Mapping[str, str], runs: int = 60) -> Iterator[GuardAnswer]:
    """Yield the answers of the newest runs that asked a guard of these servers, the newest run first."""
    for info in islice(earlier(store, guard, servers), runs):
        yield from answers(store, info.run_id, guard)


def _answer(finding: Mapping[str, Any]) -> GuardAnswer:
    try:
        return GuardAnswer(
            guard=finding["guard"], name=finding["name"], subject=finding["subject"],
            state=AnswerState(finding["state"]),
            value=finding["value"], threshold=finding["threshold"], query=finding["query"], why=finding["why"],
            todo=finding["todo"], server_time=finding["server_time"], local_time=finding["local_time"],
            numbers=finding["numbers"],
        )  # fmt: skip
    except (KeyError, ValueError) as error:
        raise StoreError(
            f"an answer of a guard in the store cannot be read: {error!r}",
            hint="Another version of migverify wrote it: read it with that one.",
        ) from error
