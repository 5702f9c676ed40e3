"""The lines that a verification prints while it runs."""

from __future__ import annotations

import pytest

from migverify.cli.progress import ProgressLine
from migverify.model import Verdict
from migverify.tables.verify import VerifyProgress
from tests.report_runs import result


@pytest.mark.parametrize(("source", "target", "name"), [("shop.a", "new.a", "shop.a"), ("(none)", "new.a", "new.a")])
def test_the_line_of_a_table_names_the_side_that_has_it(
    capsys: pytest.CaptureFixture[str], source: str, target: str, name: str
) -> None:
    finished = result("a", Verdict.MISMATCH, source=source, target=target)
    ProgressLine(quiet=False)(VerifyProgress(1, 1, 0, 0, 0, 0, 0, "", finished=finished))
    assert capsys.readouterr().err.startswith(f"MISMATCH     {name}  ")
