"""The guard of monitors: does Prometheus see what it is expected to see, now? Asked from outside of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from migverify.config import MonitorSettings
from migverify.errors import ReadError
from migverify.guards import monitors_judge as judge
from migverify.guards.fallback import Fallback
from migverify.guards.model import AnswerState, CheckResult, GuardAnswer, GuardQuestion, GuardResult, unknown, warned
from migverify.guards.monitors_model import NAME, PrometheusFacts
from migverify.guards.prometheus import Prometheus, PrometheusLogin

_BLIND = "What is not seen is not known: nobody goes on while the monitoring is blind."


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
    login: PrometheusLogin = field(default_factory=PrometheusLogin)
    fallback: Fallback | None = None
    always: bool = False
    now: Callable[[], float] = time.time
    name: str = NAME

    def ask(self) -> GuardResult:
        """Ask now. A Prometheus that does not answer makes every answer INCONCLUSIVE."""
        started = self.now()
        prometheus = Prometheus(self.settings.prometheus or "", self.settings.timeout_seconds, self.login)
        asking = PrometheusFacts(self.settings, prometheus, self.now)
        answers = [answer for question in self._questions(prometheus) for answer in _answers(question, asking)]
        unasked: list[str] = []
        if self.fallback is not None and (self.always or any(a.state is AnswerState.INCONCLUSIVE for a in answers)):
            found, unasked = self.fallback.ask()
            answers += found
        if self.fallback is not None:
            self.fallback.forget_old()
        facts = {"prometheus": self.settings.prometheus, "silent": prometheus.silent}
        return GuardResult(NAME, tuple(answers), started, self.now() - started, tuple(unasked), facts)

    def _questions(self, prometheus: Prometheus) -> Iterator[GuardQuestion[PrometheusFacts]]:
        wanted, here, request = self.settings, self.settings.prometheus or "", prometheus.request
        age = f"not older than {wanted.max_age_seconds:g} s"
        yield GuardQuestion(
            "clock", f"at most {wanted.max_offset_seconds:g} s apart", request("query", query="time()"),
            "Ages are measured by its clock.", "", judge.clock, here,
        )  # fmt: skip
        yield GuardQuestion(
            "server", "configuration loaded, no data lost", request("status/runtimeinfo"),
            "An old configuration scrapes and alerts what used to be.", "", judge.server, here,
        )  # fmt: skip
        yield GuardQuestion(
            "retention", f"at least {wanted.retention_hours:g} h", request("status/runtimeinfo"),
            "What happened in a step must still be there when it is needed.", "", judge.retention, here,
        )  # fmt: skip
        yield GuardQuestion(
            "rules", f"every group evaluated, {age}", request("rules"),
            "A rule that is not evaluated alerts nobody, and nobody notices.", "", judge.rules, here,
        )  # fmt: skip
        yield from self._dead_man(prometheus, age)
        if not wanted.jobs and not wanted.series:
            yield GuardQuestion(
                "targets", "the targets that must be there", "", _BLIND,
                "List them under monitors.jobs: a target that vanished is on no other list.", _nothing_expected, here,
            )  # fmt: skip
        for name, job in wanted.jobs.items():
            yield GuardQuestion(
                "targets", f"{job.count} up, not older than {wanted.max_age_of(job):g} s",
                request("query", query=f'up{{job="{name}"}}'), _BLIND, "", partial(judge.targets, name=name, job=job),
                name,
            )  # fmt: skip
        for name, series in wanted.series.items():
            bounds, oldest = _bounds(series.min, series.max), wanted.max_age_of(series)
            yield GuardQuestion(
                "value", f"{bounds}, at least {series.series} series, not older than {oldest:g} s",
                request("query", query=series.query), _BLIND, "", partial(judge.series, wanted=series), name,
            )  # fmt: skip

    def _dead_man(self, prometheus: Prometheus, age: str) -> Iterator[GuardQuestion[PrometheusFacts]]:
        """Yield what shows that alerts are evaluated at all."""
        watchdog, heartbeat = self.settings.watchdog, self.settings.heartbeat
        if watchdog is not None:
            yield GuardQuestion(
                "watchdog", f"firing, {age}", prometheus.request("rules", type="alert"),
                "It fires for as long as alerts are evaluated at all.", "", judge.watchdog, watchdog,
            )  # fmt: skip
        if heartbeat is not None:
            yield GuardQuestion(
                "heartbeat", age, prometheus.request("query", query=heartbeat),
                "It shows the whole way: scraped, stored, and read again.", "", judge.heartbeat, heartbeat,
            )  # fmt: skip
        if watchdog is None and heartbeat is None:
            yield GuardQuestion(
                "watchdog", "an alert that always fires, or a heartbeat", "", _BLIND,
                "Name one: monitors.watchdog or monitors.heartbeat.", _no_dead_man, self.settings.prometheus or "",
            )  # fmt: skip


def _no_dead_man(asking: PrometheusFacts) -> Iterator[CheckResult]:
    del asking
    yield warned("none is named: that alerts are evaluated is shown by the state of the rules alone")


def _nothing_expected(asking: PrometheusFacts) -> Iterator[CheckResult]:
    del asking
    yield unknown("blind: nothing is expected, so nothing can be missed")


def _bounds(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return f"at least {low:g}" if low is not None else f"at most {high:g}" if high is not None else "known"


def _answers(question: GuardQuestion[PrometheusFacts], asking: PrometheusFacts) -> Sequence[GuardAnswer]:
    try:
        reported = list(question.ask(asking)) if question.ask is not None else []
    except ReadError as error:
        reported = [unknown(f"blind: {error.message}", error.hint)]
    except (KeyError, TypeError, ValueError) as error:
        # Another kind of server answers there: what it says is no fact about the monitoring.
        reported = [unknown(f"blind: the answer is in a form that is not known ({type(error).__name__})")]
    moment = asking.__dict__.get("moment")
    clock = None if moment is None else moment.time
    return [question.answer(NAME, one, server_time=clock, local_time=asking.now()) for one in reported]
