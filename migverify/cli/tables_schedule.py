"""``migverify tables verify --schedule``: a proof that recurs, in the foreground; each firing is a run of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from migverify.cli.console import say, say_error
from migverify.errors import ExitCode, MigverifyError, UsageError, wheel_hint

ZONE_PREFIX = "CRON_TZ="
LONGEST_SLEEP = 30.0
"""Seconds between two looks at the clock: a machine that slept, or whose clock was set, must not miss its time."""

ScheduleOption = Annotated[
    str | None,
    typer.Option(
        metavar="CRON",
        help='Verify at each of these times until Ctrl-C: "0 2 * * *", in UTC; "CRON_TZ=Europe/Berlin 0 2 * * *".',
    ),
]


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A cron expression in a time zone. ``zone`` is the zone's name."""

    cron: str
    zone: str

    def after(self, moment: float) -> float:
        """Return the Unix time of the first firing after a moment."""
        return next(self.firings(moment)).timestamp()

    def firings(self, moment: float) -> Iterator[datetime]:
        """Yield the firings after a moment, in the zone of the schedule."""
        from cronsim import CronSim

        yield from CronSim(self.cron, datetime.fromtimestamp(moment, ZoneInfo(self.zone)))

    def missed(self, begun: float, ended: float) -> list[float]:
        """Return the firings after a run began and until it ended: the run was in their way."""
        times = []
        for firing in self.firings(begun):
            if firing.timestamp() > ended:
                break
            times.append(firing.timestamp())
        return times

    def shown(self, moment: float) -> str:
        """Return a moment in the zone, with its offset."""
        return datetime.fromtimestamp(moment, ZoneInfo(self.zone)).isoformat(" ", "seconds") + f" ({self.zone})"


def parse_schedule(text: str) -> CronSchedule:
    """Read a cron expression of five fields, with the zone before it where it is not UTC.

    Raises
    ------
    UsageError
        it is none, never fires, or the library that reads it is not installed.
    """
    zone, cron = "UTC", text.strip()
    if cron.startswith(ZONE_PREFIX):
        zone, _, cron = cron.removeprefix(ZONE_PREFIX).partition(" ")
    try:
        from cronsim import CronSimError
    except ImportError:
        raise UsageError(
            "--schedule needs the package cronsim", hint=f"{wheel_hint('schedule')}, or use cron itself."
        ) from None
    schedule = CronSchedule(" ".join(cron.split()), zone)
    try:
        ZoneInfo(zone)
        if len(schedule.cron.split()) != len("mhdmw"):
            raise CronSimError("five fields are needed: minute, hour, day, month, weekday")
        schedule.after(time.time())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"--schedule: there is no time zone {zone!r}", hint="Write CRON_TZ=Europe/Berlin 0 2 * * *."
        ) from None
    except (CronSimError, StopIteration) as error:
        raise UsageError(
            f"--schedule: {text!r} is no cron expression that fires: {error or 'it never does'}",
            hint='Write five fields, such as "0 2 * * *" for 02:00 UTC each day.',
        ) from None
    return schedule


def keep_verifying(
    schedule: CronSchedule,
    verify: Callable[[], ExitCode],
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] = say,
) -> ExitCode:
    """Verify at each firing until Ctrl-C; returns the exit code of the last run, 130 where there was none.

    Firings that come while a run goes on are skipped. A run that cannot begin (a server that is down) ends nothing: its
    exit code is kept, and the next firing tries again.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C came while a run went on; the run is in the store and can be resumed.
    """
    last, begun = ExitCode.INTERRUPTED, clock()
    while True:
        firing = schedule.after(max(begun, clock()))
        try:
            tell(f"next run at {schedule.shown(firing)}; Ctrl-C ends the schedule")
            seen = clock()
            while (left := firing - clock()) > 0:
                sleep(min(left, LONGEST_SLEEP))
                if clock() < seen - LONGEST_SLEEP:  # it was set back: a night that was to come is one again
                    begun = clock()
                    firing = schedule.after(begun)
                    tell(f"the clock was set back; next run at {schedule.shown(firing)}")
                seen = clock()
        except KeyboardInterrupt:
            tell(f"the schedule ends with the exit code of its last run, {int(last)}")
            return last
        begun = firing
        try:
            last = verify()
        except MigverifyError as error:
            say_error(error)
            last = error.exit_code
        if missed := schedule.missed(firing, clock()):
            which = schedule.shown(missed[0]) + (f" and {len(missed) - 1} more" if missed[1:] else "")
            tell(f"skipped, as the run before was not over: {which}")
