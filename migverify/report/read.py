"""Reads a run of any kind from a result store as a ``Report``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migverify.exposition import Metric, number
from migverify.figures import amount, duration, plural
from migverify.model import KEYLESS, NO_TABLE, DiffKind, NextStep, RunInfo, StoredKind, Verdict
from migverify.report.coverage import ChunkTimeline, ReadCoverage
from migverify.report.model import Fact, Report, ReportOptions, Tile, tone_of, verdict_counts
from migverify.report.rules import (
    RuleReport,
    is_rule,
    read_rules,
    rule_as_json,
    rule_case,
    rule_metrics,
    rule_section,
    warned,
    worst_money,
)
from migverify.report.run_facts import NOT_RECORDED, RunFacts, as_list, run_facts
from migverify.report.tables import (
    KIND_WORDS,
    TablePairReport,
    excluded_as_json,
    pair_as_json,
    pair_case,
    pair_metrics,
    plain,
    read_pairs,
    rounded,
    with_pairs_not_run,
)
from migverify.report.tables_view import table_sections
from migverify.store.results import ResultStore
from migverify.tables.run_facts import UNSEEN, ProofScope, proof_scope

COUNTED = "--level counts"
_VIEWS = 3
_UNFINISHED = "This run proves nothing about what it did not finish: treat it as not verified."
_SENTENCES = {
    Verdict.MATCH: "Source and target held the same rows, in everything this run compared.",
    Verdict.MISMATCH: "Source and target differ.",
    Verdict.INCONCLUSIVE: _UNFINISHED,
}
_RULE_SENTENCES = {
    Verdict.MATCH: "All rules hold, in everything this run read.",
    Verdict.MISMATCH: "Rules do not hold.",
    Verdict.INCONCLUSIVE: _UNFINISHED,
}


def read_report(store: ResultStore, run_id: str, options: ReportOptions | None = None) -> Report:
    """Read one run by its id or ``last``; the store is only read.

    Raises
    ------
    UsageError
        There is no such run.
    StoreError
        The store cannot be read.
    """
    options, info = options or ReportOptions(), store.load_run(run_id)
    if info.kind is StoredKind.GUARDS:
        from migverify.report.guards import read_guard_report

        return read_guard_report(store, info)
    if info.kind is StoredKind.REPLAY and info.facts.get("shadow"):
        from migverify.report.shadow import shadow_report

        return shadow_report(store, info, options)
    if info.kind is StoredKind.REPLAY:
        from migverify.report.replay import read_replay
        from migverify.report.replay_view import replay_report

        return replay_report(read_replay(store, info, options))
    if info.kind is StoredKind.PLANS:
        from migverify.report.plans import plans_report

        return plans_report(store, info)
    if info.kind is StoredKind.ANOMALIES:
        from migverify.report.anomalies import anomalies_report

        return anomalies_report(store, info)
    if info.kind is StoredKind.CONFLICTS:
        from migverify.report.conflicts import conflicts_report

        return conflicts_report(store, info)
    return _tables_and_rules(store, info, options)


def _sentence(info: RunInfo, verdict: Verdict, *, with_tables: bool) -> str:
    if info.kind is StoredKind.QUICK and info.finished is not None:
        part = "This run read a part of each table, so it can find differences, but never prove that there are none."
        return f"{_SENTENCES[verdict]} {part}" if verdict is Verdict.MISMATCH else part
    return (_SENTENCES if with_tables else _RULE_SENTENCES)[verdict]


def _tables_and_rules(store: ResultStore, info: RunInfo, options: ReportOptions) -> Report:
    stored = store.table_results(info.run_id)
    every = with_pairs_not_run(info, stored)
    run = run_facts(info, every, len(stored))
    planned = frozenset(str(name) for name in as_list(info.plan.get("rules")))
    rules = read_rules(store, info.run_id, [result for result in every if is_rule(result, planned)], options)
    timeline = ChunkTimeline(info.started)
    results = [result for result in every if not is_rule(result, planned)]
    tables = read_pairs(store, info.run_id, results, options, timeline)
    noun = "rule" if rules and not tables else "table pair"
    counts = verdict_counts([*(table.result.verdict for table in tables), *(rule.result.verdict for rule in rules)])
    hashes = ", ".join(sorted({table.result.hash_name for table in tables if table.result.hash_name}))
    numbers = ", ".join(f"{n:,} {verdict}" for verdict, n in counts.items() if n) or "none"
    with_tables = bool(tables) or not rules
    scope = proof_scope([info]) if with_tables else ProofScope()
    return Report(
        run.run_id, f"run {run.run_id}", run.verdict, _sentence(info, run.verdict, with_tables=with_tables),
        f"({amount(len(every), noun)}: {', '.join(filter(None, (numbers, warned(rules), scope.words, _since(info))))})",
        tone=tone_of(run.verdict), covered=_covered(info, tables, rules, scope), reasons=run.reasons,
        started=run.started, seconds=run.seconds,
        tiles=_tiles(run, tables, rules, noun, counts),
        cards=run.cards(*([Fact("hash", hashes or NOT_RECORDED)] if with_tables else []), *_left_out(scope)),
        sections=(*([rule_section(rules, options)] if rules else []),
                  *(table_sections(tables, timeline, options, scope.excluded) if with_tables else ()), run.section()),
        cases=(*map(pair_case, tables), *map(rule_case, rules)),
        metrics=(*run.metrics({"hash": hashes}), _counted(noun, counts),
                 *(pair_metrics(tables) if with_tables else ()), *rule_metrics(rules)),
        document={
            "run_id": run.run_id, "verdict": str(run.verdict), "exit_code": int(run.exit_code),
            "seconds": rounded(run.seconds), "tables": [pair_as_json(table) for table in tables],
            **({"not_covered": excluded_as_json(scope.excluded)} if scope.excluded else {}),
            **({"rules": [rule_as_json(rule) for rule in rules]} if rules else {}),
            **({"quick": plain(info.facts.get("quick"))} if info.kind is StoredKind.QUICK else {}),
        },
        next_steps=tuple(_next_steps(info, run, tables, rules)),
    )  # fmt: skip


def _next_steps(
    info: RunInfo, run: RunFacts, tables: Sequence[TablePairReport], rules: Sequence[RuleReport]
) -> Iterator[NextStep]:
    """Yield the commands that the verdict asks for."""
    if tables and run.verdict is not Verdict.MATCH:
        if is_hidden := run.finished is not None and any(UNSEEN in reason for reason in run.reasons):
            yield NextStep("migverify config --grants", "statements that let the user see all tables in scope")
        with_rows = any(table.row_diffs for table in tables)
        if with_rows or any(table.differs_in_definition for table in tables):
            what = "keys and columns that differ" if with_rows else "what differs in the definitions"
            yield NextStep(f"migverify tables diff {run.run_id}", what)
        has_keys = any(table.row_diffs and not table.result.details.get(KEYLESS) for table in tables)
        if has_keys and info.kind is not StoredKind.QUICK and run.finished is not None:
            yield NextStep(
                f"migverify tables repair {run.run_id} --out repair/", "SQL for the target; nothing is executed"
            )
        if info.kind is StoredKind.QUICK and run.finished is not None:
            yield NextStep("migverify tables verify", "read every row: only that can prove the tables equal")
            return
        if run.finished is None or any(table.result.verdict is not Verdict.MATCH for table in tables):
            yield _read_again(info, run, tables)
        elif is_hidden:
            yield NextStep("migverify tables verify", "a new run, when the grants are given")
    if tables or rules:
        yield NextStep(f"migverify report {run.run_id} -o report.html", "the whole report as a page")


def _since(info: RunInfo) -> str:
    """Return what a run by ``--since`` did not read itself, which its number of equal tables does not show."""
    since = info.facts.get("since_run")
    return f"rows written since run {since} read, the others rest on it" if since else ""


def _read_again(info: RunInfo, run: RunFacts, tables: Sequence[TablePairReport]) -> NextStep:
    """Return the command that reads again what was not equal, which depends on what kind of run that was."""
    verify, why = "migverify tables verify", "read again what was not equal"
    if repaired := info.facts.get("repairs"):
        return NextStep(f"{verify} --recheck {repaired}", "read again all of what was not equal before the repair")
    if run.finished is None and info.facts.get("watch"):
        reverse = " --reverse" if info.facts.get("reverse") else ""
        return NextStep(f"migverify tables watch{reverse} --resume {run.run_id}", "goes on with the watch")
    if run.finished is None:
        return NextStep(f"{verify} --resume {run.run_id}", why)
    if any(table.result.source == NO_TABLE for table in tables):  # dropped, it cannot be rechecked
        return NextStep(verify, "a new run, when the source has the table too or the target has it no more")
    return NextStep(f"{verify} --recheck {run.run_id}", why)


def _counted(noun: str, counts: dict[Verdict, int]) -> Metric:
    samples = [({"verdict": str(verdict)}, number(n)) for verdict, n in counts.items()]
    if noun == "rule":
        return Metric("migverify_run_rules", "Rules by verdict.", samples)
    return Metric("migverify_run_tables", "Table pairs by verdict.", samples)


def _left_out(scope: ProofScope) -> Iterator[Fact]:
    if scope.in_part:
        pairs = f"{scope.in_part:,} of {amount(scope.tables, 'table pair')}"
        yield Fact("compared in part", f"{pairs} ({', '.join(scope.why)})")
    if scope.excluded:
        yield Fact("excluded", f"{amount(len(scope.excluded), 'table')} (tables.exclude)")


def _views(skipped: Sequence[object]) -> str:
    """Return which views (and sequences) of the sources a run passed over: whether the target has them is not asked."""
    names = list(dict.fromkeys(str(one).partition(": ")[2] for one in skipped))
    if not names:
        return ""
    more = f" and {len(names) - _VIEWS:,} more" if len(names) > _VIEWS else ""
    return f" Without rows, and not compared: {', '.join(names[:_VIEWS])}{more} (`migverify guard schema` does)."


def _covered(
    info: RunInfo, tables: Sequence[TablePairReport], rules: Sequence[RuleReport], scope: ProofScope
) -> str:  # fmt: skip
    parts = []
    if rules:
        parts.append(f"{amount(len(rules), 'rule')}; the table says how many rows each of them read.")
    if tables or not rules:
        if info.kind is StoredKind.QUICK and all(table.result.details.get("quick") == COUNTED for table in tables):
            return f"Covered: the counts of {amount(len(tables), 'table pair')}; no row was read."
        cover = ReadCoverage.total(table.coverage for table in tables)
        items = {item for table in tables for item in table.result.not_covered}
        gaps = sum(bool(table.result.not_covered) for table in tables)
        parts.append(
            f"{amount(cover.rows_source, 'row')} read from the source, {cover.rows_target:,} from the target, in"
            f" {amount(cover.chunks, 'chunk')}."
            + (f" Not covered: {amount(len(items), 'item')} in {amount(gaps, 'table pair')}." if items else "")
            + (f" Excluded: {amount(len(scope.excluded), 'table')}." if scope.excluded else "")
            + _views(as_list(info.facts.get("skipped")))
        )
    return f"Covered: {' '.join(parts)}"


def _tiles(
    run: RunFacts, tables: Sequence[TablePairReport], rules: Sequence[RuleReport],
    noun: str, counts: dict[Verdict, int],
) -> tuple[Tile, ...]:  # fmt: skip
    tiles = [Tile(f"{n:,}", f"{plural(n, noun)} {verdict}", tone_of(verdict) if n else "none")
             for verdict, n in counts.items()]  # fmt: skip
    if warnings := warned(rules):
        figure, _, words = warnings.partition(" ")
        tiles.append(Tile(figure, words, "inconclusive"))
    for currency, value in worst_money(rules):
        tiles.append(Tile(value, f"{currency} unexplained in the worst rule", "mismatch"))
    for kind, words in KIND_WORDS.items() if tables or not rules else ():
        rows = sum(getattr(table.result, kind.value) for table in tables)
        shown = "with other values" if kind is DiffKind.VALUE_DIFFERS else words
        tiles.append(Tile(f"{rows:,}", f"{plural(rows, 'row')} {shown}", "mismatch" if rows else "none"))
    return (*tiles, Tile(duration(run.seconds), "working time"))
