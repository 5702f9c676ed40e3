"""Writes ``cases.yaml`` from the lab: its tables, its faults with the SQL that plants them, and what differs then.

Run as ``python -m bench.faults.export``; needs the lab's pair. The only part of the benchmark that knows the lab.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.faults.cases import EQUAL, FILE
from migverify_lab import servers
from migverify_lab.faults import FAULTS, plant
from migverify_lab.matrix.gallery import OWN_TABLES, SHOWN, TPCH_TABLES, Gallery
from migverify_lab.matrix.run import BLIND
from migverify_lab.museum import KEY_HALLS, PAIR_HALLS, TABLES, TYPE_HALLS, MuseumTable
from migverify_lab.planting import PlantedFault
from migverify_lab.servers import LabServers

LAB = Path(".migverify-bench")
DATABASE = "bench_faults_export"
HEAD = """\
# Cases of bench/faults, for any tool and any judge. Written by `python -m bench.faults.export`; do not edit.
# Sessions need sql_mode '', time_zone '+00:00' and utf8mb4. `source` and `target` follow CREATE TABLE <name>, a row is
# what is between the parentheses of VALUES, `changes` run on the target at last. `differs`: table -> number of rows,
# and their keys where the table has a key.
"""
LARGE = frozenset({"loose", "everything"})
"""Tables that would make the file long and show no other fault."""

BYSTANDER = "one_row"
BESIDE_ANOTHER = ("row-deleted", "value-changed", "trailing-space")
"""Faults that are also in a pair with a table that has none: a tool must name the right one."""

DEBATABLE = frozenset({"sign_of_zero", "number_in_json"})
"""Pairs of values that may be called equal or different: no tool is judged by them."""

OWN = {table.name: table for table in OWN_TABLES}
MUSEUM = {table.name: table for table in TABLES}


def homes(fault: str) -> tuple[str, ...]:
    """Return the tables in which the benchmark has a fault: the first of the corpus, and the first of plain values.

    Tools that hash plain text call some tables of the corpus different without a fault; the second table is one in
    which they have a fair chance.
    """
    fitting = [name for name in SHOWN[fault].split() if name not in TPCH_TABLES and name not in LARGE]
    corpus = [name for name in fitting if name in MUSEUM and MUSEUM[name].target_name is None]
    return tuple(corpus[:1] + [name for name in fitting if name in OWN][:1])


def tables() -> dict[str, MuseumTable]:
    """Return every table with one content on both sides, in a stable order."""
    names = [name for fault in FAULTS for name in homes(fault.name)] + [BYSTANDER]
    names += [table.name for table in (*TYPE_HALLS, *PAIR_HALLS, *KEY_HALLS) if table.target_name is None]
    return {name: OWN.get(name) or MUSEUM[name] for name in dict.fromkeys(names)}


def entry(table: MuseumTable) -> dict[str, Any]:
    """Return a table as the file has it."""
    found: dict[str, Any] = {"note": table.note, "source": table.ddl_source}
    if table.ddl_target != table.ddl_source:
        found["target"] = table.ddl_target
    rows = [", ".join(row) for row in table.rows]
    return {**found, "key": list(table.key), "columns": list(table.columns), "rows": rows}


def equal_entries() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return tables and cases of pairs in which nothing differs: no server is needed for them."""
    found = {name: entry(table) for name, table in tables().items()}
    for source, target in BLIND:
        if source.name not in DEBATABLE:
            sides, rows = entry(source), entry(target)["rows"]
            found[source.name] = {**sides, "target": target.ddl_target, "target_rows": rows}
    cases = [
        {"name": f"{EQUAL}/{name}", "fault": EQUAL, "what": f"nothing: {table['note']}", "tables": [name]}
        for name, table in found.items()
    ]
    return found, cases


def fault_entries(pair: LabServers) -> Iterator[dict[str, Any]]:
    """Plant each fault in each of its tables and yield the cases."""
    with tempfile.TemporaryDirectory() as folder, Gallery(pair, DATABASE, Path(folder)) as gallery:
        gallery.load(tuple(tables()), print)
        for fault in FAULTS:
            for name in homes(fault.name):
                planted = plant(gallery.target, fault.name, DATABASE, name)
                gallery.restore(name)
                case = _case(planted, fault.what)
                yield case
                if fault.name in BESIDE_ANOTHER:
                    yield {**case, "name": f"{case['name']}+{BYSTANDER}", "tables": [name, BYSTANDER]}


def _case(planted: PlantedFault, what: str) -> dict[str, Any]:
    prefix = f"`{DATABASE}`."
    differs: dict[str, Any] = {"rows": len(planted.rows)}
    if all(row.key for row in planted.rows):
        differs["keys"] = [list(row.key) for row in planted.rows]
    return {
        "name": f"{planted.fault}/{planted.table}", "fault": planted.fault, "what": what, "tables": [planted.table],
        "changes": [statement.replace(prefix, "") for statement in planted.statements],
        "differs": {planted.table: differs},
    }  # fmt: skip


def document(found: dict[str, Any], cases: Iterable[dict[str, Any]]) -> str:
    """Return the text of the file."""
    data = {"tables": found, "cases": list(cases)}
    return HEAD + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100_000)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults.export", description=__doc__)
    parser.add_argument("--lab", type=Path, default=LAB, help=f"folder of the lab (default {LAB})")
    parser.add_argument("-o", "--output", type=Path, default=FILE)
    arguments = parser.parse_args()
    pair = servers.up(servers.lab_directory(arguments.lab), "tidb", print)
    found, cases = equal_entries()
    arguments.output.write_text(document(found, [*fault_entries(pair), *cases]), encoding="utf-8")


if __name__ == "__main__":
    main()
