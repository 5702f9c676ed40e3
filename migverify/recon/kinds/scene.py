"""What a kind knows besides a pairing: the rule, its columns by name, how keys and values are told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from migverify.model import ColumnDef, KeyText, Lane
from migverify.recon.kinds.amounts import amount, distance
from migverify.recon.model import Class, Deviation, Money, Rule, RuleFinding
from migverify.recon.relation import KeyRows, Pairing, Relation
from migverify.sql.canonical import FAMILIES
from migverify.tables.tasks import ReadColumn
from migverify.tables.values import difference_kind, same_value

NUMBERS = frozenset({"integer", "decimal", "bit", "year", "float"})


@dataclass(frozen=True, slots=True)
class JudgeInputs:
    """The rule with the columns of its relations.

    ``times`` names the time column of each side, None where there is none. ``show`` says whether values may stand in
    messages; a masked message names columns and classes of differences. With ``hashed_keys`` a key is told by its hash:
    the key is the whole row, and values may not be shown.
    """

    rule: Rule
    source: Relation
    target: Relation | None
    times: tuple[str | None, str | None] = (None, None)
    show: bool = True
    hashed_keys: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """How messages call the two sides: by their datasets."""
        return self.source.dataset, self.target.dataset if self.target is not None else ""

    def tolerance(self, column: str) -> Decimal | None:
        """Largest absolute difference of a column that counts as equal; None for exact."""
        return dict(self.rule.tolerance).get(column)

    def key_words(self, key: KeyText) -> str:
        """Return a key, or the first parts of one, as people say it: ``payment 42``."""
        named = self.source.key
        if not key:
            return "all rows"
        parts = []
        for number, part in enumerate(key):
            name = named[number].name if number < len(named) else ""
            word = name.removesuffix("_id") or name
            parts.append(f"{word} {'NULL' if part is None else part}".strip())
        return ", ".join(parts)

    def text(self, held: KeyRows | None, key: KeyText, column: str, *, target: bool = False) -> str | None:
        """Return a column's text of one side, from values or key; None for NULL, no such row or no such column."""
        relation = self.target if target and self.target is not None else self.source
        if held is None:
            return None
        where = self.place(column)
        if where is not None and where < len(held.values):
            return held.values[where]
        for number, one in enumerate(relation.key):
            if one.name == column and number < len(key):
                return key[number]
        return None

    def place(self, column: str) -> int | None:
        """Return the place of a value column by its name (of the source, whose order both sides follow)."""
        return next((n for n, one in enumerate(self.source.values) if one.name == column), None)

    def moment(self, pairing: Pairing) -> datetime | None:
        """Return the latest time of the rows of a key, UTC; None where no row tells it."""
        found = []
        for held, relation, name in (
            (pairing.source, self.source, self.times[0]), (pairing.target, self.target, self.times[1])
        ):  # fmt: skip
            if held is None or relation is None or name is None:
                continue
            where = next((n for n, one in enumerate(relation.values) if one.name == name), None)
            moment = moment_of(held.values[where]) if where is not None and where < len(held.values) else None
            if moment is not None:
                found.append(moment)
        return max(found, default=None)

    def deviations(self, pairing: Pairing, columns: Sequence[str]) -> tuple[Deviation, ...]:
        """Return the columns in which both sides hold unlike values, within no tolerance."""
        if pairing.source is None or pairing.target is None or self.target is None:
            return ()
        out = []
        for name in columns:
            where = self.place(name)
            if where is None:
                continue
            one, other = pairing.source.values[where], pairing.target.values[where]
            ours, theirs = self.source.values[where], self.target.values[where]
            if not same(ours, theirs, self.tolerance(name), one, other):
                out.append(Deviation(name, one, other, difference_kind(_read(ours, theirs), one, other)))
        return tuple(out)

    def tell(self, deviations: Sequence[Deviation]) -> str:
        """Return deviations as people say them: ``amount 10.00 on orders, 10.01 on payments``."""
        source, target = self.names
        if self.show:
            told = (f"{d.column} {word(d.source)} on {source}, {word(d.target)} on {target}" for d in deviations)
            return "; ".join(told)
        return "; ".join(f"{d.column} differs ({d.kind}) between {source} and {target}" for d in deviations)

    def finding(
        self, pairing: Pairing, of: Class, words: str, deviations: tuple[Deviation, ...] = (), *,
        money: Sequence[tuple[str, Decimal]] = (), reason: str = "", about: str = "",
    ) -> RuleFinding:  # fmt: skip
        """Return a finding that nothing has excused yet; ``words`` follow ``about`` (or the key) in its message."""
        shards = [shard for held in (pairing.source, pairing.target) if held is not None for shard in held.shards]
        counts = tuple(held.count if held is not None else 0 for held in (pairing.source, pairing.target))
        key = hashed(pairing.key) if self.hashed_keys else pairing.key
        about = about or (f"row {key[0]}" if self.hashed_keys else self.key_words(key))
        return RuleFinding(
            rule=self.rule.name, key=key, kind=of, of=of, message=f"{about}: {words}", deviations=deviations,
            money=money[0][1] if money else None, currency=money[0][0] if money else None, also=tuple(money[1:]),
            counts=(counts[0], counts[1]), shard=", ".join(dict.fromkeys(s for s in shards if s)), reason=reason,
        )  # fmt: skip


def hashed(key: KeyText) -> KeyText:
    """Return the key that stands for a key whose parts may not be shown."""
    framed = json.dumps(key, ensure_ascii=True, separators=(",", ":"))
    return ("sha256:" + hashlib.sha256(framed.encode("ascii")).hexdigest(),)


def word(text: str | None) -> str:
    """Return a value as it stands in a message."""
    return "NULL" if text is None else text or "''"


def rows(count: int) -> str:
    """Return ``1 row`` or ``2 rows``."""
    return f"{count:,} row{'' if count == 1 else 's'}"


def moment_of(text: str | None) -> datetime | None:
    """Return the time that a canonical DATETIME or DATE text holds, UTC; None for NULL, zero and partial dates."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else None


def family(column: ColumnDef) -> str:
    """Return the type family of a column; empty for one that the type table does not know."""
    return FAMILIES.get(column.data_type, "")


def _read(ours: ColumnDef, theirs: ColumnDef) -> ReadColumn:
    families = family(ours), family(theirs)
    if "json" in families:
        compare = "json"
    elif families == ("labels", "labels"):
        compare = "labels"
    elif families[0] in NUMBERS and families[1] in NUMBERS:
        compare = "number"
    else:
        compare = "text"
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


def money_rule(rule: Rule) -> Money | None:
    """Return what is money of a rule: as stated, or the summed amount where its currency is a column of the rule."""
    if rule.money is not None:
        return rule.money
    column, currency = rule.options.get("amount"), rule.options.get("currency")
    return Money(str(column), str(currency)) if column and currency else None
