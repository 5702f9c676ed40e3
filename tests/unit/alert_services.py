"""PagerDuty's Events API v2 and Slack on this machine: they check a payload as their documentation says, and answer so.

PagerDuty: developer.pagerduty.com/docs/events-api-v2 (fields, lengths, 512 KB, answers 202, 400, 429). Slack:
docs.slack.dev/reference/block-kit (lengths, 50 blocks), incoming webhooks (`ok`, or a code with status 400, 403, 404)
and chat.postMessage (status 200 with `ok: false`). Only what the documentation names is taken.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ROUTING_KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "xoxb-" + "1234567890-abcdefghijklmnop"
HOOK_PATH = "/services/T0123456/B0123456/abcdefghijklmnopqrstuvwx"
CHANNEL = "C0123456789"

_ACTIONS = ("trigger", "acknowledge", "resolve")
_SEVERITIES = ("critical", "error", "warning", "info")
_EVENT = {"routing_key", "event_action", "dedup_key", "payload", "images", "links", "client", "client_url"}
_PAYLOAD = {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}
_ESCAPED = re.compile(r"&(?!amp;|lt;|gt;)|[<>]")


def event_errors(event: Any) -> list[str]:
    """Return what the Events API refuses of an event."""
    if not isinstance(event, dict):
        return ["Event is not an object"]
    found = [f"'{name}' is no field" for name in set(event) - _EVENT]
    if len(str(event.get("routing_key", ""))) != 32:
        found.append("Length of 'routing_key' is incorrect (should be 32 characters)")
    action = event.get("event_action")
    if action not in _ACTIONS:
        found.append("'event_action' is missing or wrong")
    key = event.get("dedup_key")
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= 255):
        found.append("'dedup_key' is invalid")
    if action in ("acknowledge", "resolve") and not key:
        found.append("'dedup_key' is missing or blank")
    if action == "trigger":
        found += _payload_errors(event.get("payload"))
    for link in event.get("links", ()):
        if not str(link.get("href", "")).startswith("http") or set(link) - {"href", "text"}:
            found.append("'links' is invalid")
    return found


def _payload_errors(payload: Any) -> list[str]:
    if not isinstance(payload, dict):
        return ["'payload' is missing or blank"]
    found = [f"'payload.{name}' is no field" for name in set(payload) - _PAYLOAD]
    required = ("summary", "source", "severity")
    found += [f"'payload.{name}' is missing or blank" for name in required if not str(payload.get(name) or "")]
    if len(payload.get("summary") or "") > 1024:
        found.append("'payload.summary' is too long")
    if payload.get("severity") not in _SEVERITIES:
        found.append("'payload.severity' is invalid (must be one of critical, error, warning, info)")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0000", payload.get("timestamp", "")):
        found.append("'payload.timestamp' is invalid")
    if not isinstance(payload.get("custom_details", {}), dict):
        found.append("'payload.custom_details' is invalid")
    return found


def message_error(message: Any) -> str:
    """Return the code with which Slack refuses a message; empty: it takes it."""
    if not isinstance(message, dict):
        return "invalid_payload"
    blocks = message.get("blocks", [])
    if not message.get("text") and not blocks:
        return "no_text"
    if _ESCAPED.search(message.get("text", "")):
        return "test_not_escaped"  # Slack would read a mark there
    if not isinstance(blocks, list) or len(blocks) > 50 or not all(map(_is_block, blocks)):
        return "invalid_blocks"
    return ""


def _is_block(block: Any) -> bool:
    match block:
        case {"type": "section", "text": text} if set(block) == {"type", "text"}:
            return _is_text(text, 3000)
        case {"type": "section", "fields": list(fields)} if set(block) == {"type", "fields"}:
            return 0 < len(fields) <= 10 and all(_is_text(one, 2000) for one in fields)
        case {"type": "actions", "elements": list(elements)}:
            return 0 < len(elements) <= 25 and all(map(_is_link_button, elements))
        case {"type": "context", "elements": list(elements)}:
            return 0 < len(elements) <= 10 and all(_is_text(one, 3000) for one in elements)
    return False


def _is_text(text: Any, most: int) -> bool:
    if not isinstance(text, dict) or text.get("type") != "mrkdwn" or set(text) - {"verbatim"} != {"type", "text"}:
        return False
    return 0 < len(text["text"]) <= most and not _ESCAPED.search(text["text"])


def _is_link_button(element: Any) -> bool:
    """A button that opens an address, and sends no value that anybody could act by."""
    if not isinstance(element, dict) or set(element) != {"type", "text", "url", "action_id"}:
        return False
    label = element["text"]
    return (
        element["type"] == "button" and label["type"] == "plain_text" and 0 < len(label["text"]) <= 75
        and element["url"].startswith(("http://", "https://")) and len(element["url"]) <= 3000
        and len(element["action_id"]) <= 255
    )  # fmt: skip


@dataclass
class AlertServices:
    """Both services on one port. ``busy``: answers (status, Retry-After) that are given first.

    ``incidents`` holds the state of each incident by its key, ``messages`` what a channel shows.
    """

    busy: list[tuple[int, str]] = field(default_factory=list)
    incidents: dict[str, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    channels: tuple[str, ...] = (CHANNEL,)
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def hook(self) -> str:
        return f"{self.address}{HOOK_PATH}"

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str, dict[str, str]]:
        """Return status, body and headers of an answer."""
        self.headers.append(headers)
        if self.busy:
            status, wait = self.busy.pop(0)
            return status, "rate_limited", {"Retry-After": wait} if wait else {}
        try:
            sent = json.loads(body)
        except ValueError:
            sent = None
        if path == "/v2/enqueue":
            return self._enqueue(sent, len(body))
        if path == "/api/chat.postMessage":
            return 200, json.dumps(self._posted(sent, headers)), {}
        if path == HOOK_PATH:
            return self._hooked(sent)
        return 404, "no_service", {}

    def _enqueue(self, event: Any, size: int) -> tuple[int, str, dict[str, str]]:
        errors = event_errors(event) if size <= 512 * 1024 else ["Event is too large"]
        if errors:
            self.refused.append(errors[0])
            return (
                400,
                json.dumps({"status": "invalid event", "message": "Event object is invalid", "errors": errors}),
                {},
            )
        key, action = event["dedup_key"], event["event_action"]
        self.events.append(event)
        if action == "trigger":
            # A trigger for an incident that is acknowledged is an entry of its log, and notifies nobody.
            self.incidents[key] = "triggered" if self.incidents.get(key) != "acknowledged" else "acknowledged"
        elif self.incidents.get(key, "resolved") != "resolved":
            self.incidents[key] = f"{action.rstrip('e')}ed"
        return 202, json.dumps({"status": "success", "message": "Event processed", "dedup_key": key}), {}

    def _posted(self, message: Any, headers: Mapping[str, str]) -> dict[str, Any]:
        code = message_error(message)
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            code = "invalid_auth"
        elif not code and message.get("channel") not in self.channels:
            code = "channel_not_found"
        if code:
            self.refused.append(code)
            return {"ok": False, "error": code}
        self.messages.append(message)
        return {"ok": True, "channel": message["channel"], "ts": "1503435956.000247"}

    def _hooked(self, message: Any) -> tuple[int, str, dict[str, str]]:
        code = "invalid_payload" if isinstance(message, dict) and "channel" in message else message_error(message)
        if code:
            self.refused.append(code)
            return 400, code, {}
        self.messages.append(message)
        return 200, "ok", {}


@contextmanager
def alert_services(*busy: tuple[int, str]) -> Iterator[AlertServices]:
    """Yield both services, served."""
    services = AlertServices(list(busy))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, text, headers = services.answer(self.path, dict(self.headers), body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    services.port = int(server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()
