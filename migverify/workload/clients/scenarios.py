"""Scenarios are JSON files, one behavior each; with drivers and pools they make the cells to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from migverify.errors import UsageError
from migverify.workload.clients.drivers import drivers, missing_option, pools, url
from migverify.workload.clients.model import ClientCell, ClientDriver, DriverKind, Pool, Scenario, Variant


def packaged() -> list[Scenario]:
    """Return the scenarios of the package, by name."""
    folder = resources.files("migverify.workload.clients") / "scenarios"
    files = sorted((one for one in folder.iterdir() if one.name.endswith(".json")), key=lambda one: one.name)
    return [parse(one.read_text(encoding="utf-8"), one.name.removesuffix(".json"), one.name) for one in files]


def load(folder: Path | None) -> list[Scenario]:
    """Return the package's scenarios, with those of a folder added; one of the same name takes its place.

    Raises
    ------
    UsageError
        a file cannot be read or is no scenario: the message names file, step and field.
    """
    found = {one.name: one for one in packaged()}
    if folder is not None:
        files = sorted(folder.glob("*.json"))
        if not files:
            raise UsageError(f"{folder} holds no scenario", hint="A scenario is a file NAME.json; see docs/clients.md.")
        for path in files:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"cannot read {path}: {error}") from error
            found[path.stem] = parse(text, path.stem, str(path))
    return list(found.values())


def parse(text: str, name: str, origin: str) -> Scenario:
    """Return the scenario of a file's text; raises UsageError."""
    try:
        found = Scenario.model_validate_json(text)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in error.errors())
        raise _wrong(origin, "; ".join(problems)) from error
    options = {option for driver in drivers().values() for option in driver.options}
    for field, named, known in (
        ("pools", found.pools, set(pools())), ("drivers", found.drivers, set(drivers())),
        ("options", {option for one in found.variants for option in one.options}, options),
    ):  # fmt: skip
        for unknown in set(named) - known:
            raise _wrong(origin, f"{field}: {unknown!r} is not known; known are {', '.join(sorted(known))}")
    return found.model_copy(update={"name": name})


def _wrong(origin: str, what: str) -> UsageError:
    return UsageError(f"scenario {origin}: {what}", hint="docs/clients.md lists actions and fields.")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A combination that was left out; ``possible`` is True where another setup could run it."""

    driver: str
    pool: str
    scenario: str
    variant: str
    reason: str
    possible: bool


def cells(
    drivers: Iterable[ClientDriver], pools: Sequence[Pool], scenarios: Sequence[Scenario], can: Callable[[str], bool]
) -> tuple[list[ClientCell], list[LeftOut]]:
    """Return the cells to run, driver by driver, and the combinations that were left out with their reasons.

    What has no meaning (a Python driver in HikariCP, a pool in a scenario about values) is left out; what could be run
    with another setup (a server restart on servers that are not ours) is left out as ``possible``, never a MATCH.
    ``can`` says whether a need of a scenario is met here.
    """
    found: list[ClientCell] = []
    left: list[LeftOut] = []
    for driver in drivers:
        for pool in pools:
            for scenario in (one for one in scenarios if _belongs(driver, pool, one)):
                for variant in scenario.variants:
                    reason, possible = _missing(driver, scenario, variant, can)
                    if reason:
                        left.append(LeftOut(driver.name, pool.name, scenario.name, variant.name, reason, possible))
                    else:
                        found.append(ClientCell(driver, pool, scenario, variant, url(driver, variant.options)))
    return found, left


def _belongs(driver: ClientDriver, pool: Pool, scenario: Scenario) -> bool:
    if driver.kind not in scenario.kinds or (scenario.drivers and driver.name not in scenario.drivers):
        return False
    if driver.kind is DriverKind.PYTHON:  # Python's pools are the application's own
        return pool.name == "none" and (not scenario.pools or "none" in scenario.pools)
    return not scenario.pools or pool.name in scenario.pools


def _missing(
    driver: ClientDriver, scenario: Scenario, variant: Variant, can: Callable[[str], bool]
) -> tuple[str, bool]:
    if reason := missing_option(driver, variant.options):
        return reason, False
    need = next((need for need in scenario.needs if not can(need)), "")
    return (f"needs {need}: only with --own-servers", True) if need else ("", False)
