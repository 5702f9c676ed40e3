"""A run as gauges for Prometheus, so that what watches everything else can watch the run too."""

from __future__ import annotations

from collections.abc import Iterator

from migverify.exposition import Metric, Sample, number, page
from migverify.runbook.events import RunState
from migverify.runbook.page.view import View
from migverify.runbook.page.watch_run import PageState

__all__ = ["metrics_text", "run_metrics"]

_ANSWERS = {"pass": 1.0, "fail": 0.0}


def metrics_text(seen: PageState) -> str:
    """Return the page of metrics. A run that cannot be shown leaves ``migverify_runbook_readable`` 0, and no more."""
    readable = Metric(
        "migverify_runbook_readable", "1: there is a run, and its journal can be read.",
        [({}, number(float(seen.view is not None)))],
    )  # fmt: skip
    return page([readable, *(run_metrics(seen.view, seen.now) if seen.view is not None else ())])


def run_metrics(view: View, now: float) -> Iterator[Metric]:
    """Yield the gauges of a run at a moment, Unix time."""
    run = {"run": view.run, "runbook": view.runbook, "kind": view.kind, "environment": view.environment}

    def one(name: str, text: str, value: float | None) -> Metric:
        return Metric(f"migverify_runbook_{name}", text, [(run, number(value))])

    # Also while nobody drives the run: an alert has to see what a page does not count down.
    budget, until = view.budget, view.undo.until
    stop_left = None
    if budget.limit is not None and budget.used is not None and budget.used.runs == "up":
        stop_left = budget.limit - budget.used.at(now)

    states: list[Sample] = [({**run, "state": one.value}, number(float(one.value == view.state))) for one in RunState]
    yield Metric("migverify_runbook_state", "1 for the state that the run is in.", states)
    steps: list[Sample] = [
        ({**run, "step": step.id, "phase": step.phase, "state": step.state}, "1") for step in view.steps
    ]
    yield Metric("migverify_runbook_step", "1 for the state that each step is in.", steps)
    yield one("steps", "Steps that apply.", float(view.applicable))
    yield one("steps_passed", "Steps that have passed.", float(view.passed))
    yield one("seconds", "Seconds since the run started.", view.clock.at(now))
    yield one("held_seconds", "Seconds in which it was held.", view.held.at(now))
    yield one("write_stop_left_seconds", "Seconds left of the write stop's budget.", stop_left)
    to_decide = until - now if until is not None else None
    yield one("rollback_decision_left_seconds", "Seconds left to decide on a rollback.", to_decide)
    loss = view.loss
    yield one("rollback_loss_keys", "Keys that a rollback would lose, as the last rollback.loss said.",
              None if loss is None or loss.keys is None else float(loss.keys))  # fmt: skip
    yield one("rollback_loss_oldest_seconds", "Age of the oldest write that a rollback would lose, as of its moment.",
              None if loss is None else loss.oldest)  # fmt: skip
    yield one("rollback_loss_age_seconds", "Seconds since the moment that the loss is as of.",
              None if loss is None else loss.clock.at(now))  # fmt: skip
    yield one("rollback_loss_known", "1: all numbers of the loss are known, 0: they are lower bounds or missing.",
              None if loss is None else float(loss.state != "inconclusive"))  # fmt: skip
    amounts: list[Sample] = [
        ({**run, "currency": currency}, value) for currency, value in (loss.at_risk if loss is not None else ())
    ]
    yield Metric("migverify_runbook_rollback_loss_amount", "Amount at risk in the lost rows, by currency.", amounts)
    yield one("finish_p50_timestamp_seconds", "Forecast end, Unix time.", view.finish.p50)
    yield one("undelivered", "Announcements that were not delivered.", float(view.undelivered))
    alive = {"alive": 1.0, "silent": 0.0, "gone": 0.0, "nobody": 0.0}.get(view.executor.state)
    yield one("executor_alive", "1: the executor gives signs of life.", alive)
    guards: list[Sample] = [({**run, "guard": one.id}, number(_ANSWERS.get(one.state))) for one in view.guards]
    yield Metric("migverify_runbook_guard", "1: it passes, 0: it fails, NaN: no data.", guards)
