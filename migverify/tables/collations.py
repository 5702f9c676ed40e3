"""What two collations take as equal text, and so what a unique key or a lookup does after the move."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Equality:
    """What a collation takes as equal: letters of unlike case, of unlike accent, texts but for trailing spaces.

    ``weights`` names the table of weights: two collations that agree on the rest still differ on single
    characters when their tables differ (``ß``, supplementary characters, ligatures).
    """

    case: bool
    accent: bool
    pad: bool
    weights: str


_CHARSETS = ("utf8mb4_", "utf8mb3_", "utf8_")


def equality(collation: str) -> Equality:
    """Read what a collation takes as equal from its name, by the naming rule of MySQL, MariaDB and TiDB.

    A name of one language (``latin1_swedish_ci``, ``utf8mb4_de_pb_0900_ai_ci``) is a weight table of its own.
    """
    name = collation.lower()
    for charset in _CHARSETS:
        if name.startswith(charset):
            name = name.removeprefix(charset)
            break
    words = name.split("_")
    if name == "binary":
        return Equality(case=False, accent=False, pad=False, weights="bytes")
    if words[-1] == "bin":
        return Equality(case=False, accent=False, pad="0900" not in words and "nopad" not in words, weights="bytes")
    case = words[-1] == "ci"
    # Without ai or as in the name, accents go the way of case; the general and Unicode families are such.
    accent = "ai" in words or (case and "as" not in words)
    pad = "0900" not in words and "nopad" not in words and not name.startswith("gb18030_chinese")
    weights = "_".join(word for word in words if word not in {"ci", "cs", "ai", "as", "ks", "nopad"})
    return Equality(case, accent, pad, weights)


def describe_change(source: str, target: str) -> tuple[str, bool]:
    """Say how the target's collation differs from the source's.

    Returns
    -------
    message, behaves_otherwise
        The message says what the target takes as equal that the source does not (looser) and the other way
        round (stricter). ``behaves_otherwise`` is False where the two differ in nothing but their names or in
        the weights of single characters.
    """
    ours, theirs = equality(source), equality(target)
    looser: list[str] = []
    stricter: list[str] = []
    for trait, words in (
        ("case", "letters of unlike case"),
        ("accent", "letters of unlike accent"),
        ("pad", "texts that differ in trailing spaces"),
    ):
        if getattr(ours, trait) != getattr(theirs, trait):
            (looser if getattr(theirs, trait) else stricter).append(words)
    parts = []
    if looser:
        parts.append(f"the target is looser: it takes {' and '.join(looser)} as equal")
    if stricter:
        parts.append(f"the target is stricter: it tells {' and '.join(stricter)} apart")
    if parts:
        return "; ".join(parts), True
    if ours.weights != theirs.weights:
        return "single characters sort otherwise or are equal to others", False
    return "both take the same texts as equal", False
