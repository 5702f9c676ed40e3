"""Tallies -> verdict and reasons of one rule in one window. Pure; there is no path to MATCH but the last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migverify.model import Verdict
from migverify.recon.model import MISMATCHES, Class, Covered, Kind, Rule, Severity, Window

WORDS = {
    Class.VALUE_MISMATCH: ("1 key has unlike values", "keys have unlike values"),
    Class.MISSING_ON_SOURCE: ("1 key is missing on the source", "keys are missing on the source"),
    Class.MISSING_ON_TARGET: ("1 key is missing on the target", "keys are missing on the target"),
    Class.DUPLICATE: ("1 key is there too often", "keys are there too often"),
    Class.VIOLATION: ("1 finding is against the rule", "findings are against the rule"),
}
_EMPTY_IS_FINE = frozenset({Kind.NO_ROWS, Kind.EXPECTATIONS})
"""Kinds for which no rows is an answer."""


def conclude(
    rule: Rule,
    window: Window | None,
    counts: Mapping[Class, int],
    covered: Covered,
    gaps: Sequence[str],
    *,
    static: bool = False,
) -> tuple[Verdict, tuple[str, ...]]:
    """Judge one window of a rule.

    Parameters
    ----------
    counts
        Exact numbers of findings by class.
    gaps
        What was not read or could not be told; each makes a MATCH impossible.
    static
        Nothing writes to any dataset of the rule.

    Returns
    -------
    Verdict, reasons
        MISMATCH where a finding of a critical or major rule is unexplained; INCONCLUSIVE where something is pending or
        was not read, or where there was nothing to compare (save in a window, which may be empty); else MATCH.
    """
    found = [one if counts[kind] == 1 else f"{counts[kind]:,} {many}"
             for kind, (one, many) in WORDS.items() if counts.get(kind)]  # fmt: skip
    decides = rule.severity is not Severity.WARNING
    unread = nothing_read(rule, window, counts, covered, static=static)
    notes = [f"{text} (a warning)" for text in found] if not decides else []
    open_ends = list(gaps)
    if pending := counts.get(Class.PENDING, 0):
        text = f"{pending:,} {'key differs' if pending == 1 else 'keys differ'}, and it is too early to judge (pending)"
        (open_ends if decides else notes).append(text)
    if unread and window is None:
        open_ends.append(unread)
    elif unread:
        notes.append(unread)
    told = {Class.KNOWN_EXCEPTION: "explained by a known exception", Class.LATE_MATCHED: "late, then matched"}
    for kind, words in told.items():
        if counts.get(kind):
            notes.append(f"{counts[kind]:,} {words}")
    if found and decides:
        verdict = Verdict.MISMATCH
    elif open_ends:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.MATCH
    return verdict, (*(found if decides else ()), *open_ends, *notes)


def nothing_read(
    rule: Rule, window: Window | None, counts: Mapping[Class, int], covered: Covered, *, static: bool = False
) -> str:
    """Return the words for an evaluation that read no row, empty otherwise; without a window they are a gap."""
    if covered.rows_source + covered.rows_target + covered.events or rule.kind in _EMPTY_IS_FINE:
        return ""
    if any(counts.get(kind) for kind in MISMATCHES):
        return ""
    if window is not None:
        return f"there are no rows in {window}"
    return "there was nothing to compare: no rows were read" + (" of static data" if static else "")
