"""``lint``: everything that is wrong with a runbook, at once. Pure: it asks no server and runs nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from migverify.config.yaml_text import Steps
from migverify.runbook.actions.action import Action
from migverify.runbook.definition.findings import LintFinding, Places, finding
from migverify.runbook.definition.lint_ground import Ground
from migverify.runbook.definition.lint_people import people_rules
from migverify.runbook.definition.lint_steps import step_rules
from migverify.runbook.definition.lint_times import time_rules
from migverify.runbook.definition.load import Reading, read_runbook
from migverify.runbook.model import Runbook

_LEFT = re.compile(r"__[A-Z][A-Z0-9_]*__")
_SECRET_KEY = re.compile(r"(?:.*_)?(?:password|passwd|pwd|token|secret|api_?key|routing_?key)", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@|hooks\.slack\.com/services/|-----BEGIN [A-Z ]*PRIVATE KEY|"
    r"--?(?:password|token|secret)[= ](?!\$)\S", re.IGNORECASE
)  # fmt: skip


def lint(
    runbook: Runbook,
    places: Places,
    known_actions: Mapping[str, Action],
    cases: Collection[str] | None = None,
) -> tuple[LintFinding, ...]:
    """Return all findings, in the order of the file.

    Parameters
    ----------
    runbook
        As read by ``read_runbook``.
    places
        Where its parts stand, and what the file says: without it, secrets and marks of templates are not looked for.
    known_actions
        The registry, by name.
    cases
        Ids (and priorities) of the catalogue of disaster recovery cases; None: there is none at hand, so that a
        required case is refused.
    """
    ground = Ground(runbook, places, known_actions, cases)
    given = [*_values(runbook, places)]
    found = [*_texts(places), *given, *people_rules(ground), *step_rules(ground), *time_rules(ground)]
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (one.place.line, one.rule, one.text)))


def lint_file(
    path: Path,
    parameters: Mapping[str, str],
    environment: str,
    known_actions: Mapping[str, Action],
    cases: Collection[str] | None = None,
) -> tuple[Reading, tuple[LintFinding, ...]]:
    """Read a runbook and lint it; where its shape is wrong, what can be said of the file alone.

    Raises ConfigError: the file is missing, or is not YAML.
    """
    reading = read_runbook(path, parameters, environment)
    more = _texts(reading.places)
    if reading.runbook is not None:
        more = lint(reading.runbook, reading.places, known_actions, cases)
    found = dict.fromkeys([*reading.findings, *more])
    return reading, tuple(sorted(found, key=lambda one: (one.place.line, one.rule, one.text)))


def _values(runbook: Runbook, places: Places) -> Iterator[LintFinding]:
    for name, value in runbook.values.items():
        where = places.at("parameters", name)
        if _LEFT.search(value):
            yield finding("placeholder-left", where, f"the value of {name} is left from a template")
        if _SECRET_KEY.fullmatch(name) or _SECRET_TEXT.search(value):
            text = f"the parameter {name} holds a secret, and values of parameters are written into the journal"
            yield finding("secret-in-file", where, text)


def _texts(places: Places) -> tuple[LintFinding, ...]:
    return tuple(_text(places.document.data, (), places))


def _text(data: object, way: Steps, places: Places) -> Iterator[LintFinding]:
    """Placeholders of templates and secrets, in every text of the file; a secret is never repeated."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _text(value, (*way, str(key)), places)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _text(value, (*way, number), places)
    elif isinstance(data, str):
        if "__" in data and (left := _LEFT.search(data)):
            yield finding("placeholder-left", places.at(*way), f"{left[0]} is left from a template")
        key = str(way[-1]) if way else ""
        webhook = key == "url" and way[:1] == ("sinks",)
        if _SECRET_KEY.fullmatch(key) or webhook or _SECRET_TEXT.search(data):
            yield finding("secret-in-file", places.at(*way), f"{key or 'a text'} holds a secret")
