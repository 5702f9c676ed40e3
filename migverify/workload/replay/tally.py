"""What a replay found, by digest: true counts, noise, latencies, and a few examples with both answers.

A tally is the fold of a run's outcomes, in any order: what is bounded (examples, users, reasons) keeps the smallest by
a fixed order and counts the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from migverify.codec import decode, encode
from migverify.workload.replay.latency import Histogram, merged
from migverify.workload.replay.model import Difference, DifferenceSeverity, JudgedCall, Judgement

EXAMPLES = 3
"""Most examples a digest keeps for each aspect."""

NAMES = 40
"""Most users, reasons and other names a digest tells; the rest is counted."""

OTHERS = "(others)"
LATENCIES = ("source", "target", "source_service", "target_service")
_COUNTS = ("unproven", "shallow", "assumed", "written", "repeated", "sampled", "noisy", "noisy_sampled")
_TEXTS = frozenset({"text", "kind"})
_EXAMPLE_DETAILS = frozenset({"sql", "statement", "source", "target", "session_state", "clock"})


@dataclass(slots=True)
class Names:
    """Counts by name; beyond the smallest ``NAMES`` names they are summed up as ``(others)``."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, number: int = 1) -> None:
        """Count a name. A name dropped once stays dropped: as many smaller ones are there."""
        self.counts[name] = self.counts.get(name, 0) + number
        named = len(self.counts) - (OTHERS in self.counts)
        if named > NAMES:
            last = max(each for each in self.counts if each != OTHERS)
            self.counts[OTHERS] = self.counts.get(OTHERS, 0) + self.counts.pop(last)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(sorted(self.counts.items(), key=lambda item: (-item[1], item[0])))

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True, slots=True)
class Example:
    """One statement that shows a difference: where it is in the capture, what was sent, what came back.

    ``sql``, ``source`` and ``target`` are texts for people, cut to the limit of the run, withheld where it masks.
    """

    session: str
    position: int
    state: Judgement
    reason: str
    differences: tuple[Difference, ...]
    details: dict[str, str]

    def detail(self, name: str) -> str:
        """Return a detail; empty where it was not kept."""
        return self.details.get(name, "")


@dataclass(slots=True)
class AspectCount:
    """How often one aspect was seen, and how.

    ``different``: in statements judged DIFFERENT, or that concern metadata of equal answers. ``undecided``: in
    statements judged INDETERMINATE. ``noise``: in which one side differed from itself.
    """

    severity: DifferenceSeverity
    different: int = 0
    undecided: int = 0
    noise: int = 0


