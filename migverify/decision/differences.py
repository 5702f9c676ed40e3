"""How what evidence rests on differs from what is there now: which server, table or setting is another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from migverify.decision.model import Basis, DecisionPart, basis_of
from migverify.model import RunInfo
from migverify.tables.run_facts import compared_address, endpoint_addresses

LEVEL = "service level "
"""How settings begin that concern latency alone."""
_SHOWN = 5
_OWN_SERVERS = "--own-servers"
"""How ``workload clients`` is ordered to start a pair of servers, which is nobody's."""
_OTHERS = "foreign keys, checks, triggers, partitions or options"


def differences(
    then: Basis, now: Basis, clones: Sequence[Mapping[str, str]], part: DecisionPart, *, needs_capture: bool
) -> Iterator[str]:
    """Yield why evidence of a part is not of the service as it is now; nothing: it is.

    Parameters
    ----------
    clones
        Further pairs, addresses by endpoint, whose evidence counts.
    """
    if not any(same_pair(then.pair, pair) for pair in (now.pair, *clones)):
        yield f"it is of another pair: {_addresses(then.pair)}; this one is {_addresses(now.pair)}"
    yield from _servers(then, now)
    for name in sorted(now.versions):
        if then.versions.get(name) != now.versions[name]:
            before = then.versions.get(name) or "a version that was not recorded"
            yield f"{name} was {before} then, and is {now.versions[name]} now"
    if not then.schema or then.schema != now.schema:
        yield _definitions(then, now)
    if not then.configuration or then.configuration != now.configuration:
        yield from _configuration(then, now, part)
    if needs_capture and then.identities and (not then.capture or then.capture != now.capture):
        yield "it is of another capture"


def _servers(then: Basis, now: Basis) -> Iterator[str]:
    """Yield which server is another one, or is not known; one address may lead to another server by now."""
    if not then.identities:
        yield "which servers it is of is not known: it was made by an earlier release, or the servers did not tell"
        return
    for name in sorted(now.pair):
        before, after = then.identities.get(name, ""), now.identities.get(name, "")
        if not before:
            yield f"which server {name} was is not known: it did not tell then"
        elif compared_address(then.pair.get(name, "")) != compared_address(now.pair[name]):
            continue  # a clone, which is another server
        elif not after:
            yield (
                f"which server {name} is cannot be read now (on TiDB: GRANT SELECT ON mysql.tidb to the account of"
                " the configuration)"
            )
        elif before != after:
            yield f"{name} is another server at the same address: it was {before} then, and is {after} now"


def _definitions(then: Basis, now: Basis) -> str:
    if not then.tables or not now.tables:
        return "the definitions of the tables are other ones now than they were then"
    changed = [
        f"{name} {_table(then.tables.get(name), now.tables.get(name))}"
        for name in sorted({*then.tables, *now.tables})
        if then.tables.get(name) != now.tables.get(name)
    ]
    what = _listed(changed) or "views, routines or events changed"
    return f"the definitions are other ones now than they were then: {what}"


def _table(then: Mapping[str, str] | None, now: Mapping[str, str] | None) -> str:
    if then is None or now is None:
        return "is new" if then is None else "is gone"
    parts = [
        f"{name} {'is new' if name not in then else 'is gone' if name not in now else 'changed'}"
        for name in sorted({*then, *now} - {""})
        if then.get(name) != now.get(name)
    ]
    if len(then) == 1 or len(now) == 1:
        return "changed"  # of many tables no parts are kept
    return f"({_listed(parts) or f'{_OTHERS} changed'})"


def _configuration(then: Basis, now: Basis, part: DecisionPart) -> Iterator[str]:
    """Yield which settings changed, save those that do not concern the part."""
    before, after = then.settings, now.settings
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    if not before or not after or not changed:
        yield "the configuration said otherwise then about tables, routes, sessions or service levels"
        return
    if part is not DecisionPart.LATENCY:
        changed = [name for name in changed if not name.startswith(LEVEL)]
    texts = [f"{name} was {before.get(name, 'not set')} then, and is {after.get(name, 'not set')} now"
             for name in changed]  # fmt: skip
    if texts:
        yield f"the configuration changed: {_listed(texts)}"


def _listed(texts: Sequence[str]) -> str:
    more = f"; {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more


def same_pair(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two pairs are the same one; one that names no address is none."""
    return bool(one) and _compared(one) == _compared(other)


def _compared(pair: Mapping[str, str]) -> dict[str, str]:
    return {name: compared_address(address) for name, address in pair.items()}


def run_addresses(run: RunInfo) -> dict[str, str]:
    """Return ``host:port`` of the endpoints that a run keeps, by name; runs of several kinds keep them otherwise."""
    basis = basis_of(run.facts)
    return endpoint_addresses(run.facts) if basis is None else _compared(basis.pair)


def is_of_another_pair(run: RunInfo, now: Basis, clones: Sequence[Mapping[str, str]]) -> bool:
    """Whether a run says that it asked other servers than the pair and its clones; one that does not say may have not.

    One server may have several addresses: the same identity is the same server.
    """
    if _OWN_SERVERS in run.command.split():
        return True
    then, named = basis_of(run.facts), run_addresses(run)
    identities = {} if then is None else then.identities
    same = {name for name, who in identities.items() if who and who == now.identities.get(name)}
    others = [_compared(pair) for pair in (now.pair, *clones)]
    return all(any(named.get(name) not in ("", None, pair[name]) for name in pair.keys() - same) for pair in others)


def _addresses(pair: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {address}" for name, address in sorted(pair.items())) or "servers that were not recorded"
