"""Changes a share on all instances, or on none: write and test everywhere, then apply, then have each one say it.

Order is what makes it safe. Nothing is served before every instance has taken the new configuration and tested it.
When an instance does not serve it afterwards, all of them get the old share back, and say so too. What cannot be proved
either way is inconclusive: the run is held, and two persons look.

Two writers exclude each other twice: by a lock, and by what each of them expects to find (compare and set), since a
lock holds only among those who take it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

from migverify.errors import MigverifyError, TrafficError, UsageError
from migverify.runbook.traffic.model import Driver, InstanceReading, Setting, check_step, percent, reading_of

__all__ = ["ChangeResult", "TrafficState", "abort", "begin", "change", "look"]

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class TrafficState:
    """What all instances say: the one share that they have, or why there is none.

    Parameters
    ----------
    settings
        By instance, what each has written and serves. They may be of several generations, of one share. Empty when any
        of that is not so.
    why
        Empty where there is one share.
    written, served
        By instance.
    """

    settings: Mapping[str, Setting]
    why: str
    written: Mapping[str, InstanceReading]
    served: Mapping[str, InstanceReading]

    @property
    def share(self) -> int | None:
        """The share of all instances; None: there is no such share, or it is not known."""
        return next((one.share for one in self.settings.values()), None)

    @property
    def generations(self) -> str:
        """All generations that are served, in words."""
        return ", ".join(sorted({one.generation for one in self.settings.values()}))

    def as_json(self) -> dict[str, Any]:
        """Return it as evidence."""
        return {
            name: {"configured": str(self.written[name]), "served": str(self.served[name]), **self.served[name].facts}
            for name in self.written
        }


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What became of a change.

    Parameters
    ----------
    outcome
        ``done``: every instance serves the share. ``refused``: nothing was touched. ``put back``: every instance serves
        what it served before. ``in doubt``: neither is certain.
    """

    outcome: str
    text: str
    state: TrafficState | None = None


def look(driver: Driver) -> TrafficState:
    """Ask every instance what is written and what it serves; what cannot be read is no answer, and no error."""
    settings: dict[str, Setting] = {}
    written: dict[str, InstanceReading] = {}
    for name in driver.instances:
        try:
            settings[name] = driver.configured(name)
            written[name] = reading_of(settings[name])
        except MigverifyError as error:
            written[name] = InstanceReading(why=error.message)
    served = {name: _served(driver, name) for name in driver.instances}
    why = _disagreement(settings, written, served)
    return TrafficState({} if why else settings, why, written, served)


def _disagreement(
    settings: Mapping[str, Setting], written: Mapping[str, InstanceReading], served: Mapping[str, InstanceReading]
) -> str:
    for name, said in written.items():
        for what, reading in (("configured", said), ("served", served[name])):
            if not reading.known:
                return f"{name}: {what} is not known: {reading.why}"
        if _of(said) != _of(served[name]):
            return f"{name} is set to {said}, and serves {served[name]}: a change was not completed"
    if frozen := [name for name, setting in settings.items() if setting.held]:
        return f"{', '.join(frozen)}: keys are held on their way from one side to the other: a change was not completed"
    if len({said.share for said in written.values()}) != 1:
        return "instances disagree: " + ", ".join(f"{name} {said}" for name, said in written.items())
    return ""


def _served(driver: Driver, name: str) -> InstanceReading:
    try:
        return driver.served(name)
    except MigverifyError as error:
        return InstanceReading(why=error.message)


def _of(reading: InstanceReading) -> tuple[int | None, str]:
    return reading.share, reading.generation


