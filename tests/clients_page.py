"""The behavior table of ``docs/clients-behavior.md``, made of a run's results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migverify.workload.clients.drivers import drivers, pools
from migverify.workload.clients.model import Scenario

SOURCE = "Source "
"""What the generated part of the page begins with."""
_MARKS = {"MATCH": "same", "INCONCLUSIVE": "?"}
_LONGEST = 160
_CELL = ("driver", "pool", "scenario", "variant", "verdict", "refused")
_CHANGING = re.compile(r"((?:conn|TS|tableID|seconds ago|ms ago)\s*[=:]\s*|Thread id )\d+")


def behavior(results: Mapping[str, Any], scenarios: Sequence[Scenario]) -> str:
    """Return the generated part of the page.

    Parameters
    ----------
    results
        What ``workload clients --json`` printed.
    scenarios
        Titles, reasons and remedies.
    """
    facts = results["facts"]
    lines = [f"Source {facts['source']}, target {facts['target']}.", ""]
    cells = {(c["driver"], c["pool"], c["scenario"], c["variant"]): c for c in results["cells"]}
    windows = list(dict.fromkeys((c["scenario"], c["variant"]) for c in results["cells"]))
    windows.sort(key=lambda window: window[0])  # variants stay in the scenario's own order
    for kind, title in (("jdbc", "JDBC drivers"), ("python", "Python drivers")):
        names = [name for name, one in drivers().items() if one.kind == kind]
        mine = [window for window in windows if any((n, p, *window) in cells for n in names for p in pools())]
        lines += [f"### {title}", "", *_table(cells, names, mine), ""]
    lines += ["### Differences", ""]
    by_name = {one.name: one for one in scenarios}
    for scenario in dict.fromkeys(name for name, _ in windows):
        differing = [c for c in results["cells"] if c["scenario"] == scenario and c["verdict"] != "MATCH"]
        if differing:
            lines += _section(by_name.get(scenario), scenario, differing)
    return "\n".join(lines).rstrip() + "\n"


def _table(cells: Mapping[Any, Any], names: Sequence[str], windows: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield "| scenario | variant | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for scenario, variant in windows:
        marks = [_mark([cells.get((name, pool, scenario, variant)) for pool in pools()]) for name in names]
        yield f"| `{scenario}` | {variant} | " + " | ".join(marks) + " |"


def _mark(found: Sequence[Mapping[str, Any] | None]) -> str:
    """One word where every pool agrees, else a word for each pool."""
    said = {pool: _word(cell) for pool, cell in zip(pools(), found, strict=True) if cell is not None}
    if not said:
        return "-"
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{word} ({pool})" for pool, word in said.items())


def _word(cell: Mapping[str, Any]) -> str:
    if cell["verdict"] == "MATCH" and cell["refused"]:
        return f"same, {cell['refused']} refused"
    return _MARKS.get(cell["verdict"]) or f"{len(cell['differences'])} differ"


def _section(scenario: Scenario | None, name: str, cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"#### `{name}`: {scenario.title if scenario else name}"
    yield ""
    for text, label in ((scenario and scenario.why, "Why"), (scenario and scenario.remedy, "Remedy")):
        if text:
            yield f"{label}: {text}"
            yield ""
    groups: dict[tuple[str, ...], dict[str, None]] = {}
    for cell in cells:
        where = f"{cell['driver']}/{cell['pool']}"
        for one in cell["differences"]:
            known = ", ".join(one["known"]) or "unknown"
            key = (cell["variant"], str(one["step"]), one["action"], one["path"], _kind(one), known)
            groups.setdefault(key, {})[where] = None
        if not cell["differences"]:
            groups.setdefault((cell["variant"], "", "INCONCLUSIVE", "", cell["reason"], ""), {})[where] = None
    samples = {
        (cell["variant"], str(one["step"]), one["path"], _kind(one)): one
        for cell in reversed(cells)
        for one in cell["differences"]
    }
    yield "| variant | step | what | source | target | known as | seen with |"
    yield "|---|---|---|---|---|---|---|"
    for (variant, step, action, path, kind, known), places in groups.items():
        sample = samples.get((variant, step, path, kind))
        source, target = (sample["source"], sample["target"]) if sample else (kind, "")
        what = f"{action}: {path}" if path else action
        yield "| " + " | ".join(map(_cell, [variant, step, what, source, target, known, _places(list(places))])) + " |"
    yield ""


def _kind(one: Mapping[str, Any]) -> str:
    """What makes two differences one for the page: the same place, and refusals of the same number."""
    return "refused" if ("error" in one["path"] or "outcome" in one["path"]) else f"{one['source']} {one['target']}"


def _places(places: Sequence[str]) -> str:
    """Drivers, with their pools only where not all pools show it."""
    by_driver: dict[str, list[str]] = {}
    for place in places:
        driver, _, pool = place.partition("/")
        by_driver.setdefault(driver, []).append(pool)
    return ", ".join(
        name if found == ["none"] or len(found) == len(pools()) else f"{name} ({', '.join(found)})"
        for name, found in by_driver.items()
    )


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return flat if len(flat) <= _LONGEST else flat[: _LONGEST - 4] + " ..."


def slim(results: Mapping[str, Any]) -> str:
    """Return results as a small text for ``read_slim``: each difference once, without what changes from run to run."""
    differences: dict[str, int] = {}
    cells: list[str] = []
    for cell in results["cells"]:
        numbers = []
        for one in cell["differences"]:
            body = {**one, "source": _steady(one["source"]), "target": _steady(one["target"])}
            numbers.append(differences.setdefault(json.dumps(body, ensure_ascii=False), len(differences)))
        reason = _steady(cell["reason"]) if cell["verdict"] == "INCONCLUSIVE" else ""
        cells.append(json.dumps([*(cell[key] for key in _CELL), reason, numbers], ensure_ascii=False))
    head = json.dumps({"verdict": results["verdict"], "facts": results["facts"]}, ensure_ascii=False)
    return (
        head[:-1]
        + ',\n"differences": [\n'
        + ",\n".join(differences)
        + '\n],\n"cells": [\n'
        + ",\n".join(cells)
        + "\n]}\n"
    )


def read_slim(text: str) -> dict[str, Any]:
    """Return what ``slim`` wrote in the form of ``workload clients --json``."""
    body = json.loads(text)
    cells = [
        {
            **dict(zip(_CELL, row, strict=False)), "reason": row[len(_CELL)],
            "differences": [body["differences"][number] for number in row[len(_CELL) + 1]],
        }
        for row in body["cells"]
    ]  # fmt: skip
    return {"verdict": body["verdict"], "facts": body["facts"], "cells": cells}


def _steady(text: str) -> str:
    """Replace what is another number in every run, and keep what the page shows."""
    return _CHANGING.sub(r"\1N", text)[:_LONGEST]


def in_step(page: str, fresh: str) -> str:
    """Return the page with what follows its introduction replaced."""
    return page[: page.index(f"\n{SOURCE}") + 1] + fresh.rstrip("\n") + "\n"
