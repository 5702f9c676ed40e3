"""The frozen models of ``fleet.yaml``: waves, services, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo

from migverify.config.fields import SHARD, Many, PathInFolder, StoreUrl, Strict, VariableName, ZoneName, in_folder
from migverify.config.problems import FileProblem
from migverify.config.settings import store_in_folder
from migverify.config.zones import find_zone
from migverify.fleet.model import FleetPart
from migverify.runbook.definition.fields import parse_duration

TITLE = "migverify fleet"
"""Of the JSON schema."""
DEFAULT_NAME = "fleet.yaml"
SAME = " = "
"""Between the addresses of one server."""
_LONGEST = 100
"""Characters of a name: boards and lists are as wide as the longest one."""
_DAY = timedelta(days=1)


def _name(text: str) -> str:
    if not SHARD.fullmatch(text):
        raise ValueError("this holds letters, digits, _ and - alone, and letters are a-z and A-Z")
    return text


def _owner(text: str) -> str:
    if not any(map(str.isalnum, text)):
        raise ValueError("this says who answers for the service: a team or a person")
    return text


def _date(value: object) -> object:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise ValueError("this is a date, for example 2026-12-01") from None
    return value


_YEARS = range(1970, 9000)
"""Of windows; others are mistakes, and at the ends of the calendar no zone can be applied."""


def _local(parse: Callable[[str], datetime | time], words: str) -> BeforeValidator:
    """Return what reads a text of a zone that `zone` names; ``words`` say what the text is."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            moment = parse(value)
        except ValueError:
            raise ValueError(f"this is {words}") from None
        if moment.tzinfo is not None:
            raise ValueError("this has no offset: `zone` says in which zone it is")
        if isinstance(moment, datetime) and moment.year not in _YEARS:
            raise ValueError(f"the year {moment.year} is not in {_YEARS.start} to {_YEARS.stop - 1}")
        return moment

    return BeforeValidator(read, json_schema_input_type=str)


def _positive(seconds: float) -> float:
    if not 0 < seconds < float("inf"):
        raise ValueError("this is a duration above 0, for example 30s, 5m or 1h30m")
    return seconds


def _within_a_day(seconds: float) -> float:
    if seconds > _DAY.total_seconds():
        raise ValueError("this is at most a day (24h): the window opens each day")
    return seconds


def _room_in_folder(text: str, info: ValidationInfo) -> str:
    return store_in_folder(text, info) if "://" in text else in_folder(text, info)


Name = Annotated[str, Field(max_length=_LONGEST), AfterValidator(_name)]
Owner = Annotated[str, Field(min_length=1, max_length=_LONGEST), AfterValidator(_owner)]
PositiveDuration = Annotated[
    float, BeforeValidator(parse_duration, json_schema_input_type=str), AfterValidator(_positive)
]
Day = Annotated[date, BeforeValidator(_date, json_schema_input_type=str)]
LocalMoment = Annotated[datetime, _local(datetime.fromisoformat, "a date and time, for example 2026-12-01T22:00")]
ClockTime = Annotated[time, _local(time.fromisoformat, "a time of the day in quotes, for example '22:00'")]


class WaveWindow(Strict):
    """When the services of a wave cut over."""

    start: LocalMoment = Field(description="Date and time in `zone`, for example `2026-12-01T22:00`.")
    zone: ZoneName = Field(default="UTC", description="`UTC`, an offset like `+09:00`, or a name like `Asia/Tokyo`.")
    duration: PositiveDuration = Field(description="How long, for example `4h`.")

    @property
    def opens(self) -> float:
        """When it opens, Unix seconds."""
        return self.start.replace(tzinfo=find_zone(self.zone or "UTC")).timestamp()

    @property
    def closes(self) -> float:
        """When it closes, Unix seconds."""
        return self.opens + self.duration

    def holds(self, day: date) -> bool:
        """Whether some moment of the window is on a day of its zone."""
        zone = find_zone(self.zone or "UTC")
        last = datetime.fromtimestamp(self.closes - 0.001, zone).date()
        return self.start.date() <= day <= last


class FleetWave(Strict):
    """Services that cut over in one window."""

    name: Name = Field(description="Its name: letters (`a-z`, `A-Z`), digits, `_` and `-`.")
    window: WaveWindow = Field(description="When.")
    parallel: int = Field(default=1, ge=1, le=1000, description="How many cutovers may run at the same time.")


class ServiceRunbook(Strict):
    """The runbook by which a service cuts over."""

    path: PathInFolder = Field(description="The file.")
    environment: str = Field(min_length=1, description="The environment of the night.")
    parameters: dict[str, str] = Field(default_factory=dict, description="Values of its parameters, as with `--set`.")
    runs: Annotated[str, AfterValidator(_room_in_folder)] = Field(
        default="runs", validate_default=True, min_length=1,
        description="Where its runs are kept: a folder, or the URL of a result store.",
    )  # fmt: skip
    cases: PathInFolder | None = Field(
        default=None, description="Disaster recovery cases; default: `dr/` beside the runbook."
    )


