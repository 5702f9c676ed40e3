"""Proxies that exist in memory only, with the faults that real ones have; and lines of an access log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from migverify.errors import TrafficError
from migverify.runbook.traffic.model import InstanceReading, Setting, goes_to_new, reading_of
from migverify.runbook.traffic.tally import KeySample, TrafficTally

FIRST = Setting(0, "1-00000000", 0, "", 1000.0)


@dataclass
class FakeProxy:
    """One proxy. ``broken`` names what fails: ``write``, ``apply``, ``silent`` (a reload that is not taken)."""

    written: Setting = FIRST
    serving: Setting = FIRST
    broken: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)


@dataclass
class FakeDriver:
    """A driver over fakes; ``crash_at`` raises KeyboardInterrupt at the call of that number, as a kill would end it."""

    proxies: dict[str, FakeProxy]
    holds: bool = False
    sticky: bool = True
    crash_at: int = 0
    calls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    tallies: dict[str, TrafficTally] = field(default_factory=dict)

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(self.proxies)

    @property
    def predicts(self) -> Callable[[bytes, int], bool]:
        return goes_to_new

    def _step(self, what: str, instance: str) -> FakeProxy:
        self.calls += 1
        if self.calls == self.crash_at:
            raise KeyboardInterrupt
        one = self.proxies[instance]
        one.calls.append(what)
        if what in one.broken:
            raise TrafficError(f"{what} fails")
        return one

    @contextmanager
    def locked(self) -> Iterator[None]:
        if not self.lock.acquire(blocking=False):
            raise TrafficError("another change may be under way")
        try:
            yield
        finally:
            self.lock.release()

    def configured(self, instance: str) -> Setting:
        if "read" in self.proxies[instance].broken:
            raise TrafficError("read fails")
        return self.proxies[instance].written

    def write(self, instance: str, setting: Setting, expected: Setting | None) -> None:
        one = self._step("write", instance)
        if expected is not None and one.written != expected:
            raise TrafficError("another writer")
        one.written = setting

    def apply(self, instance: str) -> None:
        one = self._step("apply", instance)
        if "silent" not in one.broken:
            one.serving = one.written

    def served(self, instance: str) -> InstanceReading:
        return reading_of(self.proxies[instance].serving)

    def settled(self, instance: str, setting: Setting) -> InstanceReading:  # noqa: ARG002
        return self.served(instance)

    def measure(self, instance: str, generations: Sequence[str], since: float) -> Mapping[str, TrafficTally]:  # noqa: ARG002
        return {generations[0]: self.tallies.get(instance, TrafficTally(keys=KeySample()))}


def line(
    end: float, key: bytes | str, side: str = "old", *, generation: str = "2-aaaaaaaa", status: int = 200,
    seconds: float = 0.01, address: str = "127.0.0.1:1",
) -> bytes:  # fmt: skip
    """Return one line of an access log, as nginx writes it."""
    raw = key.encode() if isinstance(key, str) else key
    text = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02X}" for b in raw)
    return f"mv1\t{end:.3f}\t{generation}\t{side}\t{status}\t{seconds:.3f}\t{address}\t{text}\n".encode()
