"""`tables verify --schedule`: when it fires, what is skipped, and what is left after Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from migverify.cli.tables_schedule import keep_verifying, parse_schedule
from migverify.errors import EndpointError, ExitCode, UsageError

PATHS = os.pathsep.join(sys.path)
BEGIN = datetime(2027, 1, 15, 23, 30, tzinfo=UTC).timestamp()


class Clock:
    """Time that moves by sleeping and by runs; Ctrl-C comes after so many sleeps."""

    def __init__(self, now: float, ends_after: float) -> None:
        self.now, self.ends = now, now + ends_after
        self.said: list[str] = []
        self.began: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.ends:
            raise KeyboardInterrupt

    def run(self, seconds: float, codes: list[ExitCode]) -> Callable[[], ExitCode]:
        def verify() -> ExitCode:
            self.began.append(self.now)
            self.now += seconds
            return codes[min(len(self.began), len(codes)) - 1]

        return verify

    def keep(self, cron: str, verify: Callable[[], ExitCode]) -> ExitCode:
        return keep_verifying(
            parse_schedule(cron), verify, clock=lambda: self.now, sleep=self.sleep, tell=self.said.append
        )


def test_each_firing_is_a_run_and_the_exit_code_is_that_of_the_last() -> None:
    clock = Clock(BEGIN, 2.9 * 86400)
    code = clock.keep("0 2 * * *", clock.run(60, [ExitCode.MATCH, ExitCode.MISMATCH]))
    times = [datetime.fromtimestamp(at, UTC).strftime("%d %H:%M") for at in clock.began]
    assert times == ["16 02:00", "17 02:00", "18 02:00"]
    assert code is ExitCode.MISMATCH
    assert clock.said[0] == "next run at 2027-01-16 02:00:00+00:00 (UTC); Ctrl-C ends the schedule"


def test_firings_that_come_while_a_run_goes_on_are_skipped_and_said() -> None:
    clock = Clock(BEGIN, 3 * 3600)
    clock.keep("*/10 * * * *", clock.run(25 * 60, [ExitCode.MATCH]))
    assert [round(at - BEGIN) // 60 for at in clock.began] == [10, 40, 70, 100, 130, 160]
    assert "skipped, as the run before was not over: 2027-01-15 23:50:00+00:00 (UTC) and 1 more" in clock.said


def test_a_clock_that_is_set_back_does_not_put_the_next_night_off() -> None:
    clock = Clock(BEGIN + 365 * 86400, 366 * 86400)
    sleep, steps = clock.sleep, iter([-365 * 86400.0])

    def set_back(seconds: float) -> None:
        sleep(seconds)
        clock.now += next(steps, 0.0)
        if clock.now >= BEGIN + 2 * 86400:
            raise KeyboardInterrupt

    clock.sleep = set_back  # type: ignore[method-assign]
    clock.keep("0 2 * * *", clock.run(60, [ExitCode.MATCH]))
    times = [datetime.fromtimestamp(at, UTC).strftime("%d %H:%M") for at in clock.began]
    assert times == ["16 02:00", "17 02:00"]
    assert any(text.startswith("the clock was set back; next run at 2027-01-16 02:00") for text in clock.said)


def test_a_firing_is_not_run_twice_when_a_run_takes_no_time() -> None:
    clock = Clock(BEGIN, 3600)
    clock.keep("0 * * * *", clock.run(0, [ExitCode.MATCH]))
    assert len(clock.began) == 1


def test_ctrl_c_before_the_first_run_is_an_interruption() -> None:
    clock = Clock(BEGIN, 60)
    assert clock.keep("0 2 * * *", clock.run(1, [ExitCode.MATCH])) is ExitCode.INTERRUPTED


def test_ctrl_c_in_a_run_is_passed_on() -> None:
    clock = Clock(BEGIN, 86400)

    def interrupted() -> ExitCode:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clock.keep("0 2 * * *", interrupted)


def test_a_server_that_is_down_ends_no_schedule() -> None:
    clock, tries = Clock(BEGIN, 2 * 86400), []

    def down() -> ExitCode:
        tries.append(clock.now)
        raise EndpointError("source: no answer")

    assert clock.keep("0 2 * * *", down) is EndpointError("").exit_code
    assert len(tries) == 2


def test_the_zone_is_stated_and_its_summer_time_is_kept() -> None:
    schedule = parse_schedule("CRON_TZ=Europe/Berlin 0 3 * * *")
    winter = datetime(2027, 1, 15, tzinfo=UTC).timestamp()
    summer = datetime(2027, 7, 15, tzinfo=UTC).timestamp()
    assert schedule.shown(schedule.after(winter)) == "2027-01-15 03:00:00+01:00 (Europe/Berlin)"
    assert schedule.shown(schedule.after(summer)) == "2027-07-15 03:00:00+02:00 (Europe/Berlin)"


NO_SCHEDULES = (
    "", "x", "* * * *", "61 * * * *", "0 0 31 2 *", "0 0 0 2 * * *", "CRON_TZ=No/Where 0 2 * * *",
    "CRON_TZ=../etc 0 2 * * *",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_SCHEDULES)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_schedule(text)


def test_the_command_waits_and_ctrl_c_ends_it() -> None:
    words = [sys.executable, "-m", "migverify", "tables", "verify", "--schedule", "0 0 29 2 *"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": PATHS}) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert re.match(r"next run at \d{4}-02-29 00:00:00\+00:00 \(UTC\); Ctrl-C ends the schedule\n", said), said + rest
    assert process.returncode == ExitCode.INTERRUPTED
    assert "the schedule ends with the exit code of its last run, 130" in rest


def test_a_schedule_is_refused_together_with_one_run_to_go_on_with() -> None:
    words = [sys.executable, "-m", "migverify", "tables", "verify", "--schedule", "0 2 * * *", "--resume", "last"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": PATHS})
    assert done.returncode == ExitCode.USAGE
    assert "--schedule begins a new run each time" in done.stderr
