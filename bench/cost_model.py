"""What proofs and watches cost at sizes that nobody has on a desk: unit costs, and what follows from them.

The unit costs are measured by ``python -m bench.cost`` and recorded in ``cost_units.yaml``; everything here is
arithmetic on them. A cost is linear in what is read: a table has a price of its own (its definitions, its count, the
edges of its key), each value one for being made text, each byte one for being read and hashed. A row has none of
its own beyond that, as its framing grows with its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

UNITS = Path(__file__).with_name("cost_units.yaml")
SIDES = ("source", "target", "client")
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of the source, the target and the machine that runs migverify."""

    source: float = 0.0
    target: float = 0.0
    client: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, side) + getattr(other, side) for side in SIDES))

    def times(self, count: float) -> Cost:
        """Return the cost of ``count`` of them."""
        return Cost(*(getattr(self, side) * count for side in SIDES))


@dataclass(frozen=True, slots=True)
class Shape:
    """What is read: tables, values (rows times columns) and bytes of data as the source counts them."""

    tables: float
    values: float
    bytes: float

    def __add__(self, other: Shape) -> Shape:
        return Shape(self.tables + other.tables, self.values + other.values, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Units:
    """The price of one of each: for a full proof, a second proof and a watch.

    Attributes
    ----------
    start
        One command, before it has read anything.
    table, value, byte
        A full proof.
    key
        A second proof: one row that was written since, read again by its key on both sides; reading its place in the
        binlog is in it.
    change
        A watch beside a load: one row change, with all that follows from it.
    network_table, network_chunk
        Bytes between migverify and one side.
    chunk_values
        Values in one chunk, as they were measured.
    """

    start: Cost
    table: Cost
    value: Cost
    byte: Cost
    key: Cost
    change: Cost
    network_table: float
    network_chunk: float
    chunk_values: float

    def proof(self, shape: Shape) -> Cost:
        """Return the cost of a full proof."""
        return (
            self.start + self.table.times(shape.tables) + self.value.times(shape.values) + self.byte.times(shape.bytes)
        )

    def second_proof(self, tables: float, keys: float) -> Cost:
        """Return the cost of a proof ``--since`` another, of ``keys`` rows that were written."""
        return self.start + self.table.times(tables) + self.key.times(keys)

    def watch(self, changes_a_second: float) -> Cost:
        """Return the cost of one second of a watch."""
        return self.change.times(changes_a_second)

    def network(self, shape: Shape) -> float:
        """Return the bytes of a full proof between migverify and one side."""
        return shape.tables * self.network_table + shape.values / self.chunk_values * self.network_chunk


def hours(cost: Cost, connections: int, source_cores: float, target_cores: float, client_cores: float) -> float:
    """Return how long a run takes at least: by the side that is busy longest.

    A statement of a proof uses one core of a server at most, so connections bound the cores as the machine does.
    """
    return max(
        cost.source / min(connections, source_cores),
        cost.target / min(connections, target_cores),
        cost.client / client_cores,
    ) / HOUR  # fmt: skip


def fit(shapes: Sequence[Shape], costs: Sequence[float]) -> tuple[float, ...]:
    """Return the price of a table, a value and a byte that explain the costs best, none below 0.

    Errors count relative to the cost, so that a small table says as much as a large one. Least squares; a price that
    comes out below 0 is taken out, and the others are found again.

    Raises
    ------
    ValueError
        Without a cost above 0.
    """
    rows = [(shape.tables, shape.values, shape.bytes) for shape in shapes]
    matrix, wanted = np.array(rows, dtype=float), np.array(costs, dtype=float)
    if not len(wanted) or (wanted <= 0).any():
        raise ValueError("every cost that prices are found from must be above 0")
    matrix = matrix / wanted[:, None]
    used = list(range(matrix.shape[1]))
    while used:
        scale = np.maximum(np.abs(matrix[:, used]).max(axis=0), np.finfo(float).tiny)
        found = np.linalg.lstsq(matrix[:, used] / scale, np.ones(len(wanted)), rcond=None)[0] / scale
        if (found >= 0).all():
            return tuple(float(found[used.index(n)]) if n in used else 0.0 for n in range(matrix.shape[1]))
        used.pop(int(found.argmin()))
    return (0.0,) * matrix.shape[1]


def read_units(path: Path = UNITS) -> Units:
    """Return the recorded unit costs; raises KeyError for one that is missing."""
    document: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Units(**{one.name: _price(document[one.name]) for one in fields(Units)})


def _price(value: Any) -> Any:
    # YAML 1.1 takes 1e-07 for text: a number needs a dot there.
    return Cost(**{side: float(value[side]) for side in SIDES}) if isinstance(value, Mapping) else float(value)


def write_units(units: Units, about: str, path: Path = UNITS) -> None:
    """Record unit costs, with a line about where they come from."""
    lines = [f"# {about}"]
    for one in fields(Units):
        value = getattr(units, one.name)
        if isinstance(value, Cost):
            lines.append(f"{one.name}: {{{', '.join(f'{side}: {getattr(value, side):.4g}' for side in SIDES)}}}")
        else:
            lines.append(f"{one.name}: {value:.6g}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
