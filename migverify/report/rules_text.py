"""Rules on a terminal: one line a rule, then what was found, what it may cost and what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len

from migverify.model import Verdict
from migverify.report.marks import visible
from migverify.report.rules import UNEXPLAINED, RuleReport, amounts, money_text, urgency, warning_words

_MONEY = "unexplained money"
_HEADS = (
    "verdict",
    "rule",
    "kind",
    "rows source",
    "rows target",
    "findings",
    _MONEY,
    "windows",
    "seconds",
)
_TEXTS = 3
_NAME_CELLS = 60


def overview(rules: Sequence[RuleReport], paint: Callable[[Verdict], str]) -> Iterator[str]:
    """Yield the table of rules, MISMATCH first."""
    ordered = sorted(rules, key=urgency)
    # A column of money is for runs whose rules have money.
    shown = [i for i, head in enumerate(_HEADS) if head != _MONEY or any(rule.has_money for rule in rules)]
    heads = [_HEADS[i] for i in shown]
    rows = [[cells[i] for i in shown] for cells in map(_cells, ordered)]
    widths = [max(cell_len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    yield _line(heads, widths)
    for row, rule in zip(rows, ordered, strict=True):
        yield paint(rule.result.verdict) + _line(row, widths)[len(row[0]) :]


def _cells(rule: RuleReport) -> list[str]:
    result = rule.result
    name = visible(result.pair)
    findings = " + ".join(filter(None, [f"{rule.unexplained_findings:,}", warning_words(rule.warnings)]))
    return [
        str(result.verdict), name if cell_len(name) <= _NAME_CELLS else name[: _NAME_CELLS - 1] + "…",
        visible(rule.kind or "not recorded"), _count(result.rows_source), _count(result.rows_target),
        findings, visible(amounts(rule.at_stake)) if rule.at_stake else "-",
        f"{result.chunks:,}", f"{result.seconds:.1f}",
    ]  # fmt: skip


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    out = [
        cell + " " * (width - cell_len(cell)) if i < _TEXTS else " " * (width - cell_len(cell)) + cell
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(out).rstrip()


def sections(
    rules: Sequence[RuleReport], paint: Callable[[Verdict], str], title: Callable[[str], str], shown: int
) -> Iterator[str]:
    """Yield what each rule found; of a rule that found nothing, what it read."""
    for rule in sorted(rules, key=urgency):
        yield ""
        yield from _section(rule, paint, title, shown)


def _section(
    rule: RuleReport, paint: Callable[[Verdict], str], title: Callable[[str], str], shown: int
) -> Iterator[str]:
    result = rule.result
    facts = ", ".join(
        visible(text) for text in (rule.kind, rule.severity, rule.owner and f"owner {rule.owner}") if text
    )
    yield f"{paint(result.verdict)}  {title(visible(result.pair))}" + (f"  ({facts})" if facts else "")
    if rule.description:
        yield f"  {visible(rule.description)}"
    both = result.source if result.source == result.target else f"{result.source} and {result.target}"
    yield f"  datasets: {visible(both)}"
    yield from (f"  reason: {visible(reason)}" for reason in result.reasons)
    if rule.counts:
        yield f"  findings: {', '.join(f'{number:,} {kind}' for kind, number in rule.counts)}"
    yield from _money(rule)
    yield f"  covered: {coverage_words(rule)}"
    yield from (f"  read: {visible(a.endpoint)}: {visible(a.words)}" for a in rule.anchors)
    yield from _findings(rule, shown)


def _money(rule: RuleReport) -> Iterator[str]:
    for currency, value in rule.unexplained:
        share = rule.share(currency)
        of = f", {share} of the volume" if share else ""
        what = "money in warnings" if rule.only_warns else _MONEY
        yield f"  {what}: {money_text(value)} {visible(currency)}{of}"
    others = [(kind, currency, value) for kind, currency, value in rule.money if kind not in UNEXPLAINED]
    if others:
        told = ", ".join(f"{money_text(value)} {visible(currency)} {kind}" for kind, currency, value in others)
        yield f"  other money: {told}"
    if rule.volume:
        yield f"  volume: {visible(amounts(rule.volume))}"


def coverage_words(rule: RuleReport) -> str:
    """Return what the rule read, as one phrase."""
    numbers = dict(rule.covered)
    parts = [f"{numbers.get('rows_source', 0):,} rows of the source"]
    if rule.result.target != rule.result.source or numbers.get("rows_target"):
        parts.append(f"{numbers.get('rows_target', 0):,} of the target")
    parts.append(f"{numbers.get('matched', 0):,} keys agreed")
    if numbers.get("crossed"):
        parts[-1] += f" ({numbers['crossed']:,} across the border of their window)"
    if numbers.get("groups"):
        parts.append(_amount(numbers["groups"], "group"))
    if numbers.get("events"):
        parts.append(_amount(numbers["events"], "change"))
    windows = dict(rule.windows)
    if windows.get("first"):
        parts.append(f"{_amount(rule.result.chunks, 'window')} from {windows['first']} to {windows.get('last')}")
    return ", ".join(parts)


def _amount(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _findings(rule: RuleReport, shown: int) -> Iterator[str]:
    if not rule.stored:
        return
    some = rule.findings[:shown]
    yield f"  findings (showing {len(some):,} of {rule.stored:,}):"
    for finding in some:
        money = (
            f" [{', '.join(f'{money_text(value)} {visible(currency)}' for value, currency in finding.money)}]"
            if finding.money
            else ""
        )
        shard = f" shard {visible(finding.shard)}" if finding.shard else ""
        yield f"    {visible(finding.kind)}: {visible(finding.message)}{money}{shard}"
        if finding.reason:
            yield f"        {visible(finding.reason)}"
