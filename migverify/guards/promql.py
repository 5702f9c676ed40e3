"""Which series a PromQL expression rests on.

An instant query answers with the time of the evaluation, and with samples of up to five minutes ago as if they were of
now. How old they are only ``timestamp(selector)`` tells, and only for the selector itself: so the selectors of an
expression have to be known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    |(?P<comment>\#[^\n]*)
    |(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
    |(?P<number>0x[0-9a-fA-F]+|\.?[0-9][0-9.]*(?:[eE][+-]?[0-9]+)?(?:[a-z]+[0-9a-z]*)?)
    |(?P<mark>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],@:])
    |(?P<space>\s+)""",
    re.VERBOSE | re.DOTALL,
)
_LABEL_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = frozenset({"and", "or", "unless", "bool", "atan2", "inf", "nan"})
_AGGREGATES = frozenset({
    "sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile",
    "limitk", "limit_ratio",
})  # fmt: skip
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|y|w|d|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}
_CLOSES = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A vector selector as it is written, and the seconds of its range; None for an instant one."""

    text: str
    range: float | None = None


def seconds(text: str) -> float | None:
    """Return a duration as Prometheus and Go write it (``5m``, ``1h30m0s``, ``15d``) in seconds; None for others."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def selectors(query: str) -> tuple[Selector, ...]:
    """Return the selectors of an expression, each once.

    Raises
    ------
    ValueError
        the text is no PromQL, or shifts the time of a selector (``offset``, ``@``), so that its age says nothing.
    """
    tokens = _tokens(query)
    found: list[Selector] = []
    at = 0
    while at < len(tokens):
        kind, word = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if word == "@" or (kind == "name" and word.lower() == "offset"):
            raise ValueError("it shifts the time of a selector")
        if word == "{" or (kind == "name" and not _is_word(word, after)):
            selector, at = _selector(tokens, at)
            found.append(selector)
        elif word == "[":  # a subquery's window: what it looks at is before it
            at = _closing(tokens, at) + 1
        elif kind == "name" and word.lower() in _LABEL_LISTS and after == "(":
            at = _closing(tokens, at + 1) + 1
        else:
            at += 1
    return tuple(dict.fromkeys(found))


def _tokens(query: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(query):
        found = _TOKEN.match(query, at)
        if found is None:
            raise ValueError(f"this is no PromQL from {query[at : at + 20]!r} on")
        at = found.end()
        if found.lastgroup not in ("space", "comment"):
            tokens.append((found.lastgroup or "", found[0]))
    return tokens


def _is_word(word: str, after: str) -> bool:
    """Whether a name is not a metric: a function, an aggregation, an operator."""
    lower = word.lower()
    if lower in _AGGREGATES and after.lower() in ("by", "without", "("):
        return True
    return after == "(" or lower in _LABEL_LISTS or lower in _WORDS


def _selector(tokens: Sequence[tuple[str, str]], at: int) -> tuple[Selector, int]:
    start = at
    if tokens[at][1] != "{":
        at += 1
    if at < len(tokens) and tokens[at][1] == "{":
        at = _closing(tokens, at) + 1
    text = "".join(word for _, word in tokens[start:at])
    window = None
    if at < len(tokens) and tokens[at][1] == "[":
        end = _closing(tokens, at)
        if not any(word == ":" for _, word in tokens[at:end]):
            window = seconds("".join(word for _, word in tokens[at + 1 : end]))
        at = end + 1
    return Selector(text, window), at


def _closing(tokens: Sequence[tuple[str, str]], at: int) -> int:
    """Return the place of the mark that closes the one at ``at``."""
    opens, depth = tokens[at][1], 0
    for place in range(at, len(tokens)):
        word = tokens[place][1] if tokens[place][0] == "mark" else ""
        depth += (word == opens) - (word == _CLOSES[opens])
        if depth == 0:
            return place
    raise ValueError(f"{opens} is not closed")
