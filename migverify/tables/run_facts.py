"""What a run of tables keeps of itself, for those who read it: names of its facts, its pairs, and where it began.

Nothing here reads a table or a changefeed, so that who shows runs need not load what makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migverify.changes.model import Position
from migverify.changes.positions import parse_position
from migverify.config import Config
from migverify.errors import MigverifyError, PlanError, UsageError
from migverify.figures import amount
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.store.results import ResultStore

INTERRUPTED = "interrupted; resume it"
"""The reason of a run that was asked to stop."""
CHOSEN, ALL_TABLES = "tables chosen", "all"
"""The fact of a run that says which tables ``--tables`` chose, and its value without that option."""
UNSEEN = "tables that it cannot see are not"
"""In every reason of a run because of grants: rows of the source may be in tables that were not read."""
READ_WHOLE = "read whole"
"""The fact of a run that says by pair why it is read whole, although an earlier run read it."""
EXCLUDED = "excluded"
"""The fact of a run that lists the tables which ``tables.exclude`` leaves out."""
EXCLUDED_REASON = "excluded by configuration (tables.exclude)"
IN_PART = "in part"
"""Why a pair is compared in part, in what a run keeps of it in its plan; absent for a pair that is compared whole."""
BEGAN = "began"
"""Fact of a watch that has ended: by endpoint, the place of its changes when the watch's last process began."""
THROUGH = "through"
"""Fact of a watch: by source, the place up to which its changes were read when it ended."""
HAND_OVER = "hand-over"
"""Kind of the ledger's state that holds what a reverse watch read behind the end of the forward watch, and when."""


def planned_pairs(run: RunInfo) -> dict[str, Mapping[str, Any]]:
    """Return what a run keeps of the pairs of its plan, by their ids."""
    return {str(entry["id"]): entry for entry in run.plan.get("pairs", [])}


@dataclass(frozen=True, slots=True)
class ProofScope:
    """How much of the migration a run compares, by its plan.

    ``in_part`` is how many of its ``tables`` the configuration has compared in part, and ``why`` all its reasons.
    ``excluded`` are the tables that it leaves out.
    """

    tables: int = 0
    in_part: int = 0
    why: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What a MATCH of the run does not say, for a line of text; empty: it is of all rows of all tables."""
        part = f"{self.in_part:,} of them in part ({', '.join(self.why)})" if self.in_part else ""
        return ", ".join(filter(None, (part, f"{len(self.excluded):,} excluded" if self.excluded else "")))

    @property
    def left_out(self) -> str:
        """How many tables the run is of, and what a MATCH does not say of them; empty: it is of all rows of all."""
        return f"{amount(self.tables, 'table')}, {self.words}" if self.words else ""


def proof_scope(runs: Sequence[RunInfo]) -> ProofScope:
    """Return the scope of a run and of those whose results it takes over; all with their plans, the newest first."""
    reasons: dict[str, tuple[str, ...]] = {}
    for run in runs:
        for entry in run.plan.get("pairs", []):
            if isinstance(entry, Mapping) and "id" in entry:  # a damaged plan is shown too
                reasons.setdefault(str(entry["id"]), tuple(map(str, entry.get(IN_PART) or ())))
    partial = [why for why in reasons.values() if why]
    excluded = runs[0].facts.get(EXCLUDED) if runs else None
    return ProofScope(
        len(reasons), len(partial), tuple(sorted({one for why in partial for one in why})),
        tuple(map(str, excluded)) if isinstance(excluded, list | tuple) else (),
    )  # fmt: skip


def pair_addresses(config: Config) -> dict[str, str]:
    """Return ``host:port`` of the endpoints of the migration, by name, as addresses are compared."""
    return {endpoint.name: compared_address(f"{endpoint.host}:{endpoint.port}") for endpoint in config.endpoints}


def endpoint_addresses(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return ``host:port`` of the endpoints that facts of a run keep, by name, as addresses are compared.

    It is empty where they keep the endpoint and no address of it.
    """
    endpoints = facts.get("endpoints")
    if not isinstance(endpoints, Mapping):
        return {}
    return {str(name): compared_address(_address(known)) for name, known in endpoints.items()}


