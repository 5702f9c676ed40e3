"""The sessions that the lab's clients ask: the same for the same seed, whole transactions, planted where asked."""

from __future__ import annotations

import pytest

from migverify_lab.traffic_scripts import PLANTED, Script, scripts


def made(*, plant: bool = True, seed: int = 1, sessions: int = 5) -> list[Script]:
    return scripts("`pay`", sessions, 40, 500, seed, plant=plant)


def test_one_seed_asks_the_same() -> None:
    assert made() == made()
    assert made() != made(seed=2)


@pytest.mark.parametrize("seed", range(20))
def test_transactions_are_whole_and_nothing_is_planted_inside(seed: int) -> None:
    planted = {text.split("{")[0] for one in PLANTED for text in one.sql}
    for script in made(seed=seed):
        open_now = False
        for _, text in script.statements:
            if text == "BEGIN":
                assert not open_now
                open_now = True
            elif text in ("COMMIT", "ROLLBACK"):
                assert open_now
                open_now = False
            elif any(text.startswith(head) for head in planted):
                assert not open_now
        assert not open_now


def test_every_difference_is_planted_once() -> None:
    texts = [text for script in made(sessions=2) for _, text in script.statements]
    for one in PLANTED:
        for sql in one.sql:
            head = sql.split("{")[0]
            assert sum(text.startswith(head) for text in texts) == 1, one.name
