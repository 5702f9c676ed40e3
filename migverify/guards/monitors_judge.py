"""Questions of the guard of monitors. Whatever is absent, stale, NaN or partial is *blind*, never fine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from migverify.config import ExpectedJob, ExpectedSeries
from migverify.errors import ReadError
from migverify.guards.model import AnswerState, CheckResult, failed, listed, offset_state, passed, unknown, warned
from migverify.guards.monitors_model import PrometheusFacts, ScrapeTarget
from migverify.guards.prometheus import Sample, known
from migverify.guards.promql import Selector, seconds, selectors

_ROUND = 1.5
"""A sample or an evaluation may be so many of its own intervals old before the age is judged."""

_FILLED = 0.75
"""A window with a smaller share of its samples is partial: what is computed over it is a guess."""


def _listed(names: list[str]) -> str:
    return listed(names, 5, "; ")


def clock(asking: PrometheusFacts) -> Iterator[CheckResult]:
    """Judge Prometheus' clock against the one here."""
    moment, most = asking.moment, asking.settings.max_offset_seconds
    value = f"{moment.offset:+.3f} s, known to within {moment.error:.3f} s"
    numbers = {"offset_seconds": moment.offset, "uncertainty_seconds": moment.error}
    state = offset_state(moment.offset, moment.error, most)
    if state is AnswerState.FAIL:
        yield failed(value, "Let both machines follow the same NTP servers.", numbers=numbers)
    elif state is AnswerState.INCONCLUSIVE:
        yield unknown(f"blind: {value}: the answer came too slowly to tell", numbers=numbers)
    else:
        yield passed(value, numbers=numbers)


def server(asking: PrometheusFacts) -> Iterator[CheckResult]:
    """Judge the server's own state: a configuration that was refused, or data that was damaged."""
    info = _info(asking)
    refused, damaged = info.get("reloadConfigSuccess") is False, int(info.get("corruptionCount") or 0)
    if "reloadConfigSuccess" not in info:
        yield unknown("blind: whether its configuration was loaded is not reported")
    elif refused:
        yield failed(
            "its configuration was refused at the last reload: an older one is in force",
            "Run promtool check config, mend it, and reload.",
        )
    elif damaged:
        yield warned(
            f"{damaged} damaged pieces of its write-ahead log: samples may be missing",
            "Look at Prometheus' log; hold what relies on looking back.",
        )
    else:
        yield passed(f"configuration loaded, running since {info.get('startTime')}")


def retention(asking: PrometheusFacts) -> Iterator[CheckResult]:
    """Judge how long samples are kept."""
    reported, wanted = str(_info(asking).get("storageRetention") or ""), asking.settings.retention_hours * 3600
    words = [word.strip() for word in reported.split(" or ")] if reported else []
    times = [found for found in map(seconds, words) if found is not None]
    sizes = [word for word in words if re.fullmatch(r"[0-9.]+ ?[KMGTPE]?i?B", word)]
    numbers = {"seconds": min(times)} if times else {}
    if not times or len(times) + len(sizes) < len(words):
        yield unknown(f"blind: the retention is reported as {reported or 'nothing'}, which is no time")
    elif min(times) < wanted:
        yield failed(
            reported, f"Start it with --storage.tsdb.retention.time={wanted / 3600:g}h or longer.", numbers=numbers
        )
    elif sizes:
        yield warned(
            f"{reported}: a full disk ends it earlier", "See that the size lasts for the time.", numbers=numbers
        )
    else:
        yield passed(reported, numbers=numbers)


def _info(asking: PrometheusFacts) -> dict[str, Any]:
    data = asking.prometheus.get("status/runtimeinfo")
    if not isinstance(data, dict):
        raise ReadError("the server's state is in a form that is not known")
    return data


# --- dead-man checks ---------------------------------------------------------------------------------------


def watchdog(asking: PrometheusFacts) -> Iterator[CheckResult]:
    """Judge an alert that always fires: it represents the evaluation of all the others."""
    name = asking.settings.watchdog
    groups = asking.prometheus.get("rules", type="alert")["groups"]
    found = [(group, rule) for group in groups for rule in group["rules"] if rule["name"] == name]
    if not found:
        yield unknown(f"blind: no alert is named {name}", _WATCHDOG.format(name or "Watchdog"))
        return
    for group, rule in found[:1]:
        age = asking.age(rule.get("lastEvaluation") or group.get("lastEvaluation"))
        most = max(asking.settings.max_age_seconds, _ROUND * float(group.get("interval") or 0))
        if rule.get("health") != "ok":
            words = rule.get("lastError") or rule.get("health") or "not reported"
            yield unknown(f"blind: its evaluation fails: {words}")
        elif age is None or age > most:
            when = "never" if age is None else f"{age:.1f} s ago"
            yield unknown(f"blind: last evaluated {when}, so no alert is")
        elif rule.get("state") != "firing":
            yield failed(f"{name} is {rule.get('state')}, and not firing", "Its expression must always hold.")
        else:
            yield passed(f"{name} is firing, evaluated {age:.1f} s ago", numbers={"age_seconds": age})


