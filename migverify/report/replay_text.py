"""A replay on a terminal, as JSON, as JUnit test cases and as Prometheus samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from migverify.exposition import Metric, number, page
from migverify.model import Verdict
from migverify.report.junit import document, element, problem
from migverify.report.marks import visible
from migverify.report.replay import DigestReport, ReplayReport, Stage
from migverify.report.summary import utc
from migverify.report.text import amount
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.noise import noise_rate
from migverify.workload.replay.tally import difference_as_json
from migverify.workload.replay.verdict import WEIGHTS

_COLORS = {Verdict.MATCH: "32", Verdict.MISMATCH: "31", Verdict.INCONCLUSIVE: "33"}
_LINES = 40
_SECTIONS = 10
_TEXT = 100
_QUANTILES = (0.5, 0.95, 0.99, 0.999)
_PROMETHEUS_DIGESTS = 500


def moment(microseconds: int | None) -> str:
    """Return a captured time; ``not captured`` without one."""
    return "not captured" if microseconds is None else utc(microseconds / 1_000_000)


def milliseconds(value: int | None) -> str:
    """Return microseconds as text in milliseconds; ``-`` for None."""
    return "-" if value is None else f"{value / 1000:,.1f} ms"


def share(value: float) -> str:
    """Return a share as percent, never rounded up to 100."""
    return f"{int(value * 10_000) / 100:.2f} %"


def render_text(data: ReplayReport, *, color: bool = False) -> str:
    """Return the replay as lines for people; no information is in the color alone."""

    def paint(verdict: Verdict, word: str = "") -> str:
        shown = word or str(verdict)
        return f"\x1b[1;{_COLORS[verdict]}m{shown}\x1b[0m" if color else shown

    lines = [f"{paint(data.verdict)}  replay {data.run_id}, {utc(data.run.started)}"]
    lines += [f"  reason: {visible(reason)}" for reason in data.reasons]
    lines += [
        "",
        *_covered(data),
        *_latency(data),
        *_levels(data),
        *_trend(data),
        "",
        *_overview(data, paint),
        *_slower(data),
    ]
    shown = [one for one in data.digests if one.weight not in ("none", "metadata", "info") and one.examples]
    for one in shown[:_SECTIONS]:
        lines += ["", *_section(one, paint)]
    if len(shown) > _SECTIONS:
        lines.append(f"\n{len(shown) - _SECTIONS:,} more digests to look at: the HTML and JSON reports hold them.")
    return "\n".join(lines) + "\n"


def _covered(data: ReplayReport) -> Iterator[str]:
    c = data.coverage
    if not c:
        yield "Covered: nothing is recorded"
        return
    yield (
        f"Covered: {amount(c['statements'], 'statement')} in {amount(c['digests'], 'digest')};"
        f" {share(c['judged_share'])} asked and compared, {share(c['digests_share'])} of the digests judged"
    )  # fmt: skip
    yield (
        f"  same {c['same']:,} ({c['unproven']:,} not determined by their text, {c['shallow']:,} against the capture"
        f" only), different {c['different']:,}, indeterminate {c['indeterminate']:,}, unjudged {c['unjudged']:,}"
    )  # fmt: skip
    if c.get("assumed"):
        yield (
            f"  of these {c['assumed']:,} the same in sessions whose settings were assumed and could change the answer:"
            " not counted as compared; give the settings by --sessions FILE"
        )
    if c.get("did_not_recur"):
        yield f"  did not recur: {c['did_not_recur']:,} captured errors or counts of rows that neither side repeats"
    if c.get("joined"):
        yield f"  {c['joined']:,} statements of sessions that began before the capture were asked" + (
            ":" if c["assumptions"] else ""
        )
        yield from (f"    {count:,} with {visible(what)}" for what, count in c["assumptions"].items())
    if c.get("out_of_scope"):
        yield f"  not covered: {c['out_of_scope']:,} statements of kinds left out: {', '.join(c['out_of_scope_kinds'])}"
    if c["repeated"]:
        yield f"  noise: {c['noisy']:,} of {c['repeated']:,} statements asked again differed from themselves"
    else:
        yield "  noise: not measured (no statement was asked twice)"


def _latency(data: ReplayReport) -> Iterator[str]:
    for side, found in data.latencies.items():
        if found.count:
            yield f"  {side} latency from the intended start: {quantiles(found)}"
    if data.lag.count:
        yield f"  behind the pace: {quantiles(data.lag)}"


def quantiles(found: Histogram) -> str:
    """Return quantiles in one line."""
    parts = [f"p{100 * q:g} {milliseconds(found.quantile(q))}" for q in _QUANTILES]
    return ", ".join([*parts, f"most {milliseconds(found.most)}"])


def _levels(data: ReplayReport) -> Iterator[str]:
    words = {True: "met", False: "MISSED", None: "cannot be told"}
    for level in data.slo:
        reasons = "; ".join(level.get("reasons", ()))
        yield f"  service level {visible(level['name'])}: {words[level['met']]}" + (
            f" ({visible(reasons)})" if reasons else ""
        )


def _trend(data: ReplayReport) -> Iterator[str]:
    if not data.trend:
        return
    runs = data.trend.get("runs", ())
    yield f"Trend over {amount(len(runs), 'nightly run')}"
    for one in data.trend.get("new", ()):
        yield f"  NEW since {one['since']}: {visible(one['aspects'])}: {_short(one['text'])}"
    for one in data.trend.get("gone", ()):
        yield f"  gone: {_short(one['text'])}"


def _short(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _TEXT else shown[: _TEXT - 1] + "…"


def _overview(data: ReplayReport, paint: Callable[[Verdict, str], str]) -> Iterator[str]:
    told = ", ".join(f"{number:,} {weight}" for weight, number in data.weights.items() if number)
    yield f"Digests: {told or 'none'}"
    for one in data.digests[:_LINES]:
        t = one.tally
        new = f"NEW since {one.new} " if one.new else ""
        yield (
            f"  {paint(one.verdict, one.word)}  {one.weight}: {visible(one.aspects)}; {t.state(Judgement.DIFFERENT):,}"
            f" of {t.count:,} different; {new}{_short(one.text)}"
        )  # fmt: skip
    if data.held > min(_LINES, len(data.digests)):
        yield f"  {data.held - min(_LINES, len(data.digests)):,} more"


def _slower(data: ReplayReport) -> Iterator[str]:
    """Yield the digests whose latency grew for certain, the greatest growth first."""
    slower = [one for one in data.digests if one.shifts]
    if not slower:
        return
    slower.sort(key=lambda one: -max(int(shift["slower_by_at_least"]) for shift in one.shifts))
    yield f"Slower on the target for certain: {amount(len(slower), 'digest')}"
    for one in slower[:_LINES]:
        worst = max(one.shifts, key=lambda shift: int(shift["slower_by_at_least"]))
        yield f"  {_shift(worst)}: {_short(one.text)}"
    if len(slower) > _LINES:
        yield f"  {len(slower) - _LINES:,} more"


def _shift(shift: Mapping[str, Any]) -> str:
    return (
        f"p{100 * shift['quantile']:g} by {milliseconds(shift['slower_by_at_least'])} at least: source"
        f" {milliseconds(shift['source'][1])}, target {milliseconds(shift['target'][0])}"
    )


def _section(one: DigestReport, paint: Callable[[Verdict, str], str]) -> Iterator[str]:
    yield f"{paint(one.verdict, one.word)}  {_short(one.text)}"
    yield from (f"  {line}" for line in story(one))
    for stage in one.examples:
        yield from (f"  {line}" for line in _stage(stage))


def story(one: DigestReport) -> Iterator[str]:
    """Yield what is known of a digest, line by line."""
    t = one.tally
    states = ", ".join(f"{t.state(state):,} {state.value}" for state in Judgement if t.state(state))
    yield f"digest {t.digest}: {states}; captured {moment(t.first)} to {moment(t.last)}"
    for finding in sorted(one.findings, key=lambda found: WEIGHTS.index(found["weight"])):
        if finding["weight"] in ("none", "info"):
            continue
        ids = f" ({', '.join(finding['ids'])})" if finding["ids"] else ""
        waiver = f", waived by {finding['waiver']}" if finding["waiver"] else ""
        count = t.aspects[finding["aspect"]]
        yield visible(
            f"{finding['weight']}: {finding['aspect']}, {count.different:,} statements, {finding['label']}{ids}{waiver}"
        )
        if finding["weight"] != "metadata":
            yield from (f"see {visible(link)}" for link in finding["links"])
    yield from (f"{visible(reason)}: {number:,}" for reason, number in t.reasons)
    rate = noise_rate(t)
    if rate:
        yield f"noise: {share(rate[0])} of {t.repeated:,} asked again (95 %: {share(rate[1])} to {share(rate[2])})"
    for shift in one.shifts:
        yield f"slower at {_shift(shift)}"


def _stage(stage: Stage) -> Iterator[str]:
    where = f"session {stage.session}, statement {stage.position}" + (f", {stage.origin}" if stage.origin else "")
    yield f"example: {visible(where)}"
    yield from (f"  {visible(line)}" for line in stage.sql.split("\n") if line)
    for side, text in (("source", stage.source), ("target", stage.target)):
        yield f"  {side}:"
        yield from (f"    {visible(line)}" for line in text.split("\n"))
    for one in stage.differences:
        column = f" in {one.column}" if one.column else ""
        detail = f" ({one.detail})" if one.detail else ""
        yield visible(f"  {one.aspect}{column}{detail}: {one.source or 'nothing'} / {one.target or 'nothing'}")


def replay_as_dict(data: ReplayReport) -> dict[str, Any]:
    """Return the replay as plain values: the contract of ``report --format json`` for a replay."""
    return {
        "run_id": data.run_id, "kind": "replay", "verdict": str(data.verdict), "exit_code": int(data.exit_code),
        "reasons": list(data.reasons), "seconds": data.run.seconds, "coverage": dict(data.coverage),
        "service_levels": [dict(one) for one in data.slo], "weights": dict(data.weights),
        "latency": {side: _figures(found) for side, found in data.latencies.items()}, "lag": _figures(data.lag),
        "trend": dict(data.trend), "digests_shown": len(data.digests), "digests_held": data.held,
        "digests": [_digest(one) for one in data.digests],
    }  # fmt: skip


def _figures(found: Histogram) -> dict[str, Any]:
    told = {f"p{100 * q:g}": found.quantile(q) for q in _QUANTILES}
    return {"unit": "microseconds", **told, **found.as_json()}


def _digest(one: DigestReport) -> dict[str, Any]:
    body = one.tally.as_json()
    body.pop("examples")
    return {
        **body, "count": one.tally.count, "verdict": str(one.verdict), "weight": one.weight,
        "reasons_of_verdict": list(one.reasons), "findings": [dict(found) for found in one.findings],
        "latency_shifts": [dict(found) for found in one.shifts], "new_since": one.new,
        "examples": [_example(stage) for stage in one.examples],
    }  # fmt: skip


def _example(stage: Stage) -> dict[str, Any]:
    found = {name: getattr(stage, name) for name in Stage.__slots__ if name != "differences"}
    return {**found, "differences": [difference_as_json(one) for one in stage.differences]}


def render_json(data: ReplayReport) -> str:
    """Return the replay as JSON text of ASCII characters, ending in a newline."""
    return json.dumps(replay_as_dict(data), indent=2, allow_nan=False) + "\n"


def render_junit(data: ReplayReport) -> str:
    """Return a test case a digest: MISMATCH is a failure, INCONCLUSIVE an error; and one for the run itself."""
    verdicts = [*(one.verdict for one in data.digests), data.verdict]
    whole = "" if data.verdict is Verdict.MATCH else problem(data.verdict, "\n".join(data.reasons))
    left = data.held - len(data.digests)
    cases = [element("replay", f"run {data.run_id}", data.run.seconds or 0.0, whole), *map(_case, data.digests)]
    properties = (("verdict", str(data.verdict)), ("digests_not_listed", str(left)))
    return document(f"migverify replay {data.run_id}", cases, verdicts, data.run.seconds, properties)


def _case(one: DigestReport) -> str:
    text = "\n".join([*one.reasons[:1], *story(one), *(line for stage in one.examples for line in _stage(stage))])
    body = "" if one.verdict is Verdict.MATCH else problem(one.verdict, text)
    seconds = one.tally.latencies["target_service"].total / 1_000_000
    return element("replay", f"{one.text[:200]} [{one.tally.digest[:12]}]", seconds, body)


def render_prometheus(data: ReplayReport) -> str:
    """Return gauges of the whole, and of the digests that are not MATCH."""
    return page(_metrics(data))


def _metrics(data: ReplayReport) -> Iterator[Metric]:
    c = data.coverage
    yield Metric(
        "migverify_run_info", "Facts of the run; always 1.", [({"run_id": data.run_id, "kind": "replay"}, "1")]
    )
    yield Metric("migverify_run_verdict", "1 for the verdict of the run, 0 for the others.", [
        ({"verdict": str(each)}, number(each is data.verdict)) for each in Verdict
    ])  # fmt: skip
    yield Metric("migverify_run_exit_code", "0 match, 1 mismatch, 3 inconclusive.", [({}, number(int(data.exit_code)))])
    yield Metric("migverify_replay_statements", "Replayed statements by judgement; NaN when not known.", [
        ({"state": state.value}, number(_number(c, state.value))) for state in Judgement
    ])  # fmt: skip
    yield Metric("migverify_replay_share", "Shares of statements and digests; NaN when not known.", [
        ({"of": name}, number(_number(c, name)))
        for name in ("judged_share", "digests_share", "indeterminate_share", "unjudged_share")
    ])  # fmt: skip
    yield Metric("migverify_replay_digests", "Digests by the weight of what was found.", [
        ({"weight": weight}, number(found)) for weight, found in data.weights.items()
    ])  # fmt: skip
    yield Metric("migverify_replay_latency_seconds", "Latency from the intended start; NaN without statements.", [
        ({"side": side, "quantile": f"{q:g}"}, number(_seconds(found.quantile(q))))
        for side, found in data.latencies.items() for q in _QUANTILES
    ])  # fmt: skip
    worst = [one for one in data.digests if one.verdict is not Verdict.MATCH][:_PROMETHEUS_DIGESTS]
    yield Metric("migverify_replay_digest_different", "Statements that differ, of digests that are not MATCH.", [
        ({"digest": one.tally.digest, "weight": one.weight}, number(one.tally.state(Judgement.DIFFERENT)))
        for one in worst
    ])  # fmt: skip


def _number(coverage: Mapping[str, Any], name: str) -> float:
    return float(coverage.get(name, "nan"))


def _seconds(value: int | None) -> float:
    return float("nan") if value is None else value / 1_000_000
