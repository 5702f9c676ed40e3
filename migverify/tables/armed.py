"""Whether a rollback is armed: the reverse watch took over from the forward watch, and nothing is unread between them.

Asked after the writes on the source were stopped and before the target is opened for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from migverify.changes.positions import parse_position, shown_timestamp, tso_time
from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.errors import ChangeError, PlanError, UsageError
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.secrets import scrub
from migverify.store.results import RUNS_SEARCHED, ResultStore, named_run
from migverify.tables.handover import UnreadChanges, read_unread
from migverify.tables.loss import WatchState, plans_of, table_gaps, watch_gaps, watch_state
from migverify.tables.outcome import verdict_of
from migverify.tables.prepare import PreparedTables
from migverify.tables.recheck import IsOwn, any_run, refuse_other
from migverify.tables.run_facts import BEGAN, planned_pairs
from migverify.tables.tasks import Secrets
from migverify.tables.watch_streams import watched_pairs
from migverify.watch.ledger import Ledger
from migverify.watch.ledger_read import LedgerState, read_ledger


@dataclass(frozen=True, slots=True)
class ArmedRollback:
    """Whether a rollback is armed. ``unread`` is None where it could not be counted.

    ``problems`` are known gaps between the watches, ``unknown`` what could not be found out.
    """

    forward: str
    reverse: str
    watch: WatchState
    unread: UnreadChanges | None
    problems: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """MATCH where nothing is between the two watches, and the reverse one is alive."""
        return verdict_of(self.problems, self.unknown)


def forward_run(store: ResultStore, name: str, digest: str, is_own: IsOwn = any_run) -> RunInfo:
    """Return a forward watch by its run; ``last`` is the newest one.

    Raises
    ------
    UsageError
        the store holds no such run, or it is no forward watch.
    PlanError
        it watched something else.
    """

    def suits(run: RunInfo) -> bool:
        return bool(run.facts.get("watch")) and not run.facts.get("reverse")

    if name == "last" and not any(run.kind is StoredKind.TABLES and suits(run) for run in store.runs(RUNS_SEARCHED)):
        raise UsageError(
            f"the store holds no forward watch among its newest {RUNS_SEARCHED:,} runs",
            hint="Start one: migverify tables watch --since RUN",
        )
    run = named_run(store, name, StoredKind.TABLES, digest, suits=suits, is_own=is_own)
    if not suits(run):
        raise UsageError(f"run {run.run_id} is no forward watch", hint="`last` takes the newest one.")
    refuse_other(run, digest, "Put the configuration back as it was.")
    return run


def ask_armed(
    prepared: PreparedTables, config: Config, secrets: Secrets, store: ResultStore, forward: RunInfo, reverse: RunInfo,
    ledger: Path, pool: SessionPool, max_unread: float,
) -> ArmedRollback:  # fmt: skip
    """Ask both watches, and the sources' binlogs for what was written behind the end of the forward watch.

    Parameters
    ----------
    ledger
        The ledger of the reverse watch; it is only read.
    max_unread
        Seconds of the target's writes that may be unread.

    Raises
    ------
    StoreError
        the ledger cannot be read.
    """
    sizes: list[int] = []
    state = read_ledger(ledger, lambda keys: sizes.append(len(keys)))
    watch = watch_state(config, store, reverse, state, pool, sum(sizes), plans_of(prepared, reverse))
    unread, why = _unread(prepared, config, secrets, forward, pool)
    unknown = [*watch_gaps(reverse, watch, state, max_unread), *_stale(reverse, state)]
    problems: list[str] = []
    if not is_proved_anew(store, forward, reverse):
        problems += hand_over_problems(config, forward, watch.began, unread)
        unknown += [*why, *hand_over_gaps(config, forward, watch.began)]
    return ArmedRollback(forward.run_id, reverse.run_id, watch, unread, tuple(problems), tuple(unknown))


def is_proved_anew(store: ResultStore, forward: RunInfo, reverse: RunInfo) -> bool:
    """Whether the reverse watch rests on a verification of after the forward watch that found both sides equal.

    What lies between the two watches is proved by it then: where a feed was broken, that is how to go on.
    """
    name = str(reverse.facts.get("since") or "")
    base = store.load_run(name) if name else None
    if base is None or base.facts.get("watch") or forward.finished is None:
        return False
    return base.verdict is Verdict.MATCH and base.started > forward.finished


def hand_over_problems(
    config: Config, forward: RunInfo, began: int | None, unread: UnreadChanges | None
) -> Iterator[str]:
    """Yield the known gaps between a forward watch and a reverse one.

    Parameters
    ----------
    began
        The timestamp from which on the reverse watch follows the target; None where it is not known.
    unread
        What was written on the sources behind the end of the forward watch, where that is known.
    """
    yield from _order(config, forward, began)
    if unread is not None and (unread.rows or unread.statements):
        yield (
            f"written on the sources behind the end of watch {forward.run_id}: {_counted(unread.rows, 'row')}, "
            f"{_counted(unread.statements, 'statement')}"
        )
    if forward.finished is not None and forward.verdict is Verdict.MISMATCH:
        yield f"watch {forward.run_id} ended MISMATCH"


def hand_over_gaps(config: Config, forward: RunInfo, began: int | None) -> Iterator[str]:
    """Yield what is not known of the change from a forward watch to a reverse one; ``began`` as above."""
    if began is None:
        yield f"the reverse watch does not say from which timestamp on it follows {config.target.name}"
    if forward.finished is None:
        yield f"watch {forward.run_id} has not ended: end it with --until-drained"
    elif forward.verdict is Verdict.INCONCLUSIVE:
        yield f"watch {forward.run_id} ended INCONCLUSIVE"


def _order(config: Config, forward: RunInfo, began: int | None) -> Iterator[str]:
    """Yield that the reverse watch began after the forward one ended: writes of the target may lie between."""
    name = config.target.name
    recorded = str(forward.facts.get(BEGAN, {}).get(name) or "")
    if began is None or forward.finished is None:
        return  # then it is not known
    try:
        if recorded and began <= parse_position(recorded).offset:
            return
    except UsageError:
        pass  # the target gave no timestamp then: the clock decides
    if tso_time(began) > forward.finished:
        yield (
            f"the reverse watch follows {name} from {shown_timestamp(began)} on, after the end of watch "
            f"{forward.run_id}: start it with --since {forward.run_id}"
        )


def _stale(reverse: RunInfo, state: LedgerState) -> Iterator[str]:
    for number, entry in enumerate(planned_pairs(reverse).values()):
        for gap in table_gaps(number, state):
            yield f"{entry['source']}: {gap}"


def _unread(
    prepared: PreparedTables, config: Config, secrets: Secrets, forward: RunInfo, pool: SessionPool
) -> tuple[UnreadChanges | None, list[str]]:
    """Return what was written on the sources behind the end of a forward watch, and why that is not known.

    It is read into a ledger of its own, which is dropped: that of the reverse watch is written by the watch alone.
    """
    watched = watched_pairs(config, list(prepared.pairs()))
    try:
        with TemporaryDirectory() as folder, closing(Ledger(Path(folder) / "unread.db")) as ledger:
            return read_unread(config, secrets, forward, watched, pool, ledger), []
    except (PlanError, ChangeError) as error:
        return None, [f"what was written on the sources since is not known: {scrub(error.line)}"]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"