_WATCHDOG = "Add to a rule file: - alert: {}\n    expr: vector(1)"


def rules(asking: PrometheusFacts) -> Iterator[CheckResult]:
    """Judge the evaluation of all other rules: one that fails alerts nobody."""
    groups = asking.prometheus.get("rules")["groups"]
    bad, count = [], 0
    for group in groups:
        most = max(asking.settings.max_age_seconds, _ROUND * float(group.get("interval") or 0))
        age = asking.age(group.get("lastEvaluation") or "0001-01-01T00:00:00Z")
        if age is None or age > most:
            bad.append(f"group {group['name']}: evaluated {'never' if age is None else f'{age:.0f} s ago'}")
        count += len(group["rules"])
        bad += [f"{rule['name']}: {rule.get('lastError')}" for rule in group["rules"] if rule.get("health") == "err"]
    numbers = {"rules": float(count), "failing": float(len(bad))}
    if bad:
        yield unknown(f"blind: {_listed(bad)}", "Mend them: nobody is alerted.", numbers=numbers)
    elif not count:
        yield warned("no rule at all: nobody is ever alerted", numbers=numbers)
    else:
        yield passed(f"{count} rules are evaluated", numbers=numbers)


def heartbeat(asking: PrometheusFacts) -> Iterator[CheckResult]:
    """Judge a series that holds the time it was written at: from here through Prometheus and back."""
    query = asking.settings.heartbeat or ""
    samples = asking.prometheus.vector(query)
    if not samples:
        yield unknown("blind: the series is absent")
        return
    values = [one.value for one in samples]
    if not all(known(value) for value in values):
        yield unknown("blind: its value is NaN or infinite")
        return
    age = asking.moment.time - min(values)
    numbers = {"age_seconds": age}
    if age < -asking.settings.max_offset_seconds:
        yield unknown(f"blind: it is {-age:.1f} s ahead of Prometheus' clock", numbers=numbers)
    elif age > asking.settings.max_age_seconds:
        yield unknown(f"blind: written {age:.1f} s ago", numbers=numbers)
    else:
        yield passed(f"written {age:.1f} s ago", numbers=numbers)


# --- targets -----------------------------------------------------------------------------------------------


def targets(asking: PrometheusFacts, name: str, job: ExpectedJob) -> Iterator[CheckResult]:
    """Judge the instances of a job: those expected against those that are scraped, not against those that fail."""
    there = asking.instances(name)
    missing = [f"{label} is not scraped at all" for label in job.labels if label not in there]
    if not job.labels and len(there) < job.count:
        missing.append(f"{len(there)} of {job.count} instances are there")
    listed_targets = {t.instance: t for t in asking.targets or () if t.job == name}
    wanted = sorted(set(job.labels) & there) if job.labels else sorted(there)
    down: list[str] = []
    doubts: list[str] = []
    oldest = 0.0
    for instance in wanted:
        age = asking.scrapes["age"].get((name, instance))
        oldest = max(oldest, age or 0.0)
        state, words = _target(asking, name, job, instance, listed_targets.get(instance))
        if state is not AnswerState.PASS:
            (down if state is AnswerState.FAIL else doubts).append(words)
    numbers = {
        "expected": float(job.count), "found": float(len(there)), "down": float(len(down)),
        "blind": float(len(missing) + len(doubts)), "age_seconds": oldest,
    }  # fmt: skip
    blind = [*missing, *doubts]
    if down:
        value = _listed([*down, *blind])
        yield failed(value, "Bring the targets back, or take them off the list.", numbers=numbers)
    elif blind:
        yield unknown(f"blind: {_listed(blind)}", numbers=numbers)
    elif len(there) > job.count:
        extra = sorted(there - set(job.labels)) if job.labels else []
        value = f"{len(there)} instances, and {job.count} are expected" + (f": also {_listed(extra)}" if extra else "")
        yield warned(value, "Put them on the list, so that it is noticed when they go.", numbers=numbers)
    else:
        yield passed(f"{len(there)} of {job.count} up, oldest sample {oldest:.1f} s", numbers=numbers)


