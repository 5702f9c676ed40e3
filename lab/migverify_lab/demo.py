"""``make demo``: the main job on a real pair, from an empty folder to a repaired target.

Every step is a migverify command, printed before it runs; each must end with the exit code that the step expects,
or the demo fails.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import ExitCode
from migverify_lab import mariadb
from migverify_lab.demo_drills import DemoDrills, heading, typed

ROOT = Path("demo-out")
LAB = ROOT / "lab"
CONFIG = ROOT / "migverify.yaml"

FAULTS = (
    ("row-deleted", "tpch.orders"),
    ("row-added", "tpch.customer"),
    ("value-changed", "tpch.lineitem"),
    ("swapped-rows", "tpch.part"),
    ("shift-hour", "museum.datetimes"),
    ("json-int-off-by-one", "museum.jsons"),
    ("trailing-space", "museum.texts_utf8mb4"),
    ("float-ulp", "museum.doubles"),
    ("key-off-by-one", "museum.key_above_2_53"),
)

RULES = Path("examples") / "services" / "recon.yaml"
SERVICES = LAB / "services" / "migverify.yaml"
SERVICE_FAULTS = ("lost-event", "rounding")
"""Neither shows in a comparison of the payments' own tables."""

MINUTES = "4 minutes on two idle cores; 18 minutes were measured at a load of 17"
"""Measured with the build done and Spark's packages downloaded."""

INTRO = """migverify demo: compare a real MySQL with {target}, with and without Spark, find planted faults
row by row, write a report, repair the target, and prove it equal again. Then what clients ask: statements of a slow
log and an audit log, replayed on both sides, every answer compared. Then twelve rules over three services, a MariaDB
among them. At the end two drills of a cutover with trouble, the cutover itself, and the rollback.

What it takes: {build}; then {minutes}.
Everything goes to {root}/ and ~/.cache/migverify; all servers are stopped at the end.
"""


