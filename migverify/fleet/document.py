"""What ``fleet status --json`` and ``/fleet.json`` hold: the models are its JSON schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from migverify.config.fields import Many, Strict
from migverify.fleet.forecast import RunbookForecast, WaveForecast
from migverify.fleet.judge import newest_proof
from migverify.fleet.model import FleetPart, ServiceEvidence, ServiceStanding
from migverify.fleet.read import ServiceView


class ReasonDocument(Strict):
    """One reason why a service is not ready."""

    part: Literal[tuple(FleetPart)] = Field(description="The part that it is of.")  # type: ignore[valid-type]
    kind: Literal["harm", "not known"] = Field(description="Proved to be wrong, or not known.")
    text: str = Field(description="The reason.")
    remedy: str = Field(description="A command, or what to do; empty: none is known.")


class PartDocument(Strict):
    """What a part of a service comes to."""

    part: Literal[tuple(FleetPart)] = Field(description="The part.")  # type: ignore[valid-type]
    standing: Literal[tuple(ServiceStanding)] = Field(  # type: ignore[valid-type]
        description="What it comes to."
    )
    required: bool = Field(description="Whether the service needs it to be ready.")
    figure: str = Field(description="What a board shows of it.")
    run: str = Field(description="The run that it comes from; empty: none.")
    age_seconds: float | None = Field(description="Age of the evidence; null: there is none, or it has no age.")


class WatchDocument(Strict):
    """The newest forward watch."""

    run: str = Field(description="The run.")
    state: str = Field(description="`alive`, `ended` or `not alive`.")
    verdict: str = Field(description="Its verdict now.")
    position: str = Field(description="Place up to which changes were read.")
    lag_seconds: float | None = Field(description="How far the target is behind; null: not known.")
    open_keys: int = Field(description="Keys without a proof.")
    diverged: int = Field(description="Keys that differ for good.")


class ForecastDocument(Strict):
    """How long a cutover takes, from the drills of all services; null: not known."""

    p50_seconds: float | None = Field(description="Half of the cutovers take no longer.")
    p90_seconds: float | None = Field(description="Nine of ten take no longer.")
    drills: int = Field(description="Measured drills of the step that has the fewest.")
    unknown: Many[str] = Field(description="Steps without a drill and without a plan.")


class ServiceDocument(Strict):
    """One service."""

    service: str = Field(description="Its name.")
    owner: str = Field(description="Who answers for it.")
    wave: str = Field(description="Its wave; `not known`: its entry names none.")
    date: str = Field(description="The day of its cutover; empty: its entry names none.")
    tonight: bool = Field(description="Whether its window is open, or opens within a day.")
    standing: Literal[tuple(ServiceStanding)] = Field(  # type: ignore[valid-type]
        description="Whether it may cut over."
    )
    sentence: str = Field(description="Why it may not, in one sentence.")
    reasons: Many[ReasonDocument] = Field(description="All reasons, the worst first.")
    parts: Many[PartDocument] = Field(description="Every part.")
    mismatches: int | None = Field(description="Table pairs that differ in the newest verification; null: not known.")
    whole_read_age_seconds: float | None = Field(
        description="Age of the oldest whole read that the full proof rests on; null: there is no proof, or not known."
    )
    watch: WatchDocument | None = Field(description="The watch; null: there is none, or it cannot be read.")
    money_at_risk: dict[str, str] = Field(description="Largest sum of one rule by currency, exact.")
    id_days_left: float | None = Field(description="Days until the first id space ends; null: nothing projects it.")
    schema_drift: bool | None = Field(description="Whether definitions changed since the last drill; null: not known.")
    drills: int = Field(description="Drills that count.")
    clean_drills: int = Field(description="Clean ones among them.")
    on_call: Many[str] = Field(description="People on call.")
    forecast: ForecastDocument | None = Field(description="Of its runbook; null: it cannot be read.")


class WaveDocument(Strict):
    """One wave."""

    wave: str = Field(description="Its name.")
    opens: float = Field(description="Unix seconds.")
    closes: float = Field(description="Unix seconds.")
    parallel: int = Field(description="Cutovers at the same time.")
    services: int = Field(description="Services that are not cut over.")
    ready: int = Field(description="Ready ones among them.")
    p50_seconds: float | None = Field(description="Half of the nights take no longer; null: not known.")
    p90_seconds: float | None = Field(description="Nine of ten take no longer; null: not known.")
    fits: bool | None = Field(description="Whether the p90 fits into the window; null: not known.")
    over: bool = Field(description="Whether its window has closed, and services of it are not cut over.")
    finding: str = Field(description="What is wrong with the wave; empty: nothing.")


class FleetDocument(Strict):
    """The state of a fleet."""

    schema_version: Literal[1] = Field(description="`1`.")
    kind: Literal["fleet"] = Field(description="`fleet`.")
    fleet: str = Field(description="The file.")
    at: float = Field(description="When it was read, Unix seconds.")
    verdict: Literal["MATCH", "MISMATCH", "INCONCLUSIVE"] = Field(
        description="Of the services that are shown, and of their waves."
    )
    exit_code: int = Field(description="0, 1 or 3.")
    ready_tonight: Many[str] = Field(description="Services of tonight that are proved to be ready.")
    services: Many[ServiceDocument] = Field(description="The services, in the order of the file.")
    waves: Many[WaveDocument] = Field(description="The waves, in the order of the file.")


class VerifiedDocument(Strict):
    """How `fleet verify` ended for one service."""

    service: str = Field(description="Its name.")
    verdict: Literal["MATCH", "MISMATCH", "INCONCLUSIVE"] = Field(description="Of its tables.")
    action: Literal["reuse", "resume", "recheck", "since", "whole", "none"] = Field(description="What was done.")
    run: str = Field(description="The run that says so; empty: none.")
    reason: str = Field(description="Why it is no MATCH, or which proof was reused.")
    seconds: float = Field(description="How long it took.")


class VerifyDocument(Strict):
    """What `fleet verify --json` prints."""

    schema_version: Literal[1] = Field(description="`1`.")
    kind: Literal["fleet verify"] = Field(description="`fleet verify`.")
    fleet: str = Field(description="The file.")
    verdict: Literal["MATCH", "MISMATCH", "INCONCLUSIVE"] = Field(description="The worst of all services.")
    exit_code: int = Field(description="0, 1, 3 or 130.")
    stopped: bool = Field(description="Whether somebody stopped it.")
    window_closed: bool = Field(description="Whether the window closed before all was done.")
    services: Many[VerifiedDocument] = Field(description="The services, in the order of work.")


def service_document(view: ServiceView, now: float, forecast: RunbookForecast | None) -> ServiceDocument:
    """Return what is published of a service."""
    evidence, state, service = view.evidence, view.state, view.service
    newest = evidence.verifications[0] if evidence.verifications else None
    schema, drills = evidence.schema, evidence.drills
    known = schema is not None and schema.fingerprint and drills is not None and drills.last_schema
    return ServiceDocument(
        service=service.name, owner=service.owner, wave=service.wave,
        date=view.day, tonight=view.is_tonight(now),
        standing=state.standing.value, sentence=state.sentence,
        reasons=tuple(ReasonDocument(**one.as_json()) for one in state.reasons),
        parts=tuple(PartDocument(**one.as_json()) for one in state.parts),
        mismatches=None if newest is None or newest.strange else newest.mismatches,
        whole_read_age_seconds=_whole_read_age(evidence), watch=_watch(view),
        money_at_risk={} if evidence.rules is None else dict(evidence.rules.money),
        id_days_left=None if evidence.ids is None else evidence.ids.days_left,
        schema_drift=schema.fingerprint != drills.last_schema if known and schema and drills else None,
        drills=0 if drills is None else drills.done, clean_drills=0 if drills is None else drills.clean,
        on_call=service.on_call, forecast=_forecast(forecast),
    )  # fmt: skip


def _whole_read_age(evidence: ServiceEvidence) -> float | None:
    proof = newest_proof(evidence)
    if proof is None:
        return None
    read = proof.proved_at if proof.rests_on is None else proof.rests_on.at
    return None if read is None else round(evidence.now - read, 1)


def _watch(view: ServiceView) -> WatchDocument | None:
    watch = view.evidence.watch
    if watch is None:
        return None
    return WatchDocument(
        run=watch.run, state=watch.state, verdict=watch.verdict.value, position=watch.position,
        lag_seconds=watch.lag, open_keys=watch.open_keys, diverged=watch.diverged,
    )  # fmt: skip


def _forecast(found: RunbookForecast | None) -> ForecastDocument | None:
    if found is None:
        return None
    return ForecastDocument(p50_seconds=found.p50, p90_seconds=found.p90, drills=found.drills, unknown=found.unknown)


def wave_documents(waves: Iterable[WaveForecast], views: Sequence[ServiceView]) -> Iterable[WaveDocument]:
    """Yield what is published of the waves."""
    for one in waves:
        left = [view for view in views if view.service.wave == one.wave.name
                and view.state.standing is not ServiceStanding.CUT_OVER]  # fmt: skip
        window = one.wave.window
        yield WaveDocument(
            wave=one.wave.name, opens=window.opens, closes=window.closes, parallel=one.wave.parallel,
            services=len(left), ready=sum(view.state.standing is ServiceStanding.READY for view in left),
            p50_seconds=one.p50, p90_seconds=one.p90, fits=one.fits, over=one.is_over, finding=one.finding,
        )  # fmt: skip
