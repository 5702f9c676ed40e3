"""What evidence a service needs before it may cut over: the section ``decision`` of a configuration."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from migverify.config.fields import Many, PathInFolder, Strict

PartName = Literal["answers", "anomalies", "latency", "plans", "hotspots", "conflicts", "clients"]
EVERY_PART: tuple[PartName, ...] = ("answers", "anomalies", "latency", "plans", "hotspots", "conflicts", "clients")
_ADDRESS = re.compile(r"\S+:\d+")
_CLIENT = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


class ClonePair(Strict):
    """A pair of rehearsal clones, whose evidence counts as that of the pair itself."""

    source: str = Field(description="`host:port`, as the configuration of the rehearsal has it.")
    target: str = Field(description="`host:port`, as the configuration of the rehearsal has it.")

    @field_validator("source", "target")
    @classmethod
    def _address(cls, text: str) -> str:
        if not _ADDRESS.fullmatch(text):
            raise ValueError("this is an address: host:port")
        return text


class DecisionSettings(Strict):
    """What counts as evidence of `migverify workload decision`."""

    parts: Many[PartName] = Field(
        default=EVERY_PART,
        min_length=1,
        description="Parts without which there is no GO. Another part is shown as not required, and its harm counts.",
    )
    max_age_days: float = Field(
        default=7.0, gt=0, allow_inf_nan=False, description="Evidence that is older is stale, and counts as not known."
    )
    capture: PathInFolder | None = Field(
        default=None, description="The capture of the service; with it `runbook readiness` asks for the decision too."
    )
    clones: Many[ClonePair] = Field(
        default=(),
        description="Pairs of rehearsal clones: their evidence counts, where versions and definitions are"
        " those of this pair.",
    )
    clients: Many[str] = Field(
        default=(),
        description="Drivers and pools of the service, as `driver/pool`: `connector-j-9/hikari`. Only the"
        " team knows them: without any, the part `clients` is not known.",
    )
    scenarios: Many[str] = Field(
        default=(), description="Client scenarios that the service depends on; default: all."
    )  # fmt: skip

    @field_validator("clients")
    @classmethod
    def _clients(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if not _CLIENT.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no driver and pool: write driver/pool, with pool `none` for no pool")
        return names
