"""A forecast in the result store, beside the replay that it was made from."""

from __future__ import annotations

from migverify.errors import StoreError
from migverify.store.results import ResultStore
from migverify.workload.forecast.model import LoadForecast
from migverify.workload.replay.store import RULE

_WINDOW = "forecast"


def write_forecast(store: ResultStore, run_id: str, forecast: LoadForecast) -> None:
    """Record the forecast of a replay; a window of its own, so that the replay's result stays as it is."""
    store.add_window(run_id, RULE, {"window": _WINDOW, "state": "done", "forecast": forecast.as_json()}, [])


def load_forecast(store: ResultStore, run_id: str) -> LoadForecast | None:
    """Return the forecast of a replay; None where the run has none.

    Raises StoreError: the store cannot be read, or holds what this version does not understand.
    """
    for body in store.windows(run_id, RULE):
        if body["window"] == _WINDOW:
            try:
                return LoadForecast.from_json(body["forecast"])
            except (KeyError, ValueError) as error:
                raise StoreError(
                    f"run {run_id} holds a forecast that cannot be read: {error}",
                    hint="Another version wrote it, or the store is damaged: use that version.",
                ) from error
    return None
