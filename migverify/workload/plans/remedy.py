"""Remedies that are proved: a hint or an index that does not exist is tried in a session of the target, and measured.

Nothing on the server changes: a hint counts for one statement, and HYPO_INDEX (TiDB 8.4 and later) is an index that the
optimizer plans with and nobody made. Both need no more than SELECT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from migverify.errors import MigverifyError
from migverify.model import Side
from migverify.sql.lexer import Modes, TokenKind, tokens
from migverify.sql.quoting import quote_name, quote_path
from migverify.workload.plans.judge import JudgedPlans, PlanLimits
from migverify.workload.plans.model import Harm, PlanFinding, QueryPlan, SamplePlans
from migverify.workload.plans.statistics import Indexes

_HINTED = frozenset({b"SELECT", b"UPDATE", b"DELETE"})
_LITERALS = {TokenKind.STRING: b"'x'", TokenKind.INTEGER: b"1", TokenKind.NUMBER: b"1", TokenKind.PARAMETER: b"1"}
_HYPOTHETICAL = "migverify_try"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What is tried for a finding: ``text`` is the statement with ``hint``, ``lasting`` what to do where it helps."""

    text: bytes
    hint: str
    lasting: str


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
        if finding.harm in (Harm.FULL_SCAN, Harm.INDEX_LOST) and finding.index:
            sample = samples[finding.sample]
            trial = _trial(finding, names, source, target, sample.sql, modes[finding.sample])
            finding = _tried(finding, trial, sample, explained, chosen)
        found.append(finding)
    return replace(judged, findings=tuple(found))


def _trial(
    finding: PlanFinding, names: Mapping[str, tuple[str, str]], source: Indexes, target: Indexes, sql: bytes,
    modes: Modes,
) -> Remedy | None:  # fmt: skip
    table, index = names.get(finding.table.lower()), finding.index
    if table is None:
        return None
    known = target.get(table, {}).get(index.lower())
    if known is not None and known.visible:
        hint = f"USE_INDEX({quote_name(finding.table)}, {quote_name(index)})"
        text = hinted(sql, hint, modes)
        if text is None:
            return None
        bound = [_without_values(one, modes).decode("utf-8", "replace") for one in (sql, text)]
        return Remedy(text, hint, f"USE {quote_name(table[0])}; CREATE GLOBAL BINDING FOR {bound[0]} USING {bound[1]}")
    copied = known or source.get(table, {}).get(index.lower())
    columns = [one for one in copied.columns if one is not None] if copied is not None else []
    if copied is None or len(columns) < len(copied.columns):
        return None  # a hint cannot name the expression of an index
    listed = ", ".join(map(quote_name, columns))
    hint = f"HYPO_INDEX({quote_name(table[1])}, {_HYPOTHETICAL}, {listed})"
    change = f"ALTER INDEX {quote_name(index)} VISIBLE" if known else f"ADD INDEX {quote_name(index)} ({listed})"
    text = hinted(sql, hint, modes)
    return None if text is None else Remedy(text, hint, f"ALTER TABLE {quote_path(*table)} {change}")


def _tried(
    finding: PlanFinding, trial: Remedy | None, sample: SamplePlans, explained: Callable[[int, bytes], QueryPlan],
    limits: PlanLimits,
) -> PlanFinding:  # fmt: skip
    answer = sample.plans.get(Side.TARGET)
    before = None if answer is None else answer.plan
    if trial is None or before is None:
        return finding
    try:
        after = explained(finding.sample, trial.text)
    except MigverifyError as error:
        return replace(finding, remedy=f"{finding.remedy} Not tried: {error}")
    if after.read * limits.more <= before.read:
        told = f"{before.read:,.0f} rows become {after.read:,.0f}"
        return replace(finding, remedy=f"{trial.lasting} (tried by the hint {trial.hint}: {told})", proved=True)
    still = f"An index does not help: with {trial.hint} the target reads {after.read:,.0f} rows."
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
