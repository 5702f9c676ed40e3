"""A traffic file (``traffic/v1``): frozen models, which are the settings of the drivers."""

from __future__ import annotations

import re
import shlex
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from migverify.config.fields import Many, Strict, in_folder
from migverify.config.problems import at, read_document, validate
from migverify.errors import ConfigError, UsageError
from migverify.runbook.definition.fields import Duration, Id, Text
from migverify.runbook.traffic.access_log import SplitSides
from migverify.runbook.traffic.model import check_ladder, hundredths

TITLE = "migverify traffic"
_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,40}")
_VALUE = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_KEY = re.compile(r"(?=.*\$)[A-Za-z0-9_$.:|{}-]{2,200}")
_ADDRESS = re.compile(r"[A-Za-z0-9_.:/\[\]-]{1,200}")


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError:
        raise ValueError("this has a quote that does not end") from None


def _fits(pattern: re.Pattern[str], what: str) -> BeforeValidator:
    def check(value: object) -> object:
        if isinstance(value, str) and not pattern.fullmatch(value):
            raise ValueError(what)
        return value

    return BeforeValidator(check, json_schema_input_type=str)


def _path(value: object, info: ValidationInfo) -> object:
    return Path(in_folder(value, info)) if isinstance(value, str) and value else value


PathText = Annotated[Path, BeforeValidator(_path, json_schema_input_type=Text)]
Words = Annotated[Many[Text], BeforeValidator(_words, json_schema_input_type=str | list[str]), Field(min_length=1)]
Variable = Annotated[str, _fits(_VARIABLE, "a variable has lower-case letters, digits and _, and begins with a letter")]
Value = Annotated[str, _fits(_VALUE, "a value has letters, digits, _, -, . and :")]
Key = Annotated[str, _fits(_KEY, "a key is made of variables of nginx, for example $cookie_user or $arg_id")]
Address = Annotated[str, _fits(_ADDRESS, "an address is host:port or unix:/path, as $upstream_addr says it")]
Url = Annotated[str, _fits(re.compile(r"http://[^\s]+"), "this is an http:// address of the instance itself")]
Share = Annotated[float, Field(gt=0, le=100)]


class SidePart(Strict):
    """One side, as nginx knows it."""

    value: Value = Field(description="What the variable is for this side: the name of its group of servers.")
    addresses: Many[Address] = Field(
        default=(),
        description="Its servers, as `$upstream_addr` names them. With them it is measured where requests arrived, not"
        " only what the split decided.",
    )


class NginxInstancePart(Strict):
    """One nginx."""

    name: Id = Field(description="Its name in texts.")
    include: PathText = Field(description="File that holds the split; it is ours alone. A path on this machine.")
    test: Words = Field(description="Command that tests the whole configuration: `nginx -t`. No shell.")
    reload: Words = Field(description="Command that has it read its configuration: `nginx -s reload`. No shell.")
    status: Url = Field(description="Address that answers `$<variable>_traffic`, of this instance and no other.")
    access_log: PathText = Field(description="Log in the format `migverify_<variable>`. A path on this machine.")
    pid: PathText | None = Field(
        default=None, description="File with the master's process id: then old workers are seen until they have ended."
    )


class NginxPart(Strict):
    """nginx or OpenResty, by split_clients: the same key goes to one side."""

    kind: Literal["nginx"] = Field(description="`nginx`.")
    key: Key = Field(description="What decides the side: `$cookie_user`, `$arg_account`, ...")
    variable: Variable = Field(description="Name of the split; nginx gets `$<name>_side`.")
    old: SidePart = Field(description="The side that traffic leaves.")
    new: SidePart = Field(description="The side that it goes to.")
    held: Value | None = Field(
        default=None,
        description="Value of the variable for keys on their way from one side to the other: they are refused while"
        " instances change one after the other. Required for writes.",
    )
    instances: Many[NginxInstancePart] = Field(min_length=1, description="All that share this traffic.")
    settle: Duration = Field(default=10.0, description="An instance has to serve a change within this time.")
    command_timeout: Duration = Field(default=15.0, description="For the test and the reload command, each.")

    @property
    def sticky(self) -> bool:
        """The same key goes to one side."""
        return True

    @cached_property
    def sides(self) -> SplitSides:
        """Values and servers of both sides."""
        return SplitSides(self.old.value, self.new.value, frozenset(self.old.addresses), frozenset(self.new.addresses))

    @model_validator(mode="after")
    def _apart(self) -> NginxPart:
        for what in ("name", "include", "access_log", "status"):
            values = [getattr(one, what) for one in self.instances]
            if len(set(values)) != len(values):
                raise ValueError(f"two instances have the same {what}")
        if self.old.value == self.new.value or set(self.old.addresses) & set(self.new.addresses):
            raise ValueError("the old and the new side are the same, or share a server")
        if bool(self.old.addresses) != bool(self.new.addresses):
            raise ValueError("give addresses for both sides or for none")
        if self.held in (self.old.value, self.new.value):
            raise ValueError("held has the value of a side")
        if self.held is not None and any(one.pid is None for one in self.instances):
            raise ValueError("held needs the pid of every instance: old workers have to be seen until they have ended")
        return self


