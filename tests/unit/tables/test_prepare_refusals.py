"""What a plan of the tables refuses before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from migverify.config import load_config
from migverify.errors import ConfigError
from migverify.tables.prepare import _refuse_empty

CONFIG = """\
source: {url: "mysql://reader@db1/"}
target: {url: "tidb://reader@db2/"}
tables: {include: ["app.*"]}
"""


def test_tables_that_a_user_may_not_read_look_like_none_and_the_hint_says_so(tmp_path: Path) -> None:
    path = tmp_path / "migverify.yaml"
    path.write_text(CONFIG)
    with pytest.raises(ConfigError, match=r"no table fits tables\.include \(app\.\*\)") as caught:
        _refuse_empty(load_config(path), [], [])
    assert "only tables that it may read: `migverify config --grants`" in caught.value.hint