def change(
    driver: Driver, share: int, expected: int, ladder: Sequence[int], *, clock: Clock = time.time
) -> ChangeResult:
    """Move the share of all instances from what is expected to what is wanted, by one step of the ladder.

    A share that is served everywhere already is ``done`` without a change, so that the same step may be tried again.
    """
    try:
        check_step(ladder, expected, share)
    except UsageError as error:
        return ChangeResult("refused", error.message)
    with driver.locked():
        state = look(driver)
        if state.share is None:
            return ChangeResult("in doubt", f"nothing was changed: {state.why}", state)
        if state.share == share:
            return ChangeResult("done", f"{percent(share)} % is served already ({state.generations})", state)
        if state.share != expected:
            found = f"{percent(state.share)} % ({state.generations})"
            text = f"nothing was changed: {percent(expected)} % was expected, found {found}: another writer"
            return ChangeResult("refused", text, state)
        return _carry_out(driver, state.settings, share, clock)


def _following(settings: Mapping[str, Setting], share: int, clock: Clock) -> dict[str, Setting]:
    """Return the next setting of each instance, of one generation for all of them."""
    newest = max(settings.values(), key=lambda one: one.count)
    following = newest.next(share, clock(), token_hex(4))
    return {name: replace(following, was=one.share, previous=one.generation) for name, one in settings.items()}


