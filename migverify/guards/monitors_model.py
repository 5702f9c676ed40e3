"""What the guard of monitors is made of: one asking of Prometheus, and what a question says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from migverify.config import MonitorSettings
from migverify.errors import ReadError
from migverify.guards.prometheus import Prometheus, Sample
from migverify.guards.promql import seconds

# Go writes up to nine digits of a second, Python reads six.
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")

NAME = "monitors"


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A scrape target as Prometheus lists it. ``scraped``: Unix time, None for never; ``interval``: seconds."""

    job: str
    instance: str
    health: str
    error: str
    scraped: float | None
    interval: float | None


@dataclass(frozen=True, slots=True)
class PrometheusClock:
    """Prometheus' clock: its Unix time, its offset to the clock here, and how well that is known, in seconds."""

    time: float
    offset: float
    error: float


@dataclass
class PrometheusFacts:
    """One asking of Prometheus: what several questions need is read once."""

    settings: MonitorSettings
    prometheus: Prometheus
    now: Callable[[], float] = time.time

    @cached_property
    def moment(self) -> PrometheusClock:
        """Read Prometheus' clock; the answer was made between asking and hearing it."""
        asked = self.now()
        reported = self.prometheus.vector("time()")[0].value
        received = self.now()
        return PrometheusClock(reported, reported - (asked + received) / 2, max(0.0, received - asked) / 2)

    @cached_property
    def targets(self) -> tuple[ScrapeTarget, ...] | None:
        """Return the targets that Prometheus has to scrape; None where the server has no such list."""
        try:
            data = self.prometheus.get("targets", state="active")
        except ReadError as error:
            if error.message.startswith("HTTP 404"):
                return None  # a store of samples that others scrape
            raise
        try:
            return tuple(_target(one) for one in data["activeTargets"])
        except (KeyError, TypeError, ValueError):
            raise ReadError("the list of targets is in a form that is not known") from None

    @cached_property
    def scrapes(self) -> dict[str, dict[tuple[str, str], float]]:
        """Return ``up``, ``age`` (of ``up``) and ``samples`` of the expected jobs, by (job, instance)."""
        jobs = "|".join(_escaped(name) for name in self.settings.jobs)
        match = f'{{job=~"{jobs}"}}'
        asked = {
            "up": f"up{match}", "age": f"time() - timestamp(up{match})", "samples": f"scrape_samples_scraped{match}",
        }  # fmt: skip
        return {name: _by_target(self.prometheus.vector(query)) for name, query in asked.items()}

    def instances(self, job: str) -> set[str]:
        """Return the instances of a job that Prometheus knows of, by its targets and by its samples."""
        found = {instance for name, instance in self.scrapes["up"] if name == job}
        return found | {target.instance for target in self.targets or () if target.job == job}

    def age(self, text: object) -> float | None:
        """Return how long ago a time of an answer was, by Prometheus' clock; None for never."""
        moment = moment_of(text)
        return None if moment is None else self.moment.time - moment


def _target(one: Mapping[str, Any]) -> ScrapeTarget:
    labels = one["labels"]
    interval = one.get("scrapeInterval")
    return ScrapeTarget(
        str(labels["job"]), str(labels["instance"]), str(one.get("health") or "unknown"),
        str(one.get("lastError") or ""),
        moment_of(one.get("lastScrape")), seconds(str(interval)) if interval else None,
    )  # fmt: skip


def moment_of(text: object) -> float | None:
    """Return a time of Prometheus' API as Unix seconds; None for its zero time, which means never.

    Raises
    ------
    ReadError
        it is no time.
    """
    found = _TIME.fullmatch(str(text))
    if found is None:
        raise ReadError(f"{text!r} is no time")
    moment = datetime.fromisoformat(found[1] + (found[2] or "")[:7] + found[3].replace("Z", "+00:00"))
    return None if moment.year <= 1 else moment.timestamp()


def _by_target(samples: list[Sample]) -> dict[tuple[str, str], float]:
    return {(one.labels.get("job", ""), one.labels.get("instance", "")): one.value for one in samples}


def _escaped(text: str) -> str:
    """Return a name as a pattern of RE2 inside a string of PromQL."""
    pattern = re.sub(r"([^\w\- :/])", r"\\\1", text)
    return pattern.replace("\\", "\\\\").replace('"', '\\"')