class FleetService(Strict):
    """One service."""

    name: Name = Field(description="Its name: letters (`a-z`, `A-Z`), digits, `_` and `-`.")
    owner: Owner = Field(description="Who answers for it: a team or a person.")
    wave: Name = Field(description="The wave in which it cuts over.")
    date: Day | None = Field(default=None, description="The day of its cutover; default: the first of its wave.")
    config: PathInFolder = Field(description="Its `migverify.yaml`.")
    store: Annotated[StoreUrl, AfterValidator(store_in_folder)] | None = Field(
        default=None, description="Its result store; default: what its configuration says."
    )
    store_password_env: VariableName | None = Field(
        default=None, description="Variable with the password of `store`; default: `MIGVERIFY_STORE_PASSWORD`."
    )
    runbook: ServiceRunbook | None = Field(default=None, description="How it cuts over.")
    on_call: Many[Annotated[str, Field(min_length=1)]] = Field(
        default=(), description="People on call that night, by the names that the runbook has."
    )
    requires: Many[Literal[tuple(FleetPart)]] | None = Field(  # type: ignore[valid-type]
        default=None, min_length=1, description="What has to be proved before it is ready; default: that of the fleet."
    )


class DailyWindow(Strict):
    """The hours in which `fleet verify` may start verifications, each day."""

    start: ClockTime = Field(description="Time of the day in `zone`, in quotes: `'22:00'`.")
    zone: ZoneName = Field(default="UTC", description="As of the window of a wave.")
    duration: Annotated[PositiveDuration, AfterValidator(_within_a_day)] = Field(description="How long, at most a day.")

    @property
    def _zone(self) -> tzinfo:
        return find_zone(self.zone or "UTC")

    def closes(self, now: float) -> float | None:
        """Return when the window that is open at ``now`` closes; None: none is open."""
        today = datetime.fromtimestamp(now, self._zone).date()
        spans = [self._span(day) for day in (today - _DAY, today)]
        return max((end for begin, end in spans if begin <= now < end), default=None)

    def opens(self, now: float) -> float:
        """Return when the next window opens, at ``now`` or later."""
        today = datetime.fromtimestamp(now, self._zone).date()
        return min(begin for day in (today, today + _DAY) if (begin := self._span(day)[0]) >= now)

    def _span(self, day: date) -> tuple[float, float]:
        begin = datetime.combine(day, self.start, self._zone).timestamp()
        return begin, begin + self.duration


class FleetLimits(Strict):
    """What `fleet verify` may use, and what counts as too much."""

    connections: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, description="Most connections of all services together, by server: `db1:3306: 8`."
    )
    other_connections: int = Field(
        default=16, ge=1, description="The same for each server that `connections` does not name."
    )
    verify: DailyWindow | None = Field(default=None, description="When `fleet verify` may work; default: always.")
    watch_lag: PositiveDuration = Field(
        default=60.0, description="How far the target may be behind for a service to be ready."
    )

    def of(self, server: str) -> int:
        """Return the most connections to a server, by its ``host:port`` in any case: names of hosts have none.

        Of one that has several addresses (joined by ``SAME``) it is the least that any of them has.
        """
        most = {name.lower(): count for name, count in self.connections.items()}
        known = [most[name] for name in server.lower().split(SAME) if name in most]
        return min(known, default=self.other_connections)


class Fleet(Strict):
    """The services of a migration."""

    schema_version: Literal[1] = Field(description="`1`.")
    waves: Many[FleetWave] = Field(min_length=1, description="Windows, in their order.")
    services: Many[FleetService] = Field(min_length=1, description="The services.")
    limits: FleetLimits = Field(default_factory=FleetLimits, description="Budgets.")
    requires: Many[Literal[tuple(FleetPart)]] = Field(  # type: ignore[valid-type]
        default=tuple(FleetPart), min_length=1,
        description="What has to be proved before a service is ready. What the others show to be wrong counts too.",
    )  # fmt: skip
    proof_max_age: PositiveDuration = Field(
        default=86_400.0, description="How old a full proof of the tables may be, for example `24h`."
    )
    whole_read_max_age: PositiveDuration | None = Field(
        default=7 * 86_400.0,
        description="How old the oldest whole read may be that a full proof by `--since` rests on; null: any age.",
    )
    evidence_max_age: PositiveDuration = Field(
        default=7 * 86_400.0, description="How old answers of rules and guards may be."
    )
    _path: Path = PrivateAttr(default=Path(DEFAULT_NAME))
    _wrong: Mapping[str, tuple[FileProblem, ...]] = PrivateAttr(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file that it comes from."""
        return self._path

    @property
    def wrong(self) -> Mapping[str, tuple[FileProblem, ...]]:
        """What is wrong with entries of services, by their names; such a service has what is right of its entry."""
        return self._wrong

    def model_post_init(self, context: object) -> None:
        """Remember the file it comes from, and which of its services have a wrong entry."""
        if isinstance(context, dict):
            self._path = context.get("path", self._path)
            self._wrong = context.get("wrong", self._wrong)

    def wave(self, name: str) -> FleetWave:
        """Return the wave of that name; there is one where the entry of the service is not wrong."""
        return next(wave for wave in self.waves if wave.name == name)

    def required(self, service: FleetService) -> frozenset[FleetPart]:
        """Return what a service has to prove."""
        return frozenset(map(FleetPart, service.requires if service.requires is not None else self.requires))

    @property
    def warnings(self) -> list[str]:
        """What is right, and is probably not meant: a wave without services, a configuration that is given twice."""
        waves = {service.wave for service in self.services}
        found = [f"wave {wave.name} has no service" for wave in self.waves if wave.name not in waves]
        first: dict[tuple[str, str | None], str] = {}
        for service in self.services:
            if service.name in self._wrong:
                continue
            other = first.setdefault((service.config, service.store), service.name)
            if other != service.name:
                found.append(f"services {other} and {service.name} have one configuration, {service.config}")
        return found
