"""The guard of monitors: does Prometheus see what it is expected to see, now? Asked from outside of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from migverify.config import MonitorSettings
from migverify.errors import ReadError
from migverify.guards import monitors_judge as judge
from migverify.guards.fallback import Fallback
from migverify.guards.model import Answer, GuardResult, State
from migverify.guards.monitors_model import NAME, Asking, Told
from migverify.guards.prometheus import Login, Prometheus

_BLIND = "What is not seen is not known: nobody goes on while the monitoring is blind."


@dataclass(frozen=True, slots=True)
class _Question:
    """One question: what it is called, of what, what is wanted, the request that shows it, and who judges."""

    name: str
    subject: str
    threshold: str
    request: str
    why: str
    ask: Callable[[Asking], Iterable[Told]]
    todo: str = ""


@dataclass(slots=True)
class MonitorsGuard:
    """Asks Prometheus for everything that the configuration expects of it.

    Parameters
    ----------
    settings
        What is expected; ``prometheus`` is set.
    login
        How to authenticate there.
    fallback
        Asks the servers themselves for the values that gates need, where an answer is blind; None asks nobody.
    always
        Asks them in any case.
    """

    settings: MonitorSettings
    login: Login = field(default_factory=Login)
    fallback: Fallback | None = None
    always: bool = False
    now: Callable[[], float] = time.time
    name: str = NAME

    def ask(self) -> GuardResult:
        """Ask now. A Prometheus that does not answer makes every answer INCONCLUSIVE."""
        started = self.now()
        prometheus = Prometheus(self.settings.prometheus or "", self.settings.timeout_seconds, self.login)
        asking = Asking(self.settings, prometheus, self.now)
        answers = [answer for question in self._questions(prometheus) for answer in _answers(question, asking)]
        unasked: list[str] = []
        if self.fallback is not None and (self.always or any(a.state is State.INCONCLUSIVE for a in answers)):
            found, unasked = self.fallback.ask()
            answers += found
        if self.fallback is not None:
            self.fallback.forget_old()
        facts = {"prometheus": self.settings.prometheus, "silent": prometheus.silent}
        return GuardResult(NAME, tuple(answers), started, self.now() - started, tuple(unasked), facts)

    def _questions(self, prometheus: Prometheus) -> Iterator[_Question]:
        wanted, here = self.settings, self.settings.prometheus or ""
        age = f"not older than {wanted.max_age_seconds:g} s"
        yield _Question("clock", here, f"at most {wanted.max_offset_seconds:g} s apart",
                        prometheus.request("query", query="time()"),
                        "Ages are told by its clock.", judge.clock)  # fmt: skip
        yield _Question("server", here, "configuration loaded, no data lost", prometheus.request("status/runtimeinfo"),
                        "An old configuration scrapes and alerts what used to be.", judge.server)  # fmt: skip
        yield _Question("retention", here, f"at least {wanted.retention_hours:g} h",
                        prometheus.request("status/runtimeinfo"),
                        "What happened in a step must still be there when asked for.", judge.retention)  # fmt: skip
        yield _Question("rules", here, f"every group evaluated, {age}", prometheus.request("rules"),
                        "A rule that is not evaluated alerts nobody, and nobody notices.", judge.rules)  # fmt: skip
        if wanted.watchdog is not None:
            yield _Question("watchdog", wanted.watchdog, f"firing, {age}", prometheus.request("rules", type="alert"),
                            "It fires for as long as alerts are evaluated at all.", judge.watchdog)  # fmt: skip
        if wanted.heartbeat is not None:
            yield _Question("heartbeat", wanted.heartbeat, age, prometheus.request("query", query=wanted.heartbeat),
                            "It shows the whole way: scraped, stored, and read again.", judge.heartbeat)  # fmt: skip
        if wanted.watchdog is None and wanted.heartbeat is None:
            yield _Question("watchdog", here, "an alert that always fires, or a heartbeat", "", _BLIND, _no_dead_man,
                            "Name one: monitors.watchdog or monitors.heartbeat.")  # fmt: skip
        if not wanted.jobs and not wanted.series:
            yield _Question("targets", here, "the targets that must be there", "", _BLIND, _nothing_expected,
                            "List them under monitors.jobs: a target that vanished is on no other list.")  # fmt: skip
        for name, job in wanted.jobs.items():
            yield _Question("targets", name, f"{job.count} up, not older than {wanted.max_age_of(job):g} s",
                            prometheus.request("query", query=f'up{{job="{name}"}}'), _BLIND,
                            partial(judge.targets, name=name, job=job))  # fmt: skip
        for name, series in wanted.series.items():
            bounds = _bounds(series.min, series.max)
            age = f"not older than {wanted.max_age_of(series):g} s"
            yield _Question("value", name, f"{bounds}, at least {series.series} series, {age}",
                            prometheus.request("query", query=series.query), _BLIND,
                            partial(judge.series, wanted=series))  # fmt: skip


def _no_dead_man(asking: Asking) -> Iterator[Told]:
    del asking
    yield Told(State.WARN, "none is named: that alerts are evaluated is told by the state of the rules alone")


def _nothing_expected(asking: Asking) -> Iterator[Told]:
    del asking
    yield Told(State.INCONCLUSIVE, "blind: nothing is expected, so nothing can be missed")


def _bounds(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return f"at least {low:g}" if low is not None else f"at most {high:g}" if high is not None else "known"


def _answers(question: _Question, asking: Asking) -> Sequence[Answer]:
    try:
        told = list(question.ask(asking))
    except ReadError as error:
        told = [Told(State.INCONCLUSIVE, f"blind: {error.message}", todo=error.hint)]
    except (KeyError, TypeError, ValueError) as error:
        # Another kind of server answers there: what it says is no fact about the monitoring.
        told = [Told(State.INCONCLUSIVE, f"blind: the answer is in a form that is not known ({type(error).__name__})")]
    moment = asking.__dict__.get("moment")
    return [
        Answer(
            NAME, question.name, question.subject, one.state, one.value, one.threshold or question.threshold,
            one.query or question.request, question.why, one.todo or ("" if one.state is State.PASS else question.todo),
            None if moment is None else moment.time, asking.now(), one.numbers,
        )
        for one in told
    ]  # fmt: skip
