"""A runbook file -> Runbook, or one ConfigError that says what, where and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from migverify.config.problems import FileProblem, explain, refuse
from migverify.config.yaml_text import YamlDocument
from migverify.errors import ConfigError
from migverify.runbook.definition.expand import Source, read_source
from migverify.runbook.definition.findings import LintFinding, Places, finding
from migverify.runbook.definition.hashing import runbook_sha, script_shas, step_sha
from migverify.runbook.definition.parameters import (
    COMMAND_KEYS,
    ParameterPart,
    ParametersDocument,
    Unfit,
    fill,
    resolve,
    uses,
)
from migverify.runbook.kinds import Place
from migverify.runbook.model import Effect, Phase, Runbook

_WAIT_SLACK = 60.0  # seconds that the effect of a wait may take beyond the wait itself
_PLACE = re.compile(r"(.+?):(\d+):\d+: ", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a file gave: a runbook unless its shape is wrong, findings of the file itself, and places."""

    runbook: Runbook | None
    findings: tuple[LintFinding, ...]
    places: Places


def load_runbook(path: Path, parameters: Mapping[str, str], environment: str, source: Source | None = None) -> Runbook:
    """Read a runbook, its parameters filled in. It is not linted: see ``lint``.

    Parameters
    ----------
    path
        The file.
    parameters
        Values of ``{{name}}``, as text.
    environment
        Where it is run; one of the file's ``environments``.
    source
        What ``read_source`` gave for the file, where it was read already: a template serves many services.

    Raises ConfigError: the file is missing or no YAML, a key is wrong, a parameter is missing or left; names file, line
    and rule.
    """
    reading = read_runbook(path, parameters, environment, source)
    if reading.runbook is None or any(one.refused for one in reading.findings):
        refuse(
            path, [FileProblem((one.place.line, 0), f"{one.place}: {one.text}", one.hint) for one in reading.findings]
        )
    if environment not in reading.runbook.environments:
        known = ", ".join(reading.runbook.environments)
        raise ConfigError(f"{path}: the runbook has no environment {environment}", hint=f"It has: {known}.")
    return reading.runbook


def step_shapes(source: Source, runbook: Runbook) -> dict[str, str]:
    """Return a hash of each step as the file has it, by its id: no parameter is filled in.

    Steps of two instances of one template are equal by it, and so are their durations.
    """
    data: Any = source.document.data
    return {
        step.id: step_sha(raw, phase.id, step.needs, step.scripts)
        for phase, part in zip(runbook.phases, data["phases"], strict=True)
        for step, raw in zip(phase.steps, part["steps"], strict=True)
    }


def read_runbook(path: Path, parameters: Mapping[str, str], environment: str, source: Source | None = None) -> Reading:
    """Read a runbook for ``lint``: what is wrong with keys and parameters comes as findings.

    Raises ConfigError: the file is missing, or is not YAML.
    """
    source = source or read_source(path)
    document = source.document
    places = Places(str(path), document)
    declared, problems = _declared(path, document)
    findings = [_shape(path, one) for one in problems]
    values, texts, unfit = resolve(declared, parameters)
    filled, _ = _filled(document.data, values, texts, frozenset())
    unfit += _misused(document.data, declared)
    left = uses(filled)
    undeclared = [one for one in left if one[1] not in declared and one[0][:1] != ("parameters",)]
    for steps, name, _ in undeclared:
        hint = "Declare it under `parameters`, or write the value."
        unfit.append(Unfit("placeholder-left", steps, f"{{{{{name}}}}} is no parameter of this file", hint))
    findings += [finding(one.rule, places.at(*one.steps), one.text, one.hint) for one in unfit]
    unfilled = {places.at(*steps) for steps, _, _ in left}
    runbook, problems = _validated(path, YamlDocument(filled, document.keys, document.values))
    findings += [one for one in (_shape(path, p) for p in problems) if one.place not in unfilled]
    if runbook is None:
        return Reading(None, _ordered(findings), places)
    kept = frozenset(name for name, one in declared.items() if one.per_environment)
    hashed = _filled(document.data, values, texts, kept)[0] if kept else filled
    runbook = _with_hashes(runbook, filled, hashed, places).model_copy(
        update={
            "text_sha": source.sha, "environment": environment, "values": texts,
            "instance": {name: texts[name] for name, one in declared.items() if _identifies(one) and name in texts},
        }
    )  # fmt: skip
    ways = tuple(
        ("phases", one, "steps", two) for one, phase in enumerate(runbook.phases) for two in range(len(phase.steps))
    )
    return Reading(runbook, _ordered(findings), Places(str(path), document, ways))


