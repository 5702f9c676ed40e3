"""What is the same in the report of every kind of run: verdict, reasons, facts of the run and of its endpoints.

Facts of a run that are shown in a place of their own: ``engine``, ``seconds``, ``reasons`` (a list of texts:
why the run as a whole has its verdict), ``excluded`` (among what is not covered) and ``endpoints``, a mapping from
endpoint name to its facts (``flavor``, ``version``, ``position`` ...). All others are listed as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migverify.errors import ExitCode
from migverify.exposition import Metric, Sample, number
from migverify.figures import seconds as seconds_text
from migverify.figures import utc
from migverify.model import RunInfo, TableResult, Verdict
from migverify.report.model import Audience, Fact, FactList, Section
from migverify.secrets import hide_logins
from migverify.tables.run_facts import EXCLUDED

_TIME_NAME = re.compile(r"(^|[ ._])(at|time|taken|since|until|started|finished)$")
_FIRST_TIME, _LAST_TIME = 1e9, 1e10
_SECRET_NAME = re.compile(r"^(.*[._-])?(password|passwd|pwd|secret|token)$", re.IGNORECASE)
_LONG_FACTS = frozenset({"session", "max_allowed_packet", "connections", "clock", "layout", "identity", "server"})
_SHOWN_APART = frozenset({"engine", "seconds", "reasons", "endpoints", EXCLUDED})


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What the run recorded of one endpoint."""

    name: str
    facts: tuple[Fact, ...]

    @property
    def brief(self) -> tuple[Fact, ...]:
        """The facts that fit beside the verdict; the others are long, or of interest to few."""
        return tuple(fact for fact in self.facts if fact.name not in _LONG_FACTS)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run. ``seconds`` None: the end of the run is not known.

    ``reasons`` tell why the run's verdict is what it is where its results alone do not tell it.
    """

    run_id: str
    verdict: Verdict
    reasons: tuple[str, ...]
    command: str
    started: float
    finished: float | None
    seconds: float | None
    plan_hash: str
    engine: str
    facts: tuple[Fact, ...]
    endpoints: tuple[EndpointFacts, ...]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of its verdict."""
        return self.verdict.exit_code

    def cards(self, *more: Fact) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
        """Return what is beside the verdict: the run, then its endpoints; facts that it does not have are left out."""
        engine = (Fact("engine", self.engine),) if self.engine != NOT_RECORDED else ()
        plan = (Fact("plan", self.plan_hash),) if self.plan_hash else ()
        own = (
            Fact("run", self.run_id), Fact("command", self.command or NOT_RECORDED), Fact("started", utc(self.started)),
            Fact("seconds", seconds_text(self.seconds)), *engine, *more, *plan,
            Fact("exit code", str(int(self.exit_code))),
        )  # fmt: skip
        return (("run", own), *((endpoint.name, endpoint.brief) for endpoint in self.endpoints))

    def section(self, *more: Fact) -> Section:
        """Return all other facts of the run: a page has them, a terminal would scroll its verdict away."""
        listed = [Fact("finished", utc(self.finished)), *more]
        for endpoint in self.endpoints:
            long = (fact for fact in endpoint.facts if fact not in endpoint.brief)
            listed += [Fact(f"{endpoint.name}: {fact.name}", fact.value) for fact in long]
        return Section("Facts of the run", (FactList((*listed, *self.facts)),), id="facts", shown=Audience.PAGE)

    def metrics(self, info: Mapping[str, str]) -> Iterator[Metric]:
        """Yield the gauges of every run. Its id is a label of one of them only, or each run would be a new series."""
        labels = {"run_id": self.run_id, "command": self.command, "engine": self.engine, **info, "plan": self.plan_hash}
        yield Metric("migverify_run_info", "Facts of the run; always 1.", [(labels, "1")])
        yield Metric("migverify_run_verdict", "1 for the verdict of the run, 0 for the others.",
                     verdict_samples({}, self.verdict))  # fmt: skip
        yield Metric("migverify_run_exit_code", "0 match, 1 mismatch, 3 inconclusive.",
                     [({}, number(int(self.exit_code)))])  # fmt: skip
        for name, text, value in (
            ("seconds", "Working time of the run; NaN while its end is not known.", self.seconds),
            ("started_timestamp_seconds", "Unix time of the start.", self.started),
            ("finished_timestamp_seconds", "Unix time of the end; NaN without one.", self.finished),
        ):
            yield Metric(f"migverify_run_{name}", text, [({}, number(value))])


