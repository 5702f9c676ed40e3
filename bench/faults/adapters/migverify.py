"""migverify by its command line only, as a whole process; nothing of it is imported."""

from __future__ import annotations

import json
import sys

from bench.faults.adapter import Pair, Task, first_line, run_process
from bench.faults.judge import ReportedDifferences, TableDifference

EXIT_CODES = {0: False, 1: True, 3: None}  # MATCH, MISMATCH, INCONCLUSIVE; any other one is a failure


class Migverify:
    """``tables verify``."""

    name = "migverify"
    settings = "`tables verify --json` with its defaults; differing rows are read again at once, as nothing is written"
    pair = Pair.MYSQL_TIDB
    command = (sys.executable, "-m", "migverify", "tables")

    def version(self) -> str:
        return first_line([*self.command[:-1], "--version"])

    def available(self) -> str | None:
        return None

    def run(self, task: Task) -> ReportedDifferences:
        sides = {name: {"url": side.url.rpartition("/")[0]} for name, side in
                 (("source", task.source), ("target", task.target))}  # fmt: skip
        rules = {"tables": {"include": [f"{task.source.database}.*"]}, "recheck": {"delay": 0}}
        (task.folder / "migverify.yaml").write_text(json.dumps({**sides, **rules}))  # JSON is YAML
        ended = run_process([*self.command, "verify", "--json", "--quiet"], task)
        if ended.exit_code not in EXIT_CODES:
            return ended.crash()
        document = json.loads(ended.output)
        verdicts = {pair["source"].partition(".")[2]: pair for pair in document["tables"]}
        equal = [name for name, pair in verdicts.items() if pair["verdict"] == "MATCH"]
        different = {
            name: TableDifference(sum(pair["row_diffs"].values()), self._keys(pair["row_diff_samples"]))
            for name, pair in verdicts.items() if pair["verdict"] == "MISMATCH"
        }  # fmt: skip
        reasons = "; ".join(reason for pair in verdicts.values() for reason in pair["reasons"])
        return ended.report(EXIT_CODES, equal, different, reasons)

    def _keys(self, samples: dict[str, object]) -> frozenset[tuple[str | None, ...]] | None:
        rows = samples["rows"]
        if samples["shown"] != samples["stored"] or not isinstance(rows, list):
            return None  # the document lists the first rows only
        return frozenset(tuple(row["key"]) for row in rows)
