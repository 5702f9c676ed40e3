"""What a watch begins with: where its streams start, and what the runs it rests on have proved, left open or known."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from migverify.changes.model import Position
from migverify.changes.positions import parse_position
from migverify.changes.server import log_begun, refuse_incomplete, source_state
from migverify.db.pool import SessionPool
from migverify.db.server_state import binary_logs
from migverify.db.session import Session
from migverify.errors import ChangeError
from migverify.model import LiveState, RunInfo
from migverify.sql.identity import TableIdentity
from migverify.store.results import ResultStore
from migverify.tables.prepare import PreparedTables
from migverify.tables.recheck import newest_plans
from migverify.tables.run_facts import carried_from, planned_pairs, position_of_run
from migverify.tables.tasks import PairPlan, Secrets
from migverify.tables.watch_identity import Watched, identities_of
from migverify.watch.collect import CatchUp
from migverify.watch.ledger import BY_FILE, NO_PAIR, OTHER_SERVER, Ledger
from migverify.watch.stream import Stream
from migverify.watch.touched import form_of

SEED_PAGE = 1000
CATCH_UP = "catch up"
"""Kind of the ledger's notes of sources whose binlog is to be read from a run's place in the file on."""


def start_of(
    prepared: PreparedTables, name: str, requested: Position | None, base: Sequence[RunInfo], resumed: RunInfo | None
) -> Position:
    """Return where a source's stream begins when the ledger does not know.

    A watch that was killed before its ledger knew begins where it began: from now on would leave out what was written
    meanwhile.
    """
    if requested is not None:
        return requested
    if resumed is not None and resumed.facts.get("start"):
        return parse_position(str(resumed.facts["start"]))
    began = base or ([resumed] if resumed is not None else [])
    if began:
        return position_of_run(began, name)
    # The catalogs were read at this position: a table made since then is seen in the stream.
    return parse_position(str(prepared.facts[name]["position"]))


def read_by_file(
    streams: Sequence[Stream], watched: Sequence[Watched], base: RunInfo | None, pool: SessionPool, secrets: Secrets,
    ledger: Ledger,
) -> dict[int, CatchUp]:  # fmt: skip
    """Refuse binlogs that leave out a watched database, and return what of them is read by file as well."""
    found: dict[int, CatchUp] = {}
    for number, stream in enumerate(streams):
        with pool.session(stream.endpoint) as session:
            refuse_incomplete(session, {w.database for w in watched if w.endpoint == stream.endpoint.name})
            rest = None if base is None else _catch_up(base, stream, session, secrets, ledger)
            if rest is not None:
                found[number] = rest
    return found


def place_of_run(run: RunInfo, session: Session, password: str | None) -> Position:
    """Return file and offset at which a run began, of a binlog that goes on from there.

    Raises
    ------
    ChangeError
        the binlog may not show every write since: another server, a file that is gone or was begun anew.
    """
    endpoint = session.endpoint
    facts = _place_facts(run, endpoint.name)
    if not all(facts.get(name) for name in ("binlog", "server", "clock")):
        raise ChangeError(f"run {run.run_id} did not keep file and server of its position on {endpoint.name}")
    server = source_state(session).server
    if server != facts["server"]:
        raise ChangeError(f"{endpoint.name} is another server now ({server}, was {facts['server']})")
    at = parse_position(facts["binlog"])
    if at.file not in {log.name for log in binary_logs(session)}:
        raise ChangeError(f"{endpoint.name} does not have {at.file} any more")
    if log_begun(endpoint, password, at.file) > float(facts["clock"]):
        raise ChangeError(f"{endpoint.name}: {at.file} was begun after run {run.run_id} (RESET)")
    return at


def _place_facts(run: RunInfo, name: str) -> Mapping[str, str]:
    facts: Mapping[str, str] = run.facts.get("endpoints", {}).get(name, {})
    return facts


def _catch_up(run: RunInfo, stream: Stream, session: Session, secrets: Secrets, ledger: Ledger) -> CatchUp | None:
    """Return what is read by file as well, beside the stream, which follows a set of GTIDs from the run on.

    A transaction without a GTID follows no set, and a set that began again (RESET) may hold the numbers of others. None
    where it was read, and where the stream follows file and offset itself.

    Raises
    ------
    ChangeError
        the same server no longer has the place of the run.
    """
    notes = [(kind, text) for number, kind, text in ledger.notes() if number == NO_PAIR]
    name = stream.endpoint.name
    is_new = not ledger.progress()
    if (BY_FILE, name) in notes or not (is_new or (CATCH_UP, name) in notes):
        return None
    if stream.start is None or not stream.start.gtids:
        return None
    known = _place_facts(run, name)
    if not known.get("server") or source_state(session).server != known["server"]:
        # A failover, or a run of an earlier release: what follows the set is all that can be known.
        text = (
            f"{name}: only transactions with a GTID are followed from run {run.run_id}, as it was another server then"
        )
        ledger.note(NO_PAIR, OTHER_SERVER, text)
        return None
    try:
        begin = place_of_run(run, session, secrets.get(name))
    except ChangeError as error:
        raise ChangeError(error.message, hint="Verify the tables again, and watch --since that run.") from error
    ledger.note(NO_PAIR, CATCH_UP, name)
    return CatchUp(begin, stream.changes.ordinal(stream.changes.head(session)))


def seed(pairs: Sequence[Watched], ledger: Ledger, store: ResultStore, base: RunInfo) -> None:
    """Put every row that the run left open into the ledger: it is read again until it is equal or diverged."""
    states = [LiveState.DIVERGED.value, LiveState.HOT.value, LiveState.UNCONFIRMED.value]
    runs = newest_plans(carried_from(store, base))
    for watched in {w.number: w for w in pairs}.values():
        run = runs.get(watched.pair.id)
        if not watched.names or run is None:
            continue
        after = 0
        while page := store.row_diffs(run.run_id, watched.pair.id, states=states, after=after, limit=SEED_PAGE):
            after = page[-1][0]
            keys = {(watched.number, form_of(watched.key, d.key)): (1, 0, 0) for _, d in page}
            ledger.touch(keys, {}, time.time(), origin=f"run {run.run_id}")


def record_converged(pairs: Sequence[Watched], ledger: Ledger, store: ResultStore, run_id: str) -> None:
    """Record as converged what the store holds as diverged and the ledger does not.

    The ledger is written first: a watch that was killed between the two had proved these keys, and no later read of
    them would tell the store.
    """
    for watched in {w.number: w for w in pairs if w.names}.values():
        after = 0
        states = [LiveState.DIVERGED.value]
        while page := store.row_diffs(run_id, watched.pair.id, states=states, after=after, limit=SEED_PAGE):
            after = page[-1][0]
            keys = {form_of(watched.key, diff.key): diff for _, diff in page}
            still = ledger.diverged_among(watched.number, list(keys))
            gone = [replace(diff, state=LiveState.CONVERGED) for key, diff in keys.items() if key not in still]
            if gone:
                store.add_row_diffs(run_id, gone)


def identities_known(
    begun: Sequence[RunInfo], prepared: PreparedTables, pairs: Sequence[PairPlan]
) -> dict[int, Mapping[str, TableIdentity]]:
    """Return which table each name meant when the rows were compared that the watch starts from, as far as is known."""
    if not begun:
        return {number: prepared.identities.get(pair.id, {}) for number, pair in enumerate(pairs)}
    plans = newest_plans(begun)
    stored = {pair: planned_pairs(run)[pair].get("identities") for pair, run in plans.items()}
    return {number: identities_of(stored[pair.id] or {}) for number, pair in enumerate(pairs) if stored.get(pair.id)}
