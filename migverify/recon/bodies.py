"""What the store keeps of rules: findings, snapshots and results of windows as JSON; money is exact decimal text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from migverify.db.snapshot import ReadSnapshot
from migverify.errors import StoreError
from migverify.model import Verdict
from migverify.recon.amounts import plain
from migverify.recon.model import Class, CoveredWindows, Deviation, RuleFinding, RuleResult, Window

DONE = "done"
OPEN = "open"
"""States of a window in a run: while it is open, some of its findings may be stored and none of them counts."""


def window_text(window: Window | None) -> str:
    """Return the name of a window in the store, empty without windows."""
    return "" if window is None else str(window)


def bounds(window: Window | None) -> list[str] | None:
    """Return start and end as text."""
    return None if window is None else [window.start.isoformat(), window.end.isoformat()]


def window_of(texts: object) -> Window | None:
    """Return the window that ``bounds`` wrote."""
    if not isinstance(texts, list):
        return None
    start, end = (datetime.fromisoformat(str(text)) for text in texts)
    return Window(start, end)


def masked(finding: RuleFinding) -> RuleFinding:
    """Return the finding without the values of its columns; classes of differences stay."""
    hidden = tuple(Deviation(d.column, None, None, d.kind, masked=True) for d in finding.deviations)
    return replace(finding, deviations=hidden)


def finding_body(finding: RuleFinding) -> dict[str, Any]:
    """Return the JSON form of a finding."""
    return {
        "rule": finding.rule, "key": list(finding.key), "window": window_text(finding.window),
        "kind": str(finding.kind), "of": str(finding.of), "message": finding.message,
        "deviations": [[d.column, d.source, d.target, d.kind, d.masked] for d in finding.deviations],
        "money": None if finding.money is None else plain(finding.money), "currency": finding.currency,
        "also": [[currency, plain(value)] for currency, value in finding.also],
        "counts": list(finding.counts), "bounds": bounds(finding.window), "reads": finding.reads, "at": finding.at,
        "shard": finding.shard, "reason": finding.reason,
    }  # fmt: skip


def finding_of(body: Mapping[str, Any]) -> RuleFinding:
    """Return the finding that ``finding_body`` wrote; ``StoreError`` when it is damaged."""
    try:
        return RuleFinding(
            rule=body["rule"], key=tuple(body["key"]), kind=Class(body["kind"]), of=Class(body["of"]),
            message=body["message"], deviations=tuple(Deviation(*parts) for parts in body["deviations"]),
            money=None if body["money"] is None else Decimal(body["money"]), currency=body["currency"],
            counts=(int(body["counts"][0]), int(body["counts"][1])), window=window_of(body["bounds"]),
            reads=int(body["reads"]), at=float(body["at"]), shard=body["shard"], reason=body["reason"],
            also=tuple((currency, Decimal(value)) for currency, value in body.get("also", ())),
        )  # fmt: skip
    except (KeyError, IndexError, TypeError, ValueError, InvalidOperation) as exc:
        raise StoreError(
            f"a finding of rule {body.get('rule')} in the store is damaged: {exc}",
            hint="Something other than migverify wrote to the store; run the rules again into a new one.",
        ) from exc


def result_body(result: RuleResult) -> dict[str, Any]:
    """Return the JSON form of the end of one rule in one window."""
    return {
        "window": window_text(result.window), "bounds": bounds(result.window), "state": DONE, "rule": result.rule,
        "verdict": str(result.verdict), "reasons": list(result.reasons), "covered": asdict(result.covered),
        "counts": {str(kind): n for kind, n in result.counts.items()},
        "money": [[str(kind), currency, plain(value)] for (kind, currency), value in sorted(result.money.items())],
        "unexplained": texts_of(result.unexplained),
        "anchors": [asdict(snapshot) for snapshot in result.snapshots], "seconds": result.seconds,
        "gaps": list(result.gaps),
    }  # fmt: skip


def result_of(body: Mapping[str, Any]) -> RuleResult:
    """Return the result that ``result_body`` wrote; ``StoreError`` when it is damaged or a window without an end."""
    try:
        return RuleResult(
            rule=body["rule"], window=window_of(body["bounds"]), verdict=Verdict(body["verdict"]),
            reasons=tuple(body["reasons"]), covered=CoveredWindows(**body["covered"]),
            counts={Class(kind): int(n) for kind, n in body["counts"].items()},
            money={(Class(kind), str(currency)): Decimal(value) for kind, currency, value in body["money"]},
            snapshots=tuple(ReadSnapshot(**snapshot) for snapshot in body["anchors"]), seconds=float(body["seconds"]),
            unexplained=sums_of(body["unexplained"]), gaps=tuple(body.get("gaps", ())),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, InvalidOperation) as exc:
        raise StoreError(
            f"a window of rule {body.get('rule')} in the store is damaged: {exc}",
            hint="Something other than migverify wrote to the store; run the rules again into a new one.",
        ) from exc


def open_body(rule: str, window: Window | None, number: int) -> dict[str, Any]:
    """Return the body of a window that is being evaluated; ``number`` counts its batches of findings."""
    return {"window": window_text(window), "bounds": bounds(window), "state": OPEN, "rule": rule, "batch": number}


def withdrawn(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return what takes back a stored finding: its window is evaluated again."""
    return {"key": finding["key"], "window": finding["window"], "kind": ""}


def texts_of(sums: Mapping[str, Decimal]) -> dict[str, str]:
    """Return sums by currency as exact texts."""
    return {currency: plain(value) for currency, value in sorted(sums.items())}


def sums_of(texts: Mapping[str, str]) -> dict[str, Decimal]:
    """Return the sums that ``texts_of`` wrote."""
    return {currency: Decimal(value) for currency, value in texts.items()}


def bodies(findings: Iterable[RuleFinding], *, show: bool) -> Sequence[dict[str, Any]]:
    """Return the JSON forms of findings, masked unless values may be shown."""
    return [finding_body(finding if show else masked(finding)) for finding in findings]
