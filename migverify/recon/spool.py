"""Findings of one evaluation, on disk until all of them are known."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import IO, Self

from migverify.recon.bodies import finding_body, finding_of
from migverify.recon.model import RuleFinding

PAGE = 500
"""Findings of one look and of one transaction."""


class Spool:
    """Findings of one evaluation, on disk until it is complete: memory does not grow with their number."""

    def __init__(self) -> None:
        self._file: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 - closed by close
            "w+", encoding="ascii", prefix="migverify-findings-"
        )

    def add(self, findings: Sequence[RuleFinding]) -> None:
        """Append some."""
        for finding in findings:
            self._file.write(json.dumps(finding_body(finding), separators=(",", ":")) + "\n")

    def batches(self) -> Iterator[tuple[list[RuleFinding], bool]]:
        """Yield them a page at a time, each with whether it is the last; one empty page where there are none."""
        self._file.seek(0)
        lines = list(islice(self._file, PAGE))
        while True:
            following = list(islice(self._file, PAGE))
            yield [finding_of(json.loads(line)) for line in lines], not following
            if not following:
                return
            lines = following

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
