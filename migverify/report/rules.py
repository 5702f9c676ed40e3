"""Rules in a report: findings by class, money at risk, coverage, the snapshots that were read.

Read from the rule's result (``details["recon"]``) and from a sample of its findings. Amounts are the exact texts of
the store: money is never added up over rules, which may count one payment twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from migverify.exposition import Metric, number
from migverify.figures import amount, count
from migverify.model import TableResult
from migverify.recon.model import MISMATCHES, Class, Severity
from migverify.report.marks import clip_pair
from migverify.report.model import (
    URGENCY,
    Audience,
    Compared,
    Fact,
    FactList,
    FindingEntry,
    FindingList,
    JUnitCase,
    Lines,
    ReportOptions,
    Row,
    Section,
    Table,
    TableCell,
    TableColumn,
    badge,
    tone_of,
)
from migverify.report.run_facts import verdict_samples
from migverify.store.results import ResultStore

_PAGE = 50
_LINES_OF_A_CASE = 20
UNEXPLAINED = frozenset(str(kind) for kind in MISMATCHES)
# What nothing explains comes first: what matched late must not push it out of the sample.
_ORDER = (
    tuple(str(kind) for kind in Class if kind in MISMATCHES),
    (str(Class.PENDING),), (str(Class.KNOWN_EXCEPTION),), (str(Class.LATE_MATCHED),),
)  # fmt: skip
_AMOUNT = re.compile(r"(-?)([0-9]+)((?:\.[0-9]+)?)")


@dataclass(frozen=True, slots=True)
class RuleReport:
    """One rule. ``facts`` is what the run recorded of it: ``counts`` by class, ``money`` as (class, currency, amount).

    ``stored`` is how many findings the store holds; ``samples`` and ``findings`` are the first of them, for people and
    as JSON.
    """

    result: TableResult
    facts: Mapping[str, Any]
    samples: tuple[FindingEntry, ...]
    findings: tuple[dict[str, Any], ...]
    stored: int

    def text(self, name: str) -> str:
        """Return a fact as text; empty where it is not recorded."""
        return str(self.facts.get(name, ""))

    def amounts(self, name: str) -> dict[str, str]:
        """Return a fact that maps names to texts."""
        found = self.facts.get(name)
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, Mapping) else {}

    @property
    def counts(self) -> dict[str, int]:
        """Findings by class."""
        return {str(kind): int(n) for kind, n in dict(self.facts.get("counts", {})).items()}

    @property
    def money(self) -> list[tuple[str, str, str]]:
        """Money at risk as (class, currency, amount)."""
        return [(str(kind), str(unit), str(value)) for kind, unit, value in self.facts.get("money", ())]

    @property
    def unexplained_counts(self) -> dict[str, int]:
        """Findings that nothing explains, by class; none of a rule that only warns."""
        return {} if self.only_warns else {kind: n for kind, n in self.counts.items() if kind in UNEXPLAINED and n}

    @property
    def unexplained_findings(self) -> int:
        """Findings that nothing explains; 0 for a rule that only warns."""
        return sum(self.unexplained_counts.values())

    @property
    def warnings(self) -> int:
        """Findings of a rule that only warns, which nothing explains; 0 for every other rule."""
        return sum(n for kind, n in self.counts.items() if kind in UNEXPLAINED) if self.only_warns else 0

    @property
    def at_stake(self) -> dict[str, str]:
        """Money that nothing explains, by currency; none of a rule that only warns."""
        return {} if self.only_warns else self.amounts("unexplained")

    @property
    def has_money(self) -> bool:
        """Whether amounts of the rule are known."""
        return bool(self.money or self.amounts("unexplained"))

    @property
    def only_warns(self) -> bool:
        """Whether its findings make no mismatch."""
        return self.text("severity") == Severity.WARNING

    @property
    def headline(self) -> str:
        """How many findings the rule has, over all of its windows; empty for none. Warnings are called so."""
        words = ", ".join(f"{n:,} {kind}" for kind, n in self.unexplained_counts.items())
        pending = self.counts.get(str(Class.PENDING), 0)
        return ", ".join(filter(None, [words, _warnings(self.warnings), f"{pending:,} pending" if pending else ""]))

    @property
    def coverage(self) -> str:
        """What the rule read, as one phrase."""
        numbers = {str(name): int(n) for name, n in dict(self.facts.get("covered", {})).items()}
        parts = [f"{numbers.get('rows_source', 0):,} rows of the source"]
        if self.result.target != self.result.source or numbers.get("rows_target"):
            parts.append(f"{numbers.get('rows_target', 0):,} of the target")
        crossed = f" ({numbers['crossed']:,} across the border of their window)" if numbers.get("crossed") else ""
        parts.append(f"{numbers.get('matched', 0):,} keys agreed{crossed}")
        parts += [amount(numbers[name], noun) for name, noun in (("groups", "group"), ("events", "change"))
                  if numbers.get(name)]  # fmt: skip
        windows = self.amounts("windows")
        if windows.get("first"):
            parts.append(f"{amount(self.result.chunks, 'window')} from {windows['first']} to {windows.get('last')}")
        return ", ".join(parts)

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots that were read: endpoint, moment in words, and whether it is exact."""
        found = []
        for body in self.facts.get("anchors", ()):
            exact = bool(body.get("exact"))
            words = f"{body.get('how')} at {body.get('position')}" if exact else (
                f"between {body.get('position')} and {body.get('until')}: {body.get('how')}"
            )  # fmt: skip
            found.append({"endpoint": str(body.get("endpoint")), "moment": words, "exact": exact})
        return found


