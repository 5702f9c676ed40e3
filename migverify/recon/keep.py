"""One window of a rule on its way into the store: opened, filled with findings as they come, closed by its result.

While a window is open, its findings count for nothing: a run that was killed evaluates it again. Findings of an earlier
evaluation of the window are taken back first, so that what does not differ any more does not stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from migverify.recon.bodies import DONE, bodies, open_body, result_body, window_text, withdrawn
from migverify.recon.model import RuleFinding, RuleResult, Window
from migverify.store.base import ResultStore

PAGE = 1000
Evaluate = Callable[[Callable[[Sequence[RuleFinding]], None]], RuleResult]
"""Evaluates a window, handing findings to a sink."""


def keep_window(
    store: ResultStore, run_id: str, rule: str, window: Window | None, evaluate: Evaluate, *, show: bool,
    begun: bool = True,
) -> RuleResult:  # fmt: skip
    """Evaluate a window and keep its findings and its result.

    Parameters
    ----------
    evaluate
        Called once with the sink of the window.
    show
        Values of columns may be kept; else they are masked before they reach the store.
    begun
        Whether the run may hold findings of this window already; False saves looking for them.

    Raises
    ------
    StoreError
        what was found cannot be kept.
    """
    batches = 0
    if begun:
        take_back(store, run_id, rule, window)

    def sink(findings: Sequence[RuleFinding]) -> None:
        nonlocal batches
        batches += 1
        store.add_window(run_id, rule, open_body(rule, window, batches), list(bodies(findings, show=show)))

    store.add_window(run_id, rule, open_body(rule, window, 0), [])
    result = evaluate(sink)
    store.add_window(run_id, rule, result_body(result), [])
    return result


def take_back(store: ResultStore, run_id: str, rule: str, window: Window | None) -> int:
    """Take back the findings that an earlier evaluation of the window left; return how many there were."""
    name = window_text(window)
    if all(body["window"] != name for body in store.windows(run_id, rule)):
        return 0
    taken, after = 0, 0
    while page := store.findings(run_id, rule, after=after, limit=PAGE, window=name):
        after = page[-1][0]
        taken += len(page)
        store.add_window(run_id, rule, open_body(rule, window, 0), [withdrawn(body) for _, body in page])
    return taken


def known_windows(store: ResultStore, run_id: str, rule: str) -> dict[str, bool]:
    """Return the windows of a rule that the run holds, by name, and whether each was evaluated to its end."""
    return {str(body["window"]): body["state"] == DONE for body in store.windows(run_id, rule)}
