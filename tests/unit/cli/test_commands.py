"""The commands: few enough to know, each with examples and a short help, and every old name leads to the new one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from migverify.cli.main import run
from migverify.cli.renamed import RENAMED
from tests.pages import command_lines, declared_commands

MOST_COMMANDS = 60
MOST_OPTIONS = 12


def help_of(line: str, capsys: pytest.CaptureFixture[str], flag: str = "--help") -> str:
    assert run([*line.split(), flag]) == 0, line
    return capsys.readouterr().out


def options(text: str) -> Iterator[str]:
    part = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    for names in re.findall(r"^  (-\S.*?)(?:  |$)", part, flags=re.MULTILINE):
        yield next(name for name in re.findall(r"--[a-z0-9-]+", names))


def test_there_are_few_enough_to_know() -> None:
    assert len(list(command_lines(forms=False))) <= MOST_COMMANDS + 3, (
        "until `ack` replaces call, start, done, accept, note and fail"
    )


@pytest.mark.parametrize("line", sorted(command_lines()))
def test_help_ends_with_examples_of_the_command_itself(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(line, capsys)
    assert f"Usage: migverify {line.partition(' --')[0]}" in text
    shown = text.partition("Examples:\n")[2].splitlines()
    assert shown, "no examples"
    name = line.partition(" --")[0]
    assert all("migverify " in one for one in shown if one.strip())
    assert any(f"migverify {name}" in one for one in shown)


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_an_old_name_ends_with_the_new_one(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (old.split(), ["-v", *old.split(), "--json"]):
        assert run(words) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert f"`migverify {old}` has another name now: `migverify {RENAMED[old]}`" in told.err


def test_an_option_that_is_a_command_now_is_refused_wherever_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("changes audit --from binlog.000120:4 --delivered", "changes audit --delivered=yes"):
        assert run(words.split()) == 2
        told = capsys.readouterr().err
        assert "`migverify changes audit --delivered` has another name now" in told
        assert "`migverify tables watch --start POSITION --until-drained`" in told
        assert "migverify tables watch --help" in told
    assert run(["changes", "audit", "--help"]) == 0


def test_a_form_is_chosen_by_its_option_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert "performance_schema" in help_of("workload capture --poll", capsys)
    assert "performance_schema into" not in help_of("workload capture", capsys)
    assert run(["workload", "capture", "--poll", "--port", "1"]) == 2  # an option of the other form
    assert "--port" in capsys.readouterr().err
    assert run(["config", "--schema", "recon"]) == 0
    assert '"$schema"' in capsys.readouterr().out


@pytest.mark.parametrize("line", sorted(command_lines()))
def test_a_page_of_help_shows_few_options(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [name for name in options(help_of(line, capsys)) if name not in ("--help", "--help-all")]
    assert shown or line in ("config --schema", "config --keys", "runbook traffic init")
    assert len(shown) <= MOST_OPTIONS, f"mark rarely used ones as advanced: {' '.join(shown)}"


def test_what_is_marked_as_rarely_used_is_an_option() -> None:
    for line, command in declared_commands():
        names = {name for param in command.params for name in param.opts}
        assert set(getattr(command, "advanced", ())) <= names, line


def test_rarely_used_options_are_on_a_page_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    short, long = (help_of("runbook check", capsys, flag) for flag in ("--help", "--help-all"))
    assert "--help-all" in short
    assert "--cases" not in short
    assert "Advanced options:" in long
    assert "--cases FOLDER" in long


def test_the_shell_completes_commands_and_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(typed: str) -> list[str]:
        words = shlex.split(typed) + ([""] if typed.endswith(" ") else [])
        monkeypatch.setenv("_MIGVERIFY_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit):
            run([])
        return capsys.readouterr().out.split()

    assert "runbook" in completed("migverify r")
    assert set(completed("migverify guard ")) == {
        "settings",
        "schema",
        "ids",
        "monitors",
        "capacity",
        "hotspots",
        "plans",
    }
    assert "--resume" in completed("migverify tables verify --re")
    assert "--interval" in completed("migverify workload capture --poll --int")
