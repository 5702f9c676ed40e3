"""What judges a pairing besides its rule: columns by name, how keys and values are written, money at risk of a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from migverify.model import ColumnDef, KeyText, Lane
from migverify.recon.amounts import amount, distance, times
from migverify.recon.fields import Money
from migverify.recon.model import Class, Deviation, RuleFinding
from migverify.recon.relation import KeyRows, Pairing, Relation
from migverify.sql.canonical import FAMILIES
from migverify.tables.tasks import ReadColumn
from migverify.tables.values import difference_kind, same_value

NUMBERS = frozenset({"integer", "decimal", "bit", "year", "float"})
Risk = tuple[tuple[tuple[str, Decimal], ...], str]
"""Amounts by currency (the first is the source's), and why an amount is not known."""

NO_RISK: Risk = ((), "")


@dataclass(frozen=True, slots=True)
class JudgeInputs:
    """A rule's name, money and tolerances, with the columns of its relations.

    ``times`` names the time column of each side, None where there is none. ``now`` is Unix time's UTC moment of the
    judgment. ``show`` says whether values may be in messages; a masked message names columns and classes of
    differences. With ``hashed_keys`` a key is named by its hash: it is the whole row, and values may not be shown.
    """

    rule: str
    source: Relation
    target: Relation | None
    times: tuple[str | None, str | None] = (None, None)
    money: Money | None = None
    tolerances: Mapping[str, Decimal] = field(default_factory=dict)
    now: datetime = datetime(1970, 1, 1)
    show: bool = True
    hashed_keys: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """How messages call the two sides: by their datasets."""
        return self.source.dataset, self.target.dataset if self.target is not None else ""

    def tolerance_of(self, measure: str) -> Decimal | None:
        """Return the tolerance of a measure, given by its own name or by its column's."""
        inner = measure[measure.find("(") + 1 :].rstrip(")")
        return self.tolerances.get(measure, self.tolerances.get(inner))

    def key_words(self, key: KeyText) -> str:
        """Return a key, or the first parts of one, as people say it: ``payment 42``."""
        if not key:
            return "all rows"
        names = [column.name for column in self.source.key] + [""] * len(key)
        parts = zip((name.removesuffix("_id") or name for name in names), key, strict=False)
        return ", ".join(f"{name} {'NULL' if part is None else part}".strip() for name, part in parts)

    def text(self, rows: KeyRows | None, key: KeyText, column: str, *, target: bool = False) -> str | None:
        """Return a column's text of one side, from values or key; None for NULL, no such row or no such column."""
        relation = self.target if target and self.target is not None else self.source
        if rows is None:
            return None
        index = self.index(column)
        if index is not None and index < len(rows.values):
            return rows.values[index]
        return next((part for one, part in zip(relation.key, key, strict=False) if one.name == column), None)

    def index(self, column: str) -> int | None:
        """Return the index of a value column by its name (of the source, whose order both sides follow)."""
        return _index(self.source, column)

    def moment(self, pairing: Pairing) -> datetime | None:
        """Return the latest time of the rows of a key, UTC; None where no row has one."""
        moments = []
        sides = ((pairing.source, self.source, self.times[0]), (pairing.target, self.target, self.times[1]))
        for rows, relation, name in sides:
            if rows is not None and relation is not None and name is not None:
                index = _index(relation, name)
                moment = moment_of(rows.values[index]) if index is not None and index < len(rows.values) else None
                moments += [] if moment is None else [moment]
        return max(moments, default=None)

    def deviations(self, pairing: Pairing, columns: Sequence[str]) -> tuple[Deviation, ...]:
        """Return the columns in which both sides hold different values, beyond the tolerance."""
        if pairing.source is None or pairing.target is None or self.target is None:
            return ()
        out = []
        for name in columns:
            index = self.index(name)
            if index is None:
                continue
            one, other = pairing.source.values[index], pairing.target.values[index]
            ours, theirs = self.source.values[index], self.target.values[index]
            if not same(ours, theirs, self.tolerances.get(name), one, other):
                out.append(Deviation(name, one, other, difference_kind(_read(ours, theirs), one, other)))
        return tuple(out)

    def describe(self, deviations: Sequence[Deviation]) -> str:
        """Return deviations as people say them: ``amount 10.00 on orders, 10.01 on payments``."""
        source, target = self.names
        if self.show:
            return "; ".join(
                f"{d.column} {word(d.source)} on {source}, {word(d.target)} on {target}" for d in deviations
            )
        return "; ".join(f"{d.column} differs ({d.kind}) between {source} and {target}" for d in deviations)

    def finding(
        self, pairing: Pairing, of: Class, words: str, deviations: tuple[Deviation, ...] = (), *,
        risk: Risk = NO_RISK, about: str = "",
    ) -> RuleFinding:  # fmt: skip
        """Return a finding that nothing has excused yet; ``words`` follow ``about`` (or the key) in its message."""
        shards = [shard for rows in (pairing.source, pairing.target) if rows is not None for shard in rows.shards]
        counts = tuple(rows.count if rows is not None else 0 for rows in (pairing.source, pairing.target))
        key = hashed(pairing.key) if self.hashed_keys else pairing.key
        about = about or (f"row {key[0]}" if self.hashed_keys else self.key_words(key))
        money, reason = risk
        return RuleFinding(
            rule=self.rule, key=key, kind=of, of=of, message=f"{about}: {words}", deviations=deviations,
            money=money[0][1] if money else None, currency=money[0][0] if money else None, also=tuple(money[1:]),
            counts=(counts[0], counts[1]), shard=", ".join(dict.fromkeys(s for s in shards if s)), reason=reason,
        )  # fmt: skip

    def missing(self, pairing: Pairing, words: str = "", risk: Risk | None = None) -> RuleFinding | None:
        """Return the finding of a key that one side lacks; None where both lack it by now."""
        rows = pairing.source or pairing.target
        if rows is None:
            return None
        on_source = pairing.source is None
        here, there = reversed(self.names) if on_source else self.names
        one = (
            f"on {here}, missing on {there}"
            if rows.count == 1
            else f"{count_text(rows.count)} on {here}, none on {there}"
        )
        of = Class.MISSING_ON_SOURCE if on_source else Class.MISSING_ON_TARGET
        return self.finding(pairing, of, words.format(here=here, there=there) or one, risk=risk or self.risk(pairing))

    # Money at risk: what is not known is a reason, never 0

    def risk(self, pairing: Pairing) -> Risk:
        """Return what is at risk where rows of a key are missing on one side or hold different values.

        One-sided: the amount of each row. Both sides, one currency: |source - target|. Two currencies: both amounts.
        """
        if self.money is None:
            return NO_RISK
        sides = []
        for rows, target in ((pairing.source, False), (pairing.target, True)):
            if rows is not None:
                known, reason = self._amount(self.money, rows, pairing, target=target)
                if known is None:
                    return (), reason
                sides.append((*known, rows.count))
        if len(sides) == 1:
            currency, value, count = sides[0]
            return ((currency, times(value, count)),), ""
        (one_currency, one, _), (other_currency, other, _) = sides
        if one_currency == other_currency:
            return ((one_currency, distance(one, other)),), ""
        return ((one_currency, one.copy_abs()), (other_currency, other.copy_abs())), ""

    def risk_of_extra(self, pairing: Pairing) -> Risk:
        """Return what is at risk where rows of a key repeat: the amount times the extra rows of the side with most."""
        rows, target = pairing.source, False
        if pairing.target is not None and (rows is None or pairing.target.count > rows.count):
            rows, target = pairing.target, True
        if self.money is None or rows is None:
            return NO_RISK
        known, reason = self._amount(self.money, rows, pairing, target=target)
        return ((), reason) if known is None else (((known[0], times(known[1], rows.count - 1)),), "")

    def risk_of_sums(self, pairing: Pairing, measure: str) -> Risk:
        """Return |sum on source - sum on target| of a group; the sum itself where one side has no such group.

        ``measure`` names the value column that holds the sum of money.
        """
        index = self.index(measure)
        if self.money is None or index is None:
            return NO_RISK
        sums = []
        for rows in (pairing.source, pairing.target):
            if rows is not None:
                value = amount(rows.values[index])
                if value is None:
                    return (), f"money is not known: {measure} is {_problem(rows.values[index])}"
                sums.append(value)
        currency = self._currency(self.money, pairing.source or pairing.target, pairing, target=pairing.source is None)
        if currency is None:
            return (), f"money is not known: the group has no one {self.money.currency}"
        return ((currency, distance(sums[0], sums[1]) if len(sums) == 2 else sums[0].copy_abs()),), ""

    def risk_of_values(self, pairing: Pairing, values: tuple[Decimal | None, Decimal | None]) -> Risk:
        """Return |balance - sum of its entries|."""
        if self.money is None:
            return NO_RISK
        if values[0] is None or values[1] is None:
            return (), "money is not known: the balance or the sum is NULL or not a number"
        currency = self._currency(self.money, pairing.source or pairing.target, pairing, target=False)
        if currency is None:
            return (), f"money is not known: {self.money.currency} is NULL"
        return ((currency, distance(values[0], values[1])),), ""

    def _currency(self, money: Money, rows: KeyRows | None, pairing: Pairing, *, target: bool) -> str | None:
        return money.constant or self.text(rows, pairing.key, money.currency, target=target)

    def _amount(
        self, money: Money, rows: KeyRows, pairing: Pairing, *, target: bool
    ) -> tuple[tuple[str, Decimal] | None, str]:
        side = self.names[target]
        if (rows.differing or rows.mixed) and rows.count > 1:
            return None, f"money is not known: rows of this key hold different values on {side}"
        text = self.text(rows, pairing.key, money.column, target=target)
        value = amount(text)
        if value is None:
            return None, f"money is not known: {money.column} is {_problem(text)} on {side}"
        currency = self._currency(money, rows, pairing, target=target)
        if currency is None:
            return None, f"money is not known: {money.currency} is NULL on {side}"
        return (currency, value), ""


def _index(relation: Relation, column: str) -> int | None:
    return next((n for n, one in enumerate(relation.values) if one.name == column), None)


def _problem(text: str | None) -> str:
    return "NULL" if text is None else "not a number"


def hashed(key: KeyText) -> KeyText:
    """Return the hash that replaces a key whose parts may not be shown."""
    framed = json.dumps(key, ensure_ascii=True, separators=(",", ":"))
    return ("sha256:" + hashlib.sha256(framed.encode("ascii")).hexdigest(),)


def word(text: str | None) -> str:
    """Return a value as a message shows it."""
    return "NULL" if text is None else text or "''"


def count_text(count: int) -> str:
    """Return ``1 row`` or ``2 rows``."""
    return f"{count:,} row{'' if count == 1 else 's'}"


def moment_of(text: str | None) -> datetime | None:
    """Return the time that a canonical DATETIME or DATE text holds, UTC; None for NULL, zero and partial dates."""
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is None else None


def _read(ours: ColumnDef, theirs: ColumnDef) -> ReadColumn:
    families = FAMILIES.get(ours.data_type, ""), FAMILIES.get(theirs.data_type, "")
    if "json" in families:
        compare = "json"
    elif families == ("labels", "labels"):
        compare = "labels"
    else:
        compare = "number" if NUMBERS.issuperset(families) else "text"
    return ReadColumn(ours.name, families[0], Lane.VALUE, compare, families[0] == "binary")


def same(ours: ColumnDef, theirs: ColumnDef, tolerance: Decimal | None, one: str | None, other: str | None) -> bool:
    """Whether two texts are one value, or within the tolerance; NULL equals only NULL.

    A tolerance of a time column is in seconds. It is inclusive, and compared exactly.
    """
    if one == other or same_value(_read(ours, theirs), one, other):
        return True
    if tolerance is None:
        return False
    numbers = amount(one), amount(other)
    if numbers[0] is not None and numbers[1] is not None:
        return distance(numbers[0], numbers[1]) <= tolerance
    moments = moment_of(one), moment_of(other)
    if moments[0] is not None and moments[1] is not None:
        apart = abs(moments[0] - moments[1])
        micro = (apart.days * 86_400 + apart.seconds) * 1_000_000 + apart.microseconds
        return Decimal(micro) <= tolerance.scaleb(6)
    return False
