"""Types the console blocks of docs/tutorial.md, word by word, on a real pair, with migverify from the wheels."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from release.machine import Failed, Machine, run

BLOCK = re.compile(r"^```console\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
URL = re.compile(r"\b(?:mysql|tidb)://root@127\.0\.0\.1:(\d+)")
DEFAULT_CACHE = Path.home() / ".cache"


@dataclass(frozen=True, slots=True)
class Line:
    """A command of the page, the number of its section, and what the page shows below it."""

    section: int
    command: str
    shown: tuple[str, ...] = ()


EXPECTED = {(5, "migverify tables verify"): 1, (6, "migverify report"): 1}
"""Exit codes other than 0, by section and how the command begins: the verdict is MISMATCH there."""

VERDICTS = {(4, "migverify tables verify"): "MATCH", (5, "migverify tables verify"): "MISMATCH",
            (7, "migverify tables verify"): "MATCH"}  # fmt: skip
FILES = {"migverify report last -o report.html": ("report.html",)}


def lines(page: str) -> list[Line]:
    """Return the commands of a page's console blocks, in order, without their comments."""
    commands: list[Line] = []
    for section, text in enumerate(re.split(r"^## ", page, flags=re.MULTILINE)):
        for block in BLOCK.findall(text):
            for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *shown = piece.splitlines()
                commands.append(Line(section, re.sub(r"\s{2,}#.*$", "", command), tuple(shown)))
    return commands


def follow(machine: Machine, say: Callable[[str], None]) -> None:
    """Type the whole page; servers are stopped in any case."""
    folder = machine.folder / "tutorial"
    folder.mkdir()
    for name in ("migverify", "migverify_lab"):
        shutil.copy(machine.wheel(name), folder)
    typist = Typist(machine, folder)
    try:
        for line in lines((machine.root / "docs" / "tutorial.md").read_text()):
            typist.type(line)
            say(f"ok: tutorial {line.section}: {line.command}")
    finally:
        typist.stop_servers()


class Typist:
    """Somebody at a shell in a folder with the wheels alone, who knows the page and has other ports than it shows."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._folder, self._bin = folder, folder / "mv" / "bin"
        self._environment = machine.environment(self._bin) | {
            # A page of five commands is no reason to build TiDB again: what the user's cache has is used.
            "MIGVERIFY_CACHE": os.environ.get("MIGVERIFY_CACHE", str(DEFAULT_CACHE / "migverify")),
            "SHELL": "/bin/bash",
        }  # fmt: skip
        self._ports: dict[str, str] = {}

    def type(self, line: Line) -> None:
        """Run one command, and look at what the page promises of it."""
        command = URL.sub(lambda url: url[0].replace(url[1], self._ports.get(url[1], url[1])), line.command)
        code = next((EXPECTED[key] for key in EXPECTED if self._is(line, key)), 0)
        # The shell stays the parent, as for somebody who types: a completion is installed for it.
        output = run(["bash", "-c", f"{command}\nexit $?"], self._folder, self._environment, code, seconds=1800)
        shown, printed = URL.findall("\n".join(line.shown)), URL.findall(output)
        if shown and len(shown) != len(printed):
            raise Failed(f"`{line.command}` prints other lines than the page shows:\n{output}")
        self._ports |= dict(zip(shown, printed, strict=False)) if shown else {}
        for key, verdict in VERDICTS.items():
            ends = [text for text in output.splitlines() if text.strip()]
            if self._is(line, key) and not all(re.search(rf"\b{verdict}\b", text) for text in (ends[0], ends[-1])):
                raise Failed(
                    f"`{line.command}` of section {line.section} does not say {verdict} first and last:\n{output}"
                )
        for name in FILES.get(command, ()):
            if not (self._folder / name).exists():
                raise Failed(f"`{command}` wrote no {name}")

    def stop_servers(self) -> None:
        """Stop what an interrupted page left running."""
        if (self._bin / "migverify").exists():
            run(["bash", "-c", "migverify lab down --purge || true"], self._folder, self._environment)

    @staticmethod
    def _is(line: Line, key: tuple[int, str]) -> bool:
        return line.section == key[0] and line.command.startswith(key[1])