def _address(facts: Any) -> str:
    if not isinstance(facts, Mapping):
        return ""
    if "address" in facts:
        return str(facts["address"])
    return f"{facts['host']}:{facts.get('port')}" if "host" in facts else ""


def compared_address(address: str) -> str:
    """Return ``host:port`` as it is compared with another one: names of hosts have no case."""
    return address.lower()


def compared_with_itself(run: RunInfo, load: Callable[[str], RunInfo]) -> bool:
    """Whether a run of an earlier release, which did not refuse it, compared a table of one server with itself.

    ``load`` returns a run with its plan; it is asked only where both sides are one server by the facts of the run.
    """
    endpoints = run.facts.get("endpoints")
    if not isinstance(endpoints, Mapping):
        return False
    target = endpoints.get("target")
    if not any(_is_same(facts, target) for name, facts in endpoints.items() if name != "target"):
        return False
    return any(entry.get("source") == entry.get("target") for entry in planned_pairs(load(run.run_id)).values())


def _is_same(one: Any, other: Any, *, by_name: bool = False) -> bool:
    """Whether what runs keep of two endpoints is of one server: by the ids they report, else by their addresses.

    ``by_name``: an equal address is enough, also of another id. The two are one endpoint of a configuration then, and a
    replica may have taken over; of two endpoints, one address can be that of a proxy before two servers.
    """
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return False
    has_address = bool(_address(one)) and compared_address(_address(one)) == compared_address(_address(other))
    if one.get("server") and other.get("server"):
        return bool(one["server"] == other["server"]) or (by_name and has_address)
    return has_address


def is_of_servers(run: RunInfo, endpoints: Mapping[str, Any]) -> bool:
    """Whether a run read these servers, or does not say which.

    ``endpoints`` are the facts of the servers by name, as a run keeps them. A server that says which one it is may have
    another address than it had.
    """
    known = run.facts.get("endpoints")
    if not isinstance(known, Mapping) or not known:
        return True
    return known.keys() == endpoints.keys() and all(
        _is_same(known[name], endpoints[name], by_name=True) for name in endpoints
    )