def _after(before: Mapping[str, Setting], settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return settings that name what was served for good before them, and not a round in between."""
    return {
        name: replace(one, was=before[name].share, previous=before[name].generation) for name, one in settings.items()
    }


def _carry_out(driver: Driver, now: Mapping[str, Setting], share: int, clock: Clock) -> ChangeResult:
    """Change all instances; where keys can be held, in two rounds.

    Instances change one after the other, and old workers end what they began. Until the last of them is done a key can
    be written on both sides. Therefore the keys that move are refused everywhere first, and go to their new side when
    no instance has any request of theirs left.
    """
    there = now
    if driver.holds:
        frozen = {name: replace(one, held=True) for name, one in _following(now, share, clock).items()}
        ended = _round(driver, frozen, there, now, clock)
        if ended is not None:
            return ended
        there = frozen
    settings = _after(now, _following(there, share, clock))
    ended = _round(driver, settings, there, now, clock)
    if ended is not None:
        return ended
    was, generation = next(iter(now.values())).share, next(iter(settings.values())).generation
    return ChangeResult("done", f"{percent(was)} % -> {percent(share)} % ({generation})", look(driver))


def _round(
    driver: Driver, settings: Mapping[str, Setting], there: Mapping[str, Setting], now: Mapping[str, Setting],
    clock: Clock,
) -> ChangeResult | None:  # fmt: skip
    """Write on all, then apply on all; returns how the change ended where that does not work, else None."""
    written = list[str]()
    for name in driver.instances:
        try:
            driver.write(name, settings[name], there[name])
        except MigverifyError as error:
            why = f"{name}: {error.message}"
            if there is now:
                return _unwrite(driver, written, now, why)
            return _put_back(driver, now, settings, why, clock)
        written.append(name)
    why = _apply(driver, settings)
    return _put_back(driver, now, settings, why, clock) if why else None


def _apply(driver: Driver, settings: Mapping[str, Setting]) -> str:
    """Apply a setting and wait for it on each instance in turn; returns what went wrong."""
    for name in driver.instances:
        try:
            driver.apply(name)
            found = driver.settled(name, settings[name])
        except MigverifyError as error:
            return f"{name}: {error.message}"
        if _of(found) != _of(reading_of(settings[name])):
            return f"{name} does not serve {reading_of(settings[name])} but {found}"
    return ""


def _unwrite(driver: Driver, written: list[str], now: Mapping[str, Setting], why: str) -> ChangeResult:
    """Nothing was applied: the old file on every instance is all there is to do."""
    notes = []
    for name in written:
        try:
            driver.write(name, now[name], None)
        except MigverifyError as error:
            notes.append(f"{name}: the old configuration could not be written back: {error.message}")
    state = look(driver)
    if state.settings == now and not notes:
        text = f"{why}; {percent(next(iter(now.values())).share)} % is configured and served as before"
        return ChangeResult("put back", text, state)
    return ChangeResult("in doubt", "; ".join([why, *notes, state.why]), state)


def _put_back(
    driver: Driver, now: Mapping[str, Setting], tried: Mapping[str, Setting], why: str, clock: Clock
) -> ChangeResult:
    """Some instance did not take it: all get the old share. Where even that fails, what it serves decides."""
    notes, back = [], _after(now, _following(tried, next(iter(now.values())).share, clock))
    for name in driver.instances:
        # What never left an instance goes back under its own name: where no reload works, none has to be waited for.
        is_unchanged = _of(_served(driver, name)) == _of(reading_of(now[name]))
        notes += _set_one(driver, name, now[name] if is_unchanged else back[name])
    state, share = look(driver), next(iter(now.values())).share
    said = "; ".join([why, *notes])
    if all(reading.share == share for reading in (*state.served.values(), *state.written.values())):
        return ChangeResult("put back", f"{said}; every instance serves {percent(share)} % again", state)
    served = ", ".join(f"{name} serves {reading}" for name, reading in state.served.items())
    return ChangeResult("in doubt", f"{said}; not put back everywhere: {served}", state)


def _set_one(driver: Driver, name: str, setting: Setting) -> list[str]:
    """Write, apply and wait on one instance, in any state; returns what went wrong."""
    try:
        driver.write(name, setting, None)
        driver.apply(name)
        driver.settled(name, setting)
    except MigverifyError as error:
        return [f"{name}: {error.message}"]
    return []


def abort(driver: Driver, share: int, *, clock: Clock = time.time) -> ChangeResult:
    """Put the share of every instance back, in any state; one that fails does not stop the others.

    Where every instance serves that share already nothing is done.
    """
    with driver.locked():
        state = look(driver)
        if state.share == share:
            return ChangeResult("done", f"{percent(share)} % is served already ({state.generations})", state)
        found = {name: _readable(driver, name, share) for name in driver.instances}
        notes, there = [], found
        if driver.holds:
            # Half of a change may be served: all that can be on the new side anywhere is held before it goes back.
            top = max(max(one.share, one.was) for one in found.values())
            there = {name: replace(one, was=top, held=True) for name, one in _following(found, share, clock).items()}
            notes = [note for name in driver.instances for note in _set_one(driver, name, there[name])]
        settings = _after(found, _following(there, share, clock))
        notes += [note for name in driver.instances for note in _set_one(driver, name, settings[name])]
        state = look(driver)
        if state.share == share:
            return ChangeResult(
                "done", "; ".join([f"{percent(share)} % is served by all ({state.generations})", *notes]), state
            )
        served = ", ".join(f"{name} serves {reading}" for name, reading in state.served.items())
        return ChangeResult("in doubt", "; ".join([*notes, state.why, served]), state)


def _readable(driver: Driver, name: str, share: int) -> Setting:
    """Return the setting of an instance; one that cannot be read is the very reason for putting the share back."""
    try:
        return driver.configured(name)
    except MigverifyError:
        return Setting(share, "0-00000000", share, "", 0.0)


def begin(driver: Driver, share: int = 0, *, clock: Clock = time.time) -> Setting:
    """Write the first setting of every instance, which none of them has; nothing is applied.

    Raises
    ------
    TrafficError
        an instance has one already, or it cannot be written. An instance whose configuration does not name the split
        yet fails its own test; what was written stays.
    """
    setting = Setting(share, f"1-{token_hex(4)}", share, "", clock())
    with driver.locked():
        for name in driver.instances:
            found = _known(driver, name)
            if found is not None:
                raise TrafficError(f"{name} has a share already: {found}", hint="Use traffic.set or traffic.abort.")
        for name in driver.instances:
            driver.write(name, setting, None)
    return setting


def _known(driver: Driver, name: str) -> InstanceReading | None:
    try:
        return reading_of(driver.configured(name))
    except MigverifyError:
        return None  # nothing is there yet: that is what `begin` is for