@dataclass(frozen=True, slots=True)
class Demo:
    """One run of the demo; ``target`` is ``tidb``, or ``mysql`` for a second MySQL as a stand-in."""

    target: str

    def run(self) -> None:
        """Run all steps; servers are stopped in any case."""
        started = time.monotonic()
        print(INTRO.format(root=ROOT, **self._words()), flush=True)
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.mkdir()
        try:
            self._prepare()
            self._find()
            self._repair()
            replayed = self._replay()
            reconciled = self._reconcile()
            drilled = self._drill()
        finally:
            step("Stop the servers.", "lab", "down", "--purge", "--dir", str(LAB))
        found = ("report.html", *replayed, *(["recon.html"] if reconciled else []), *drilled)
        pages = ", ".join(str(ROOT / page) for page in found)
        print(f"\nDone in {time.monotonic() - started:.0f} s. Open {pages} in a browser.")
        if self.target == "mysql":
            print("The target was a second MySQL as a stand-in: run `make demo` for a real TiDB.")

    def _words(self) -> dict[str, str]:
        if self.target == "mysql":
            return {"target": "a second MySQL (a stand-in: this proves nothing about TiDB)",
                    "build": "a download of MySQL (once, half a minute)",
                    "minutes": "less than the demo with TiDB, which takes 4 on two idle cores"}  # fmt: skip
        return {"target": "a real TiDB", "minutes": MINUTES,
                "build": "where no Docker engine answers, a one-time build of TiDB from source: 5 to 10 minutes on "
                         "two cores, 6 GB of cache"}  # fmt: skip

    def _prepare(self) -> None:
        step("Bring up the pair.", "lab", "up", "--dir", str(LAB), "--target", self.target)
        step(
            "Fill both sides: TPC-H and a corpus of types.", "lab", "load", "tpch", "--scale", "0.01", "--dir", str(LAB)
        )
        step("", "lab", "load", "museum", "--dir", str(LAB))
        from migverify_lab.servers import running_servers

        servers = running_servers(LAB)
        urls = [f"mysql://{servers.source.user}@{servers.source}", f"mysql://{servers.target.user}@{servers.target}"]
        step("Write a configuration by looking at both sides.", "init", "--source", urls[0], "--target", urls[1],
             "--database", "tpch", "--database", "museum", "--force", "-o", str(CONFIG))  # fmt: skip
        # The demo's values are made up, so the report may show them.
        with CONFIG.open("a") as file:
            file.write("\nreport: {values: true}\n")

    def _find(self) -> None:
        step(
            "Look at the plan of one table before anything heavy runs.",
            "tables",
            "plan",
            "--tables",
            "tpch.lineitem",
            *C,
        )
        step("Prove both sides equal.", "tables", "verify", *C)
        step("The same on Spark, for the tables of TPC-H.",
             "tables", "verify", "--engine", "spark", "--tables", "tpch.*", *C)  # fmt: skip
        for name, table in FAULTS:
            step("" if name != FAULTS[0][0] else "Plant faults on the target.", "lab", "fault", name, "--table", table,
                 "--dir", str(LAB))  # fmt: skip
        step("Find them.", "tables", "verify", *C, expect=ExitCode.MISMATCH)
        step("List them, with their columns.", "tables", "diff", "last", *C)
        step(
            "Write the report.",
            "report",
            "last",
            "--values",
            "-o",
            str(ROOT / "report.html"),
            *C,
            expect=ExitCode.MISMATCH,
        )

    def _repair(self) -> None:
        step("Repair the target: SQL files with their inverse, applied and read again.",
             "tables", "repair", "last", "--out", str(ROOT / "repair"), "--apply", *C)  # fmt: skip
        step("Prove both sides equal again.", "tables", "verify", *C)

    def _replay(self) -> list[str]:
        """Ask on both sides what clients asked of the source, writes too; return the pages that were written."""
        with CONFIG.open("a") as file:
            file.write("\nworkload: {clone_marker: migverify.clone}\n")
        slow = ROOT / "slow.log"
        step("Let the clients of a payment service work on the source; its slow log keeps what they ask.",
             "lab", "traffic", "--log", "slow", "--out", str(slow), "--plant", "--dir", str(LAB))  # fmt: skip
        step("Read the log: every byte is a statement or a counted reject.",
             "workload", "capture", str(slow), "--out", str(ROOT / "capture"))  # fmt: skip
        step("Put both sides back to where the clients began, and mark them: writes go to rehearsal clones alone.",
             "lab", "traffic", "--restore", "--dir", str(LAB))  # fmt: skip
        for side in ("source", "target"):
            step("", "workload", "replay", "--mark-clone", side, "--name", "demo", *C)
        # A second MySQL answers like the first.
        differs = ExitCode.MISMATCH if self.target == "tidb" else ExitCode.MATCH
        replay = ("--pace", "fast", "--writes", "--locking", "--quiet", *C)
        step("Ask everything again on both sides, in order, and compare every answer.",
             "workload", "replay", str(ROOT / "capture"), *replay, expect=differs)  # fmt: skip
        step("Write the report of the replay: what differs, why, and both answers.",
             "report", "last", "--values", "-o", str(ROOT / "replay.html"), *C, expect=differs)  # fmt: skip
        return ["replay.html"]

    def _reconcile(self) -> bool:
        """Let orders, payments and a ledger agree, then not; False where there is no MariaDB, which is said."""
        if mariadb.find() is None and shutil.which("apt-get") is None:
            print("\n=== Three services: NOT SHOWN, because there is no MariaDB on PATH and no apt-get to get one.")
            return False
        step("Add a ledger on MariaDB, and fill three services: orders, payments on the pair, the ledger.",
             "lab", "up", "--services", "--dir", str(LAB), "--target", self.target)  # fmt: skip
        step("", "lab", "load", "services", "--changes", "3000", "--dir", str(LAB))
        recon = ("recon", "run", str(RULES), "--config", str(SERVICES), "--quiet")
        step("Do they agree? Twelve rules, in each service's own words.", *recon)
        for number, name in enumerate(SERVICE_FAULTS):
            step("Plant faults between the services." if not number else "", "lab", "fault", name,
                 "--dir", str(LAB))  # fmt: skip
        step("Find them: rule, key, money at risk.", *recon, expect=ExitCode.MISMATCH)
        step("Write the report of the rules.", "report", "last", "--values", "-o", str(ROOT / "recon.html"),
             "--config", str(SERVICES), expect=ExitCode.MISMATCH)  # fmt: skip
        return True

    def _drill(self) -> list[str]:
        """Drill a cutover, cut over, and go back; return the pages that were written."""
        if self.target != "tidb":
            print("\n=== Drills of a cutover: NOT SHOWN, because its gates ask a TiDB for its time and its ids.")
            return []
        return DemoDrills(ROOT, LAB).run()


C = ("--config", str(CONFIG))


def step(title: str, *arguments: str, expect: ExitCode = ExitCode.MATCH) -> None:
    """Run one migverify command and insist on its exit code."""
    if title:
        heading(title)
    typed(*arguments, expect=expect)


def main() -> None:
    """Parse ``--target`` and run."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--target", choices=["tidb", "mysql"], default="tidb")
    Demo(parser.parse_args().target).run()


if __name__ == "__main__":
    main()
