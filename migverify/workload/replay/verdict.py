"""From a tally to a verdict: per digest, and of the whole replay. MATCH is never the answer by default."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from migverify.model import Verdict
from migverify.workload.catalogue.match import Catalogue
from migverify.workload.catalogue.model import Label, LabelState, ProbeState
from migverify.workload.catalogue.versions import Versions
from migverify.workload.catalogue.waivers import Waiver
from migverify.workload.classify import classify
from migverify.workload.replay.model import DifferenceSeverity, Judgement
from migverify.workload.replay.render import WITHHELD
from migverify.workload.replay.slo import SloResult
from migverify.workload.replay.statistics import QUANTILES, Shift, Signal, shifts, signals
from migverify.workload.replay.tally import AspectCount, DigestTally, Names, ReplayTally


class CatalogueLabels:
    """Labels an aspect of a digest by the examples that show it; one entry that blocks makes it a blocker.

    Parameters
    ----------
    versions
        Both sides' servers; without them every version counts.
    probed
        What a probe found on this pair, by entry.
    """

    def __init__(
        self, catalogue: Catalogue, versions: Versions | None = None, probed: Mapping[str, ProbeState] | None = None
    ) -> None:
        self._catalogue, self._versions, self._probed = catalogue, versions, probed

    def label(self, tally: DigestTally, aspect: str) -> Label:
        """Return what is known of an aspect; ``known`` only where every kept example of it is explained."""
        found: list[Label] = []
        for example in tally.examples.get(aspect, ()):
            differences = [one for one in example.differences if one.aspect == aspect]
            sql = example.detail("sql")
            does = classify((tally.text if sql in ("", WITHHELD) else sql).encode())
            found.append(self._catalogue.label(tally.text, does, differences, self._versions, probed=self._probed))
        states = {one.state for one in found}
        is_known = states == {LabelState.KNOWN}
        return Label(
            LabelState.BLOCKER
            if LabelState.BLOCKER in states
            else LabelState.KNOWN
            if is_known
            else LabelState.UNKNOWN,
            tuple(sorted({each for one in found for each in one.ids})),
            tuple(sorted({each for one in found for each in one.links})),
        )


@dataclass(frozen=True, slots=True)
class MatchRequirements:
    """What a replay must have shown before it may be MATCH.

    Shares are of statements. ``out_of_scope`` are kinds of statements that the user left out by name: digests of which
    none was asked are reported as not covered, and count in no share.
    """

    judged_share: float = 0.99
    digests_share: float = 0.99
    out_of_scope: frozenset[str] = frozenset()


INDETERMINATE_SHARE = 0.05
"""The largest share of indeterminate statements of a replay that may be MATCH."""
_ALPHA = 0.01  # the chance of calling noise a signal, over all digests
_LATENCY_FLOOR = 5_000  # microseconds; a smaller shift is never reported


@dataclass(frozen=True, slots=True)
class AspectFinding:
    """One aspect in which a digest differs; ``weight`` is one of ``WEIGHTS``."""

    aspect: str
    weight: str
    signal: Signal | None
    label: Label
    waiver: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        test = None if self.signal is None else asdict(self.signal)
        return {
            "aspect": self.aspect, "weight": self.weight, "test": test, "label": self.label.state.value,
            "ids": list(self.label.ids), "links": list(self.label.links), "waiver": self.waiver,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class DigestVerdict:
    """The verdict of one digest. ``weight`` is the worst of its findings, ``none`` where there are none."""

    digest: str
    verdict: Verdict
    weight: str
    reasons: tuple[str, ...] = ()
    findings: tuple[AspectFinding, ...] = ()
    shifts: tuple[Shift, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            "digest": self.digest, "verdict": self.verdict.value, "weight": self.weight, "reasons": list(self.reasons),
            "findings": [one.as_json() for one in self.findings], "latency": [one.as_json() for one in self.shifts],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """The verdict of a replay. ``coverage`` are counts and shares for people and machines."""

    verdict: Verdict
    reasons: tuple[str, ...]
    digests: tuple[DigestVerdict, ...] = ()
    coverage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slower(self) -> frozenset[str]:
        """The digests that the target answers more slowly for certain."""
        return frozenset(one.digest for one in self.digests if one.shifts)


WEIGHTS = (
    "blocker", "review", "noise", "undecided", "unjudged", "assumed", "shallow", "waived", "metadata", "info", "none",
)  # fmt: skip
"""From the heaviest to the lightest."""

_LOCKING = "locking read"
"""How the reason begins why a locking read is not asked: it belongs to what a run that only reads leaves out."""
_UNDECIDED = frozenset({"review", "noise"})


def verdict(
    tally: ReplayTally,
    labels: CatalogueLabels | None = None,
    waivers: Sequence[Waiver] = (),
    slo: Sequence[SloResult] = (),
    *,
    requirements: MatchRequirements | None = None,
    today: date | None = None,
    unfinished: Sequence[str] = (),
) -> ReplayVerdict:
    """Return the verdict.

    MISMATCH: a blocker is a signal and not waived, or a service level was missed. MATCH: everything was carried to its
    end, enough was judged, nothing is left to review. Else INCONCLUSIVE, with every reason. A known difference is
    explained, not accepted: only a waiver that has not expired takes it out.

    Parameters
    ----------
    labels
        The catalogue; without it every difference is unknown.
    waivers
        What somebody answers for. One that has expired counts for nothing, and is reported.
    slo
        Results of service levels; one that is not known makes the verdict INCONCLUSIVE.
    today
        The day by which waivers expire; default: today, UTC.
    unfinished
        Reasons why the replay itself did not get to its end.
    """
    requirements = requirements or MatchRequirements()
    day = today or datetime.now(UTC).date()
    tested = sum(len(one.aspects) + len(QUANTILES) for one in tally.digests.values())
    alpha = _ALPHA / max(tested, 1)  # Bonferroni, over all digests
    valid = [one for one in waivers if one.expires >= day]
    asked = ReplayTally(
        {name: one for name, one in tally.digests.items() if one.count and not _left_out(one, requirements)}
    )
    every = tuple(_digest(asked.digests[name], labels, valid, requirements, alpha) for name in sorted(asked.digests))
    coverage = _covered(asked, every) | {
        "out_of_scope": tally.count - asked.count, "out_of_scope_kinds": sorted(requirements.out_of_scope),
    }  # fmt: skip
    wrong = list(_wrong(every, slo))
    open_ = [*unfinished, *_expired(waivers, day), *_open(every, coverage, requirements), *_unknown_levels(slo)]
    worst = Verdict.MISMATCH if wrong else Verdict.INCONCLUSIVE if open_ else Verdict.MATCH
    return ReplayVerdict(worst, (*wrong, *open_), every, coverage)


def _digest(
    tally: DigestTally,
    labels: CatalogueLabels | None,
    waivers: Sequence[Waiver],
    requirements: MatchRequirements,
    alpha: float,
) -> DigestVerdict:
    by_aspect = {one.aspect: one for one in signals(tally, alpha)}
    findings = tuple(
        _finding(tally, aspect, count, by_aspect.get(aspect), labels, waivers)
        for aspect, count in sorted(tally.aspects.items())
    )  # fmt: skip
    # from when each side was asked: counted from the due time, a side's latency is also that of the other one, as the
    # next statement of a session waits for both answers
    slower = shifts(
        tally.latencies["source_service"], tally.latencies["target_service"], confidence=1 - alpha,
        floor=_LATENCY_FLOOR,
    )  # fmt: skip
    weights = [one.weight for one in findings]
    unjudged, undecided = tally.state(Judgement.UNJUDGED), tally.state(Judgement.INDETERMINATE)
    judged = tally.count - unjudged - undecided - tally.assumed
    if undecided:
        weights.append("undecided")
    if tally.assumed:
        weights.append("assumed")
    if tally.shallow:
        weights.append("shallow")
    if unjudged:
        weights.append("unjudged")
    weight = min(weights, key=WEIGHTS.index, default="none")
    reasons = [f"{one.aspect}: {one.weight}" for one in findings if one.weight in ("blocker", "review", "noise")]
    reasons += [f"{name} ({number})" for name, number in tally.reasons]
    if "blocker" in weights:
        found = Verdict.MISMATCH
    elif not judged or (_UNDECIDED & set(weights)) or tally.shallow or not _enough(tally, requirements):
        found = Verdict.INCONCLUSIVE
    else:
        found = Verdict.MATCH
    return DigestVerdict(tally.digest, found, weight, tuple(reasons), findings, slower)


def _left_out(tally: DigestTally, requirements: MatchRequirements) -> bool:
    if not requirements.out_of_scope or tally.state(Judgement.UNJUDGED) < tally.count:
        return False
    return tally.kind in requirements.out_of_scope or all(name.startswith(_LOCKING) for name, _ in tally.reasons)


def _enough(tally: DigestTally, requirements: MatchRequirements) -> bool:
    undecided, unjudged = tally.state(Judgement.INDETERMINATE), tally.state(Judgement.UNJUDGED)
    if _share(undecided, tally.count) > INDETERMINATE_SHARE:
        return False
    return _share(tally.count - unjudged - tally.assumed, tally.count) >= requirements.judged_share


def _finding(
    tally: DigestTally,
    aspect: str,
    count: AspectCount,
    signal: Signal | None,
    labels: CatalogueLabels | None,
    waivers: Sequence[Waiver],
) -> AspectFinding:
    label = Label() if labels is None else labels.label(tally, aspect)
    if signal is None:
        # seen only in statements that prove nothing: they weigh by their share, not one by one
        form = count.severity not in (DifferenceSeverity.BLOCKER, DifferenceSeverity.REVIEW)
        return AspectFinding(aspect, count.severity.value if form else "undecided", None, label)
    if count.severity in (DifferenceSeverity.METADATA, DifferenceSeverity.INFO):
        return AspectFinding(aspect, count.severity.value, signal, label)
    waiver = next((one for one in waivers if _covers(one, tally, aspect, count, label)), None)
    if waiver is not None:
        return AspectFinding(
            aspect, "waived", signal, label, f"{waiver.owner}, until {waiver.expires}: {waiver.reason}"
        )
    if not signal.signal:
        return AspectFinding(aspect, "noise", signal, label)
    blocks = count.severity is DifferenceSeverity.BLOCKER or label.state is LabelState.BLOCKER
    return AspectFinding(aspect, "blocker" if blocks else "review", signal, label)


def _covers(waiver: Waiver, tally: DigestTally, aspect: str, count: AspectCount, label: Label) -> bool:
    return waiver.covers(
        tally.digest, aspect, label.ids, databases=_all(tally.databases, tally.count),
        users=_all(tally.users, tally.count), count=count.different,
    )  # fmt: skip


def _all(names: Names, count: int) -> list[str]:
    """Return the names; an empty one among them where some statements have none, so that no scope holds all."""
    return [name for name, _ in names] + ([] if sum(names.counts.values()) == count else [""])


def _wrong(digests: Sequence[DigestVerdict], slo: Sequence[SloResult]) -> Iterator[str]:
    blocked = [one for one in digests if one.verdict is Verdict.MISMATCH]
    if blocked:
        aspects = sorted({f.aspect for one in blocked for f in one.findings if f.weight == "blocker"})
        yield f"{_many(len(blocked), 'digest')} differ for certain: {', '.join(aspects)}"
    for level in slo:
        if level.met is False:
            yield f"service level {level.name} was missed: {'; '.join(level.reasons) or 'no reason given'}"


def _unknown_levels(slo: Sequence[SloResult]) -> Iterator[str]:
    for level in slo:
        if level.met is None:
            yield f"service level {level.name} is not known: {'; '.join(level.reasons) or 'no reason given'}"


def _expired(waivers: Sequence[Waiver], day: date) -> Iterator[str]:
    for one in waivers:
        if one.expires < day:
            yield f"a waiver of {one.owner} expired on {one.expires}: {one.reason}"


def _open(
    digests: Sequence[DigestVerdict], coverage: Mapping[str, Any], requirements: MatchRequirements
) -> Iterator[str]:
    statements = int(coverage["statements"])
    judged = int(coverage["judged"])
    if not statements:
        yield "the replay holds no statements"
        return
    if not judged:
        yield "no statement was judged"
    for name, least, words in (
        ("judged_share", requirements.judged_share, "of the statements judged"),
        ("digests_share", requirements.digests_share, "of the digests judged"),
    ):
        if coverage[name] < least:
            yield f"{_percent(coverage[name])} {words}, {_percent(least)} are required"
    if coverage["assumed"] and coverage["judged_share"] < requirements.judged_share:
        yield (
            f"{_many(coverage['assumed'], 'statement')} answered the same in sessions whose settings were assumed and"
            " could change the answer: give them by --sessions FILE, which migverify workload sessions makes"
        )
    if coverage["indeterminate_share"] > INDETERMINATE_SHARE:
        yield (
            f"{_percent(coverage['indeterminate_share'])} of the statements are indeterminate,"
            f" {_percent(INDETERMINATE_SHARE)} are allowed"
        )  # fmt: skip
    if coverage["shallow"]:
        yield f"{_many(coverage['shallow'], 'statement')} compared with the capture only: no rows were compared"
    for weight, words in (("review", "need a review or a waiver"), ("noise", "differ, and so does a side from itself")):
        some = sum(any(f.weight == weight for f in one.findings) for one in digests)
        if some:
            yield f"{_many(some, 'digest')} {words}"


def _covered(tally: ReplayTally, digests: Sequence[DigestVerdict]) -> dict[str, Any]:
    """Return what was judged: counts and shares; INDETERMINATE has a share of its own."""
    same, different = tally.state(Judgement.SAME), tally.state(Judgement.DIFFERENT)
    undecided, unjudged = tally.state(Judgement.INDETERMINATE), tally.state(Judgement.UNJUDGED)
    counted, whole = tally.digests.values(), tally.count
    sums = {
        name: sum(getattr(one, name) for one in counted)
        for name in ("assumed", "unproven", "shallow", "written", "repeated", "noisy")
    }
    judged = same - sums["assumed"] + different
    reached = sum(
        bool(one.count and one.state(Judgement.SAME) - one.assumed + one.state(Judgement.DIFFERENT)) for one in counted
    )
    return {
        "statements": whole, "judged": judged, "same": same, "different": different,
        "indeterminate": undecided, "unjudged": unjudged, **sums,
        "did_not_recur": sum(
            found.different + found.undecided + found.noise
            for one in counted if (found := one.aspects.get("did-not-recur")) is not None
        ),
        "digests": len(digests), "digests_judged": reached,
        # of what could be decided: indeterminate ones have a bound of their own
        "judged_share": _share(judged + undecided, whole), "digests_share": _share(reached, len(digests)),
        "indeterminate_share": _share(undecided, whole), "unjudged_share": _share(unjudged, whole),
        "by_verdict": {each.value: sum(one.verdict is each for one in digests) for each in Verdict},
    }  # fmt: skip


def _share(some: int, whole: int) -> float:
    return some / whole if whole else 0.0


def _percent(share: float) -> str:
    return f"{math.floor(share * 1000) / 10:.1f} %"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
