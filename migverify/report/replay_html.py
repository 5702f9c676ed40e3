"""A replay as one HTML page: verdict, digests by weight, both answers side by side, latencies, noise, trend."""

from __future__ import annotations

from markupsafe import Markup

from migverify.model import Verdict
from migverify.report import replay_chart
from migverify.report.html import asset, environment, policy
from migverify.report.marks import mark_pair
from migverify.report.replay import ReplayReport, Stage
from migverify.report.replay_text import milliseconds, moment, quantiles, share, story
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.noise import noise_rate

_SENTENCES = {
    Verdict.MATCH: "The target answered as the source did, in everything this replay compared.",
    Verdict.MISMATCH: "The target does not answer as the source does.",
    Verdict.INCONCLUSIVE: "This replay proves nothing about what it did not finish: treat it as not verified.",
}
_SYMBOLS = {Verdict.MATCH: "✓", Verdict.MISMATCH: "✗", Verdict.INCONCLUSIVE: "?"}
_WEIGHT_WORDS = {
    "blocker": "works on the source, fails or answers otherwise on the target",
    "review": "differs in a way a person must look at",
    "noise": "differs, and a side differs from itself as often",
    "undecided": "differs where the text or the moment does not determine the answer",
    "unjudged": "not asked or not answered",
    "assumed": "the same, in sessions whose settings were assumed and could change the answer",
    "shallow": "the outcome and the number of rows are those of the capture; no rows were compared",
    "waived": "differs, and somebody answers for it",
    "metadata": "the same values; columns, lengths or warnings are described otherwise",
    "info": "the same; ids or counts that may differ do",
    "none": "the same",
}
_OPEN = 3
_MARKED = 4_000


def render_html(data: ReplayReport) -> str:
    """Return the page: no request leaves it, and it holds no script."""
    style = asset("page.css") + asset("replay.css")
    env = environment().overlay()
    env.filters |= {
        "ms": milliseconds,
        "moment": moment,
        "share": share,
        "story": story,
        "pair": pair,
        "linked": linked,
    }
    return env.get_template("replay.html.j2").render(
        data=data,
        style=Markup(style),  # noqa: S704 - our own files, hashed into the policy
        policy=policy(style),
        sentence=_SENTENCES[data.verdict],
        symbols=_SYMBOLS,
        weight_words=_WEIGHT_WORDS,
        detailed=[one for one in data.digests if one.examples and one.weight not in ("none", "metadata", "info")],
        open_first=_OPEN,
        histogram=replay_chart.histogram,
        quantiles=quantiles,
        noise_rate=noise_rate,
        Judgement=Judgement,
        Verdict=Verdict,
    )


def linked(line: str) -> Markup:
    """Return a line of a story; a link to documentation can be followed."""
    if line.startswith("see https://"):
        return Markup('see <a href="{0}" rel="noreferrer">{0}</a>').format(line[4:])
    return Markup("{}").format(line)


def pair(stage: Stage) -> tuple[Markup, Markup]:
    """Return both answers with what differs marked."""
    alike = stage.source.startswith("ok") and stage.target.startswith("ok")
    if not alike or stage.source == stage.target or max(len(stage.source), len(stage.target)) > _MARKED:
        return _plain(stage.source), _plain(stage.target)
    source, target = stage.source.split("\n"), stage.target.split("\n")
    while len(source) < len(target):
        source.append("")
    while len(target) < len(source):
        target.append("")
    lines = [mark_pair(one, other) for one, other in zip(source, target, strict=True)]
    return _marked([one for one, _ in lines]), _marked([other for _, other in lines])


def _marked(lines: list[tuple[object, ...]]) -> Markup:
    from migverify.report.html import piece

    return Markup("\n").join(Markup("").join(piece(part) for part in line) for line in lines)  # type: ignore[arg-type]


def _plain(text: str) -> Markup:
    from migverify.report.html import visible_lines

    return Markup("{}").format(visible_lines(text))
