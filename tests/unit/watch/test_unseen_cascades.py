"""Foreign keys that change rows of the source, and that the target does not have, are named when a watch begins."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migverify.sql.server import CASCADE_RULES, ENFORCES_KEYS, LOGS_CASCADES
from migverify.tables.unseen_cascades import unseen_cascades
from migverify.tables.watch_streams import watched_pairs
from tests.toy_tables import make_pair
from tests.unit.watch.test_old_side import TEXT, config_of

Row = Sequence[str]
CASCADE = ("app", "parent", "app", "t", "fk_t", "CASCADE", "NO ACTION")


def pool_of(source: Sequence[Row], target: Sequence[Row], logs: str = "ON", enforces: str = "ON") -> Any:
    """Servers with foreign keys, MySQL as the source."""
    answers = {
        "source": {CASCADE_RULES: source, LOGS_CASCADES: [("innodb_native_foreign_keys", logs)], ENFORCES_KEYS: []},
        "target": {CASCADE_RULES: target, LOGS_CASCADES: [], ENFORCES_KEYS: [("tidb_enable_foreign_key", enforces)]},
    }
    return SimpleNamespace(
        session=lambda endpoint: nullcontext(SimpleNamespace(query=lambda text: answers[endpoint.name][text]))
    )


def named(folder: Path, pool: Any) -> list[str]:
    config = config_of(folder, TEXT % "")
    return unseen_cascades(config, watched_pairs(config, [make_pair()], reverse=True), pool)


@pytest.mark.parametrize(
    ("target", "enforces"),
    [([], "ON"), ([CASCADE], "OFF"), ([(*CASCADE[:5], "SET NULL", "NO ACTION")], "ON")],
)
def test_a_cascade_that_only_the_source_has_is_named(tmp_path: Path, target: Sequence[Row], enforces: str) -> None:
    (text,) = named(tmp_path, pool_of([CASCADE], target, enforces=enforces))
    assert text.startswith("source: foreign key fk_t of app.t on app.parent (ON DELETE CASCADE), which target does not")
    assert "watch.sweep_rows" in text


@pytest.mark.parametrize(
    ("source", "target", "logs"),
    [
        ([CASCADE], [CASCADE], "ON"),  # the changefeed has the rows
        ([CASCADE], [], "OFF"),  # MySQL 9.6: the binlog has the rows
        ([], [CASCADE], "ON"),  # the changefeed carries what TiDB does
        ([("app", "t", "app", "other", "fk_o", "CASCADE", "NO ACTION")], [], "ON"),  # the child is not watched
    ],
)
def test_a_cascade_that_a_stream_shows_is_not_named(
    tmp_path: Path, source: Sequence[Row], target: Sequence[Row], logs: str
) -> None:
    assert named(tmp_path, pool_of(source, target, logs)) == []


def test_both_actions_of_a_foreign_key_are_named(tmp_path: Path) -> None:
    both = (*CASCADE[:5], "SET NULL", "CASCADE")
    texts = named(tmp_path, pool_of([both], []))
    assert ["(ON DELETE SET NULL)" in texts[0], "(ON UPDATE CASCADE)" in texts[1]] == [True, True]