NOT_RECORDED = "not recorded"


def verdict_samples(labels: Mapping[str, str], verdict: Verdict) -> list[Sample]:
    """Return a sample for each verdict: 1 for the one that holds."""
    return [({**labels, "verdict": str(each)}, number(float(each is verdict))) for each in Verdict]


def run_facts(info: RunInfo, results: Sequence[TableResult], stored: int) -> RunFacts:
    """Return what is known of a run.

    Parameters
    ----------
    results
        What it has a result of, and what it has planned without one.
    stored
        How many of them are in the store.
    """
    verdict, reasons = _verdict(info, results, stored)
    return RunFacts(
        info.run_id, verdict, reasons, redact(info.command), info.started, info.finished, _seconds(info),
        info.plan_hash, _text(info.facts.get("engine")), tuple(_facts(_other_facts(info.facts))),
        tuple(_endpoints(info.facts)),
    )  # fmt: skip


def _verdict(info: RunInfo, results: Sequence[TableResult], stored: int) -> tuple[Verdict, tuple[str, ...]]:
    """Take the stored verdict, unless it claims more than the store holds: then INCONCLUSIVE, and why."""
    reasons = [text for text in as_list(info.facts.get("reasons")) if text]
    if info.finished is None:
        mismatches = sum(1 for result in results if result.verdict is Verdict.MISMATCH)
        reasons.insert(0, f"the run has no end: it was cut off or still goes on (table pairs with a result: {stored})")
        if mismatches:
            reasons.append(f"table pairs that are MISMATCH already: {mismatches}")
        return Verdict.INCONCLUSIVE, tuple(reasons)
    worst = Verdict.worst([result.verdict for result in results])
    if info.verdict is Verdict.MATCH and worst is not Verdict.MATCH:
        what = "it holds no table results" if not results else f"its table results say {worst}"
        return Verdict.INCONCLUSIVE, (f"the store contradicts itself: the run is MATCH, but {what}", *reasons)
    return info.verdict, tuple(reasons)


def _seconds(info: RunInfo) -> float | None:
    stated = info.facts.get("seconds")
    if isinstance(stated, int | float) and not isinstance(stated, bool):
        return float(stated)  # a resumed run counts its working time, not the pause between
    return None if info.finished is None else info.finished - info.started


def redact(text: str) -> str:
    """Withhold a password inside a URL. Nothing should store one; a report is the last place to stop it."""
    return hide_logins(text)


def _facts(facts: Mapping[str, Any], prefix: str = "") -> Iterator[Fact]:
    for name, value in facts.items():
        full = f"{prefix}{name}"
        if _SECRET_NAME.match(full):
            yield Fact(full, "(withheld)")
        elif isinstance(value, Mapping) and value:
            yield from _facts(value, f"{full}.")
        elif _TIME_NAME.search(name) and isinstance(value, int | float) and _FIRST_TIME < value < _LAST_TIME:
            yield Fact(full, utc(value))
        else:
            yield Fact(full, redact(_text(value)))


def _other_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is shown in a place of its own; ``endpoints`` only when it has the form for it."""
    shown = _SHOWN_APART if isinstance(facts.get("endpoints"), Mapping) else _SHOWN_APART - {"endpoints"}
    return {name: value for name, value in facts.items() if name not in shown}


def _endpoints(facts: Mapping[str, Any]) -> Iterator[EndpointFacts]:
    endpoints = facts.get("endpoints")
    for name, value in endpoints.items() if isinstance(endpoints, Mapping) else ():
        inner = value if isinstance(value, Mapping) else {"version": value}
        known = {fact: text for fact, text in inner.items() if text != ""}  # empty: this kind of run does not have it
        yield EndpointFacts(str(name), tuple(_facts(known)))


def _text(value: object) -> str:
    if value is None or value == "":
        return NOT_RECORDED
    if isinstance(value, list | tuple | dict):
        return ", ".join(_text(item) for item in value) or "none"
    return str(value)


def as_list(value: object) -> list[Any]:
    """Return a stored list; one value as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
