"""SQL that carries lost rows over to the source, and its inverse: written for people, never executed by migverify.

The statements are those of a repair with the direction turned round: each changes one row of the source, and only if
the row still is what was read. A source is never written by migverify, so a person reads the file and applies it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from migverify import __version__
from migverify.changes.positions import tso_position
from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.errors import PlanError, RepairError, UsageError
from migverify.model import DiffKind, Endpoint, RowDiff
from migverify.secrets import scrub
from migverify.sql.repair import session_sql
from migverify.tables.loss import Loss
from migverify.tables.lost_keys import LostKeys
from migverify.tables.prepare import rules_of
from migverify.tables.repair_files import BATCH, ScriptFacts, ScriptPair, SqlScript
from migverify.tables.repair_rows import RepairPlan, Written, plan_repair, write_statements
from migverify.tables.tasks import PairPlan

_TURNED = {
    DiffKind.MISSING_ON_SOURCE: DiffKind.MISSING_ON_TARGET,
    DiffKind.MISSING_ON_TARGET: DiffKind.MISSING_ON_SOURCE,
    DiffKind.VALUE_DIFFERS: DiffKind.VALUE_DIFFERS,
}
AFTER_FORWARD = "after run "
"""Begin of the origin of keys that were written on the source behind the end of the forward watch."""


@dataclass(frozen=True, slots=True)
class CarryScript:
    """The SQL for one source: the file and its inverse, and which rows or tables have no statement and why.

    ``statements`` are by what the row is on the source now: missing, older, or to be removed.
    """

    endpoint: str
    path: Path
    inverse_path: Path
    script: ScriptFacts
    inverse: ScriptFacts
    statements: Mapping[str, int]
    without: Mapping[str, int]


@dataclass(slots=True)
class _TablePlan:
    """A table of a script: its plan, its number in the ledger."""

    number: int
    plan: RepairPlan


@dataclass(slots=True)
class _SourceTables:
    """The tables of one source, and its rows without a statement by the reason."""

    endpoint: Endpoint
    tables: list[_TablePlan] = field(default_factory=list)
    without: Counter[str] = field(default_factory=Counter)


def refuse_existing(path: Path) -> None:
    """Refuse a file that is there: it may have been applied, and then only its inverse undoes it.

    Raises UsageError: the file exists, or its folder does not.
    """
    if not path.resolve().parent.is_dir():
        raise UsageError(f"--sql {path}: the folder does not exist")
    if existing := next((one for one in (path, _inverse_of(path)) if one.exists()), None):
        raise UsageError(f"--sql {path}: {existing} exists", hint="It may have been applied: name another file.")


def write_carry_sql(
    path: Path, loss: Loss, plans: Mapping[int, PairPlan], lost: LostKeys, config: Config, pool: SessionPool
) -> list[CarryScript]:
    """Write the SQL of all lost keys: ``path``, or one file for each source where the keys are of several.

    Raises
    ------
    ReadError
        a row could not be read: no file is written.
    UsageError
        a file of that name exists.
    """
    by_source: dict[str, _SourceTables] = {}
    for table in loss.tables:
        pair = plans.get(table.number)
        if table.counts.keys and pair is not None:
            side = pair.sources[0]
            of = by_source.setdefault(side.endpoint.name, _SourceTables(side.endpoint))
            _plan_table(of, table.number, table.counts.keys, pair, config, pool)
    found = []
    for name, source in by_source.items():
        own = path if len(by_source) == 1 else path.with_name(f"{path.stem}.{name}{path.suffix}")
        refuse_existing(own)
        found.append(_write_source(own, source, loss, lost, config, pool))
    return found


def turned(pair: PairPlan) -> PairPlan:
    """Return a pair whose target is the source of this one: what the target holds is to be written there.

    Raises
    ------
    RepairError
        the rows of the pair are on several sources, or no statement can name one of them.
    """
    if pair.target_side is None or len(pair.sources) != 1:
        raise RepairError("its rows are on several sources, and a row's own source is not known")
    if not pair.sources[0].sql.key:
        raise RepairError("the table has no unique key that is compared, so no statement can name one row")
    return replace(
        pair, source=pair.target, target=pair.source, sources=(pair.target_side,), target_side=pair.sources[0]
    )


def turned_diff(diff: RowDiff) -> RowDiff:
    """Return a row diff with its sides exchanged."""
    return replace(
        diff, kind=_TURNED[diff.kind], source_checksum=diff.target_checksum, target_checksum=diff.source_checksum,
        source_count=diff.target_count, target_count=diff.source_count,
    )  # fmt: skip


def why_no_statement(diff: RowDiff, origin: str) -> str:
    """Return why a lost key gets no statement, empty when it may have one; ``diff`` as the pair has its sides.

    What a write of the target put there is the application's. Anything else may be a row of the source's own.
    """
    if origin.startswith(AFTER_FORWARD):
        return f"the row was written on the source {origin}: carrying it over would overwrite that"
    if origin and diff.kind is DiffKind.MISSING_ON_TARGET:
        return "no write of the target is known that removed the row"
    return ""


def _plan_table(of: _SourceTables, number: int, keys: int, pair: PairPlan, config: Config, pool: SessionPool) -> None:
    try:
        of.tables.append(_TablePlan(number, plan_repair(pool, turned(pair), config, "", reverse=True)))
    except (RepairError, PlanError) as error:
        of.without[f"{pair.source}: {scrub(error.message)}"] += keys


def _write_source(
    path: Path, source: _SourceTables, loss: Loss, lost: LostKeys, config: Config, pool: SessionPool
) -> CarryScript:
    inverse_path = _inverse_of(path)
    plans = [one.plan for one in source.tables]
    with pool.session(source.endpoint) as opened:
        session = session_sql(opened.flavor)
    counts: Counter[str] = Counter()
    with ScriptPair(
        SqlScript(path, _header(source.endpoint, loss, plans, path.name, inverse_path.name), session),
        SqlScript(inverse_path, _header(source.endpoint, loss, plans, inverse_path.name, path.name), session),
    ) as scripts:
        for one in source.tables:
            written = _write_table(one, lost, scripts, source, config, pool)
            counts.update({_TURNED[DiffKind(kind)].value: n for kind, n in written.statements.items()})
        script, inverse = scripts.close()
    return CarryScript(source.endpoint.name, path, inverse_path, script, inverse, dict(counts), dict(source.without))


def _write_table(
    one: _TablePlan, lost: LostKeys, scripts: ScriptPair, source: _SourceTables, config: Config, pool: SessionPool
) -> Written:
    plan = one.plan
    refused: Counter[str] = Counter()
    for page in lost.diffs(plan.pair.id, one.number, 500):
        refused.update(why for diff, origin in page if (why := why_no_statement(diff, origin)))
    with closing(plan.open_reader(pool, rules_of(config))) as reader:
        written = write_statements(plan, reader, partial(_pages, lost, plan.pair.id, one.number), scripts)
    name = plan.pair.target
    source.without.update({f"{name}: {why}": n for why, n in (refused + written.refused).items()})
    changed = {"source": "target", "target": "source"}  # a turned pair
    source.without.update(
        {f"{name}: changed on the {changed[side]} meanwhile": n for side, n in written.changed.items()}
    )
    return written


def _pages(lost: LostKeys, pair: str, number: int, size: int) -> Iterator[list[RowDiff]]:
    for page in lost.diffs(pair, number, size):
        yield [turned_diff(diff) for diff, origin in page if not why_no_statement(diff, origin)]


def _inverse_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}.inverse{path.suffix or '.sql'}")


def _header(endpoint: Endpoint, loss: Loss, plans: Sequence[RepairPlan], own: str, other: str) -> list[str]:
    title = "carries writes of the target over to the source, which does not hold them"
    undo = "what undoes it"
    if ".inverse." in own:
        title, undo = "inverse: puts the source's rows back as they were before the file was applied", "the file"
    read = str(tso_position(loss.watch.read)) if loss.watch.read is not None else "nothing"
    return [
        f"migverify {title}",
        "MIGVERIFY NEVER EXECUTES THIS FILE: read it, and apply it yourself",
        "before that, stop the changefeed to the source, and any replication from the source to the target",
        f"from reverse watch {loss.run_id}, as of {read}, written {_now()} by migverify {__version__}",
        f"for the source {endpoint.name}, {endpoint.host}:{endpoint.port}",
        f"apply: mysql --default-character-set=utf8mb4 -h {endpoint.host} -P {endpoint.port} -u USER -p < {own}",
        f"{undo}: {other}",
        "a statement changes one row, and only if the row still is what was read; run again it changes nothing more",
        f"the client stops at the first error and undoes the transaction of {BATCH} rows it is in; where another row",
        "still has a unique value, run the file with --force until no error is left: each statement is safe alone",
        "needs the session settings below: UTC, strict sql_mode, utf8mb4",
        *(f"MORE MAY BE LOST than is here: {reason}" for reason in loss.reasons),
        *(f"note: {plan.pair.target}: {note}" for plan in plans for note in plan.notes),
    ]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
