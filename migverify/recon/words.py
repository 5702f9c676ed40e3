"""What a rule will do, in one line: for ``recon check`` and whoever shows rules to people."""

from __future__ import annotations

from decimal import Decimal

from migverify.recon.model import (
    Dataset,
    FilePart,
    Kind,
    Part,
    QueryPart,
    Rule,
    RuleSet,
    TablePart,
)

_UNITS = (("d", Decimal(86_400)), ("h", Decimal(3_600)), ("m", Decimal(60)), ("s", Decimal(1)))


def duration_text(seconds: float) -> str:
    """Seconds as rules write them: ``1h30m``, ``0.5s``, ``0s``."""
    rest, parts = Decimal(str(seconds)), []
    for unit, size in _UNITS[:-1]:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:.0f}{unit}")
    if rest or not parts:
        parts.append(f"{rest.normalize():f}s")
    return "".join(parts)


def dataset_text(dataset: Dataset) -> str:
    """``orders (source shop.orders)``, ``payments (64 shards, target pay_0.payments ...)``."""
    first = _part_text(dataset.parts[0])
    if len(dataset.parts) > 1:
        return f"{dataset.name} ({len(dataset.parts)} shards, {first} ...)"
    return f"{dataset.name} ({first})"


def _part_text(part: Part) -> str:
    if isinstance(part, TablePart):
        return f"{part.endpoint} {part.database}.{part.table}" + (" where ..." if part.where else "")
    if isinstance(part, QueryPart):
        return f"{part.endpoint} query"
    if isinstance(part, FilePart):
        return f"files {part.path}"
    state = "last changes" if part.state else "changes"
    return f"{state} of {part.database}.{part.table} from {part.endpoint or part.path}"


def rule_text(rule: Rule, rules: RuleSet) -> str:
    """What a rule asks, of which datasets, and under which conditions."""
    source = dataset_text(rules.datasets[rule.source])
    target = dataset_text(rules.datasets[rule.target]) if rule.target is not None else ""
    parts = [f"{rule.name}: {_asks(rule, source, target)}"]
    if rule.tolerance:
        parts.append("tolerance " + ", ".join(f"{name} {value:f}" for name, value in rule.tolerance))
    if rule.money is not None:
        parts.append(f"money {rule.money.column} in {rule.money.currency}")
    if rule.window is not None:
        parts.append(f"windows of {duration_text(rule.window.seconds)}")
    if rule.settle is not None and rule.target is not None:
        parts.append(f"settle {duration_text(rule.settle)}")
    parts.append(f"{rule.rereads} re-reads" if rule.rereads != 1 else "1 re-read")
    parts.append(rule.severity + (f", owner {rule.owner}" if rule.owner else ""))
    return "; ".join(parts)


def _asks(rule: Rule, source: str, target: str) -> str:
    options = rule.options
    key = ", ".join(rule.key)
    groups = ", ".join(options.get("groups") or ())
    if rule.kind is Kind.SAME_ROWS:
        compared = ", ".join(rule.compare) or "all columns"
        return f"rows of {source} and {target} by {key} have equal {compared}"
    if rule.kind is Kind.SAME_GROUPS:
        drill = ", then rows by " + key if options["drill"] else ""
        return f"{', '.join(map(str, options['measures']))} of {source} and {target} agree per {groups}{drill}"
    if rule.kind is Kind.ZERO_SUM:
        return f"{options['amount']} of {source} sums to 0 per {_with(groups, options['currency'])}"
    if rule.kind is Kind.BALANCE:
        summed = f"{options['amount']} of {target} by {', '.join(options['entries_key'])}"
        return f"{options['balance']} of {source} by {key} is the sum of {summed}"
    if rule.kind is Kind.TRANSITIONS:
        return f"{options['column']} of {source} by {key} moves along {len(options['allowed'])} states' allowed steps"
    if rule.kind is Kind.ORPHANS:
        both = ", and each parent a child" if options["both"] else ""
        return f"every {', '.join(options['reference'])} of {target} is a {key} of {source}{both}"
    if rule.kind is Kind.UNIQUE:
        return f"{key} occurs once in {source}"
    if rule.kind is Kind.SEQUENCE:
        gaps = "without a gap" if options["gaps"] == "report" else "gaps allowed"
        return f"{options['column']} of {source} rises {gaps}{' per ' + groups if groups else ''}"
    if rule.kind is Kind.FRESHNESS:
        per = f" per {groups}" if groups else ""
        return f"the newest row of {source}{per} is at most {duration_text(options['limit'])} old"
    if rule.kind is Kind.COVERAGE:
        return _covers(rule, source, target, groups)
    if rule.kind is Kind.NO_ROWS:
        return f"{source} is empty"
    count = "a file" if isinstance(options["suite"], str) else f"{len(options['suite'])} expectations"
    return f"{source} meets {count} of Great Expectations"


def _covers(rule: Rule, source: str, target: str, groups: str) -> str:
    asked = [f"{name} is not NULL in {share:f} of the rows" for name, share in rule.options["columns"].items()]
    if target:
        share = rule.options["share"]
        names = ", ".join(rule.options["reference"])
        asked.append(f"{names} exists in {target} for {Decimal(1) if share is None else share:f} of the rows")
    return f"in {source}{' per ' + groups if groups else ''}, {' and '.join(asked)}"


def _with(groups: str, currency: str | None) -> str:
    return f"{groups}, {currency}" if currency else groups
