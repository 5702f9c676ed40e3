"""JSON schemas of the catalogue's files and of waivers, for editors and for who writes entries."""

from __future__ import annotations

import json
from typing import Any

from migverify.workload.catalogue.model import ASPECTS, EntryClass, Needs
from migverify.workload.classify import StatementKind

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description, **more}


def _object(properties: dict[str, Any], required: list[str], description: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        found["required"] = required
    if description:
        found["description"] = description
    return found


def _list(items: dict[str, Any], description: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, "description": description}


def _several(items: dict[str, Any], description: str) -> dict[str, Any]:
    """Return a list, or one alone."""
    return {"anyOf": [items, {"type": "array", "items": items}], "description": description}


_CODE = {"type": "integer", "minimum": 0, "maximum": 65535}
_SQL = {"type": "string", "minLength": 1}


def _outcome() -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0}
    fields = {
        "errno": _several(_CODE, "The error's number, or one of several; 0 is success."),
        "message": _text("A regular expression that the error's words hold."),
        "rows": _list(
            {"type": "array", "items": {"type": ["string", "null"]}}, "The rows; a cell of ~text holds the text."
        ),
        "row_count": {**count, "description": "How many rows."},
        "affected": {**count, "description": "How many rows were affected."},
        "insert_id": {**count, "description": "The generated id."},
        "warnings": _several(_CODE, "The codes of the warnings, in their order."),
        "columns": _several({"type": "string"}, "Texts that stand in the descriptions of the columns."),
        "info": _text("A regular expression that the info text holds."),
        "waits": {"type": "boolean", "description": "The step had not ended when its limit for waiting was over."},
    }
    return {"anyOf": [{"const": "ok"}, _object(fields, [])]}


def _probe() -> dict[str, Any]:
    step = _object(
        {
            "sql": _text("A statement that must succeed."),
            "ask": _text("A statement whose answer is compared."),
            "on": {"type": "integer", "minimum": 1, "maximum": 4, "description": "The session; 1 by default."},
            "waits": {"type": "number", "description": "Seconds after which the next step runs meanwhile."},
            "only": {"enum": ["mysql", "tidb"], "description": "The flavor it is for."},
        },
        [],
    )
    outcome = {"$ref": "#/$defs/outcome"}
    return _object(
        {
            "needs": {"enum": [one.value for one in Needs], "description": "What it needs."},
            "setup": _several(_SQL, "Statements before it, in session 1."),
            "steps": _list({"anyOf": [_SQL, step]}, "Its statements, in their order."),
            "teardown": _several(_SQL, "Statements after it; refusals are no failures."),
            "expect": {
                "type": "object",
                "description": "What each asked step answers, by flavor: mysql, tidb, tidb < 6.6, tidb >= 8.0.",
                "patternProperties": {
                    r"^(mysql|mariadb|tidb)( *(<|>=) *\d+(\.\d+){0,2})?$": {"anyOf": [outcome, _list(outcome)]}
                },
                "additionalProperties": False,
            },
            "noted": _text("What else a reader must know."),
        },
        ["needs", "steps", "expect"],
    )


def _trigger() -> dict[str, Any]:
    sign = _object(
        {
            "aspect": {"enum": list(ASPECTS), "description": "What differs."},
            "source": _several(_CODE, "Of errors: the source's numbers; 0 is success."),
            "target": _several(_CODE, "Of errors: the target's numbers; 0 is success."),
            "message": _text("Of errors: a regular expression that the target's (or source's) words hold."),
            "values": _text("A regular expression found in one of the two texts."),
            "detail": _text("A regular expression found in the difference's detail."),
            "twice": {"type": "boolean", "description": "The target's number is twice the source's."},
        },
        ["aspect"],
    )
    return _object(
        {
            "text": _text("A regular expression found in the digest text."),
            "without": _text("A regular expression not found in the digest text."),
            "kinds": _several({"enum": [one.value for one in StatementKind]}, "Kinds of statements."),
            "effects": _several({"type": "string"}, "Side effects of which the statement has one."),
            "volatile": _several({"type": "string"}, "Volatile functions of which the statement has one."),
            "locking": {"type": "boolean", "description": "A locking read, or not."},
            "signs": {**_list(sign, "How it shows; one of them suffices."), "minItems": 1},
        },
        ["signs"],
    )


def catalogue_schema() -> dict[str, Any]:
    """Return the schema of a file of entries."""
    bounds = _object({"min": _text("From this version on."), "max": _text("Up to this version.")}, [])
    entry = _object(
        {
            "id": _text("Words and three digits.", pattern=r"^[a-z0-9]+(-[a-z0-9]+)*-\d{3}$"),
            "title": _text("One line."),
            "class": {"enum": [one.value for one in EntryClass], "description": "What it does to an application."},
            "explanation": _text("Why it is so."),
            "remedy": _text("What to do."),
            "references": _several({"type": "string", "pattern": "^https://"}, "Public pages."),
            "trigger": _trigger(),
            "versions": _object(
                {"mysql": bounds, "tidb": bounds}, [], "Where it is known; elsewhere it labels nothing."
            ),
            "probe": _probe(),
            "no_probe": _text("Why there is no probe."),
        },
        ["id", "title", "class", "explanation", "remedy", "trigger"],
    )
    entry["oneOf"] = [{"required": ["probe"]}, {"required": ["no_probe"]}]
    seen_on = _text("The servers on which the expected answers were seen.")
    root = _object({"seen_on": seen_on, "entries": _list(entry)}, ["seen_on", "entries"])
    return {"$schema": _DRAFT, "title": "migverify difference catalogue", "$defs": {"outcome": _outcome()}, **root}


def waivers_schema() -> dict[str, Any]:
    """Return the schema of a file of waivers."""
    scope = _object(
        {
            "database": _text("Only statements of this database."),
            "user": _text("Only statements of this user."),
            "aspects": _several({"enum": list(ASPECTS)}, "Only these aspects."),
            "count": {"type": "integer", "minimum": 0, "description": "At most so many."},
        },
        [],
        "What narrows it.",
    )
    waiver = _object(
        {
            "entry": _text("An id of the catalogue."),
            "digest": _text("A statement's digest.", pattern="^([0-9a-fA-F]{64}|[0-9a-fA-F]{32})$"),
            "owner": _text("Who answers for it."),
            "reason": _text("Why it is no obstacle."),
            "expires": _text("The last day it holds (UTC).", pattern=r"^\d{4}-\d{2}-\d{2}$"),
            "scope": scope,
        },
        ["owner", "reason", "expires"],
    )
    waiver["anyOf"] = [{"required": ["entry"]}, {"required": ["digest"]}]
    return {"$schema": _DRAFT, "title": "migverify waivers", **_object({"waivers": _list(waiver)}, ["waivers"])}


def schema_text(schema: dict[str, Any]) -> str:
    """Return a schema as a file of ``migverify/schemas`` holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
