"""The state of a fleet as a report: text, JSON, HTML, JUnit and Prometheus, as every other report has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from migverify.decision.decide import age_text
from migverify.exposition import Metric, number
from migverify.figures import amount, duration, utc
from migverify.fleet.definition import Fleet, FleetService, FleetWave
from migverify.fleet.document import FleetDocument, service_document, wave_documents
from migverify.fleet.forecast import RunbookForecast, WaveForecast, runbook_forecasts, wave_forecasts
from migverify.fleet.judge import newest_proof, reason_words, whole_read_words
from migverify.fleet.model import FleetPart, PartState, ServiceEvidence, ServiceStanding
from migverify.fleet.read import ServiceView, fleet_warnings, read_fleet
from migverify.model import NextStep, Verdict, judged_document
from migverify.report.model import (
    Audience,
    Block,
    JUnitCase,
    Lines,
    Report,
    Row,
    Section,
    Table,
    TableCell,
    TableColumn,
    Tile,
    tone_of,
)
from migverify.secrets import scrub_sentence
from migverify.watch.status import gauges

_PAGE = Audience.PAGE
_HEADS = {
    FleetPart.PROOF: "Full proof", FleetPart.WATCH: "Watch", FleetPart.RULES: "Rules",
    FleetPart.DECISION: "Replay and plans", FleetPart.SCHEMA: "Definitions", FleetPart.IDS: "Ids",
    FleetPart.DRILLS: "Drills", FleetPart.PEOPLE: "On call",
}  # fmt: skip
_ON_PAGE = (FleetPart.RULES, FleetPart.DECISION, FleetPart.SCHEMA, FleetPart.PEOPLE)
_SERVICES = (
    TableColumn("State"), TableColumn("Service"), TableColumn("Why", shown=_PAGE), TableColumn("Wave"),
    *(TableColumn(head, shown=_PAGE if part in _ON_PAGE else Audience.BOTH) for part, head in _HEADS.items()),
    TableColumn("Cutover takes"),
)  # fmt: skip
_WAVES = (
    TableColumn("State"), TableColumn("Wave"), TableColumn("Window"), TableColumn("Ready"), TableColumn("Takes, p50"),
    TableColumn("p90"), TableColumn("Finding", shown=_PAGE),
)  # fmt: skip
_TONES = (("mismatch", "NOT READY"), ("inconclusive", "NOT KNOWN"), ("match", "READY"), ("none", "CUT OVER"))
_NAMED = 10


@dataclass(frozen=True, slots=True)
class FleetState:
    """A fleet at a moment. ``views`` are the services that are shown, ``waves`` those of them.

    A wave counts as a whole, also where some of its services alone are shown.
    """

    fleet: Fleet
    now: float
    views: tuple[ServiceView, ...]
    waves: tuple[WaveForecast, ...]
    forecasts: dict[str, RunbookForecast]

    @property
    def verdict(self) -> Verdict:
        """The worst of the services that are not cut over, and of the waves."""
        left = [view for view in self.views if view.state.standing is not ServiceStanding.CUT_OVER]
        found = [*(view.state.standing.verdict for view in left), *(wave.verdict for wave in self.waves)]
        return Verdict.worst(found) if found else Verdict.MATCH

    def of(self, standing: ServiceStanding, *, tonight: bool = False) -> list[str]:
        """Return the names of the services with a standing; only those of tonight where that is asked."""
        return [
            view.service.name for view in self.views
            if view.state.standing is standing and (view.is_tonight(self.now) or not tonight)
        ]  # fmt: skip


def read_state(fleet: Fleet, now: float, wanted: Callable[[FleetService], bool] | None = None) -> FleetState:
    """Read a fleet; see ``state_of``."""
    return state_of(fleet, now, read_fleet(fleet, now=now), wanted)


def state_of(
    fleet: Fleet, now: float, views: Sequence[ServiceView], wanted: Callable[[FleetService], bool] | None = None
) -> FleetState:
    """Return the state of a fleet that was read; forecasts rest on all services, also where some alone are shown."""
    forecasts = runbook_forecasts(views)
    waves = wave_forecasts(fleet.waves, views, forecasts, now)
    shown = tuple(view for view in views if wanted is None or wanted(view.service))
    names = {view.service.wave for view in shown}
    kept = tuple(wave for wave in waves if wave.wave.name in names)
    return FleetState(fleet, now, shown, kept, forecasts)


def document_of(state: FleetState) -> FleetDocument:
    """Return what is published as JSON."""
    services = (service_document(view, state.now, state.forecasts.get(view.service.name)) for view in state.views)
    return FleetDocument(
        schema_version=1, kind="fleet", fleet=str(state.fleet.path), at=state.now, verdict=state.verdict.value,
        exit_code=int(state.verdict.exit_code), ready_tonight=tuple(state.of(ServiceStanding.READY, tonight=True)),
        services=tuple(services), waves=tuple(wave_documents(state.waves, state.views)),
    )  # fmt: skip


def fleet_report(state: FleetState, refresh_seconds: int = 0) -> Report:
    """Return the report of a fleet; ``refresh_seconds``: of a live page."""
    verdict, counts = state.verdict, {each: len(state.of(each)) for each in ServiceStanding}
    left = len(state.views) - counts[ServiceStanding.CUT_OVER]
    word = f"{counts[ServiceStanding.READY]} of {left} ready"
    steps = tuple(_steps(state))
    tiles = [Tile(f"{counts[each]:,}", each.value.lower(), _tone(each) if counts[each] else "none") for each in counts]
    return Report(
        "", f"fleet {state.fleet.path.name}", verdict, _tonight(state), f"{_tonight(state)}  {utc(state.now)}",
        word=word, tone=tone_of(verdict), covered=f"As of {utc(state.now)}, from stores and journals alone.",
        started=state.now, tiles=tuple(tiles), sections=tuple(_sections(state)), cases=tuple(_cases(state)),
        metrics=tuple(fleet_metrics(state)), next_steps=steps,
        document=judged_document(document_of(state).model_dump(mode="json"), steps),
        refresh_seconds=refresh_seconds, reasons=tuple(_findings(state)),
    )  # fmt: skip


def _tonight(state: FleetState) -> str:
    due = [view for view in state.views if view.is_tonight(state.now)
           and view.state.standing is not ServiceStanding.CUT_OVER]  # fmt: skip
    if not due:
        over = sum(view.cutover_is_over(state.now) for view in state.views)
        late = f"; the window of {amount(over, 'service')} is over" if over else ""
        return f"No window opens within a day{late}."
    ready = state.of(ServiceStanding.READY, tonight=True)
    return f"Provably ready tonight: {_names(ready)} ({len(ready):,} of {amount(len(due), 'service')})."


def _names(names: Sequence[str]) -> str:
    if not names:
        return "none"
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if names[_NAMED:] else "")


def _findings(state: FleetState) -> Iterator[str]:
    yield from (f"wave {wave.wave.name}: {wave.finding}" for wave in state.waves if wave.finding)
    yield from (f"warning: {words}" for words in fleet_warnings(state.fleet, state.views))
    for view in state.views:
        if view.runbook_problem and FleetPart.DRILLS not in {reason.part for reason in view.state.reasons}:
            yield f"warning: the runbook of {view.service.name} cannot be read: {scrub_sentence(view.runbook_problem)}"


def _sections(state: FleetState) -> Iterator[Section]:
    rows = sorted(state.views, key=lambda view: _urgency(view, state.now))
    listed: tuple[Block, ...] = (Table(
        _SERVICES, tuple(_row(view, state) for view in rows), filtered="service", tones=_TONES, style="fleet",
    ),)  # fmt: skip
    yield Section("Services", listed, id="services")
    why = [view for view in rows if view.state.standing in (ServiceStanding.NOT_READY, ServiceStanding.NOT_KNOWN)]
    if why:
        one = why[0] if len(state.views) == 1 else None
        lines = [f"{view.service.name}: {scrub_sentence(view.state.sentence)}" for view in why]
        if one is not None and one.service.name not in state.fleet.wrong:
            lines = list(_all_reasons(one))
        yield Section("Why not", (Lines(tuple(lines)),), id="why", shown=Audience.TEXT)
        yield Section("Reasons", tuple(_reasons(view) for view in why), id="reasons", shown=_PAGE)
    yield Section("Waves", (Table(_WAVES, tuple(_wave_row(wave, state) for wave in state.waves), named=1),), id="waves")


def _all_reasons(view: ServiceView) -> Iterator[str]:
    """Yield every reason of a service that is shown alone, each with what to do."""
    for reason in view.state.reasons:
        yield scrub_sentence(
            f"{view.service.name}: {reason_words(reason, required=view.state.part(reason.part).required)}."
        )
        if reason.remedy:
            yield scrub_sentence(f"  > {reason.remedy}")


def _urgency(view: ServiceView, now: float) -> tuple[bool, int, float, str]:
    """Sort what is tonight, or may be, first, then by standing, then by date."""
    standing = view.state.standing
    is_over = standing is ServiceStanding.CUT_OVER
    return (
        is_over or not (view.is_tonight(now) or view.cutover_at is None),
        list(ServiceStanding).index(standing),
        view.cutover_at or 0.0,
        view.service.name,
    )


def _row(view: ServiceView, state: FleetState) -> Row:
    standing, forecast = view.state.standing, state.forecasts.get(view.service.name)
    has_reasons = standing in (ServiceStanding.NOT_READY, ServiceStanding.NOT_KNOWN)
    takes = "not known" if forecast is None or forecast.p90 is None else (
        f"{duration(forecast.p50)}, p90 {duration(forecast.p90)}")  # fmt: skip
    return (
        TableCell(standing.value, _tone(standing), badge=True),
        TableCell(view.service.name, link=_anchor(view) if has_reasons else "",
                  notes=(view.service.owner, *(("tonight",) if view.is_tonight(state.now) else ()))),
        scrub_sentence(view.state.sentence),
        _wave_cell(view, state.now),
        *(_cell(view.state.part(part), view) for part in _HEADS),
        takes,
    )  # fmt: skip


def _wave_cell(view: ServiceView, now: float) -> TableCell:
    if view.wave is None:
        return TableCell(view.service.wave, "mismatch")
    if view.cutover_is_over(now):
        return TableCell(view.service.wave, "mismatch", notes=(f"{view.day}, window is over",))
    return TableCell(view.service.wave, notes=(view.day, f"opens {_opens(view.wave)}"))


def _opens(wave: FleetWave) -> str:
    """Return when a window opens, in UTC and in its own zone."""
    zone = wave.window.zone or "UTC"
    opens = f"{datetime.fromtimestamp(wave.window.opens, UTC):%Y-%m-%d %H:%M} UTC"
    return opens if zone == "UTC" else f"{opens} ({wave.window.start:%Y-%m-%d %H:%M} {zone})"


def _anchor(view: ServiceView) -> str:
    return f"t-{view.service.name}"


def _cell(part: PartState, view: ServiceView) -> TableCell:
    notes = []
    if part.part is FleetPart.WATCH and (watch := view.evidence.watch) is not None:
        lag = "lag unknown" if watch.lag is None else f"lag {watch.lag:.1f} s"
        notes.append(f"{watch.position or 'no position'}, {lag}")
    elif part.age is not None:
        notes.append(f"{age_text(part.age)} old")
    if part.part is FleetPart.PROOF and (proof := newest_proof(view.evidence)) is not None and proof.run == part.run:
        notes += [whole_read_words(proof.rests_on, view.evidence.now)] if proof.rests_on is not None else []
    if not part.required:
        notes.append("not required")
    is_trouble = part.standing is not ServiceStanding.READY
    tone = _tone(part.standing) if is_trouble and (part.required or part.standing is ServiceStanding.NOT_READY) else ""
    return TableCell(scrub_sentence(part.figure), tone, notes=tuple(notes))


def _tone(standing: ServiceStanding) -> str:
    return "none" if standing is ServiceStanding.CUT_OVER else tone_of(standing.verdict)


def _reasons(view: ServiceView) -> Section:
    columns = (TableColumn("Part"), TableColumn("Reason"), TableColumn("What to do"))
    rows = tuple(
        (TableCell(one.part.value, notes=(one.kind.value,)), scrub_sentence(one.text),
         TableCell(scrub_sentence(one.remedy), code=one.remedy.startswith("migverify ")))
        for one in view.state.reasons
    )  # fmt: skip
    standing = view.state.standing
    return Section(
        view.service.name, (Table(columns, rows, named=0, style="reasons"),), _anchor(view), standing.value,
        _tone(standing), amount(len(rows), "reason"), folded=True,
    )  # fmt: skip


_WAVE_WORDS = {Verdict.MATCH: "FITS", Verdict.MISMATCH: "TOO LONG", Verdict.INCONCLUSIVE: "NOT KNOWN"}


def _wave_row(wave: WaveForecast, state: FleetState) -> Row:
    verdict, window = wave.verdict, wave.wave.window
    word = "OVER" if wave.is_over else _WAVE_WORDS[verdict]
    mine = [view.state.standing for view in state.views if view.service.wave == wave.wave.name]
    left = [one for one in mine if one is not ServiceStanding.CUT_OVER]
    takes = ["not known" if value is None else duration(value) for value in (wave.p50, wave.p90)]
    return (
        TableCell(word, tone_of(verdict), badge=True), wave.wave.name,
        TableCell(utc(window.opens), notes=(f"{duration(window.duration)}, {wave.wave.parallel} at a time",)),
        f"{left.count(ServiceStanding.READY)} of {len(left)}", *takes, wave.finding,
    )  # fmt: skip


def _cases(state: FleetState) -> Iterator[JUnitCase]:
    for view in state.views:
        lines = tuple(scrub_sentence(f"{one.part.value}: {one.text}") for one in view.state.reasons)
        yield JUnitCase("fleet", view.service.name, view.state.standing.verdict, lines)
    for wave in state.waves:
        yield JUnitCase("wave", wave.wave.name, wave.verdict, (wave.finding,) if wave.finding else ())


def _steps(state: FleetState) -> Iterator[NextStep]:
    """Yield the first command that helps each service that is not ready, the most urgent ones first."""
    seen: dict[str, str] = {}
    for view in sorted(state.views, key=lambda view: _urgency(view, state.now)):
        commands = (one for one in view.state.reasons if one.remedy.startswith("migverify "))
        if (first := next(commands, None)) is not None:
            seen.setdefault(scrub_sentence(first.remedy), f"{view.service.name}: {first.part.value}")
        if view.runbook_problem:
            remedy = view.evidence.unread_remedies.get(FleetPart.PEOPLE, "")
            seen.setdefault(scrub_sentence(remedy), f"{view.service.name}: why its runbook cannot be read")
    yield from (NextStep(command, words) for command, words in list(seen.items())[:_NAMED])


def fleet_metrics(state: FleetState) -> Iterator[Metric]:
    """Yield the gauges of a fleet."""
    views = state.views
    named = [({"service": view.service.name}, view) for view in views]
    yield Metric("migverify_fleet_timestamp_seconds", "When the fleet was read.", [({}, number(state.now))])
    yield Metric("migverify_fleet_services", "Services by standing.",
                 [({"standing": each.value}, number(len(state.of(each)))) for each in ServiceStanding])  # fmt: skip
    yield Metric("migverify_fleet_service_info", "1; owner and wave of a service.", [
        ({"service": view.service.name, "owner": view.service.owner, "wave": view.service.wave}, "1") for view in views
    ])  # fmt: skip
    yield Metric("migverify_fleet_service_standing", "1 for the standing of the service, 0 for the others.", [
        ({**labels, "standing": each.value}, number(float(each is view.state.standing)))
        for labels, view in named for each in ServiceStanding
    ])  # fmt: skip
    yield Metric("migverify_fleet_service_opens_timestamp_seconds", "When the window of the service opens.",
                 [(labels, number(view.cutover_at)) for labels, view in named])  # fmt: skip
    yield Metric("migverify_fleet_service_closes_timestamp_seconds", "When the window of the service closes.",
                 [(labels, number(view.closes)) for labels, view in named])  # fmt: skip
    yield Metric("migverify_fleet_part_ready", "1 where the part of the service is proved, 0 where it is not.", [
        ({**labels, "part": part.part.value, "required": str(part.required).lower()},
         number(float(part.standing is ServiceStanding.READY)))
        for labels, view in named for part in view.state.parts
    ])  # fmt: skip
    yield from gauges("migverify_fleet", "service", map(_figures, views), (
        ("proof_age_seconds", "proof_age", "Age of the last full proof; NaN: there is none."),
        ("watch_lag_seconds", "watch_lag", "How far the target is behind; NaN: not known."),
        ("diverged_keys", "diverged_keys", "Keys that differ for good, of the watch; NaN: there is no watch."),
        ("id_days_left", "id_days_left", "Days until the first id space ends; NaN: nothing projects it."),
        ("drills_clean", "drills_clean", "Clean drills; NaN: not known."),
    ))  # fmt: skip
    yield Metric("migverify_fleet_cutover_seconds", "Forecast of a cutover; NaN: not known.", [
        ({**labels, "quantile": share}, number(getattr(state.forecasts.get(view.service.name), name, None)))
        for labels, view in named for share, name in (("0.5", "p50"), ("0.9", "p90"))
    ])  # fmt: skip
    yield Metric("migverify_fleet_wave_fits", "1 where the cutovers of a wave fit into its window; NaN: not known.", [
        ({"wave": wave.wave.name}, number(None if wave.fits is None else float(wave.fits)))
        for wave in state.waves if not wave.is_over
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServiceFigures:
    """The numbers of a service that are gauges; None: not known."""

    name: str
    proof_age: float | None
    watch_lag: float | None
    diverged_keys: float | None
    id_days_left: float | None
    drills_clean: float | None


def _figures(view: ServiceView) -> ServiceFigures:
    evidence = view.evidence
    watch, ids, drills = evidence.watch, evidence.ids, evidence.drills
    return ServiceFigures(
        view.service.name, _proof_age(evidence), None if watch is None else watch.lag,
        None if watch is None else watch.diverged, None if ids is None else ids.days_left,
        None if drills is None else drills.clean,
    )  # fmt: skip


def _proof_age(evidence: ServiceEvidence) -> float | None:
    proof = newest_proof(evidence)
    return None if proof is None or proof.proved_at is None else evidence.now - proof.proved_at
