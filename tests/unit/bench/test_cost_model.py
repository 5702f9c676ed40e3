"""The cost model: prices are found again, and no cost falls when more is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cost_model import Cost, Shape, Units, fit, hours, read_units, write_units
from bench.paper import Fleet, tables

UNITS = Units(
    start=Cost(0.01, 0.02, 0.5), table=Cost(0.001, 0.002, 0.01), value=Cost(1e-7, 2e-7, 1e-9),
    byte=Cost(1e-8, 1e-8, 0.0), key=Cost(1e-5, 5e-5, 1e-4), change=Cost(2e-5, 9e-5, 6e-5),
    network_table=4000.0, network_chunk=600.0, chunk_values=100_000.0,
)  # fmt: skip
sizes = st.floats(0, 1e13)
shapes = st.builds(Shape, sizes, sizes, sizes)


@given(st.tuples(st.floats(1e-3, 1), st.floats(1e-9, 1e-6), st.floats(1e-11, 1e-8)))
def test_prices_are_found_again_from_exact_costs(prices: tuple[float, float, float]) -> None:
    seen = [Shape(1, 1e6, 2e7), Shape(1, 3e7, 1e8), Shape(2, 5e6, 9e8), Shape(1, 2e5, 1e6)]
    costs = [s.tables * prices[0] + s.values * prices[1] + s.bytes * prices[2] for s in seen]
    assert fit(seen, costs) == pytest.approx(prices, rel=1e-5)


def test_a_price_is_never_below_zero() -> None:
    seen = [Shape(0, 1e6, 1e7), Shape(0, 2e6, 4e7), Shape(0, 3e6, 3e7)]
    costs = [s.values * 1e-7 - s.bytes * 1e-10 for s in seen]
    found = fit(seen, costs)
    assert min(found) >= 0
    assert found[1] > 0


@pytest.mark.parametrize("costs", [[], [0.0], [1.0, -1.0]])
def test_costs_that_prove_nothing_are_refused(costs: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        fit([Shape(1, 1, 1)] * len(costs), costs)


@given(shapes, shapes)
def test_reading_more_never_costs_less(one: Shape, more: Shape) -> None:
    less, all_ = UNITS.proof(one), UNITS.proof(one + more)
    assert (all_.source, all_.target, all_.client) >= (less.source, less.target, less.client)
    assert UNITS.network(one + more) >= UNITS.network(one)


@given(shapes, st.integers(1, 64), st.integers(1, 64))
def test_more_connections_never_take_longer(shape: Shape, connections: int, more: int) -> None:
    cost = UNITS.proof(shape)
    assert hours(cost, connections + more, 16, 16, 2) <= hours(cost, connections, 16, 16, 2)


def test_units_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "units.yaml"
    write_units(UNITS, "a test", path)
    assert read_units(path) == UNITS
    path.write_text(path.read_text().replace("start:", "other:"))
    with pytest.raises(KeyError):
        read_units(path)


def test_a_missing_side_is_no_zero(tmp_path: Path) -> None:
    path = tmp_path / "units.yaml"
    write_units(UNITS, "a test", path)
    path.write_text(path.read_text().replace(", client: 0.0001}", "}"))
    with pytest.raises(KeyError):
        read_units(path)


def test_the_page_holds_the_tables_of_the_model() -> None:
    page = Path("docs/scale.md").read_text(encoding="utf-8")
    for table in tables(Fleet(), read_units()).split("\n\n"):
        assert table in page