def is_rule(result: TableResult, planned: frozenset[str]) -> bool:
    """Whether a result is a rule's; ``planned`` are the names of the rules of the run."""
    return isinstance(result.details.get("recon"), Mapping) or result.pair in planned


def read_rules(
    store: ResultStore, run_id: str, results: Sequence[TableResult], options: ReportOptions
) -> list[RuleReport]:
    """Read what is shown of rules, MISMATCH first."""
    limit = min(options.samples, max(1, options.samples_in_all // max(1, len(results))))
    rules = []
    for result in sorted(results, key=lambda result: (URGENCY.index(result.verdict), result.pair)):
        found = result.details.get("recon")
        samples = [_sample(body, options) for body in _bodies(store, run_id, result.pair, limit)]
        rules.append(RuleReport(
            result, found if isinstance(found, Mapping) else {}, tuple(item for item, _ in samples),
            tuple(body for _, body in samples), sum(store.count_findings(run_id, result.pair).values()),
        ))  # fmt: skip
    return rules


def _bodies(store: ResultStore, run_id: str, rule: str, limit: int) -> Iterator[Mapping[str, Any]]:
    for kinds in _ORDER:
        after = 0
        while limit > 0:
            page = store.findings(run_id, rule, kinds=kinds, after=after, limit=min(_PAGE, limit))
            if not page:
                break
            yield from (body for _, body in page)
            after, limit = page[-1][0], limit - len(page)


def _sample(body: Mapping[str, Any], options: ReportOptions) -> tuple[FindingEntry, dict[str, Any]]:
    """Return a finding for people and as JSON; values are withheld where the options do not show them."""
    columns, listed = [], []
    for parts in body.get("deviations", ()):
        column, source, target, kind, masked = (*parts, "", False)[:5] if len(parts) < 5 else parts
        known: dict[str, Any] = {"column": column, "kind": kind, "masked": bool(masked) or not options.values}
        if known["masked"]:
            columns.append(Compared(column, kind, "masked", "masked"))
        else:
            columns.append(Compared(column, kind, *clip_pair(source, target, options.value_characters)))
            known |= {"source": source, "target": target}
        listed.append(known)
    money = [] if body.get("money") is None else [(str(body["money"]), str(body.get("currency") or ""))]
    money += [(str(value), str(currency)) for currency, value in body.get("also", ())]
    message, kind, of = str(body.get("message", "")), str(body["kind"]), str(body.get("of", ""))
    if not options.values and any(not parts[4] for parts in body.get("deviations", ()) if len(parts) == 5):
        # The run kept values, this report may not show them: its message holds some.
        message = f"{', '.join('NULL' if part is None else part for part in body['key'])}: {of}"
    window, shard, reason = (str(body.get(name, "")) for name in ("window", "shard", "reason"))
    notes = (f"of {of}" if of != kind else "", window, f"shard {shard}" if shard else "")
    item = FindingEntry(
        kind, title=message, notes=tuple(filter(None, notes)), columns=tuple(columns), reason=reason,
        amounts=tuple(f"{money_text(value)} {currency}" for value, currency in money),
    )  # fmt: skip
    return item, {
        "key": list(body["key"]), "class": kind, "of": of, "message": message, "deviations": listed,
        "money": [{"amount": value, "currency": currency} for value, currency in money],
        "window": window, "shard": shard, "reason": reason, "reads": int(body.get("reads", 1)),
    }  # fmt: skip


def rule_section(rules: Sequence[RuleReport], options: ReportOptions) -> Section:
    """Return the table of rules and what each of them found."""
    # A column of money is for runs whose rules have money.
    money = any(rule.has_money for rule in rules)
    heads = (
        TableColumn("Verdict"), TableColumn("Rule"), TableColumn("Kind"), TableColumn("Severity", shown=Audience.PAGE),
        TableColumn("Owner", shown=Audience.PAGE), TableColumn("Rows source", number=True),
        TableColumn("Rows target", number=True), TableColumn("Findings", number=True),
        *([TableColumn("Unexplained money", number=True)] if money else []), TableColumn("Windows", number=True),
        TableColumn("Seconds", number=True),
    )  # fmt: skip
    rows = tuple(_row(rule, f"r{place}", money=money) for place, rule in enumerate(rules, 1))
    details = (_detail(rule, f"r{place}", options) for place, rule in enumerate(rules, 1))
    return Section("Rules", (Table(heads, rows), *details), id="rules")


def _row(rule: RuleReport, link: str, *, money: bool) -> Row:
    result = rule.result
    findings = " + ".join(filter(None, [f"{rule.unexplained_findings:,}", _warnings(rule.warnings)]))
    stake = TableCell(_amounts(rule.at_stake) if rule.at_stake else "-", "mismatch" if rule.at_stake else "")
    return (
        badge(result.verdict), TableCell(result.pair, link=link), rule.text("kind") or "not recorded",
        rule.text("severity"), rule.text("owner"), count(result.rows_source), count(result.rows_target),
        TableCell(findings, "mismatch" if rule.unexplained_findings else ""), *([stake] if money else []),
        f"{result.chunks:,}", f"{result.seconds:.1f}",
    )  # fmt: skip


def _detail(rule: RuleReport, link: str, options: ReportOptions) -> Section:
    result = rule.result
    counts = ", ".join(f"{n:,} {kind}" for kind, n in rule.counts.items())
    note = f".{'' if options.values else ' Values are masked.'}"
    money = tuple(
        (kind, TableCell(money_text(value), "mismatch" if kind in UNEXPLAINED and not rule.only_warns else ""), unit)
        for kind, unit, value in rule.money
    )
    heads = (TableColumn("Class"), TableColumn("Amount", number=True), TableColumn("Currency"))
    return Section(result.pair, (
        Lines(tuple(filter(None, (rule.text("description"),))), style="note"),
        Lines(result.reasons, style="reasons"),
        FactList((*([Fact("findings", counts)] if counts else []), *_facts(rule))),
        Table(heads, money, "Money at risk" if money else "", named=0),
        FindingList("findings", rule.samples, rule.stored, note),
    ), link, str(result.verdict), tone_of(result.verdict), rule.headline, folded=True)  # fmt: skip


def _facts(rule: RuleReport) -> Iterator[Fact]:
    result = rule.result
    yield Fact("datasets", result.source if result.source == result.target else f"{result.source} and {result.target}")
    yield Fact("kind, severity", f"{rule.text('kind') or 'not recorded'}, {rule.text('severity') or 'not recorded'}")
    yield Fact("owner", rule.text("owner") or "nobody is named")
    yield Fact("written in", rule.text("place") or "not recorded")
    yield Fact("covered", rule.coverage)
    for snapshot in rule.snapshots:
        yield Fact(f"read: {snapshot['endpoint']}",
                   f"{snapshot['moment']}{'' if snapshot['exact'] else ' (not one moment)'}")  # fmt: skip
    for currency, value in rule.amounts("unexplained").items():
        yield Fact("money in warnings" if rule.only_warns else "unexplained money",
                   f"{money_text(value)} {currency}")  # fmt: skip


def rule_as_json(rule: RuleReport) -> dict[str, Any]:
    """Return a rule as JSON; amounts are texts, because a reader's float would round them."""
    result = rule.result
    return {
        "rule": result.pair, "verdict": str(result.verdict), "reasons": list(result.reasons),
        **{name: rule.text(name) for name in ("kind", "severity", "owner", "description", "place")},
        "source": result.source, "target": result.target, "findings": rule.counts,
        "money_at_risk": [{"class": kind, "currency": unit, "amount": value} for kind, unit, value in rule.money],
        "unexplained": rule.amounts("unexplained"),
        "covered": {str(name): int(n) for name, n in dict(rule.facts.get("covered", {})).items()},
        "windows": {name: int(text) if text.isdecimal() else text for name, text in rule.amounts("windows").items()},
        "anchors": rule.snapshots, "seconds": round(result.seconds, 3),
        "finding_samples": {"shown": len(rule.findings), "stored": rule.stored, "findings": list(rule.findings)},
    }  # fmt: skip


def rule_case(rule: RuleReport) -> JUnitCase:
    """Return the test case of a rule: counts, reasons, money, coverage, the first findings."""
    lines = [*filter(None, (rule.headline,)), *rule.result.reasons]
    lines += [f"{fact.name}: {fact.value}" for fact in _facts(rule)]
    lines += [f"{item.words}: {item.title}" for item in rule.samples[:_LINES_OF_A_CASE]]
    if rule.stored > _LINES_OF_A_CASE:
        lines.append(f"{rule.stored:,} findings are stored")
    return JUnitCase("rules", rule.result.pair, rule.result.verdict, tuple(lines), rule.result.seconds)


def rule_metrics(rules: Sequence[RuleReport]) -> Iterator[Metric]:
    """Yield the gauges of rules; nothing where the run holds none."""
    if not rules:
        return
    named = [
        ({"rule": rule.result.pair, **{name: rule.text(name) for name in ("kind", "severity", "owner")}}, rule)
        for rule in rules
    ]
    yield Metric("migverify_rule_verdict", "1 for the verdict of the rule, 0 for the others.", [
        sample for names, rule in named for sample in verdict_samples(names, rule.result.verdict)
    ])  # fmt: skip
    yield Metric("migverify_rule_findings", "Findings of the rule by class.", [
        ({**names, "class": kind}, str(n)) for names, rule in named for kind, n in rule.counts.items()
    ])  # fmt: skip
    yield Metric("migverify_rule_money_at_risk", "Money at risk by class and currency; the sum is exact.", [
        ({**names, "class": kind, "currency": unit}, value) for names, rule in named for kind, unit, value in rule.money
    ])  # fmt: skip
    yield Metric("migverify_rule_unexplained_money", "Money at risk that nothing explains, by currency; exact.", [
        ({**names, "currency": unit}, value) for names, rule in named
        for unit, value in rule.amounts("unexplained").items()
    ])  # fmt: skip
    yield Metric("migverify_rule_rows", "Rows read per side.", [
        ({**names, "side": side}, number(rows)) for names, rule in named
        for side, rows in (("source", rule.result.rows_source), ("target", rule.result.rows_target))
    ])  # fmt: skip
    yield Metric("migverify_rule_windows", "Windows that were evaluated.",
                 [(names, str(rule.result.chunks)) for names, rule in named])  # fmt: skip
    yield Metric("migverify_rule_seconds", "Wall time of the rule.",
                 [(names, number(rule.result.seconds)) for names, rule in named])  # fmt: skip


def warned(rules: Sequence[RuleReport]) -> str:
    """Return the findings of rules that only warn, in words: verdicts and other counts leave them out."""
    numbers = [rule.warnings for rule in rules if rule.warnings]
    return f"{_warnings(sum(numbers))} in {amount(len(numbers), 'rule')}" if numbers else ""


def worst_money(rules: Sequence[RuleReport]) -> list[tuple[str, str]]:
    """Return the unexplained money of the worst rule by currency, largest figures exact."""
    worst: dict[str, Decimal] = {}
    for rule in rules:
        for currency, value in rule.at_stake.items():
            worst[currency] = max(worst.get(currency, Decimal(0)), Decimal(value))
    return [(currency, money_text(format(value, "f"))) for currency, value in sorted(worst.items())]


def _warnings(number_: int) -> str:
    return amount(number_, "warning") if number_ else ""


def _amounts(sums: Mapping[str, str]) -> str:
    return ", ".join(f"{money_text(value)} {currency}" for currency, value in sums.items())


def money_text(value: str) -> str:
    """Return an exact amount with its thousands apart: ``-1,234.50``; every digit stays."""
    found = _AMOUNT.fullmatch(value)
    return value if found is None else f"{found[1]}{int(found[2]):,}{found[3]}"
