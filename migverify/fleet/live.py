"""The live board: a page that is read anew by one thread for any number of readers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from migverify.errors import MigverifyError
from migverify.exposition import Metric, number, page
from migverify.fleet.board import fleet_report, read_state
from migverify.fleet.definition import Fleet, FleetService
from migverify.fleet.load import load_fleet
from migverify.model import Verdict
from migverify.report.html import served_page
from migverify.report.model import Report
from migverify.runbook.page.serve import HTML, METRICS, PageAnswer, ReadOnlyServer

Chosen = Callable[[Fleet], Callable[[FleetService], bool] | None]
_JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class BoardPages:
    """What was made of one reading of a fleet. ``problem`` says why there is nothing; empty: there is."""

    html: str
    policy: str
    document: str
    metrics: str
    problem: str = ""


def make_pages(path: Path, chosen: Chosen, every: float) -> BoardPages:
    """Read a fleet and return its pages; where the file is wrong, pages that say so and show nothing."""
    try:
        fleet = load_fleet(path, with_wrong=True)
        report = fleet_report(read_state(fleet, time.time(), chosen(fleet)), refresh_seconds=max(1, round(every)))
        problem = ""
    except MigverifyError as error:
        problem, report = error.line, _problem_report(path, error, every)
    html, policy = served_page(report)
    document = json.dumps({**report.document, "problem": problem} if problem else report.document, ensure_ascii=False)
    seen = Metric("migverify_fleet_read", "1 where the fleet could be read, 0 where it could not.",
                  [({}, number(float(not problem)))])  # fmt: skip
    return BoardPages(html, policy, document, page([seen, *report.metrics]), problem)


def _problem_report(path: Path, error: MigverifyError, every: float) -> Report:
    return Report(
        "", f"fleet {path.name}", Verdict.INCONCLUSIVE, "The fleet cannot be read, so nothing is known of any service.",
        word="NOT KNOWN", tone="inconclusive", reasons=(error.line,), refresh_seconds=max(1, round(every)),
        document={"kind": "fleet", "fleet": str(path), "verdict": Verdict.INCONCLUSIVE.value},
    )  # fmt: skip


class BoardServer(ReadOnlyServer):
    """Serves the board of a fleet, its JSON and its metrics. ``start`` begins to read it, ``stop`` ends that.

    A reading that is older than three periods, because stores do not answer, is not shown any more.
    """

    def __init__(
        self, make: Callable[[], BoardPages], host: str, port: int, every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        super().__init__(host, port)
        self._make, self._every, self._clock = make, every, clock
        self._pages: BoardPages | None = None
        self._made = clock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="fleet board", daemon=True)

    def start(self) -> None:
        """Read the fleet once, and then every few seconds on a thread."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    def answer(self, path: str, known: str) -> PageAnswer | None:
        """Return the board, ``/fleet.json`` or ``/metrics``."""
        del known
        pages = self._pages
        if path not in ("/", "/fleet.json", "/metrics"):
            return None
        if pages is None or self._clock() - self._made > 3 * self._every:
            text = "The fleet could not be read for some time: look at its stores.\n"
            return PageAnswer(text, status=HTTPStatus.SERVICE_UNAVAILABLE)
        if path == "/":
            return PageAnswer(pages.html, HTML, pages.policy)
        status = HTTPStatus.SERVICE_UNAVAILABLE if pages.problem and path == "/fleet.json" else HTTPStatus.OK
        return PageAnswer(pages.document, _JSON, status=status) if path == "/fleet.json" else PageAnswer(
            pages.metrics, METRICS)  # fmt: skip

    def _read(self) -> None:
        while not self._stopped.wait(self._every):
            self._look()

    def _look(self) -> None:
        self._pages, self._made = self._make(), self._clock()
