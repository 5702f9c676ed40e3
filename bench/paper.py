"""The tables of ``docs/scale.md``: what a fleet costs, by the recorded unit costs.

``python -m bench.paper`` prints them; a test compares them with the page. Other sizes: ``--terabytes``, ``--tables``,
``--services``, ``--connections``, ``--cores``, ``--changes``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bench.cost_model import Cost, Shape, Units, hours, read_units

BYTES_A_VALUE = 9.0
"""Text of one value: 8 to 12 in TPC-H's large tables."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Services of the same size, each a pair of servers of its own.

    Attributes
    ----------
    terabytes
        Text of all values, all services.
    tables, services
        All tables, and over how many services they are spread.
    connections
        Of one run to each of its two servers.
    cores
        Of each server that a run may keep busy.
    changes
        Row changes a second, all services.
    """

    terabytes: float = 10.0
    tables: int = 20_000
    services: int = 125
    connections: int = 4
    cores: int = 4
    changes: float = 50_000.0

    @property
    def shape(self) -> Shape:
        """What a full proof of all services reads."""
        return Shape(self.tables, self.terabytes * 1e12 / BYTES_A_VALUE, self.terabytes * 1e12)

    @property
    def one(self) -> Shape:
        """What a full proof of one service reads."""
        whole = self.shape
        return Shape(*(getattr(whole, name) / self.services for name in ("tables", "values", "bytes")))


WRITTEN = (0.0001, 0.001, 0.01)
COLUMNS = 12


def proofs(fleet: Fleet, units: Units) -> list[tuple[str, ...]]:
    """Return rows of the table of proofs: what, CPU hours of both sides and the client, network, hours of a service."""
    found = [_row("full proof", units.proof(fleet.one), units.network(fleet.one), fleet)]
    rows = fleet.one.values / COLUMNS
    for share in WRITTEN:
        cost = units.second_proof(fleet.one.tables, rows * share)
        found.append(_row(f"second proof, {share:.2%} of the rows written", cost, None, fleet))
    return found


def _row(what: str, one: Cost, network: float | None, fleet: Fleet) -> tuple[str, ...]:
    whole = one.times(fleet.services / 3600)
    return (
        what, *(f"{getattr(whole, side):,.1f}" for side in ("source", "target", "client")),
        "-" if network is None else f"{network * fleet.services / 1e9:,.1f}",
        f"{hours(one, fleet.connections, fleet.cores, fleet.cores, 1):,.2f}",
    )  # fmt: skip


def watches(fleet: Fleet, units: Units) -> list[tuple[str, ...]]:
    """Return rows of the table of watches: changes a second, cores of source, target and client."""
    return [
        (what, *(f"{getattr(units.watch(rate), side):,.2f}" for side in ("source", "target", "client")))
        for what, rate in (("one service", fleet.changes / fleet.services), ("all services", fleet.changes))
    ]


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


PROOFS = ("", "source, CPU h", "target, CPU h", "client, CPU h", "network a side, GB", "hours of one service at least")
WATCHES = ("watch of", "source, cores", "target, cores", "client, cores")


def tables(fleet: Fleet, units: Units) -> str:
    """Return both tables as they stand on the page."""
    return "\n\n".join((markdown(PROOFS, proofs(fleet, units)), markdown(WATCHES, watches(fleet, units))))


def main() -> None:
    """Print the tables of the fleet that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (("terabytes", float), ("tables", int), ("services", int), ("connections", int), ("cores", int),
                       ("changes", float)):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=getattr(Fleet(), name))
    print(tables(Fleet(**vars(parser.parse_args())), read_units()))


if __name__ == "__main__":
    main()
