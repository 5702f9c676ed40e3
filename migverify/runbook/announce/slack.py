"""The sink ``slack``: blocks by an incoming webhook, or by ``chat.postMessage``. Nothing in it acts by a click.

A block shows the command to type. The only button opens the page of the run; approvals are typed, and signed, at a
terminal.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from migverify.codec import parse_json
from migverify.runbook.announce.http import Poster, escaped
from migverify.runbook.announce.message import Message, SinkError
from migverify.runbook.announce.moments import group_of
from migverify.secrets import Secret

__all__ = ["POST_MESSAGE", "blocks_of", "message_of", "refusal_words", "sender"]

POST_MESSAGE = "https://slack.com/api/chat.postMessage"
_SECTION, _FIELD, _CONTEXT, _URL, _TEXT = 3000, 2000, 3000, 3000, 4000
_FIELDS = 10
"""Limits of Block Kit: characters of a text, of a field, of a URL, of a message's text; fields of a section."""
_SHOWN = ("condition", "step", "verdict", "environment", "dri", "reviewer", "plan", "forecast")
_LONG = (("reason", "Why"), ("do", "What to do"), ("rollback", "Rollback"))
_CODE = re.compile(rb"[a-z_]{2,40}")
_AGAIN = frozenset({"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable",
                    "request_timeout"})  # fmt: skip
"""Errors of ``chat.postMessage`` that come with status 200 and end by themselves."""
_MARKS = {"urgent": ":rotating_light: ", "reminder": ":hourglass_flowing_sand: "}


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """Return the blocks: what happened, its facts, why, what to do, the command to type, and a link to the page."""
    fields = message.fields
    mark = _MARKS.get(group_of(message.what), "")
    link = fields.get("link", "")
    text = message.text.removesuffix(f" {link}") if link else message.text
    blocks = [_section(f"{mark}*{escaped(text)}*", _SECTION)]
    facts = [f"*{name}*\n{escaped(fields[name])}" for name in _SHOWN if fields.get(name)]
    if facts:
        some = [{"type": "mrkdwn", "verbatim": True, "text": _cut(one, _FIELD)} for one in facts[:_FIELDS]]
        blocks.append({"type": "section", "fields": some})
    blocks += [_section(f"*{title}*\n{escaped(fields[name])}", _SECTION) for name, title in _LONG if fields.get(name)]
    if command := fields.get("command"):
        blocks.append(
            _section(f"To be typed:\n```{_cut(escaped(command).replace('```', ''), _SECTION - 100)}```", _SECTION)
        )
    if link and len(link) <= _URL:
        label = {"type": "plain_text", "text": "Show the run"}
        button = {"type": "button", "text": label, "url": link, "action_id": "migverify-open"}
        blocks.append({"type": "actions", "elements": [button]})
    of = f"{message.what} · {message.id}"
    blocks.append(
        {"type": "context", "elements": [{"type": "mrkdwn", "verbatim": True, "text": _cut(escaped(of), _CONTEXT)}]}
    )
    return blocks


def message_of(message: Message, channel: str | None = None) -> dict[str, Any]:
    """Return the message as the API takes it; ``text`` is for notifications and for what shows no blocks."""
    found: dict[str, Any] = {
        "text": _cut(escaped(message.text), _TEXT), "blocks": blocks_of(message), "unfurl_links": False,
        "unfurl_media": False,
    }  # fmt: skip
    return found if channel is None else {"channel": channel, **found}


def _section(text: str, most: int) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": _cut(text, most)}}


def _cut(text: str, most: int) -> str:
    """Return a text of at most so many characters; no escape is cut in two."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    at = cut.rfind("&")
    return f"{cut[:at] if at >= 0 and ';' not in cut[at:] else cut}…"


def refusal_words(body: bytes) -> str:
    """Return the code of a refusal, as a webhook answers it (``invalid_blocks``); nothing of any other text."""
    text = body.strip()
    return text.decode("ascii") if _CODE.fullmatch(text) else ""


def sender(
    poster: Poster, token: Secret | None = None, channel: str | None = None
) -> Callable[[Message, threading.Event], None]:
    """Return what sends a message: to a webhook, or with a token to a channel."""
    headers = {} if token is None else {"Authorization": f"Bearer {token.reveal()}",
                                        "Content-Type": "application/json; charset=utf-8"}  # fmt: skip

    def send(message: Message, _canceled: threading.Event) -> None:
        answer = poster.post(message, json.dumps(message_of(message, channel)).encode("ascii"), headers)
        if token is not None:
            _check(answer)

    return send


def _check(answer: bytes) -> None:
    """Raise SinkError where the Web API refuses: it answers with status 200 and ``ok: false``."""
    try:
        found = parse_json(answer)
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise SinkError("the answer is no JSON of Slack")
    if found.get("ok") is not True:
        code = str(found.get("error", ""))
        known = refusal_words(code.encode("utf-8", "replace")) or "without a reason"
        raise SinkError(f"refused: {known}", final=known not in _AGAIN)
