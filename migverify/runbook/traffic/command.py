"""Proxies that only commands of your own know: set, read and measure, as JSON on standard input and output.

What they receive and what they have to print is in docs/traffic.md. Anything else that a command prints, or an exit
code other than 0, is no answer: the share is not known then, and the run is held.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any

from migverify.codec import parse_json
from migverify.errors import TrafficError, UsageError
from migverify.runbook.actions.action import Context, Outcome
from migverify.runbook.actions.builtin import KEPT_BYTES, run_program
from migverify.runbook.traffic.document import CommandPart
from migverify.runbook.traffic.files import change_locks
from migverify.runbook.traffic.model import InstanceReading, Setting, hundredths, is_generation
from migverify.runbook.traffic.tally import SideTally, TrafficTally

__all__ = ["CommandDriver"]


class CommandDriver:
    """Drives proxies by commands; see ``model.Driver``. Writing and applying are one command: ``apply`` does both."""

    def __init__(self, name: str, part: CommandPart, context: Context) -> None:
        self._name, self._part, self._context = name, part, context
        self._instances = {one.name: one for one in part.instances}
        self._written: dict[str, tuple[Setting, Setting | None]] = {}

    @property
    def instances(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._instances)

    @property
    def sticky(self) -> bool:
        """As the traffic file claims; what is measured shows it."""
        return self._part.sticky

    @property
    def holds(self) -> bool:
        """Keys are not refused by this driver."""
        return False

    @property
    def predicts(self) -> Callable[[bytes, int], bool] | None:
        """Nobody knows the hash of a foreign proxy."""
        return None

    def locked(self) -> AbstractContextManager[None]:
        """Hold a lock in the state folder, which all who change this traffic have to share."""
        return change_locks([self._part.state / f"{self._name}.lock"], own_folder=True)

    def configured(self, instance: str) -> Setting:
        """Ask ``read``, and take ``configured`` of its answer."""
        content = _part(self._asked(instance, "read"), "configured", instance)
        return _setting(content, instance)

    def write(self, instance: str, setting: Setting, expected: Setting | None) -> None:
        """Look whether the expected setting is there; the command that sets it is run by ``apply``."""
        if expected is not None and self.configured(instance) != expected:
            raise TrafficError(f"{instance} is not what was expected: another writer changed it")
        self._written[instance] = setting, expected

    def apply(self, instance: str) -> None:
        """Run ``set``. A command that compares ``expected`` itself keeps out writers that do not know the lock."""
        setting, expected = self._written[instance]
        content = {"setting": _spelled(setting), "expected": _spelled(expected) if expected is not None else None}
        self._asked(instance, "set", json.dumps(content))

    def served(self, instance: str) -> InstanceReading:
        """Ask ``read``, and take ``served`` of its answer."""
        setting = _setting(_part(self._asked(instance, "read"), "served", instance), instance)
        return InstanceReading(setting.share, setting.generation)

    def settled(self, instance: str, setting: Setting) -> InstanceReading:
        """Ask until the setting is served, or the time is over."""
        waiting = threading.Event()
        for left in range(max(1, math.ceil(self._part.settle / 0.5)), 0, -1):
            found = self.served(instance)
            if (found.share, found.generation) == (setting.share, setting.generation) or left == 1:
                return found
            waiting.wait(0.5)
        raise TrafficError(f"{instance}: settle is no time")

    def measure(self, instance: str, generations: Sequence[str], since: float) -> Mapping[str, TrafficTally]:
        """Run ``measure``; what it does not tell of is not measured."""
        asked = json.dumps({"generations": list(generations), "since": since})
        content = _part(self._asked(instance, "measure", asked), "generations", instance)
        return {name: _tally(_part(content, name, instance), instance) for name in generations if name in content}

    def _asked(self, instance: str, what: str, given: str = "") -> dict[str, Any]:
        argv: tuple[str, ...] = getattr(self._instances[instance], what)
        context = replace(self._context, timeout=self._part.command_timeout, canceled=threading.Event())
        done = run_program(argv, context, env={"MIGVERIFY_INSTANCE": instance, "MIGVERIFY_TRAFFIC": given})
        if done.why is not Outcome.OK or done.code != 0:
            ended = done.why.value if done.why is not Outcome.OK else f"exit code {done.code}"
            raise TrafficError(f"{instance}: {what}: {ended}: {done.errors.strip()[-300:]}".rstrip(": "))
        if what == "set":
            return {}
        try:
            found = parse_json(done.output) if done.facts["stdout_bytes"] <= KEPT_BYTES else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise TrafficError(
                f"{instance}: {what} prints no JSON object", hint="See docs/traffic.md for what it prints."
            )
        return found


def _part(content: dict[str, Any], name: str, instance: str) -> dict[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise TrafficError(f"{instance}: the answer has no {name}")
    return found


def _spelled(setting: Setting) -> dict[str, Any]:
    return asdict(setting) | {"share": setting.share / 100, "was": setting.was / 100}


def _setting(content: dict[str, Any], instance: str) -> Setting:
    numbers = [content.get(name) for name in ("share", "was", "at")]
    generation, previous = content.get("generation"), content.get("previous")
    if (
        any(isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one) for one in numbers)
        or not isinstance(generation, str) or not is_generation(generation) or not isinstance(previous, str)
    ):  # fmt: skip
        raise TrafficError(f"{instance}: share, generation, was, previous or at is missing or none")
    share, was, at = (float(one) for one in numbers if one is not None)
    try:
        return Setting(hundredths(share), generation, hundredths(was), previous, at)
    except UsageError as error:
        raise TrafficError(f"{instance}: {error.message}") from None


def _tally(content: dict[str, Any], instance: str) -> TrafficTally:
    """Counts of a command: requests and errors of each side, and times by whole milliseconds."""
    tally = TrafficTally(unmeasured=frozenset({"keys"}))
    for name in ("old", "new"):
        side = _part(content, name, instance)
        setattr(tally, name, _side(side, f"{instance}: {name}"))
        tally.unmeasured |= {what for what, key in (("errors", "errors"), ("latency", "ms")) if key not in side}
    tally.lines = tally.requests
    tally.lost = str(content.get("lost", ""))
    return tally


def _side(content: dict[str, Any], where: str) -> SideTally:
    found = SideTally(_whole(content.get("requests"), where), _whole(content.get("errors", 0), where))
    times = content.get("ms", {})
    if not isinstance(times, dict) or any(not str(ms).isdigit() for ms in times):
        raise TrafficError(f"{where}: ms is a mapping of whole milliseconds to counts")
    for ms, count in times.items():
        found.times.add(int(ms) / 1000, _whole(count, where))
    if found.errors > found.requests or found.times.count > found.requests:
        raise TrafficError(f"{where}: more errors or times than requests")
    return found


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TrafficError(f"{where}: a count is a whole number from 0")
    return value
