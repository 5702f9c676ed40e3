"""A replay as sections, test cases, metrics and JSON, from what ``replay`` read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from migverify.exposition import Metric, number
from migverify.figures import amount, duration, plural, utc
from migverify.model import Verdict
from migverify.report.forecast import forecast_metrics, forecast_section, level_lines
from migverify.report.model import (
    Audience,
    Block,
    BothAnswers,
    Chart,
    Code,
    Fact,
    FactList,
    JUnitCase,
    Lines,
    Report,
    Row,
    Section,
    Table,
    TableCell,
    TableColumn,
    Tile,
    badge,
    tone_of,
)
from migverify.report.plans import plan_in_words, plans_as_json, plans_section
from migverify.report.replay import DigestReport, ReplayFacts
from migverify.report.replay_chart import histogram
from migverify.report.replay_latency import (
    WHOLE_QUANTILES,
    latency_blocks,
    latency_lines,
    milliseconds,
    quantile_estimates,
    slower_lines,
)
from migverify.report.run_facts import verdict_samples
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.tally import Example
from migverify.workload.replay.verdict import WEIGHTS

_SENTENCES = {
    Verdict.MATCH: "The target answered as the source did, in everything this replay compared.",
    Verdict.MISMATCH: "The target does not answer as the source does.",
    Verdict.INCONCLUSIVE: "This replay proves nothing about what it did not finish: treat it as not verified.",
}
WEIGHT_WORDS = {
    "blocker": "works on the source, fails or gives another answer on the target",
    "review": "differs in a way that a person has to judge",
    "noise": "differs, and a side differs from itself as often",
    "undecided": "differs where the text or the moment does not determine the answer",
    "unjudged": "not asked or not answered",
    "assumed": "the same, in sessions whose settings were assumed and could change the answer",
    "shallow": "the outcome and the number of rows are those of the capture; no rows were compared",
    "waived": "differs, and somebody has waived it",
    "metadata": "the same values; columns, lengths or warnings are described differently",
    "info": "the same; ids or counts that may differ do",
    "none": "the same",
}
_TONES = {"blocker": "mismatch", **dict.fromkeys(("review", "noise", "undecided", "unjudged"), "inconclusive")}
_QUIET = ("none", "metadata", "info")
_TEXT_ROWS, _TEXT_SECTIONS = 40, 10
_PROMETHEUS_DIGESTS = 500
_DIGEST_COLUMNS = (
    TableColumn("Verdict"), TableColumn("Found"), TableColumn("Statement"), TableColumn("Statements", number=True),
    TableColumn("Different", number=True), TableColumn("Undecided", number=True),
    TableColumn("p99 source", number=True), TableColumn("p99 target", number=True),
)  # fmt: skip


def replay_report(data: ReplayFacts) -> Report:
    """Return the report of a replay, ready to be rendered."""
    run, c = data.run, data.coverage
    covered = (
        f"Covered: {amount(c['statements'], 'statement')} in {amount(c['digests'], 'digest')};"
        f" {share(c['judged_share'])} asked and compared." if c else ""
    )  # fmt: skip
    levels = tuple(
        (f"service level {level['name']}", (Fact("state", _met(level["met"])),
         *(Fact("reason", reason) for reason in level.get("reasons", ()))))
        for level in data.slo
    )  # fmt: skip
    listed = Fact("digests not listed", f"{data.held - len(data.digests):,}")
    return Report(
        run.run_id, f"replay {run.run_id}", run.verdict, _SENTENCES[run.verdict],
        f"replay {run.run_id}, {utc(run.started)}", tone=tone_of(run.verdict), covered=covered, reasons=run.reasons,
        started=run.started, seconds=run.seconds, tiles=tuple(_tiles(data)), cards=(*run.cards(), *levels),
        sections=(*_sections(data), run.section(*data.facts, listed)),
        cases=(JUnitCase("replay", f"run {run.run_id}", run.verdict, run.reasons, run.seconds or 0.0),
               *_level_cases(data), *map(_case, data.digests)),
        metrics=tuple(_metrics(data)), document=_as_json(data), private=True,
    )  # fmt: skip


def share(value: float) -> str:
    """Return a share as percent, never rounded up to 100."""
    return f"{int(value * 10_000) / 100:.2f} %"


def _met(met: bool | None) -> str:
    return {True: "met", False: "MISSED", None: "not known"}[met]


def _tiles(data: ReplayFacts) -> Iterator[Tile]:
    for weight in ("blocker", "review", "undecided", "unjudged"):
        n = data.weights[weight]
        tone = ("mismatch" if weight == "blocker" else "inconclusive") if n else "none"
        yield Tile(f"{n:,}", f"{plural(n, 'digest')}: {weight}", tone)
    if c := data.coverage:
        yield Tile(f"{c['same']:,}", f"{plural(c['same'], 'statement')} the same")
        yield Tile(f"{c['different']:,}", "different", "mismatch" if c["different"] else "none")
    yield Tile(duration(data.run.seconds), "working time")


def _sections(data: ReplayFacts) -> Iterator[Section]:
    if data.trend:
        yield _trend(data.trend)
    rows = tuple(_digest_row(one) for one in data.digests)
    note = "" if rows else "No digests are stored."
    yield Section("Digests", (
        Table(_DIGEST_COLUMNS, rows, note=note, total=data.held, style="digests", named=2, text_rows=_TEXT_ROWS),
    ), id="digests")  # fmt: skip
    detailed = [one for one in data.digests if one.examples and one.weight not in _QUIET]
    details = tuple(_detail(data.run.run_id, one, Audience.BOTH if place < _TEXT_SECTIONS else Audience.PAGE)
                    for place, one in enumerate(detailed))  # fmt: skip
    left = len(detailed) - _TEXT_SECTIONS
    more = (f"{left:,} more digests that differ: the HTML and JSON reports hold them.",) if left > 0 else ()
    nothing = () if detailed else ("Nothing differs that has an example.",)
    notes = (Lines(more, style="note", shown=Audience.TEXT), Lines(nothing, style="note", shown=Audience.PAGE))
    yield Section("Both answers", (*notes, *details), id="details")
    yield Section("Latency", tuple(latency_blocks(data)), id="latency")
    load = forecast_section(data.forecast)
    if load is not None:
        yield load
    if data.plans:
        yield plans_section(data.plans, data.with_plan)
    nothing_known = (Fact("covered", "nothing is recorded"),)
    yield Section("Coverage and noise", (FactList(tuple(_coverage(data)) or nothing_known),), id="coverage")


def _trend(trend: Mapping[str, Any]) -> Section:
    new = tuple(f"NEW since {one['since']}: {one['aspects']}: {one['text']}" for one in trend.get("new", ()))
    gone = tuple(f"gone: {one['text']}" for one in trend.get("gone", ()))
    columns = (TableColumn("Verdict"), TableColumn("Day"), TableColumn("Statements", number=True),
               TableColumn("Digests that fail", number=True), TableColumn("Run"))  # fmt: skip
    rows = tuple(
        (badge(Verdict(one["verdict"])), one["day"], f"{one['statements']:,}", f"{one['failing']:,}", one["run_id"])
        for one in trend.get("runs", ())
    )
    lines = (*(new or ("No digest began to fail in this run.",)), *gone)
    return Section("Trend", (Lines(lines), Table(columns, rows, f"{amount(len(rows), 'nightly run')}")), id="trend")


def _digest_row(one: DigestReport) -> Row:
    tally = one.tally
    undecided = tally.state(Judgement.INDETERMINATE) + tally.state(Judgement.UNJUDGED)
    new = f"NEW since {one.new}" if one.new else ""
    link = _anchor(one) if one.examples and one.weight not in _QUIET else ""
    different = tally.state(Judgement.DIFFERENT)
    return (
        badge(one.verdict, one.word),
        TableCell(one.weight, _TONES.get(one.weight, "none"), notes=tuple(filter(None, (one.aspects, new)))),
        TableCell(one.text, code=True, link=link), f"{tally.count:,}",
        TableCell(f"{different:,}", "mismatch" if different else ""), f"{undecided:,}",
        *(milliseconds(tally.latencies[side].quantile(0.99)) for side in ("source", "target")),
    )  # fmt: skip


def _anchor(one: DigestReport) -> str:
    return f"d{one.tally.digest}"


def _detail(run_id: str, one: DigestReport, shown: Audience) -> Section:
    tally = one.tally
    users = ", ".join(f"{user} ({n:,})" for user, n in tally.users)
    blocks: list[Block] = [
        Lines((f"{one.weight}: {WEIGHT_WORDS[one.weight]}{f'; users: {users}' if users else ''}",), style="note"),
        Lines(tuple(story(one)), style="story"),
    ]
    for example in one.examples:
        blocks += _example(example)
    drawing = histogram(tally.latencies, "Latency of this digest")
    blocks += [Chart(drawing)] if drawing else []
    again = f"migverify workload reproduce --run {run_id} --digest {tally.digest[:16]}"
    blocks.append(Lines((f"To see it again: {again}",), style="note", shown=Audience.PAGE))
    return Section(one.text, tuple(blocks), _anchor(one), one.word, tone_of(one.verdict), one.weight, True, shown)


def _example(example: Example) -> list[Block]:
    origin, source, target = (example.detail(name) for name in ("origin", "source", "target"))
    title = f"Session {example.session}, statement {example.position}{f', {origin}' if origin else ''}"
    blocks: list[Block] = [Code(example.detail("sql"), title)]
    if example.reason:
        blocks.append(Lines((f"{example.state}: {example.reason}",), style="note"))
    both = source.startswith("ok") and target.startswith("ok")
    blocks.append(BothAnswers(source, target, marked=both))
    columns = tuple(map(TableColumn, ("Aspect", "Column", "Source", "Target", "Severity")))
    rows = tuple(
        (TableCell(one.aspect, notes=(one.detail,) if one.detail else ()), one.column,
         TableCell(one.source or "nothing", code=True), TableCell(one.target or "nothing", code=True),
         one.severity.value)
        for one in example.differences
    )  # fmt: skip
    blocks.append(Table(columns, rows, named=0))
    return blocks


def story(one: DigestReport) -> Iterator[str]:
    """Yield what is known of a digest, line by line."""
    tally = one.tally
    states = ", ".join(f"{tally.state(state):,} {state.value}" for state in Judgement if tally.state(state))
    yield f"digest {tally.digest}: {states}; captured {_moment(tally.first)} to {_moment(tally.last)}"
    for finding in sorted(one.findings, key=lambda found: WEIGHTS.index(found["weight"])):
        if finding["weight"] in ("none", "info"):
            continue
        ids = f" ({', '.join(finding['ids'])})" if finding["ids"] else ""
        waiver = f", waived by {finding['waiver']}" if finding["waiver"] else ""
        different = tally.aspects[finding["aspect"]].different
        yield f"{finding['weight']}: {finding['aspect']}, {different:,} statements, {finding['label']}{ids}{waiver}"
        if finding["weight"] != "metadata":
            yield from (f"see {link}" for link in finding["links"])
    yield from (f"{reason}: {n:,}" for reason, n in tally.reasons)
    if tally.repeated:
        yield f"noise: {share(tally.noisy / tally.repeated)} of {tally.repeated:,} asked again"
    yield from latency_lines(tally)
    yield from slower_lines(one.shifts)
    if one.shifts and one.plans is not None:
        yield f"plan: {plan_in_words(one.plans)}"


def _moment(microseconds: int | None) -> str:
    return "not captured" if microseconds is None else utc(microseconds / 1_000_000)


def _coverage(data: ReplayFacts) -> Iterator[Fact]:
    c = data.coverage
    if not c:
        return
    yield Fact("statements", f"{c['statements']:,}")
    yield Fact("same", f"{c['same']:,}, {c['unproven']:,} of them by answers their text does not determine,"
                       f" {c['shallow']:,} against the capture only")  # fmt: skip
    yield Fact("different", f"{c['different']:,}")
    for name in ("indeterminate", "unjudged"):
        yield Fact(name, f"{c[name]:,} ({share(c[f'{name}_share'])})")
    yield Fact("digests judged", f"{c['digests_judged']:,} of {c['digests']:,} ({share(c['digests_share'])})")
    yield Fact("writes carried out", f"{c['written']:,}")
    again = f"{c['repeated']:,}, of which {c['noisy']:,} differed from themselves"
    yield Fact("asked again", again if c["repeated"] else "none: noise is not measured")
    if c.get("assumed"):
        yield Fact("assumed", f"{c['assumed']:,} the same in sessions whose settings were assumed and could change the"
                              " answer: not counted as compared; give the settings by --sessions FILE")  # fmt: skip
    if c.get("did_not_recur"):
        yield Fact("did not recur", f"{c['did_not_recur']:,} captured errors or counts of rows that neither side"
                                    " repeats")  # fmt: skip
    if c.get("joined"):
        assumed = ", ".join(f"{n:,} with {what}" for what, n in c["assumptions"].items())
        yield Fact("joined", f"{c['joined']:,} statements of sessions that began before the capture were asked"
                             f"{f': {assumed}' if assumed else ''}")  # fmt: skip
    if c.get("out_of_scope"):
        yield Fact("not covered", f"{c['out_of_scope']:,} statements of kinds left out:"
                                  f" {', '.join(c['out_of_scope_kinds'])}")  # fmt: skip


def _as_json(data: ReplayFacts) -> dict[str, Any]:
    run = data.run
    return {
        "run_id": run.run_id, "kind": "replay", "verdict": str(run.verdict), "exit_code": int(run.exit_code),
        "reasons": list(run.reasons), "seconds": run.seconds, "coverage": dict(data.coverage),
        "service_levels": [dict(one) for one in data.slo], "weights": dict(data.weights),
        "latency": {side: _figures(found) for side, found in data.latencies.items()}, "lag": _figures(data.lag),
        **({"service_time": {side: _figures(found) for side, found in data.services.items()}} if data.services else {}),
        **({"waits": list(data.waits)} if data.waits else {}),
        **({} if data.forecast is None else {"forecast": data.forecast.as_json()}),
        "trend": dict(data.trend), "digests_shown": len(data.digests), "digests_held": data.held,
        "digests": [_digest_as_json(one) for one in data.digests],
    }  # fmt: skip


def _figures(found: Histogram) -> dict[str, Any]:
    shown = {f"p{100 * q:g}": found.quantile(q) for q in WHOLE_QUANTILES}
    return {"unit": "microseconds", **shown, **found.as_json()}


def _digest_as_json(one: DigestReport) -> dict[str, Any]:
    body = one.tally.as_json()
    body.pop("examples")
    examples = [
        {"session": example.session, "position": example.position, "state": example.state.value,
         "reason": example.reason, **example.details, "differences": [asdict(each) for each in example.differences]}
        for example in one.examples
    ]  # fmt: skip
    return {
        **body, "count": one.tally.count, "verdict": str(one.verdict), "weight": one.weight,
        "reasons_of_verdict": list(one.reasons), "findings": [dict(found) for found in one.findings],
        "latency_shifts": [dict(found) for found in one.shifts],
        "latency_quantiles": quantile_estimates(one.tally),
        "service_quantiles": quantile_estimates(one.tally, "_service"), "new_since": one.new, "examples": examples,
        **({} if one.plans is None else {"plans": plans_as_json(one.plans)}),
    }  # fmt: skip


def _level_cases(data: ReplayFacts) -> Iterator[JUnitCase]:
    levels = {} if data.forecast is None else {level.name: tuple(level_lines(level)) for level in data.forecast.levels}
    for result in data.slo:
        verdict = {True: Verdict.MATCH, False: Verdict.MISMATCH, None: Verdict.INCONCLUSIVE}[result["met"]]
        notes = levels.get(result["name"], ())
        yield JUnitCase("replay", f"service level {result['name']}", verdict, tuple(result["reasons"]), notes=notes)


def _case(one: DigestReport) -> JUnitCase:
    lines = [*one.reasons[:1], *story(one)]
    notes = (*latency_lines(one.tally), *slower_lines(one.shifts))
    for example in one.examples:
        lines += [f"example: session {example.session}, statement {example.position}", example.detail("sql")]
        lines += [f"{side}: {example.detail(side)}" for side in ("source", "target")]
        lines += [f"{each.aspect} {each.column}: {each.source or 'nothing'} / {each.target or 'nothing'}"
                  for each in example.differences]  # fmt: skip
    seconds = one.tally.latencies["target_service"].total / 1_000_000
    return JUnitCase("replay", f"{one.text[:200]} [{one.tally.digest[:12]}]", one.verdict, tuple(lines), seconds, notes)


def _metrics(data: ReplayFacts) -> Iterator[Metric]:
    c, run = data.coverage, data.run
    yield Metric("migverify_run_info", "Facts of the run; always 1.", [({"run_id": run.run_id, "kind": "replay"}, "1")])
    yield Metric("migverify_run_verdict", "1 for the verdict of the run, 0 for the others.",
                 verdict_samples({}, run.verdict))  # fmt: skip
    yield Metric("migverify_run_exit_code", "0 match, 1 mismatch, 3 inconclusive.", [({}, number(int(run.exit_code)))])
    yield Metric("migverify_replay_statements", "Replayed statements by judgement; NaN when not known.", [
        ({"state": state.value}, number(c.get(state.value))) for state in Judgement
    ])  # fmt: skip
    yield Metric("migverify_replay_share", "Shares of statements and digests; NaN when not known.", [
        ({"of": name}, number(c.get(name)))
        for name in ("judged_share", "digests_share", "indeterminate_share", "unjudged_share")
    ])  # fmt: skip
    yield Metric("migverify_replay_digests", "Digests by the weight of what was found.", [
        ({"weight": weight}, number(n)) for weight, n in data.weights.items()
    ])  # fmt: skip
    yield Metric("migverify_replay_latency_seconds", "Latency from the intended start; NaN without statements.", [
        ({"side": side, "quantile": f"{q:g}"}, number(None if (v := found.quantile(q)) is None else v / 1_000_000))
        for side, found in data.latencies.items() for q in WHOLE_QUANTILES
    ])  # fmt: skip
    worst = [one for one in data.digests if one.verdict is not Verdict.MATCH][:_PROMETHEUS_DIGESTS]
    yield Metric("migverify_replay_digest_different", "Statements that differ, of digests that are not MATCH.", [
        ({"digest": one.tally.digest, "weight": one.weight}, number(one.tally.state(Judgement.DIFFERENT)))
        for one in worst
    ])  # fmt: skip
    yield from forecast_metrics(data.forecast)
