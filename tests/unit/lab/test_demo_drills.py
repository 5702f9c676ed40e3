"""The people of the demo's drills: what they type again when the machine is slow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migverify_lab import demo_drills
from migverify_lab.demo_drills import DemoDrills


class HeldDrive:
    """A run whose gate fails ``failures`` times before it passes."""

    def __init__(self, failures: int) -> None:
        self.failures, self.troubled = failures, False
        self.typed: list[str] = []

    def state(self, step: str) -> str:
        assert step == "way-back"
        return "failed" if self.failures else "passed"

    @property
    def record(self) -> Any:
        state = SimpleNamespace(value="held" if self.failures else "running")
        return SimpleNamespace(status=SimpleNamespace(state=state))

    def type(self, *words: str) -> None:
        self.typed.append(words[0])
        if words[0] == "retry":
            self.failures -= 1


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_a_gate_whose_marker_is_late_is_asked_until_it_passes(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(demo_drills, "typed", lambda *words: commands.append(words))
    drills, drive = DemoDrills(tmp_path, tmp_path / "lab"), HeldDrive(failures)
    while drills._mend(drive):  # type: ignore[arg-type]
        pass
    assert drive.typed == ["resume", "retry"] * failures
    assert [words[:3] for words in commands] == [("lab", "cutover", "mend"), ("lab", "cutover", "feed")], "mended once"