def refuse_other_servers(run: RunInfo, endpoints: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose servers are others: it would be one verdict of four servers.

    ``endpoints`` are facts as for ``is_of_servers``. A server is another one where neither its address nor what it
    reports of itself is that of the run; a run that keeps no more than addresses is judged by these.

    Raises
    ------
    PlanError
        a server is another one.
    """
    known = run.facts.get("endpoints")
    for name, now in endpoints.items():
        then = known.get(name) if isinstance(known, Mapping) else None
        if not isinstance(then, Mapping) or bool(then.get("server")) is not bool(now.get("server")):
            continue
        if _address(then) and not _is_same(then, now, by_name=True):
            raise PlanError(
                f"{name} is {_address(now)} now; run {run.run_id} read another server, {_address(then)}",
                hint="Put the configuration back to go on, or begin a new run.",
            )


def is_of_endpoints(run: RunInfo, config: Config) -> bool:
    """Whether a run read the servers that a configuration names by their addresses, or does not say which it read."""
    return is_of_servers(run, {name: {"address": address} for name, address in pair_addresses(config).items()})


def is_of_other_servers(run: RunInfo, other: RunInfo) -> bool:
    """Whether two runs read other servers for sure, by what these say of themselves: a server may have many names."""
    pairs = ((_server(run, name), _server(other, name)) for name in run.facts.get("endpoints") or ())
    return any(one and two and one != two for one, two in pairs)


def _server(run: RunInfo, name: str) -> Any:
    endpoints = run.facts.get("endpoints")
    facts = endpoints.get(name) if isinstance(endpoints, Mapping) else None
    return facts.get("server") if isinstance(facts, Mapping) else None


def newer_differences(
    store: ResultStore, runs: Iterable[RunInfo], digest: str, moment: float
) -> Iterator[tuple[RunInfo, frozenset[str]]]:
    """Yield the verifications of a configuration that are newer than a moment and found tables to differ, with these.

    Verifications of some tables and quick answers count too, and runs that were cut off: any of them proves a
    difference. A quick answer that finds none proves nothing. Watches and repairs are no verifications.
    """
    for run in runs:
        if run.kind not in (StoredKind.TABLES, StoredKind.QUICK) or run.plan_hash != digest:
            continue
        if run.facts.get("watch") or run.facts.get("repairs") or (run.finished or run.started) <= moment:
            continue
        if run.finished is not None and run.verdict is Verdict.MATCH:
            continue  # it has no table that differs, and need not be read
        if store.verdict_counts(run.run_id).get(Verdict.MISMATCH, 0):
            results = store.table_results(run.run_id)
            yield run, frozenset(result.pair for result in results if result.verdict is Verdict.MISMATCH)


def carried_from(store: ResultStore, run: RunInfo) -> list[RunInfo]:
    """Return a run and, newest first, the runs whose equal chunks it holds: a recheck holds those of an earlier run.

    A run by ``--since`` has a result of its own for every table. All but the run itself have their plans.
    """
    runs = [run]
    while before := runs[-1].facts.get("rechecks"):
        runs.append(store.load_run(str(before)))
    return runs


def whole_reads(store: ResultStore, chain: Sequence[RunInfo]) -> dict[str, str]:
    """Return by table pair the run that began to read it whole; one by ``--since`` rests on an earlier run for that.

    ``chain`` are a run and those whose equal chunks it holds, with their plans, the newest first (``carried_from``).
    """
    reads: dict[str, str] = {}
    for run in chain:
        rests: dict[str, str] = {}
        for result in store.table_results(run.run_id) if run.facts.get("since_run") else ():
            if isinstance(base := result.details.get("rests_on"), Mapping):
                rests[result.pair] = str(base.get("run"))
        for pair in planned_pairs(run):
            if pair not in reads:
                reads[pair] = rests.get(pair, run.run_id)
            elif pair not in rests and any(reads[pair] == one.run_id for one in chain):
                reads[pair] = run.run_id  # the recheck holds its equal chunks
    return reads


def run_in(store: ResultStore, run_id: str) -> RunInfo | None:
    """Return a run that another one rests on; None where it is not in the store any more."""
    try:
        return store.load_run(run_id)
    except MigverifyError:
        return None


def position_of_run(runs: Sequence[RunInfo], name: str) -> Position:
    """Return where a source was when the first row was read that a run rests on.

    ``runs`` are the run and those whose equal chunks it carried over, the oldest last (``carried_from``): a row of a
    carried chunk that was written since it was read is to be read again. Of a watch it is where its last process began.
    """
    base = runs[-1]
    text = str(base.facts.get(BEGAN, {}).get(name) or base.facts.get("endpoints", {}).get(name, {}).get("position", ""))
    try:
        return parse_position(text)
    except UsageError as error:
        raise UsageError(
            f"run {base.run_id} does not say at which position {name} was when it began ({text or 'nothing'})",
            hint=f"Let the account of {name} read the position (on MySQL: REPLICATION CLIENT, and log_bin is on), run"
            " `migverify tables verify`, and start from that run.",
        ) from error


def began_at(store: ResultStore, run: RunInfo, name: str) -> Position | None:
    """Return the place from which on a watch follows an endpoint, None where the store does not say."""
    since = str(run.facts.get("since") or "")
    try:
        if run.facts.get("start"):
            return parse_position(str(run.facts["start"]))
        begun = carried_from(store, store.load_run(since)) if since else [run]
        return position_of_run(begun, name)
    except UsageError:
        return None
