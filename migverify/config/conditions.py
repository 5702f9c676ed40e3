"""``where`` conditions: SQL of the user's that ends up in parentheses inside ours.

A comment or an unclosed parenthesis would swallow the range condition that follows, and fewer rows would be
compared than the report says. So the text is read token by token before it is accepted.
"""

from __future__ import annotations


def check_condition(text: str) -> str:
    """Return a condition without surrounding space.

    Raises
    ------
    ValueError
        it is empty, holds a comment or a ``;``, or leaves a quote or parenthesis open.
    """
    condition = text.strip()
    if not condition:
        raise ValueError("the condition is empty")
    if "\0" in condition:
        raise ValueError("the condition holds a NUL character")
    depth = position = 0
    while position < len(condition):
        character = condition[position]
        if character in "'\"`":
            position = _quoted_end(condition, position)
            continue
        if condition.startswith(("--", "/*"), position) or character == "#":
            raise ValueError("the condition holds a comment (--, # or /*); put the comment into the YAML")
        if character == ";":
            raise ValueError("the condition holds a ; outside quotes; it is one expression")
        depth += (character == "(") - (character == ")")
        if depth < 0:
            raise ValueError("the condition closes a parenthesis that it did not open")
        position += 1
    if depth:
        raise ValueError("the condition leaves a parenthesis open")
    return condition


def _quoted_end(text: str, start: int) -> int:
    mark = text[start]
    position = start + 1
    while position < len(text):
        if text[position] == "\\" and mark != "`":
            position += 2
        elif text[position] != mark:
            position += 1
        elif text[position + 1 : position + 2] == mark:
            position += 2
        else:
            return position + 1
    raise ValueError(f"the condition leaves a {mark} open")