def _with_hashes(runbook: Runbook, filled: Any, hashed: Any, places: Places) -> Runbook:
    """Return a runbook whose steps know what they wait for, their hashes and their places.

    ``filled`` and ``hashed`` are the data with all parameters, and without those that differ by environment.
    """
    phases, ends = [], tuple[str, ...]()
    for one, phase in enumerate(runbook.phases):
        parts = filled["phases"][one]["steps"]
        needs = _effective_needs(phase, parts, ends)
        steps = []
        for two, (step, waits, raw) in enumerate(zip(phase.steps, needs, parts, strict=True)):
            kept, scripts = hashed["phases"][one]["steps"][two], script_shas(raw)
            sha = step_sha(kept, phase.id, waits, scripts)
            changes = {
                "phase": phase.id, "needs": waits, "title": step.title or step.id, "scripts": scripts, "sha": sha,
                "filled_sha": sha if kept is raw else step_sha(raw, phase.id, waits, scripts),
                "place": places.at("phases", one, "steps", two, "id"),
            }  # fmt: skip
            if step.wait is not None and step.effect is None:
                seconds = {"seconds": step.wait}
                changes["effect"] = Effect(action="wait", arguments=seconds, timeout=step.wait + _WAIT_SLACK)
                changes["wait"] = None
            steps.append(step.model_copy(update=changes))
        inner = {need for waits in needs for need in waits}
        ends = tuple(step.id for step in steps if step.id not in inner)
        phases.append(phase.model_copy(update={"steps": tuple(steps)}))
    asked = script_shas([filled.get("guards"), filled.get("rollback_when")])
    sha = runbook_sha(hashed, [(step.id, step.sha) for phase in phases for step in phase.steps], asked)
    return runbook.model_copy(update={"phases": tuple(phases), "sha": sha})


def _effective_needs(phase: Phase, parts: list[Any], ends: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return what each step of a phase waits for: where it names nothing, the step before in its phase.

    The first one, and one with ``needs: []``, wait for ``ends``, the last ones of the phase before: those that no
    other step of that phase needs.
    """
    needs: list[tuple[str, ...]] = []
    before: tuple[str, ...] = ()
    for step, part in zip(phase.steps, parts, strict=True):
        if step.needs:
            needs.append(tuple(dict.fromkeys(step.needs)))
        elif part.get("needs") is None and before:
            needs.append(before)
        else:  # the first phase has none before it, and empty needs are read as "the step before"
            needs.append(ends or before)
        before = (step.id,)
    return needs


def _identifies(parameter: ParameterPart) -> bool:
    return parameter.type == "name" and not parameter.per_environment


def _ordered(findings: list[LintFinding]) -> tuple[LintFinding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda one: (one.place.line, one.rule, one.text)))


def _declared(path: Path, document: YamlDocument) -> tuple[dict[str, ParameterPart], list[FileProblem]]:
    data = document.data if isinstance(document.data, dict) else {}
    try:
        return ParametersDocument.model_validate({"parameters": data.get("parameters", {})}).parameters, []
    except ValidationError as error:
        return {}, explain(path, document, error, ParametersDocument)


def _filled(
    data: object, values: Mapping[str, Any], texts: Mapping[str, str], keep: frozenset[str]
) -> tuple[Any, bool]:
    """Fill all but the section that declares the parameters."""
    if not isinstance(data, dict):
        return data, False
    rest, changed = fill({key: one for key, one in data.items() if key != "parameters"}, values, texts, keep)
    return (rest | {"parameters": data["parameters"]} if "parameters" in data else rest), changed


def _misused(data: object, declared: Mapping[str, ParameterPart]) -> list[Unfit]:
    if all(one.type != "text" for one in declared.values()):
        return []
    return [
        Unfit("text-in-command", steps, f"the parameter {name} is free text, and part of a command", "")
        for steps, name, key in uses(data)
        if key in COMMAND_KEYS and name in declared and declared[name].type == "text"
    ]


def _validated(path: Path, document: YamlDocument) -> tuple[Runbook | None, list[FileProblem]]:
    try:
        return Runbook.model_validate(document.data, context={"path": path}, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, explain(path, document, error, Runbook)


def _shape(path: Path, problem: FileProblem) -> LintFinding:
    place = _PLACE.match(problem.text)
    if place is None:
        return finding("shape", Place(str(path), 1), problem.text.removeprefix(f"{path}: "), problem.hint)
    return finding("shape", Place(place[1], int(place[2])), problem.text[place.end() :], problem.hint)


def known_cases(folder: Path) -> frozenset[str]:
    """Return ids and priorities of the disaster recovery cases of a folder: what a policy may ask for.

    Raises ConfigError: the folder is not there, or a file of it is no case.
    """
    priorities = case_priorities(folder)
    return frozenset(priorities) | frozenset(priorities.values())


def case_priorities(folder: Path) -> dict[str, str]:
    """Return the priority of each disaster recovery case of a folder, by its id; raises as ``case_files``."""
    return {id_: one.priority for id_, one in case_files(folder).items()}


@dataclass(frozen=True, slots=True)
class CaseFile:
    """What the head of a case's file says; the file is not linted for it."""

    id: str
    title: str
    priority: str
    tier: str


def case_files(folder: Path) -> dict[str, CaseFile]:
    """Return the disaster recovery cases of a folder, by id.

    Raises ConfigError: as ``known_cases``; or two files hold one case.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", hint="Name the folder of the disaster recovery cases.")
    found: dict[str, CaseFile] = {}
    for path in sorted(folder.glob("*.yaml")):
        data: Any = read_source(path).document.data
        case = data.get("case")
        if data.get("kind") != "dr-case" or not isinstance(case, dict):
            raise ConfigError(
                f"{path}: this is no case", hint="A case has `kind: dr-case` and `case`; move other files."
            )
        one = CaseFile(str(data.get("id")), str(data.get("title")), str(case.get("priority")), str(case.get("tier")))
        if one.id in found:
            raise ConfigError(f"{path}: there is another case {one.id}", hint="Give it an id of its own.")
        found[one.id] = one
    return found


__all__ = ["CaseFile", "Reading", "case_files", "case_priorities", "known_cases", "load_runbook", "read_runbook",
           "step_shapes"]  # fmt: skip
