"""Remedies that are proved: a hint or an index that does not exist is tried in a session of the target, and measured.

Nothing on the server changes: a hint counts for one statement, and HYPO_INDEX (TiDB 8.4 and later) is an index that the
optimizer plans with and nobody made. Both need no more than SELECT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from migverify.errors import MigverifyError
from migverify.model import IndexDef, Side
from migverify.sql.index_ddl import add_index, set_visible
from migverify.sql.lexer import Modes, TokenKind, tokens
from migverify.sql.quoting import quote_name
from migverify.workload.plans.judge import JudgedPlans, PlanLimits
from migverify.workload.plans.model import Harm, PlanFinding, QueryPlan, SamplePlans
from migverify.workload.plans.statistics import Indexes

_HINTED = frozenset({b"SELECT", b"UPDATE", b"DELETE"})
_LITERALS = {TokenKind.STRING: b"'x'", TokenKind.INTEGER: b"1", TokenKind.NUMBER: b"1", TokenKind.PARAMETER: b"1"}
_HYPOTHETICAL = "migverify_try"


class RemedyKind(StrEnum):
    """Kinds of changes that last."""

    BINDING = "binding"
    VISIBLE = "visible"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What may help a statement.

    Parameters
    ----------
    lasting
        The statement that makes the change for good.
    index
        Of the target where it has it, else of the source.
    text, hint
        The statement with a hint that has the same effect in one session; empty where no hint can say it.
    """

    kind: RemedyKind
    table: tuple[str, str]
    index: IndexDef
    lasting: str
    text: bytes = b""
    hint: str = ""


def with_remedies(
    judged: JudgedPlans, names: Mapping[str, tuple[str, str]], source: Indexes, target: Indexes,
    explained: Callable[[int, bytes], QueryPlan], modes: Sequence[Modes], limits: PlanLimits | None = None,
) -> JudgedPlans:  # fmt: skip
    """Return what was found with remedies that were tried.

    Parameters
    ----------
    source, target
        The indexes of both sides.
    explained
        Gives the target's plan of a text in the session of a sample, by its number; raises MigverifyError.
    modes
        Those of each sample's session.
    """
    chosen, samples = limits or PlanLimits(), judged.plans.samples
    found = []
    for finding in judged.findings:
        sample = samples[finding.sample]
        remedy = remedy_of(finding, names, source, target, sample.sql, modes[finding.sample])
        found.append(finding if remedy is None else _tried(finding, remedy, sample, explained, chosen))
    return replace(judged, findings=tuple(found))


def remedy_of(
    finding: PlanFinding, names: Mapping[str, tuple[str, str]], source: Indexes, target: Indexes, sql: bytes,
    modes: Modes,
) -> Remedy | None:  # fmt: skip
    """Return what may help a finding of a scan or a lost index; None where nothing is known that does."""
    table = names.get(finding.table.lower())
    if table is None or finding.harm not in (Harm.FULL_SCAN, Harm.INDEX_LOST) or not finding.index:
        return None
    known = target.get(table, {}).get(finding.index.lower())
    if known is not None and known.visible:
        hint = f"USE_INDEX({quote_name(finding.table)}, {quote_name(finding.index)})"
        text = hinted(sql, hint, modes)
        if text is None:
            return None
        bare, better = (_without_values(one, modes).decode("utf-8", "replace") for one in (sql, text))
        binding = f"USE {quote_name(table[0])}; CREATE GLOBAL BINDING FOR {bare} USING {better}"
        return Remedy(RemedyKind.BINDING, table, known, binding, text, hint)
    index = known or source.get(table, {}).get(finding.index.lower())
    if index is None:
        return None
    lasting = add_index(*table, index) if known is None else set_visible(*table, known.name, visible=True)
    if lasting is None:
        return None
    columns = [one for one in index.columns if one is not None]
    hint = f"HYPO_INDEX({quote_name(table[1])}, {_HYPOTHETICAL}, {', '.join(map(quote_name, columns))})"
    text = hinted(sql, hint, modes) if len(columns) == len(index.columns) else None
    return Remedy(RemedyKind.INDEX if known is None else RemedyKind.VISIBLE, table, index, lasting, text or b"", hint)


def _tried(
    finding: PlanFinding, remedy: Remedy, sample: SamplePlans, explained: Callable[[int, bytes], QueryPlan],
    limits: PlanLimits,
) -> PlanFinding:  # fmt: skip
    answer = sample.plans.get(Side.TARGET)
    before = None if answer is None else answer.plan
    if before is None:
        return finding
    if not remedy.text:
        return replace(finding, remedy=f"{remedy.lasting} (not tried: no hint can say it)")
    try:
        after = explained(finding.sample, remedy.text)
    except MigverifyError as error:
        return replace(finding, remedy=f"{finding.remedy} Not tried: {error}")
    if finding.from_catalog and after.read * limits.more > before.read:  # the target counts rows that it does not know
        return replace(finding, remedy=f"{remedy.lasting} (not proved: the statistics of the target say nothing)")
    if after.read * limits.more <= before.read:
        whole = " on whole columns" if any(remedy.index.prefixes) and remedy.kind is not RemedyKind.BINDING else ""
        gain = f"{before.read:,.0f} rows become {after.read:,.0f}"
        return replace(
            finding, remedy=f"{remedy.lasting} (tried by the hint {remedy.hint}{whole}: {gain})", proved=True
        )
    still = f"An index does not help: with {remedy.hint} the target reads {after.read:,.0f} rows."
    return replace(finding, remedy=f"{still} Compare the types and collations of what is compared.")


def hinted(sql: bytes, hint: str, modes: Modes) -> bytes | None:
    """Return a statement with a hint behind its first word; None for one with several queries, or hints of its own."""
    found = list(tokens(sql, "mysql", modes))
    words = [sql[one.start : one.end].upper() for one in found if one.kind is TokenKind.WORD]
    if not found or words.count(b"SELECT") > 1 or any(one.kind in (TokenKind.HINT, TokenKind.OPEN) for one in found):
        return None
    first = found[0]
    if sql[first.start : first.end].upper() not in _HINTED:
        return None
    return sql[: first.end] + b" /*+ " + hint.encode() + b" */" + sql[first.end :]


def _without_values(sql: bytes, modes: Modes) -> bytes:
    """Return a statement with other values: a binding is for all of them, and the capture's stay where they are."""
    return b"".join(_pieces(sql, modes)).strip().rstrip(b";")


def _pieces(sql: bytes, modes: Modes) -> Iterator[bytes]:
    at = 0
    for one in tokens(sql, "mysql", modes):
        yield sql[at : one.start]
        yield _LITERALS.get(one.kind) or sql[one.start : one.end]
        at = one.end
    yield sql[at:]
