"""Making text visible: control characters, trailing spaces, and the characters in which two values differ."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher

# Characters of these categories are drawn as nothing or as space, or move what is around them (bidi).
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"}
# SequenceMatcher needs quadratic time at its worst; a longer middle part is marked as a whole.
_MATCH_LIMIT = 400


def escape_char(char: str) -> str | None:
    r"""Return a visible form such as ``\t`` or ``\u202e`` of a character one cannot see, else None."""
    if " " <= char <= "~":
        return None
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    category = unicodedata.category(char)
    selector = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
    if not (selector or category in _UNSEEN or category == "Zs"):
        return None
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: str) -> str:
    r"""Return the text with every unseen character escaped; one line, safe for a terminal, injective.

    A backslash is doubled, so that ``\t`` of two characters and a tab stay apart.
    """
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text
    return "".join("\\\\" if char == "\\" else escape_char(char) or char for char in text)


def quoted(text: str | None) -> str:
    """Return a value as one would read it aloud: ``NULL``, or visible text in single quotes."""
    return "NULL" if text is None else "'" + visible(text).replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True)
class Clip:
    """A stretch of a value. ``before`` and ``after`` count the characters left out; ``text`` None is NULL."""

    text: str | None
    before: int = 0
    after: int = 0


def clip_pair(source: str | None, target: str | None, limit: int) -> tuple[Clip, Clip]:
    """Cut both values to at most ``limit`` characters around the first character in which they differ."""
    if source is None or target is None:
        return _clip(source, 0, limit), _clip(target, 0, limit)
    first = _common_prefix(source, target)
    start = max(0, first - limit // 4)
    if max(len(source), len(target)) <= limit:
        start = 0
    return _clip(source, start, limit), _clip(target, start, limit)


def _clip(text: str | None, start: int, limit: int) -> Clip:
    if text is None:
        return Clip(None)
    start = min(start, len(text))
    return Clip(text[start : start + limit], start, max(0, len(text) - start - limit))


def _common_prefix(one: str, two: str) -> int:
    shorter = min(len(one), len(two))
    if one[:shorter] == two[:shorter]:
        return shorter
    low, high = 0, shorter  # slices compare at memory speed: halve instead of walking megabytes in Python
    while low + 1 < high:
        middle = (low + high) // 2
        if one[:middle] == two[:middle]:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of characters to draw alike.

    ``changed``: they differ from the other side. ``escaped``: the text replaces one unseen character.
    """

    text: str
    changed: bool
    escaped: bool = False


def mark_pair(source: str, target: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Cut two texts into pieces, marking the characters in which they differ and those one cannot see."""
    spans_source, spans_target = _changed(source, target)
    return pieces(source, spans_source), pieces(target, spans_target)


def _changed(source: str, target: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    start = _common_prefix(source, target)
    rest = min(len(source), len(target)) - start
    end = 0
    while end < rest and source[-1 - end] == target[-1 - end]:
        end += 1
    middle = source[start : len(source) - end], target[start : len(target) - end]
    if max(map(len, middle)) > _MATCH_LIMIT:
        return [(start, len(source) - end)], [(start, len(target) - end)]
    in_source, in_target = [], []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
        if tag != "equal":
            in_source.append((start + i1, start + i2))
            in_target.append((start + j1, start + j2))
    return in_source, in_target


def pieces(text: str, changed: list[tuple[int, int]] | None = None) -> tuple[Piece, ...]:
    """Cut one text into pieces; ``changed`` are half-open spans of positions."""
    flags = bytearray(len(text))
    for low, high in changed or []:
        flags[low:high] = b"\1" * (high - low)
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text.rstrip(" "))
    out: list[Piece] = []
    run: list[str] = []
    for at, char in enumerate(text):
        mark = bool(flags[at])
        shown = "␣" if char == " " and (mark or at < leading or at >= trailing) else escape_char(char)
        if run and (shown is not None or bool(flags[at - 1]) != mark):
            out.append(Piece("".join(run), bool(flags[at - 1])))
            run = []
        if shown is None:
            run.append(char)
        else:
            out.append(Piece(shown, mark, escaped=True))
    if run:
        out.append(Piece("".join(run), bool(flags[-1])))
    return tuple(out)
