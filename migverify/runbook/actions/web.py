"""Checks that ask a status page or a server in words of its own: ``http.value`` and ``sql.ok``.

Control planes of clusters (PD, TiCDC, DM, Kubernetes, a load balancer) answer JSON over HTTP; one value of it, named
by a JSON pointer (RFC 6901), is compared with the bounds of a check. Everything but a whole answer with that value is
no data.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from migverify.codec import parse_json
from migverify.errors import EndpointError, ReadError, UsageError
from migverify.opener import opener
from migverify.runbook.actions.action import (
    Action,
    ActionKind,
    ActionResult,
    Argument,
    Bounds,
    Context,
    Outcome,
    Registry,
)
from migverify.runbook.actions.builtin import endpoint_of, reading
from migverify.secrets import Secret, remember, resolve_password, resolve_variable, scrub

__all__ = ["pointed", "register"]

MOST_BYTES = 4 << 20
DAMAGED = ("[8003]", "[8133]", "[8134]", "[8223]", "[8224]", "[8225]", "[8226]")
"""TiDB's codes of ``ADMIN CHECK`` for an index that is not what its rows say."""


def pointed(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) leads to; the empty one is the document.

    Raises
    ------
    KeyError
        there is no such place; its text is the part that leads nowhere.
    """
    found = document
    if pointer and not pointer.startswith("/"):
        raise KeyError(pointer)
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise KeyError(part)
    return found


def _http_value(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    url, pointer = str(arguments["url"]), str(arguments.get("pointer", ""))
    facts = {"url": url, "pointer": pointer}
    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"http.value: {url} is neither http:// nor https://")
    headers = {"Accept": "application/json", "User-Agent": "migverify"}
    if name := arguments.get("token_env"):
        token = remember(Secret(resolve_variable(name, "token_env of http.value").reveal()))
        headers["Authorization"] = f"Bearer {token.reveal()}"
    try:
        text = _fetch(urllib.request.Request(url, headers=headers), context.timeout, arguments.get("ca"))  # noqa: S310
    except ReadError as error:
        return ActionResult(Outcome.NO_DATA, scrub(error.message), None, facts)
    if not arguments.get("json", True):
        return ActionResult(Outcome.OK, text.strip()[:300], text.strip(), facts)
    try:
        value = pointed(parse_json(text), pointer)
    except ValueError:
        return ActionResult(Outcome.NO_DATA, f"no JSON: {text[:100]!r}", None, facts)
    except KeyError as error:
        return ActionResult(Outcome.NO_DATA, f"the answer has no {pointer} (nothing at {error})", None, facts)
    if isinstance(value, list | dict):
        # How many is a value: ids of failed stores, members of a cluster.
        value = len(value)
    if value is None:
        return ActionResult(Outcome.NO_DATA, f"{pointer} is null", None, facts)
    return ActionResult(Outcome.OK, str(value)[:300], value, facts)


def _fetch(request: urllib.request.Request, timeout: float, ca: str | None) -> str:
    """Return the body of a 200.

    Raises
    ------
    ReadError
        anything else came, more than ``MOST_BYTES`` of it, or nothing in time.
    """
    try:
        with opener(ca).open(request, timeout=timeout) as answer:
            body = answer.read(MOST_BYTES + 1)
            status = answer.status
    except urllib.error.HTTPError as error:
        raise ReadError(f"HTTP {error.code}") from None
    except (OSError, ValueError) as error:
        raise ReadError(f"no answer: {getattr(error, 'reason', None) or error}") from None
    if status != 200 or len(body) > MOST_BYTES:
        raise ReadError(f"HTTP {status}, {len(body)} bytes: no whole answer")
    return bytes(body).decode("utf-8", "replace")


def _sql_ok(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    from migverify.db.session import open_session

    sql = " ".join(str(arguments["sql"]).split())
    reading(sql)
    endpoint = endpoint_of(arguments, context)
    facts = {"endpoint": endpoint.name, "sql": sql}
    try:
        with open_session(endpoint, resolve_password(endpoint).reveal() or None) as session:
            rows = session.query(sql)
    except (EndpointError, ReadError) as error:
        if any(code in error.message for code in DAMAGED):
            return ActionResult(Outcome.OK, error.message, value=False, evidence=facts)
        return ActionResult(Outcome.NO_DATA, error.message, None, facts)
    return ActionResult(Outcome.OK, f"{len(rows)} rows", value=True, evidence=facts)


def register(registry: Registry) -> None:
    """Add the actions of this module."""
    registry.register(Action(
        "http.value", ActionKind.CHECK, "One value of a JSON answer; of a list or an object, how many it holds.",
        (Argument("url", "text", "http:// or https://", required=True),
         Argument("pointer", "text", "JSON pointer (RFC 6901) to the value; empty: the whole."),
         Argument("json", "flag", "false: the text itself is the value."),
         Argument("ca", "text", "PEM file of the certificate authority."),
         Argument("token_env", "text", "Environment variable that holds a bearer token.")), _http_value,
    ))  # fmt: skip
    registry.register(Action(
        "sql.ok", ActionKind.CHECK, "Yes when a reading statement ends well: ADMIN CHECK TABLE, CHECK TABLE, SELECT.",
        (Argument("endpoint", "text", "An endpoint of migverify.yaml.", required=True),
         Argument("sql", "text", "One statement that reads.", required=True)), _sql_ok, Bounds(equals="true"),
    ))  # fmt: skip
