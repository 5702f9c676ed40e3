"""Which calls of a capture are explained: a few of each digest, the slowest and others drawn from all of it.

One pass over the calls, and a few numbers for each digest: a capture of millions takes no memory.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from migverify.workload.classify import classify
from migverify.workload.meaning import Meaning
from migverify.workload.replay.model import Call
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.tally import ReplayTally
from migverify.workload.replay.wire import inlined

EXPLAINED = frozenset({"SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "TABLE", "WITH"})
"""First words of statements that have a plan."""
_DRAWN = 4
"""So many calls are drawn for each that is wanted: many have the same text."""


_BUSY_SHARE = 0.9
_BUSIEST = 10
"""Digests that make this share of the busy time are explained after a replay, so many of them at most."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The calls of one digest that are explained; ``skipped`` says why there is none."""

    meaning: Meaning
    calls: int
    seconds: float
    samples: tuple[Call, ...] = ()
    skipped: str = ""


@dataclass(slots=True)
class _Draw:
    """One digest: ``drawn`` is a uniform sample of its calls that can be asked (Vitter's algorithm R)."""

    first: int
    meaning: int
    dice: random.Random
    calls: int = 0
    asked: int = 0
    micros: int = 0
    slowest: tuple[int, int] = (-1, -1)
    drawn: list[int] = field(default_factory=list)

    def take(self, call: int, micros: int, most: int, *, skipped: bool) -> None:
        self.calls += 1
        self.micros += micros
        if skipped:
            return
        self.asked += 1
        self.slowest = max(self.slowest, (micros, -call))
        if len(self.drawn) < most:
            self.drawn.append(call)
        elif (place := self.dice.randrange(self.asked)) < most:
            self.drawn[place] = call


def choose(run: RunFile, samples: int, *, writes: bool = True, digests: Container[str] | None = None) -> list[Chosen]:
    """Return the digests of a planned capture that have a plan, those that took longest on the source first.

    Without ``writes`` those that write are left out; ``digests`` are those that are wanted, None for all. The same run
    file gives the same calls.
    """
    with_plan = {
        number for number, meaning in enumerate(run.meanings)
        if _has_plan(meaning, writes=writes) and (digests is None or meaning.digest in digests)
    }  # fmt: skip
    draws: dict[int, _Draw] = {}
    rows = run.db.execute("SELECT id, digest, meaning, skipped, end - start FROM calls ORDER BY id")
    for call, digest, meaning, skipped, micros in rows:
        if meaning in with_plan:
            draw = draws.get(digest)
            if draw is None:
                draw = draws[digest] = _Draw(call, meaning, random.Random(digest))
            draw.take(call, micros, _DRAWN * samples, skipped=bool(skipped))
    found = [
        Chosen(
            run.meanings[one.meaning], one.calls, one.micros / 1e6, tuple(_samples(run, one, samples)),
            "" if one.asked else run.read(one.first).skipped,
        )
        for one in draws.values()
    ]  # fmt: skip
    return sorted(found, key=lambda one: (-one.seconds, -one.calls))


def busiest(tally: ReplayTally) -> frozenset[str]:
    """Return the digests that kept the target busy for most of the time, a few at most: a lost index is among them."""
    times = {
        digest: one.latencies["target_service"].total
        for digest, one in tally.digests.items() if has_plan(one.text)
    }  # fmt: skip
    whole, sum_ = sum(times.values()), 0
    found: set[str] = set()
    for digest in sorted(times, key=lambda one: (-times[one], one))[:_BUSIEST]:
        if sum_ >= _BUSY_SHARE * whole:
            break
        found.add(digest)
        sum_ += times[digest]
    return frozenset(found)


def has_plan(text: str) -> bool:
    """Tell whether a statement has a plan, by its digest text."""
    words = classify(text.encode()).words
    return bool(words) and words[0] in EXPLAINED


def calls_of(run: RunFile, digest: str, most: int) -> list[Call]:
    """Return captured calls of a digest that can be asked, spread over all of it, in their order."""
    sql = "SELECT id, meaning FROM calls WHERE skipped = 0 ORDER BY id"
    mine = {number for number, meaning in enumerate(run.meanings) if meaning.digest == digest}
    places = [call for call, meaning in run.db.execute(sql) if meaning in mine]
    step = max(1, -(-len(places) // most))
    return [run.read(place).call for place in places[::step]]


def _has_plan(meaning: Meaning, *, writes: bool) -> bool:
    words = meaning.classification.words
    return bool(words) and words[0] in EXPLAINED and (writes or not meaning.classification.may_write)


def _samples(run: RunFile, draw: _Draw, most: int) -> Iterator[Call]:
    """Yield the slowest call, then drawn ones, each text once."""
    seen: set[bytes] = set()
    for number in [-draw.slowest[1], *draw.drawn] if draw.asked else []:
        if len(seen) == most:
            return
        call = run.read(number).call
        text = text_of(call)
        if text is not None and text not in seen:
            seen.add(text)
            yield call


def text_of(call: Call) -> bytes | None:
    """Return a call's text with the values of its parameters in it; None where there are more or fewer values."""
    if call.parameters is None:
        return call.sql
    with suppress(ValueError):
        return inlined(call.sql, call.parameters, call.state.modes)
    return None
