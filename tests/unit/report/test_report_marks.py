"""Unseen characters are made visible, and the characters that differ are marked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.report.marks import Piece, clip_pair, mark_pair, visible


@given(st.text(), st.text())
def test_visible_text_is_injective_and_printable(one: str, two: str) -> None:
    assert (visible(one) == visible(two)) == (one == two)
    assert visible(one).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 1", "plain 1"),
        ("a\tb\n", "a\\tb\\n"),
        ("a\\tb", "a\\\\tb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202eabc", "\\u202eabc"),
        ("a\u00a0b", "a\\xa0b"),
        ("\u200b", "\\u200b"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
        ("🐘 Zürich", "🐘 Zürich"),
        ("❤\ufe0f", "❤\\ufe0f"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def plain(parts: tuple[Piece, ...]) -> str:
    """The text the pieces stand for, where nothing in it needed an escape."""
    return "".join(part.text.replace("␣", " ") for part in parts)


words = st.text(st.sampled_from("aab cäß1"), max_size=30)


@given(words, words)
def test_marked_pieces_hold_the_text_and_unmarked_ones_are_common(source: str, target: str) -> None:
    marked_source, marked_target = mark_pair(source, target)
    assert plain(marked_source) == source
    assert plain(marked_target) == target
    kept = ["".join(p.text for p in parts if not p.changed) for parts in (marked_source, marked_target)]
    assert kept[0].replace("␣", " ") == kept[1].replace("␣", " ")
    differs = any(part.changed for part in (*marked_source, *marked_target))
    assert differs == (source != target)


def test_a_trailing_space_is_marked_and_seen() -> None:
    source, target = mark_pair("Müller ", "Müller")
    assert source == (Piece("Müller", False), Piece("␣", True, escaped=True))
    assert target == (Piece("Müller", False),)


def test_a_long_middle_is_marked_whole() -> None:
    source, target = mark_pair("<" + "ab" * 1000 + ">", "<" + "ba" * 1000 + ">")
    assert [(len(part.text), part.changed) for part in source] == [(1, False), (2000, True), (1, False)]
    assert [part.changed for part in target] == [False, True, False]


@given(st.text(max_size=300), st.text(max_size=300), st.integers(4, 80))
def test_a_clip_counts_what_it_leaves_out_and_keeps_the_first_difference(source: str, target: str, limit: int) -> None:
    clips = clip_pair(source, target, limit)
    for text, clip in zip((source, target), clips, strict=True):
        assert clip.text is not None
        assert len(clip.text) <= limit
        assert clip.text == text[clip.before : len(text) - clip.after]
    if source != target:
        assert clips[0].text != clips[1].text


def test_null_is_not_an_empty_clip() -> None:
    assert clip_pair(None, "", 10)[0].text is None
    assert clip_pair(None, "", 10)[1].text == ""