@dataclass(slots=True)
class DigestTally:
    """Everything counted of one digest. Times are microseconds; ``first`` and ``last`` Unix time of the capture."""

    digest: str
    text: str = ""
    kind: str = ""
    states: dict[Judgement, int] = field(default_factory=dict)
    unproven: int = 0  # SAME, though the text does not determine the answer
    shallow: int = 0  # SAME, but against the capture only: outcome and counts, no rows
    assumed: int = 0  # SAME, in a session state that was assumed and could change the answer
    written: int = 0
    aspects: dict[str, AspectCount] = field(default_factory=dict)
    columns: dict[str, Names] = field(default_factory=dict)  # by aspect
    reasons: Names = field(default_factory=Names)
    errors: dict[str, Names] = field(
        default_factory=lambda: {"captured": Names(), "source": Names(), "target": Names()}
    )
    users: Names = field(default_factory=Names)
    databases: Names = field(default_factory=Names)
    repeated: int = 0  # statements asked more than once
    sampled: int = 0  # of these, chosen by chance and not because they differed
    noisy: int = 0
    noisy_sampled: int = 0
    first: int | None = None
    last: int | None = None
    lag: Histogram = field(default_factory=Histogram)
    latencies: dict[str, Histogram] = field(default_factory=lambda: {name: Histogram() for name in LATENCIES})
    examples: dict[str, list[Example]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """All statements of the digest, judged or not."""
        return sum(self.states.values())

    def state(self, judgement: Judgement) -> int:
        """Return how many statements were judged so."""
        return self.states.get(judgement, 0)

    def add(self, judged: JudgedCall) -> None:
        """Count one statement."""
        details = judged.details
        self.text = self.text or details.get("text", "")
        self.kind = self.kind or details.get("kind", "")
        self.states[judged.state] = self.state(judged.state) + 1
        same = judged.state is Judgement.SAME
        self.unproven += same and "unproven" in details
        self.shallow += same and "shallow" in details
        self.assumed += same and "assumed" in details
        self.written += judged.written
        if judged.reason:
            self.reasons.add(judged.reason)
        for side in ("captured", "source", "target"):
            if details.get(f"{side}_errno", "0") != "0":
                self.errors[side].add(details[f"{side}_errno"])
        if details.get("user"):
            self.users.add(details["user"])
        if details.get("database"):
            self.databases.add(details["database"])
        if judged.repeats > 1:
            self.repeated += 1
            self.noisy += bool(judged.noisy)
            if "sampled" in details:
                self.sampled += 1
                self.noisy_sampled += bool(judged.noisy)
        at = int(details["at"]) if details.get("at") else None
        if at is not None:
            self.first = at if self.first is None else min(self.first, at)
            self.last = at if self.last is None else max(self.last, at)
        self._time(judged)
        self._aspects(judged)

    def _time(self, judged: JudgedCall) -> None:
        self.lag.add(judged.lag)
        for name, value in zip(
            LATENCIES,
            (judged.source_latency, judged.target_latency, judged.source_service, judged.target_service),
            strict=True,
        ):
            if value is not None:
                self.latencies[name].add(value)

    def _aspects(self, judged: JudgedCall) -> None:
        decided = judged.state in (Judgement.DIFFERENT, Judgement.SAME)
        for aspect in sorted({one.aspect for one in judged.differences}):
            severity = _worst([one.severity for one in judged.differences if one.aspect == aspect])
            found = self.aspects.setdefault(aspect, AspectCount(severity))
            found.severity = _worst([found.severity, severity])
            if judged.noisy and not decided:
                found.noise += 1
            elif decided:
                found.different += 1
            else:
                found.undecided += 1
            for column in sorted({one.column for one in judged.differences if one.aspect == aspect and one.column}):
                self.columns.setdefault(aspect, Names()).add(column)
        if "sql" in judged.details or judged.state is Judgement.DIFFERENT:
            example = Example(
                judged.session, judged.position, judged.state, judged.reason, judged.differences,
                dict(sorted((n, v) for n, v in judged.details.items() if n not in _TEXTS)),
            )  # fmt: skip
            for aspect in {one.aspect for one in judged.differences} or {judged.state.value}:
                self._keep(aspect, example)

    def _keep(self, aspect: str, example: Example) -> None:
        examples = self.examples.setdefault(aspect, [])
        examples.append(example)
        examples.sort(key=_order)
        del examples[EXAMPLES:]

    def merge(self, other: DigestTally) -> None:
        """Add what another tally of the digest counted; what is bounded stays so."""
        self.text, self.kind = self.text or other.text, self.kind or other.kind
        for state, number in other.states.items():
            self.states[state] = self.state(state) + number
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for aspect, count in other.aspects.items():
            found = self.aspects.setdefault(aspect, AspectCount(count.severity))
            found.severity = _worst([found.severity, count.severity])
            found.different += count.different
            found.undecided += count.undecided
            found.noise += count.noise
        named = [(self.reasons, other.reasons), (self.users, other.users), (self.databases, other.databases)]
        named += [(self.errors[side], names) for side, names in other.errors.items()]
        named += [(self.columns.setdefault(aspect, Names()), names) for aspect, names in other.columns.items()]
        for mine, theirs in named:
            for name, number in theirs:
                mine.add(name, number)
        firsts, lasts = ([one for one in pair if one is not None]
                         for pair in ((self.first, other.first), (self.last, other.last)))  # fmt: skip
        self.first, self.last = min(firsts, default=None), max(lasts, default=None)
        self.lag.merge(other.lag)
        for name, histogram in other.latencies.items():
            self.latencies[name].merge(histogram)
        for aspect, examples in other.examples.items():
            for example in examples:
                self._keep(aspect, example)

    def as_json(self) -> dict[str, Any]:
        """Return everything as a JSON object with a stable order."""
        return {
            "digest": self.digest, "text": self.text, "kind": self.kind,
            "states": {state.value: self.state(state) for state in Judgement},
            "unproven": self.unproven, "shallow": self.shallow, "assumed": self.assumed, "written": self.written,
            "aspects": {
                aspect: encode(one)
                for aspect, one in sorted(self.aspects.items())
            },
            "columns": {aspect: _sorted(one) for aspect, one in sorted(self.columns.items())},
            "reasons": _sorted(self.reasons), "users": _sorted(self.users), "databases": _sorted(self.databases),
            "errors": {side: _sorted(one) for side, one in sorted(self.errors.items())},
            "repeated": self.repeated, "sampled": self.sampled, "noisy": self.noisy,
            "noisy_sampled": self.noisy_sampled, "first": self.first, "last": self.last, "lag": self.lag.as_json(),
            "latencies": {name: self.latencies[name].as_json() for name in LATENCIES},
            "examples": {
                aspect: [encode(one) for one in examples]
                for aspect, examples in sorted(self.examples.items())
            },
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DigestTally:
        """Read what ``as_json`` wrote."""
        return cls(
            body["digest"], body["text"], body["kind"],
            {Judgement(state): number for state, number in body["states"].items() if number},
            body["unproven"], body["shallow"], body.get("assumed", 0), body["written"],
            {aspect: decode(AspectCount, one) for aspect, one in body["aspects"].items()},
            {aspect: Names(dict(one)) for aspect, one in body["columns"].items()},
            Names(dict(body["reasons"])), {side: Names(dict(one)) for side, one in body["errors"].items()},
            Names(dict(body["users"])), Names(dict(body["databases"])), body["repeated"], body["sampled"],
            body["noisy"], body["noisy_sampled"],
            body["first"], body["last"], Histogram.from_json(body["lag"]),
            {name: Histogram.from_json(body["latencies"][name]) for name in LATENCIES},
            {aspect: [decode(Example, one) for one in examples] for aspect, examples in body["examples"].items()},
        )  # fmt: skip


@dataclass(slots=True)
class ReplayTally:
    """The whole of a replay, by digest."""

    digests: dict[str, DigestTally] = field(default_factory=dict)

    def add(self, judged: JudgedCall) -> None:
        """Count one judged statement."""
        self.of(judged.digest).add(judged)

    def of(self, digest: str) -> DigestTally:
        """Return the counts of a digest, new ones for a digest not seen yet."""
        found = self.digests.get(digest)
        if found is None:
            found = self.digests[digest] = DigestTally(digest)
        return found

    def describe(self, digest: str, text: str, kind: str = "") -> None:
        """Tell the normalized text of a digest and what kind of statement it is; judged statements may not say it."""
        found = self.of(digest)
        found.text, found.kind = max(found.text, text), max(found.kind, kind)

    @property
    def count(self) -> int:
        """All statements."""
        return sum(one.count for one in self.digests.values())

    def state(self, judgement: Judgement) -> int:
        """Return how many statements were judged so."""
        return sum(one.state(judgement) for one in self.digests.values())

    def latency(self, name: str) -> Histogram:
        """Return one of ``LATENCIES`` over all digests."""
        return merged(one.latencies[name] for one in self.digests.values())

    def lag(self) -> Histogram:
        """Return how late calls began behind their pace, over all digests."""
        return merged(one.lag for one in self.digests.values())


class ExampleKeeper:
    """Keeps a run file small: the first statements of a kind keep their example, the first of a digest its text.

    One per process. ``keep`` returns the judged statement as it should be written: counts, times and differences are
    never touched.
    """

    def __init__(self, limit: int = EXAMPLES) -> None:
        self._limit = limit
        self._seen: dict[tuple[str, Judgement, frozenset[str], str], int] = {}
        self._described: set[str] = set()

    def keep(self, judged: JudgedCall) -> JudgedCall:
        """Return the statement with its example, or without when enough alike were kept."""
        if judged.digest in self._described:
            judged = _without(judged, _TEXTS)
        elif "text" in judged.details:
            self._described.add(judged.digest)
        if not _EXAMPLE_DETAILS & judged.details.keys():
            return judged
        key = (judged.digest, judged.state, frozenset(one.aspect for one in judged.differences), judged.reason)
        seen = self._seen.get(key, 0)
        if seen < self._limit:
            self._seen[key] = seen + 1
            return judged
        return _without(judged, _EXAMPLE_DETAILS)


def _without(judged: JudgedCall, names: frozenset[str]) -> JudgedCall:
    return replace(judged, details={name: text for name, text in judged.details.items() if name not in names})


_RANK = {severity: rank for rank, severity in enumerate(DifferenceSeverity)}


def _worst(severities: list[DifferenceSeverity]) -> DifferenceSeverity:
    return min(severities, key=_RANK.__getitem__)


def _order(example: Example) -> tuple[bool, bool, str, int, str]:
    # with both answers before those that lost them, decided ones before undecided ones
    return (
        "sql" not in example.details, example.state is not Judgement.DIFFERENT, example.session,
        example.position, repr(example),
    )  # fmt: skip


def _sorted(names: Names) -> dict[str, int]:
    return dict(sorted(names.counts.items()))
