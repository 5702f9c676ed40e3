"""Every output of ``--json``: its schema's name, the commands that print it, and the type that declares it.

Types are named, not imported: a list of outputs must not load the package. ``migverify.outputs.published`` makes the
schemas of them, which are files of ``migverify/schemas/output``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_HERE = "migverify.outputs."


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """One shape of output.

    Parameters
    ----------
    name
        Of its schema: ``config --schema NAME``.
    commands
        The commands that print it with ``--json``, a form by its first option as in ``workload capture --poll``.
    types
        ``module:name`` of the types that declare it; an output of several has the keys of all.
    what
        What it is, in a line.
    flag
        The option with which the command prints it; empty: without any of the others' options.
    lines
        One document a line, not one in all.
    many
        A list of such documents.
    """

    name: str
    commands: tuple[str, ...]
    types: tuple[str, ...]
    what: str
    flag: str = ""
    lines: bool = False
    many: bool = False


def _output(
    name: str, commands: str, types: str, what: str, flag: str = "", *, lines: bool = False, many: bool = False
) -> JsonOutput:
    """Return an output; commands and types are separated by commas, types of this package without its name."""
    named = (text.strip() for text in types.split(","))
    full = tuple(text if text.startswith("migverify.") else _HERE + text for text in named)
    return JsonOutput(name, tuple(text.strip() for text in commands.split(",") if text), full, what, flag, lines, many)


OUTPUTS: tuple[JsonOutput, ...] = (
    _output("config", "config", "tables:ConfigOutput", "The configuration as it was understood, without secrets."),
    _output("grants", "config", "tables:GrantsOutput", "Grants that the users lack.", "--grants"),
    _output("waivers-list", "config --waivers", "workload:WaiverOutput", "Waivers, and which hold.", many=True),
    _output("guards", "check, guard settings, guard monitors, guard capacity, guard hotspots, guard plans",
            "guards:GuardsDocument", "Answers of guards; with `--watch` one object a turn.", lines=True),
    _output("questions", "guard settings", "guards:QuestionOutput", "The questions of the guard.", "--list", many=True),
    _output("guard-ids", "guard ids", "guards:IdSpaceOutput", "Id spaces, and when they end.", many=True),
    _output("guards", "guard ids", "guards:GuardsDocument", "Answers, one object a turn.", "--watch", lines=True),
    _output("guard-schema", "guard schema", "guards:SchemaOutput", "How the definitions of both sides differ."),
    _output("guard-schema-snapshot", "guard schema --snapshot", "guards:SnapshotOutput", "Definitions that were kept."),
    _output("guards", "guard schema --watch", "guards:GuardsDocument", "What changed since a snapshot.", lines=True),
    _output("tables-plan", "tables plan", "tables:PlannedPairOutput", "Table pairs as they would run.", many=True),
    _output("run", "tables verify, recon run", "tables:RunReportOutput",
            "A run of table pairs or rules, with row diffs and findings."),
    _output("row-diff", "tables diff", "migverify.model:RowDiff, tables:DifferenceExtras",
            "One row diff a line, or with `reason` one of a definition.", lines=True),
    _output("tables-repair", "tables repair", "tables:RepairOutput", "Scripts of a repair, and what `--apply` did."),
    _output("tables-watch", "tables watch", "units:JudgedOutput, migverify.tables.watch_status:TablesStatus",
            "The state of a watch, one object a second; the last has `final`.", lines=True),
    _output("tables-loss", "tables loss", "tables:LossOutput", "What a rollback would lose."),
    _output("tables-armed", "tables armed", "tables:ArmedOutput", "Whether a rollback is armed."),
    _output("changes-check", "changes check", "changes:ChangesCheckOutput", "Whether binlogs can be read."),
    _output("change", "changes tail, changes tail --carrier", "migverify.changes.tail:Change",
            "One change a line.", lines=True),
    _output("changes-audit", "changes audit", "changes:ChangesAuditOutput", "Whether the streams are complete."),
    _output("changes-audit-carrier", "changes audit --carrier", "changes:CarrierAuditOutput",
            "Whether a changefeed is complete."),
    _output("changes-audit-pipeline", "changes audit --pipeline",
            "units:JudgedOutput, migverify.changes.pipeline:PipelineReport", "What a pipeline carries, and how late."),
    _output("changes-archive", "changes archive", "changes:ArchiveOutput", "What an archive covers."),
    _output("recon-explain", "recon explain", "changes:ReconExplainOutput", "What rules would read."),
    _output("recon-watch", "recon watch", "units:JudgedOutput, migverify.recon.watch_status:RulesStatus",
            "The state of a watch of rules, one object a turn; the last has `final`.", lines=True),
    _output("workload-capture", "workload capture, workload capture --poll", "workload:CaptureOutput",
            "What a capture read and made."),
    _output("workload-quality", "workload capture --quality",
            "workload:QualityExtras, migverify.workload.quality:Quality", "What a capture is good for."),
    _output("workload-sessions", "workload sessions", "workload:SessionsOutput", "A dump of sessions."),
    _output("workload-replay", "workload replay", "workload:ReplayDocument", "A replay; with `--dry-run` its plan."),
    _output("workload-nightly", "workload replay --nightly", "workload:NightlyOutput", "Replays of new captures."),
    _output("workload-shadow", "workload replay --follow",
            "units:JudgedOutput, migverify.workload.shadow.status:ShadowStatus",
            "The state of a shadow replay, one object a turn; the last has `final`.", lines=True),
    _output("workload-clone", "workload replay --mark-clone", "workload:CloneOutput", "The mark of a rehearsal clone."),
    _output("workload-probe", "workload probe", "workload:ProbeDocument", "Which known differences hold."),
    _output("workload-plans", "workload plans", "workload:PlansOutput", "Plans of both sides."),
    _output("workload-decision", "workload decision", "workload:DecisionOutput", "GO, NO-GO or NOT KNOWN, and why."),
    _output("workload-anomalies", "workload anomalies", "workload:AnomaliesOutput",
            "What was permitted to concurrent transactions."),
    _output("workload-reproduce", "workload reproduce", "workload:ReproducedOutput", "Digests asked again.", many=True),
    _output("workload-conflicts", "workload explain-conflict", "workload:ConflictsOutput", "Conflicts, explained."),
    _output("workload-clients", "workload clients", "workload:ClientsDocument",
            "What client libraries see; with `--list` what can be run."),
    _output("runbook-check", "runbook check", "runbook:RunbookCheckOutput", "Lint, plan and preflight of a runbook."),
    _output("runbook-status", "runbook status", "runbook:RunbookStatusExtras, migverify.runbook.page.view:View",
            "A run of a runbook; with `--watch` one object a move.", lines=True),
    _output("runbook-step", "runbook status", "migverify.runbook.page.view_steps:StepView", "One step of a run.",
            "--step", lines=True),
    _output("runbook-readiness", "runbook readiness",
            "runbook:ReadinessExtras, migverify.runbook.history.readiness:Readiness",
            "Whether a runbook is ready, condition by condition."),
    _output("runbook-readiness-watch", "runbook readiness --watch", "runbook:ReadinessWatchOutput",
            "One evaluation of readiness a line, and what changed.", lines=True),
    _output("runbook-cases", "runbook readiness --dr", "runbook:CasesOutput", "Cases of disaster recovery."),
    _output("runbook-compare", "runbook report --compare", "migverify.runbook.history.compare:Comparison",
            "Runs of a runbook side by side."),
    _output("runbook-journal", "runbook report --verify", "runbook:JournalOutput", "Whether a journal holds."),
    _output("runbook-traffic", "runbook traffic show", "runbook:TrafficOutput", "The share of traffic that is served."),
    _output("fleet-status", "fleet status", "units:JudgedOutput, migverify.fleet.document:FleetDocument",
            "The state of each service; `/fleet.json` of the board too."),
    _output("fleet-verify", "fleet verify", "units:JudgedOutput, migverify.fleet.document:VerifyDocument",
            "What was proved of each service."),
    _output("status", "status", "tables:StatusDocument", "The newest runs and watches; with RUN that run."),
    _output("report-guards", "", "guards:GuardsReportOutput", "A run of guards."),
    _output("report-shadow", "", "workload:ShadowReportOutput", "A shadow replay."),
    _output("report-anomalies", "", "workload:AnomaliesReportOutput", "A run of anomalies."),
    _output("report-conflicts", "", "workload:ConflictsReportOutput", "A run of explained conflicts."),
    _output("mcp-report", "", "mcp:ReportPage", "Tool `report`: a run, one page of its lists."),
    _output("mcp-diff", "", "mcp:DiffPage", "Tool `diff`: one page of what differs."),
    _output("mcp-explain", "", "mcp:ExplainPage", "Tool `explain`: one page of stored statements."),
)  # fmt: skip
"""``report --format json`` prints ``run``, ``workload-replay``, ``workload-plans`` or one of ``report-*``."""


def names() -> tuple[str, ...]:
    """Return the names of all schemas, each once."""
    return tuple(dict.fromkeys(one.name for one in OUTPUTS))


def outputs_of(command: str) -> tuple[JsonOutput, ...]:
    """Return the outputs of a command."""
    return tuple(one for one in OUTPUTS if command in one.commands)


def output_of(command: str, arguments: Sequence[str]) -> JsonOutput:
    """Return what a command prints with these arguments."""
    some = outputs_of(command)
    given = {word.partition("=")[0] for word in arguments}
    return next((one for one in some if one.flag in given), None) or next(one for one in some if not one.flag)