class CommandInstancePart(Strict):
    """One proxy that commands of your own know."""

    name: Id = Field(description="Its name in texts; the commands get it as MIGVERIFY_INSTANCE.")
    set: Words = Field(description="Command that writes a share and has it served.")
    read: Words = Field(description="Command that prints what is configured and what is served.")
    measure: Words = Field(description="Command that prints what was counted.")


class CommandPart(Strict):
    """Commands of your own; what they receive and print is in docs/traffic.md."""

    kind: Literal["command"] = Field(description="`command`.")
    sticky: bool = Field(description="true: the same key goes to one side, and a higher share moves none back.")
    instances: Many[CommandInstancePart] = Field(min_length=1, description="All that share this traffic.")
    state: PathText = Field(description="Folder for the lock.")
    settle: Duration = Field(default=10.0, description="An instance has to serve a change within this time.")
    command_timeout: Duration = Field(default=15.0, description="For each command.")

    @model_validator(mode="after")
    def _apart(self) -> CommandPart:
        names = [one.name for one in self.instances]
        if len(set(names)) != len(names):
            raise ValueError("two instances have the same name")
        return self


class Traffic(Strict):
    """A traffic file: one split of one kind of traffic, and the proxies that carry it out."""

    version: Literal["traffic/v1"] = Field(description="`traffic/v1`.")
    id: Id = Field(description="Its name.")
    carries: Literal["reads", "writes"] = Field(
        description="`writes`: anything that changes data. It is split by key, or moved all at once."
    )
    ladder: Many[Share] = Field(
        default=(1.0, 5.0, 25.0, 50.0, 100.0),
        description="Shares of the new side in percent, one after the other.",
    )
    tolerance: float | None = Field(
        default=None, ge=0, le=50,
        description="Points of percent by which a measured share may miss. Default: half of its smaller part, at most"
        " 5; never at 0 and 100 %.",
    )  # fmt: skip
    confidence: float = Field(default=99.0, ge=50, lt=100, description="Percent, of the interval of a measured share.")
    min_sample: int = Field(default=100, ge=1, description="Keys or requests below which nothing is said.")
    driver: Annotated[NginxPart | CommandPart, Field(discriminator="kind")] = Field(description="What carries it out.")

    @property
    def writes(self) -> bool:
        """Whether it changes data."""
        return self.carries == "writes"

    @cached_property
    def rungs(self) -> tuple[int, ...]:
        """The ladder in hundredths of a percent."""
        return tuple(hundredths(share) for share in self.ladder)

    @property
    def least_seconds(self) -> float:
        """What a change and its reversal may take."""
        part = self.driver
        rounds = 2 if isinstance(part, NginxPart) and part.held is not None else 1
        return (rounds + 1) * len(part.instances) * part.settle


def load_traffic(path: Path) -> Traffic:
    """Read a traffic file; relative paths in it are taken from its own folder.

    Raises
    ------
    ConfigError
        it is missing, is not YAML, has a wrong key, or asks for what no driver may do.
    """
    _, yaml = read_document(path, "traffic file", "docs/traffic.md shows one.")
    traffic = validate(path, yaml, Traffic)
    driver = traffic.driver
    try:
        check_ladder(traffic.rungs, sticky=driver.sticky, writes=traffic.writes)
    except UsageError as error:
        raise ConfigError(f"{at(path, yaml.place(('ladder',)))}: {error.message}", hint=error.hint) from None
    if isinstance(driver, NginxPart) and traffic.writes and driver.held is None:
        raise ConfigError(
            f"{at(path, yaml.place(('driver',)))}: writes without `held`: while instances change one after the other, a"
            " key would be written on both sides",
            hint="Add `held: held`, and `if ($..._side = held) { return 503; }` to the location.",
        )
    return traffic


__all__ = ["TITLE", "CommandPart", "NginxPart", "Traffic", "load_traffic"]
