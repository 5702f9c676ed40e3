"""Which engine runs where none is named."""

from __future__ import annotations

import pytest

from migverify.config.settings import SparkSettings
from migverify.spark.settings import UNNAMED_MASTER, is_spark_chosen, named_master


@pytest.fixture(autouse=True)
def _no_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_threads_are_the_default() -> None:
    assert SparkSettings().master == UNNAMED_MASTER
    assert named_master(None, UNNAMED_MASTER) is None
    assert not is_spark_chosen(None, UNNAMED_MASTER)


@pytest.mark.parametrize(
    ("option", "configured", "master"),
    [("yarn", UNNAMED_MASTER, "yarn"), (None, "spark://h:7077", "spark://h:7077"), ("local[2]", "yarn", "local[2]")],
)
def test_a_named_master_chooses_spark(option: str | None, configured: str, master: str) -> None:
    assert named_master(option, configured) == master
    assert is_spark_chosen(option, configured)


def test_spark_submit_chooses_spark_and_its_own_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_spark_chosen(None, UNNAMED_MASTER)
    assert named_master(None, UNNAMED_MASTER) is None
