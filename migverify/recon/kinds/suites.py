"""The kind ``expectations``: a suite of Great Expectations becomes a rule of kind ``no_rows``.

Its rows are those of the dataset that break expectations, and one for each expectation about more than single rows (a
number of all rows, ``mostly``, the catalog) that does not hold: the last part of its key marks it. The parts of the
dataset on one endpoint are one batch, which one statement reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from migverify.errors import ConfigError
from migverify.model import ColumnDef
from migverify.recon.build import Built, RuleInputs, time_checks
from migverify.recon.expectations import Expectation, LooksAt, exact, in_catalog, read_suite, refuse_dataset
from migverify.recon.judging import JudgeInputs
from migverify.recon.kinds.rows import KIND, NoRows
from migverify.recon.model import Class, Dataset, Deviation, QueryPart, RuleFinding
from migverify.recon.relation import Pairing, SqlRead
from migverify.recon.rule import Problems, Rule
from migverify.recon.sides import Column, OpenPart
from migverify.sql import expectations as sql
from migverify.sql.canonical import FAMILIES
from migverify.sql.quoting import quote_name
from migverify.sql.recon import select_sql
from migverify.sql.union_text import TEXT

DEFAULT_LIMIT = 1000


class Expectations(Rule):
    """A Great Expectations suite holds."""

    accepts_no_rows: ClassVar[bool] = True
    each_read_proves: ClassVar[bool] = True

    kind: Literal["expectations"] = KIND
    suite: str | list[dict[str, Any]] = Field(
        description="Path of a suite (JSON) from the folder of this file, or a list of expectations."
    )
    result_format: Literal["BOOLEAN_ONLY", "BASIC", "SUMMARY", "COMPLETE"] | None = Field(
        default=None, description="`BASIC` and `BOOLEAN_ONLY` count unexpected rows and list none. Default: `SUMMARY`."
    )
    limit: int | None = Field(
        default=None, ge=1, description="How many findings are kept; all are counted. Default: 1000."
    )

    @cached_property
    def expectations(self) -> tuple[Expectation, ...]:
        """The suite, read once: a file that is changed during a run changes nothing in it."""
        return read_suite(self.suite, Path(self.place.file).parent)

    @property
    def finding_limit(self) -> int:
        return self.limit or DEFAULT_LIMIT

    @property
    def key_is_row(self) -> bool:
        return not self.key

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        try:
            refuse_dataset(self.expectations, sides[0])
        except ConfigError as error:
            yield ("suite",), error.message, error.hint

    def sentence(self, source: str, target: str) -> str:
        count = "a file" if isinstance(self.suite, str) else f"{len(self.suite)} expectations"
        return f"{source} meets {count} of Great Expectations"

    def relations(self, inputs: RuleInputs) -> Built:
        endpoints: dict[str, list[OpenPart]] = {}
        for part in inputs.source.parts:
            endpoints.setdefault(getattr(part.part, "endpoint", ""), []).append(part)
        try:
            refuse_dataset(self.expectations, inputs.source.dataset)
            batches = [self._batch(inputs, endpoints, name) for name in sorted(endpoints)]
        except ConfigError as error:
            raise inputs.refusal.error(error.message, error.hint) from error
        side, names = replace(inputs.source, parts=tuple(part for part, _ in batches)), inputs.source.names
        key, shown = inputs.rule_key or inputs.source.dataset.key, names
        if key:
            used = dict.fromkeys(name for one in self.expectations if self._lists(one) for name in one.columns)
            shown = tuple(n for n in used if all(p.columns[n].definition.data_type in FAMILIES for p in side.parts))
        else:
            key = tuple(name for name in names if inputs.own_slot(name, "column").unified.compare == "text")
        rows = NoRows(name=self.name, kind="no_rows", source=self.source, show=(sql.FOUND, *shown))
        built = rows.relations(replace(inputs, source=side, rule_key=(*key, sql.MARK)))
        reads = tuple(
            replace(read, population=population) if isinstance(read, SqlRead) else read
            for read, (_, population) in zip(built.source.reads, batches, strict=True)
        )
        return replace(built, source=replace(built.source, reads=reads), checks=time_checks(inputs.sides))

    def _lists(self, one: Expectation) -> bool:
        """Whether the rows that break an expectation are read."""
        listed = self.result_format not in ("BASIC", "BOOLEAN_ONLY")
        return listed and one.known.looks_at is LooksAt.ROWS and one.mostly == 1

    def _batch(self, inputs: RuleInputs, endpoints: dict[str, list[OpenPart]], endpoint: str) -> tuple[OpenPart, str]:
        """Return what breaks the suite on an endpoint as a part, and the statement that counts what is looked at."""
        parts, names = endpoints[endpoint], inputs.source.names
        money = inputs.money.column if inputs.money is not None else ""
        definitions = [{name: column.definition for name, column in part.columns.items()} for part in parts]
        suites = [[exact(one, known, money) for one in self.expectations] for known in definitions]
        known, broken, answers = definitions[0], dict[int, str](), dict[str, sql.AllRowsSql]()
        for one in suites[0]:
            if self._lists(one):
                broken[one.number] = sql.bad(one.kind, [known[name] for name in one.columns], one.arguments)
            else:
                mark = f"{one.number} {endpoint}" if len(endpoints) > 1 else str(one.number)
                answers[mark] = _answer(one, known)
        selects = [select_sql(part.table, [(n, part.columns[n].sql) for n in names], part.where) for part in parts]
        copies = [[known[name] for name in one.columns] for one in suites[0] if one.kind in sql.UNIQUE]
        shards = {part.part.shard for part in parts}
        columns = {name: Column(known[name], quote_name(name)) for name in names}
        made = {name: Column(replace(TEXT, name=name), quote_name(name)) for name in (sql.MARK, sql.FOUND)}
        described = parts[0].described
        part = OpenPart(
            QueryPart(endpoint, "", shards.pop() if len(shards) == 1 else ""),
            sql.suite_sql(sql.batch_of(selects, copies), names, broken, answers), columns=columns | made,
            # The union has neither the indexes nor the key ranges of its first part.
            described=described and replace(described, plain={}, indexes=(), rows=-1, cut=None, row_bytes=-1),
        )  # fmt: skip
        return part, sql.counts(sql.batch_of(selects), len(answers))

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        rows = pairing.source
        if rows is None:
            return None
        *key, mark = pairing.key
        if mark is None:
            names = [one.description or one.label for one in self._broken(rows.values[0])]
            words = "; ".join(names) + (f"; {rows.count:,} rows with different values" if rows.differing else "")
            shown = [column.name for column in inputs.source.values[1:]] if inputs.show else []
            values = tuple(Deviation(name, inputs.text(rows, pairing.key, name), None, "value") for name in shown)
            of_row = replace(pairing, key=tuple(key))
            return inputs.finding(of_row, Class.VIOLATION, words, values, risk=inputs.risk(pairing))
        number, _, endpoint = mark.partition(" ")
        one, observed = self.expectations[int(number) - 1], rows.values[0]
        words = one.unmet(observed) if inputs.show or one.known.looks_at is LooksAt.ROWS else "it does not hold"
        count = int((observed or "").partition(" of ")[0]) if one.known.looks_at is LooksAt.ROWS else 0
        return RuleFinding(
            self.name, (one.label, endpoint) if endpoint else (one.label,), Class.VIOLATION, Class.VIOLATION,
            f"{one.description or one.label}: {words}", counts=(count, 0), shard=", ".join(rows.shards),
        )  # fmt: skip

    def unmet(self, pairing: Pairing, finding: RuleFinding) -> Iterator[str]:
        if pairing.key[-1] is not None:
            yield finding.message
        elif pairing.source is not None:
            yield from (f"{one.label} does not hold" for one in self._broken(pairing.source.values[0]))

    def _broken(self, numbers: str | None) -> list[Expectation]:
        return [self.expectations[int(number) - 1] for number in (numbers or "").split(",") if number]


def _answer(one: Expectation, known: dict[str, ColumnDef]) -> sql.AllRowsSql:
    columns = [known[name] for name in one.columns]
    if one.known.looks_at is LooksAt.CATALOG:
        observed, holds = in_catalog(one, known)
        return sql.of_constant(observed, holds=holds)
    if one.known.looks_at is LooksAt.ALL:
        return sql.of_all_rows(one.kind, columns[0] if columns else None, one.arguments)
    return sql.of_share(one.kind, columns, one.arguments, one.mostly)
