"""Money at risk of one key: which amounts, in which currencies; what is not known is a reason, never 0."""

from __future__ import annotations

from decimal import Decimal

from migverify.recon.kinds.amounts import amount, distance, times
from migverify.recon.kinds.scene import JudgeInputs, money_rule
from migverify.recon.model import Money
from migverify.recon.relation import KeyRows, Pairing

Risk = tuple[tuple[tuple[str, Decimal], ...], str]
"""Amounts by currency (the first is the source's), and why an amount is not known."""

NO_RISK: Risk = ((), "")


def risk_of_rows(scene: JudgeInputs, pairing: Pairing) -> Risk:
    """Return what is at risk where rows of a key are missing on one side or hold unlike values.

    One-sided: the amount of each row. Both sides, one currency: |source - target|. Unlike currencies: both amounts.
    """
    money = money_rule(scene.rule)
    if money is None:
        return NO_RISK
    sides = []
    for held, target in ((pairing.source, False), (pairing.target, True)):
        if held is None:
            continue
        known, reason = _amount(scene, money, held, pairing, target=target)
        if known is None:
            return (), reason
        sides.append((*known, held.count))
    if len(sides) == 1:
        currency, value, count = sides[0]
        return ((currency, times(value, count)),), ""
    (one_currency, one, _), (other_currency, other, _) = sides
    if one_currency == other_currency:
        return ((one_currency, distance(one, other)),), ""
    return ((one_currency, one.copy_abs()), (other_currency, other.copy_abs())), ""


def risk_of_extra(scene: JudgeInputs, pairing: Pairing) -> Risk:
    """Return what is at risk where rows of a key repeat: the amount times the extra rows of the side with most."""
    money = money_rule(scene.rule)
    if money is None:
        return NO_RISK
    held, target = pairing.source, False
    if pairing.target is not None and (held is None or pairing.target.count > held.count):
        held, target = pairing.target, True
    if held is None:
        return NO_RISK
    known, reason = _amount(scene, money, held, pairing, target=target)
    return ((), reason) if known is None else (((known[0], times(known[1], held.count - 1)),), "")


def risk_of_sums(scene: JudgeInputs, pairing: Pairing, measure: str) -> Risk:
    """Return |sum on source - sum on target| of a group; the sum itself where one side has no such group.

    ``measure`` names the value column that holds the sum of money.
    """
    money = money_rule(scene.rule)
    where = scene.place(measure)
    if money is None or where is None:
        return NO_RISK
    sums = []
    for held in (pairing.source, pairing.target):
        if held is not None:
            value = amount(held.values[where])
            if value is None:
                return (), f"money is not known: {measure} is {_problem(held.values[where])}"
            sums.append(value)
    held = pairing.source or pairing.target
    currency = money.constant or scene.text(held, pairing.key, money.currency, target=pairing.source is None)
    if currency is None:
        return (), f"money is not known: the group has no one {money.currency}"
    at_risk = distance(sums[0], sums[1]) if len(sums) == 2 else sums[0].copy_abs()
    return ((currency, at_risk),), ""


def _amount(
    scene: JudgeInputs, money: Money, held: KeyRows, pairing: Pairing, *, target: bool
) -> tuple[tuple[str, Decimal] | None, str]:
    side = scene.names[target]
    if (held.unlike or held.mixed) and held.count > 1:
        return None, f"money is not known: rows of this key hold unlike values on {side}"
    text = scene.text(held, pairing.key, money.column, target=target)
    value = amount(text)
    if value is None:
        return None, f"money is not known: {money.column} is {_problem(text)} on {side}"
    currency = money.constant or scene.text(held, pairing.key, money.currency, target=target)
    if currency is None:
        return None, f"money is not known: {money.currency} is NULL on {side}"
    return (currency, value), ""


def _problem(text: str | None) -> str:
    return "NULL" if text is None else "not a number"
