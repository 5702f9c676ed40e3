"""How long each cutover takes, and whether the services of a wave fit into its window: from the drills of all services.

A step is measured by every drill, of any service, that ran the same definition of it: parameters that name the service
do not count. With fewer than two measurements the author's plan counts. Steps are drawn independently of each other,
by a generator with a fixed seed: the same journals give the same figures.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migverify.decision.decide import age_text
from migverify.errors import MigverifyError
from migverify.figures import amount
from migverify.figures import duration as duration_text
from migverify.fleet.definition import FleetWave
from migverify.fleet.model import ServiceStanding
from migverify.fleet.read import ServiceView
from migverify.fleet.read_journals import ServiceJournals, is_of_the_night
from migverify.model import Verdict
from migverify.runbook.definition.forecast import ENOUGH_DRILLS, duration_of, quantile
from migverify.runbook.definition.plan import applies
from migverify.runbook.history.past import drill_seconds
from migverify.runbook.kinds import RunKind, StepKind
from migverify.secrets import scrub_sentence

SAMPLES = 300
SEED = 20_261
_NAMED = 3


@dataclass(frozen=True, slots=True)
class RunbookForecast:
    """How long a cutover takes, seconds; None: not known, as ``unknown`` steps have neither a drill nor a plan.

    ``drills`` counts the measurements of the step that has the fewest, 0 where some step has a plan alone.
    """

    p50: float | None
    p90: float | None
    drills: int
    unknown: tuple[str, ...] = ()
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class WaveForecast:
    """How long the cutovers of a wave take together; ``finding``: what is wrong, empty: nothing.

    ``fits`` None: not known. ``is_over``: its window has closed, and services of it are not cut over.
    """

    wave: FleetWave
    p50: float | None
    p90: float | None
    fits: bool | None
    finding: str = ""
    is_over: bool = False

    @property
    def verdict(self) -> Verdict:
        """MATCH where the cutovers fit into a window that is not over."""
        if self.is_over or self.fits is False:
            return Verdict.MISMATCH
        return Verdict.INCONCLUSIVE if self.fits is None else Verdict.MATCH


def runbook_forecasts(views: Sequence[ServiceView]) -> dict[str, RunbookForecast]:
    """Return the forecast of each service whose runbook and journals can be read, by its name."""
    pool = _measured(views)
    known: dict[object, RunbookForecast] = {}
    found = {}
    for view in views:
        if view.journals is None:
            continue
        key = _key(view.journals)
        if key not in known:
            known[key] = _forecast(view.journals, pool)
        found[view.service.name] = known[key]
    return found


def _measured(views: Sequence[ServiceView]) -> dict[str, list[float]]:
    """Return how long each shape of a step took, in all drills of all services; each drill is counted once."""
    pool: dict[str, dict[tuple[str, str], float]] = {}
    for journals in (view.journals for view in views if view.journals is not None):
        for run in journals.past:
            for drill in drill_seconds([run], journals.runbook):
                for step, seconds in drill.items():
                    # Services that share a runbook share its drills.
                    pool.setdefault(journals.shapes[step], {})[run.run, step] = seconds
    return {shape: list(values.values()) for shape, values in pool.items()}


def _key(journals: ServiceJournals) -> object:
    book = journals.runbook
    steps = tuple((journals.shapes[s.id], s.times.plan, applies(s, book.environment, RunKind.LIVE)) for s in book.steps)
    return book.environment, steps


def _forecast(journals: ServiceJournals, pool: Mapping[str, list[float]]) -> RunbookForecast:
    book = journals.runbook
    choices: list[list[float]] = []
    unknown, fewest = [], []
    for step in book.steps:
        values = pool.get(journals.shapes[step.id], [])
        is_measured = len(values) >= ENOUGH_DRILLS or (values and step.times.plan is None)
        is_said = step.kind is StepKind.ANNOUNCE and step.times.plan is None  # to announce something takes no time
        plan = [0.0] if is_said else [step.times.plan] if step.times.plan is not None else []
        choices.append(values if is_measured else plan or [0.0])
        if applies(step, book.environment, RunKind.LIVE):
            fewest.append(len(values) if is_measured else 0)
            if not is_measured and not plan:
                unknown.append(step.id)
    try:
        duration = duration_of(book, RunKind.LIVE)
    except MigverifyError as error:
        return RunbookForecast(None, None, 0, (error.message,))
    draw = random.Random(SEED)
    samples = tuple(duration([draw.choice(some) for some in choices]) for _ in range(SAMPLES))
    if unknown or not fewest:
        return RunbookForecast(None, None, 0, tuple(unknown) or ("no step applies",))
    return RunbookForecast(quantile(samples, 0.5), quantile(samples, 0.9), min(fewest), (), samples)


def wave_forecasts(
    waves: Sequence[FleetWave], views: Sequence[ServiceView], forecasts: Mapping[str, RunbookForecast], now: float
) -> list[WaveForecast]:
    """Return whether the services of each wave that are not cut over fit into its window, in the order of the waves."""
    return [_wave(wave, [view for view in views if view.service.wave == wave.name], forecasts, now) for wave in waves]


def _wave(
    wave: FleetWave, views: Sequence[ServiceView], forecasts: Mapping[str, RunbookForecast], now: float
) -> WaveForecast:
    left = [view.service.name for view in views if view.state.standing is not ServiceStanding.CUT_OVER]
    if not left:
        return WaveForecast(wave, 0.0, 0.0, True)
    known = [name for name in left if (found := forecasts.get(name)) is not None and found.p90 is not None]
    gone = {view.service.name: _running(view, wave, now) for view in views}
    samples = {name: tuple(one - gone[name] for one in forecasts[name].samples if one > gone[name]) for name in known}
    known = [name for name in known if samples[name]]
    draw = random.Random(SEED)
    sums = [makespan([draw.choice(samples[name]) for name in known], wave.parallel) for _ in range(SAMPLES)]
    p50, p90 = quantile(sums, 0.5), quantile(sums, 0.9)
    is_over = now >= wave.window.closes
    room = wave.window.duration if is_over else wave.window.closes - max(now, wave.window.opens)
    fits = p90 <= room
    findings = [] if fits else [_too_long(wave, len(known), p50, p90, room)]
    if unknown := [name for name in left if name not in known]:
        names = ", ".join(unknown[:_NAMED]) + (f" and {len(unknown) - _NAMED:,} more" if unknown[_NAMED:] else "")
        first = next(view for view in views if view.service.name == unknown[0])
        why = _why_unknown(first, forecasts.get(unknown[0]), gone[unknown[0]])
        findings.append(f"it is not known how long the cutover of {names} takes ({unknown[0]}: {why})")
    if is_over:
        ago = age_text(now - wave.window.closes)
        findings.insert(0, f"its window closed {ago} ago, and {amount(len(left), 'service')} of it "
                           f"{'is' if len(left) == 1 else 'are'} not cut over")  # fmt: skip
    finding = "; ".join(findings)
    if unknown:  # those that are known are too long already, or nothing can be said
        return WaveForecast(wave, None, None, None if fits else False, finding, is_over)
    return WaveForecast(wave, p50, p90, fits, finding, is_over)


def _running(view: ServiceView, wave: FleetWave, now: float) -> float:
    """Return for how many seconds the cutover of a service goes on in the window of its wave; 0: it does not.

    The last run of the night alone: one before it that has no end was left, and says nothing of the one that goes on.
    """
    if view.journals is None:
        return 0.0
    last = [run for run in view.journals.past if is_of_the_night(run, view.journals.runbook)][-1:]
    begun = [run.started for run in last if run.kind is RunKind.LIVE and run.ended is None]
    return max((now - one for one in begun if wave.window.opens <= one <= now), default=0.0)


def _why_unknown(view: ServiceView, forecast: RunbookForecast | None, gone: float) -> str:
    if forecast is not None and forecast.samples and gone:
        return f"it goes on for {duration_text(gone)}, longer than in any drill or plan: is its run left?"
    if forecast is not None and forecast.unknown:
        return f"neither a plan nor a drill says it of {', '.join(forecast.unknown[:_NAMED])}"
    if view.runbook_problem:
        return scrub_sentence(view.runbook_problem)
    return "no runbook is named" if view.service.runbook is None else "its runbook is not read"


def _too_long(wave: FleetWave, count: int, p50: float, p90: float, room: float) -> str:
    how = "one after the other" if wave.parallel == 1 else f"{wave.parallel} at a time"
    cutovers = "1 cutover takes" if count == 1 else f"{count:,} cutovers, {how}, take"
    return (
        f"{cutovers} {duration_text(p90)} at p90 ({duration_text(p50)} at p50), and the window has"
        f" {duration_text(room)}{'' if room == wave.window.duration else ' left'}"
    )


def makespan(durations: Sequence[float], parallel: int) -> float:
    """Return when all are over, where the next one begins as soon as fewer than ``parallel`` run."""
    ends = [0.0] * max(1, min(parallel, len(durations)))
    for seconds in durations:
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)
