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
        wanted, here = self.settings, self.settings.prometheus or ""
        age = f"not older than {wanted.max_age_seconds:g} s"
        yield GuardQuestion(
            "clock",
            f"at most {wanted.max_offset_seconds:g} s apart",
            prometheus.request("query", query="time()"),
            "Ages are measured by its clock.",
            subject=here,
            ask=judge.clock,
        )
        yield GuardQuestion(
            "server",
            "configuration loaded, no data lost",
            prometheus.request("status/runtimeinfo"),
            "An old configuration scrapes and alerts what used to be.",
            subject=here,
            ask=judge.server,
        )
        yield GuardQuestion(
            "retention",
            f"at least {wanted.retention_hours:g} h",
            prometheus.request("status/runtimeinfo"),
            "What happened in a step must still be there when it is needed.",
            subject=here,
            ask=judge.retention,
        )
        yield GuardQuestion(
            "rules",
            f"every group evaluated, {age}",
            prometheus.request("rules"),
            "A rule that is not evaluated alerts nobody, and nobody notices.",
            subject=here,
            ask=judge.rules,
        )
        if wanted.watchdog is not None:
            yield GuardQuestion(
                "watchdog",
                f"firing, {age}",
                prometheus.request("rules", type="alert"),
                "It fires for as long as alerts are evaluated at all.",
                subject=wanted.watchdog,
                ask=judge.watchdog,
            )
        if wanted.heartbeat is not None:
            yield GuardQuestion(
                "heartbeat",
                age,
                prometheus.request("query", query=wanted.heartbeat),
                "It shows the whole way: scraped, stored, and read again.",
                subject=wanted.heartbeat,
                ask=judge.heartbeat,
            )
        if wanted.watchdog is None and wanted.heartbeat is None:
            yield GuardQuestion(
                "watchdog",
                "an alert that always fires, or a heartbeat",
                "",
                _BLIND,
                subject=here,
                ask=_no_dead_man,
                todo="Name one: monitors.watchdog or monitors.heartbeat.",
            )
        if not wanted.jobs and not wanted.series:
            yield GuardQuestion(
                "targets",
                "the targets that must be there",
                "",
                _BLIND,
                subject=here,
                ask=_nothing_expected,
                todo="List them under monitors.jobs: a target that vanished is on no other list.",
            )
        for name, job in wanted.jobs.items():
            yield GuardQuestion(
                "targets",
                f"{job.count} up, not older than {wanted.max_age_of(job):g} s",
                prometheus.request("query", query=f'up{{job="{name}"}}'),
                _BLIND,
                subject=name,
                ask=partial(judge.targets, name=name, job=job),
            )
        for name, series in wanted.series.items():
            bounds = _bounds(series.min, series.max)
            age = f"not older than {wanted.max_age_of(series):g} s"
            yield GuardQuestion(
                "value",
                f"{bounds}, at least {series.series} series, {age}",
                prometheus.request("query", query=series.query),
                _BLIND,
                subject=name,
                ask=partial(judge.series, wanted=series),
            )


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
