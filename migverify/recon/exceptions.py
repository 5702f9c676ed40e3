"""Known exceptions: findings that somebody answers for, until a date."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field

from migverify.config.fields import Many
from migverify.model import KeyText
from migverify.recon.fields import Moment, PlacedPart, ScalarText
from migverify.recon.model import MISMATCHES, Class, RuleFinding


class KnownException(PlacedPart):
    """A finding that somebody answers for."""

    rule: str = Field(min_length=1, description="Name of the rule.")
    key: Annotated[
        Many[ScalarText | None] | None,
        BeforeValidator(
            lambda value: value if value is None or isinstance(value, list | tuple) else [value],
            json_schema_input_type=str | int | list[str | int | None],
        ),
    ] = Field(default=None, min_length=1, description="Key of the finding. Default: every key.")
    owner: str = Field(min_length=1, description="Who answers for it.")
    reason: str = Field(min_length=1, description="Why it is known.")
    expires: Moment = Field(description="Date or time from which it counts no more; UTC.")


@dataclass(frozen=True, slots=True)
class Exceptions:
    """The exceptions of one rule, at one moment (UTC)."""

    by_key: dict[KeyText, tuple[KnownException, ...]]
    for_all: tuple[KnownException, ...]
    now: datetime

    @classmethod
    def of(cls, rule: str, entries: Iterable[KnownException], now: datetime) -> Exceptions:
        """Take the entries of a rule."""
        by_key: dict[KeyText, tuple[KnownException, ...]] = {}
        for_all: list[KnownException] = []
        for entry in entries:
            if entry.rule != rule:
                continue
            if entry.key is None:
                for_all.append(entry)
            else:
                by_key[entry.key] = (*by_key.get(entry.key, ()), entry)
        return cls(by_key, tuple(for_all), now)

    def apply(self, finding: RuleFinding, key: KeyText | None = None) -> RuleFinding:
        """Return the finding as a known exception where one holds; where all have expired, say so in its reason.

        ``key`` is what an exception may name besides the finding's own key: that of the row, where a finding's key
        holds more (both states of a change) or less (its hash). Findings that are pending are excused too: it does not
        matter any more how they end.
        """
        if finding.kind not in MISMATCHES and finding.kind is not Class.PENDING:
            return finding
        named = self.by_key.get(finding.key, ()) + (self.by_key.get(key, ()) if key is not None else ())
        entries = (*named, *self.for_all)
        holding = next((entry for entry in entries if self.now < entry.expires), None)
        if holding is not None:
            words = f"known exception of {holding.owner}: {holding.reason} (until {_day(holding.expires)})"
            return replace(finding, kind=Class.KNOWN_EXCEPTION, reason=_join(words, finding.reason))
        if entries and finding.kind in MISMATCHES:
            last = max(entries, key=lambda entry: entry.expires)
            words = f"the exception of {last.owner} ({last.reason}) expired on {_day(last.expires)}"
            return replace(finding, reason=_join(words, finding.reason))
        return finding


def _join(first: str, second: str) -> str:
    return f"{first}; {second}" if second else first


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