def _target(
    asking: PrometheusFacts, name: str, job: ExpectedJob, instance: str, target: ScrapeTarget | None
) -> tuple[AnswerState, str]:
    """Judge one instance. ``up`` is 0 where a scrape failed, and missing where none was made."""
    key = (name, instance)
    up, age, samples = (asking.scrapes[kind].get(key) for kind in ("up", "age", "samples"))
    interval = target.interval if target is not None and target.interval else 0.0
    most = max(asking.settings.max_age_of(job), _ROUND * interval)
    if asking.targets is not None and target is None:
        return AnswerState.INCONCLUSIVE, f"{instance} is no target any more"
    if target is not None and target.health == "down":
        return AnswerState.FAIL, f"{instance} is down: {target.error or 'the scrape failed'}"
    if up is None or age is None:
        return AnswerState.INCONCLUSIVE, f"{instance} has no sample of `up`"
    if age > most:
        return AnswerState.INCONCLUSIVE, f"{instance} has no sample since {age:.0f} s"
    if target is not None:
        scraped = None if target.scraped is None else asking.moment.time - target.scraped
        if scraped is None or scraped > most:
            when = "never" if scraped is None else f"{scraped:.0f} s ago"
            return AnswerState.INCONCLUSIVE, f"{instance} was scraped {when}"
        if target.health != "up":
            return AnswerState.INCONCLUSIVE, f"{instance} is {target.health}"
    if up != 1:
        return AnswerState.FAIL, f"{instance} is down"
    if samples is not None and samples <= 0:
        return AnswerState.INCONCLUSIVE, f"{instance} answers without any sample"
    return AnswerState.PASS, ""


# --- values ------------------------------------------------------------------------------------------------


def series(asking: PrometheusFacts, wanted: ExpectedSeries) -> Iterator[CheckResult]:
    """Judge one value by whether it is there, whole, fresh, a number, and within its bounds."""
    samples = asking.prometheus.vector(wanted.query)
    blind = [*_lacking(asking, wanted, samples), *_aged(asking, wanted)]
    nan = [one.name or "the value" for one in samples if not known(one.value)]
    if nan:
        blind.append(f"NaN or infinite: {_listed(nan)}")
    values = [one.value for one in samples if known(one.value)]
    numbers = {"series": float(len(samples))}
    if values:
        numbers |= {"min": min(values), "max": max(values)}
    out = [f"{one.name or 'the value'} is {one.value:g}" for one in samples if _is_out(wanted, one.value)]
    if out:
        more = f"; blind: {_listed(blind)}" if blind else ""
        yield failed(_listed(out) + more, numbers=numbers)
    elif blind:
        yield unknown(f"blind: {_listed(blind)}", numbers=numbers)
    else:
        span = f"{min(values):g}" if min(values) == max(values) else f"{min(values):g} to {max(values):g}"
        yield passed(f"{span} in {len(samples)} series", numbers=numbers)


def _is_out(wanted: ExpectedSeries, value: float) -> bool:
    low, high = wanted.min, wanted.max
    return known(value) and ((low is not None and value < low) or (high is not None and value > high))


def _lacking(asking: PrometheusFacts, wanted: ExpectedSeries, samples: list[Sample]) -> Iterator[str]:
    if not samples:
        yield "absent"
    elif len(samples) < wanted.series:
        yield f"{len(samples)} of {wanted.series} series"
    job = asking.settings.jobs.get(wanted.job or "")
    if job is None or not samples:
        return
    there = {one.labels.get("instance", "") for one in samples}
    expected = set(job.labels) or asking.instances(wanted.job or "")
    if missing := sorted(expected - there):
        yield f"no series of {_listed(missing)}"
    elif len(there) < job.count:
        yield f"series of {len(there)} instances, not of {job.count}"


def _aged(asking: PrometheusFacts, wanted: ExpectedSeries) -> Iterator[str]:
    try:
        resting = selectors(wanted.query) if not wanted.age_of else tuple(Selector(text) for text in wanted.age_of)
    except ValueError as error:
        yield f"how old its samples are is not known ({error}): name the series in age_of"
        return
    for selector in resting:
        oldest = asking.prometheus.vector(f"topk(1, time() - timestamp({selector.text}))")
        if not oldest:
            yield f"no sample of {selector.text}"
        elif oldest[0].value > asking.settings.max_age_of(wanted):
            yield f"{oldest[0].name or selector.text} is {oldest[0].value:.0f} s old"
        if selector.range is not None:
            yield from _gaps(asking, selector, selector.range)


def _gaps(asking: PrometheusFacts, selector: Selector, window: float) -> Iterator[str]:
    """Say where a window holds too few samples: ``rate`` fills it by extrapolation and does not report."""
    fewest = asking.prometheus.vector(f"bottomk(1, count_over_time({selector.text}[{window:g}s]))")
    for sample in fewest:
        job, instance = sample.labels.get("job", ""), sample.labels.get("instance", "")
        interval = next((t.interval for t in asking.targets or () if (t.job, t.instance) == (job, instance)), None)
        if interval and sample.value < int(window / interval) * _FILLED - 1:
            yield f"{sample.value:.0f} of {window / interval:.0f} samples in the window of {instance or sample.name}"
