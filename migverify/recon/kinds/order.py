"""Kinds that look at order: legal changes of a state, sequences without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from migverify.config.fields import Many
from migverify.model import ColumnDef
from migverify.recon.build import Built, RuleInputs, carried_slots, rows_of, time_checks
from migverify.recon.fields import Names, ScalarText, nearest
from migverify.recon.judging import JudgeInputs, word
from migverify.recon.kinds.rows import KIND
from migverify.recon.model import ChangesPart, Class, Dataset, Deviation, QueryPart, RuleFinding, TablePart
from migverify.recon.relation import ChangeRead, Combine, JoinFilter, Pairing, Relation, SqlRead
from migverify.recon.rule import Problems, Rule
from migverify.recon.sides import BEFORE, OpenPart, Slot, expressions, read_column_of
from migverify.sql import recon as sql
from migverify.sql import recon_order
from migverify.sql.key_range import KeyColumn
from migverify.sql.union_text import TEXT

States = Annotated[Many[ScalarText] | None, Field(min_length=1)]


class Transitions(Rule):
    """Every change of state is allowed."""

    needs_key: ClassVar[bool] = True

    kind: Literal["transitions"] = KIND
    column: str = Field(min_length=1, description="Column of the state.")
    allowed: dict[str, Many[ScalarText]] = Field(
        min_length=1, description="From each state, the states that may follow."
    )
    initial: States = Field(default=None, description="States in which a row may begin. Default: any.")
    final: States = Field(default=None, description="States that nothing may follow.")
    order: str | None = Field(
        default=None, min_length=1, description="Column by which the rows of a history table follow each other."
    )

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        changes = [part for part in sides[0].parts if isinstance(part, ChangesPart)]
        if len(changes) < len(sides[0].parts):
            if self.order is None:
                hint = "Write order: the column that sorts a key."
                yield ("kind",), "transitions in a history table need an order", hint
        elif self.order is not None:
            yield ("order",), "changes have an order of their own", "Remove `order`."
        elif any(part.state for part in changes):
            yield ("source",), f"dataset {sides[0].name} keeps only the last change of a key", "Remove `state: true`."
        known = {*self.allowed, *(state for states in self.allowed.values() for state in states)}
        for option, named in (("initial", self.initial), ("final", self.final)):
            for state in named or ():
                if state not in known:
                    text = f"{option}: the state {state} is not in `allowed`"
                    yield (option,), text, nearest(state, known, "states")
        for state in self.final or ():
            if following := self.allowed.get(state):
                yield ("final",), f"{state} is final, and `allowed` lets {', '.join(following)} follow", ""

    def sentence(self, source: str, target: str) -> str:
        steps = f"{len(self.allowed)} states' allowed steps"
        return f"{self.column} of {source} by {', '.join(self.key)} moves along {steps}"

    def relations(self, inputs: RuleInputs) -> Built:
        kinds = {isinstance(part.part, ChangesPart) for part in inputs.source.parts}
        if len(kinds) > 1:
            raise inputs.refusal.error(f"dataset {inputs.source.dataset.name} mixes change streams with tables")
        return self._changes(inputs) if kinds == {True} else self._history(inputs)

    def _changes(self, inputs: RuleInputs) -> Built:
        # A change is named by its key and both states, so that one that happens twice is still one finding.
        key = inputs.slots([*inputs.key, "_op", BEFORE + self.column, self.column], "key", exact=True)
        carried, times = carried_slots(inputs, [s.names[0] or "" for s in key])
        time = inputs.own_slot("_time", "time column")
        relation = rows_of(inputs, 0, key, (), [*carried, time])
        reads = tuple(replace(r, changed=self.column) if isinstance(r, ChangeRead) else r for r in relation.reads)
        columns = tuple(s.read_column for s in (*carried, time))
        return Built(replace(relation, reads=reads), None, JoinFilter(all=True), columns, (times[0] or "_time", None))

    def _history(self, inputs: RuleInputs) -> Built:
        if self.order is None:
            raise inputs.refusal.error("a rule of kind transitions needs `order`, the name of a column")
        key = inputs.slots([*inputs.key, self.order], "key", exact=True)
        state = inputs.own_slot(self.column, "state", exact=True)
        reads = tuple(self._history_read(inputs, part, key, state) for part in inputs.source.parts)
        values = (replace(TEXT, name=BEFORE + self.column), replace(TEXT, name=self.column))
        return _ordered(inputs, reads, tuple(s.definition(0) for s in key), values)

    def _history_read(self, inputs: RuleInputs, part: OpenPart, key: list[Slot], state: Slot) -> SqlRead:
        if not isinstance(part.part, TablePart | QueryPart):
            raise inputs.refusal.error("the order of a history is asked of a database", "Use a table or sql.")
        made = expressions(part, 0, [*key, state])
        order = part.columns[key[-1].names[0] or ""]
        parted = [(part.columns[s.names[0] or ""].sql, text) for s, text in zip(key[:-1], made.texts[:-2], strict=True)]
        time, recent, outer = _window_of(inputs, part)
        table = recon_order.transitions_sql(
            part.table, parted, made.texts[-1], (order.sql, made.texts[-2]), time, sql.both(part.base, recent[0]),
            recent[1],
        )  # fmt: skip
        steps = [(state, list(following)) for state, following in self.allowed.items()]
        illegal = recon_order.illegal_condition(
            steps, list(self.initial) if self.initial else None, list(self.final or ())
        )  # fmt: skip
        texts = tuple(f"h.k{place}" for place in range(len(parted)))
        return SqlRead(
            endpoint=part.part.endpoint, table=table, key=(*texts, "h.o"), values=("h.p", "h.s"),
            where=sql.both(outer.replace("t.", "h."), illegal), shard=part.part.shard,
            strings=(*(s.unified.string for s in key), True, True),
            lookup=tuple(KeyColumn(text, text, "text", nullable=True) for text in (*texts, "h.o")),
            population=sql.rows_counted_sql(part.table, part.where),
        )  # fmt: skip

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        rows = pairing.source
        if rows is None:
            return None
        after = inputs.text(rows, pairing.key, self.column)
        before = inputs.text(rows, pairing.key, BEFORE + self.column)
        operation = inputs.text(rows, pairing.key, "_op") or ("insert" if before is None else "update")
        words = self._wrong(operation, before, after, show=inputs.show)
        if not words:
            return None
        times = [inputs.text(rows, pairing.key, name) for name in ("_time", str(self.order))]
        when = next((text for text in times if text), None)
        words += f" (at {when})" if when and inputs.show else ""
        return inputs.finding(
            pairing, Class.VIOLATION, words, (Deviation(self.column, before, after, "transition"),),
            risk=inputs.risk(pairing), about=inputs.key_words(pairing.key[: max(1, len(self.key))]),
        )  # fmt: skip

    def _wrong(self, operation: str, before: str | None, after: str | None, *, show: bool) -> str:
        initial, final = self.initial or (), self.final or ()
        named = {*self.allowed, *initial, *final, *(state for states in self.allowed.values() for state in states)}

        def shown(state: str | None) -> str:  # the states that the rule itself names are no secret
            if state is None:
                return "nothing"
            return state if show or state in named else "(a state that the rule does not know)"

        if operation == "insert":
            return f"begins as {shown(after)}" if initial and after not in initial else ""
        if operation == "delete" or before == after:
            return ""
        if before in final:
            return f"{shown(before)} is final, and became {shown(after)}"
        if before is None or after is None or after not in self.allowed.get(before, ()):
            return f"{shown(before)} became {shown(after)}, which is not allowed"
        return ""


def _ordered(
    inputs: RuleInputs, reads: tuple[SqlRead, ...], key: tuple[ColumnDef, ...], values: tuple[ColumnDef, ...]
) -> Built:
    relation = Relation(inputs.source.dataset.name, reads, key, values, (Combine.ROW,) * len(values))
    columns = tuple(read_column_of(value) for value in values)
    return Built(relation, None, JoinFilter(all=True), columns, checks=time_checks(inputs.sides[:1]))


def _window_of(inputs: RuleInputs, part: OpenPart) -> tuple[str, tuple[str, str], str]:
    """Return the time's SQL; conditions on all rows and on those that matter; and the one on what comes out (``t.t``).

    What lies before the window is read as well: a row of the window follows it.
    """
    name = inputs.source.dataset.time
    bounds = inputs.source.window
    if name is None or bounds is None or name not in part.columns:
        return "NULL", ("", ""), ""
    time = part.columns[name]
    until = sql.before_condition(time.sql, bounds[1])
    inside = sql.window_condition(time.sql, time.definition, *bounds)
    return time.sql, (until, inside), sql.window_condition("t.t", time.definition, *bounds)


class NumberSequence(Rule):
    """Numbers rise without a gap."""

    asks_all_rows: ClassVar[bool] = True

    kind: Literal["sequence"] = KIND
    column: str = Field(min_length=1, description="Column of the number.")
    groups: Names = Field(default=(), description="Columns of a group. Default: all rows are one.")
    gaps: Literal["report"] = Field(default="report", description="Each gap is a finding.")
    start: int | None = Field(default=None, description="The number that each group has to begin with.")

    def sentence(self, source: str, target: str) -> str:
        return f"{self.column} of {source} rises without a gap{' per ' + ', '.join(self.groups) if self.groups else ''}"

    def relations(self, inputs: RuleInputs) -> Built:
        key = inputs.slots(self.groups, "group", exact=True)
        one = inputs.own_slot(self.column, "number", exact=True)
        if one.unified.family not in ("integer", "decimal") or one.unified.widest.scale:
            found = one.unified.widest.column_type
            raise inputs.refusal.error(f"{self.column} is {found}: a sequence needs whole numbers")
        number = ColumnDef(self.column, 0, "decimal", "decimal(65,0)", True, precision=sql.LARGEST, scale=0)
        values = (replace(number, name="gap_from"), replace(number, name="gap_to"))
        return _ordered(inputs, (self._read(inputs, key),), (*(s.definition(0) for s in key), number), values)

    def _read(self, inputs: RuleInputs, key: list[Slot]) -> SqlRead:
        parts = [(part, part.part.endpoint) for part in inputs.source.parts
                 if isinstance(part.part, TablePart | QueryPart)]  # fmt: skip
        endpoints = {endpoint for _, endpoint in parts}
        if len(parts) != len(inputs.source.parts) or len(endpoints) != 1:
            raise inputs.refusal.error(
                "a sequence is looked at by one database, and this dataset lies in several",
                "Write a rule for each shard, or read the union from one endpoint.",
            )
        first = parts[0][0]
        texts = expressions(first, 0, key).texts
        time, recent, outer = _window_of(inputs, first)
        tables = [(part.table, sql.both(part.base, recent[0])) for part, _ in parts]
        table = recon_order.sequence_sql(tables, texts, first.columns[self.column].sql, time)
        gap_from, gap_to, gap = recon_order.gap_parts(self.start)
        shown = tuple(f"s.g{place}" for place in range(len(self.groups)))
        lookup = (*(KeyColumn(text, text, "text", nullable=True) for text in shown),
                  KeyColumn(gap_to, gap_to, "decimal", nullable=True))  # fmt: skip
        counted = sql.counts_added_sql([sql.rows_counted_sql(part.table, part.where) for part, _ in parts])
        return SqlRead(
            endpoint=endpoints.pop(), table=table, key=(*shown, gap_to), values=(gap_from, gap_to),
            where=sql.both(outer.replace("t.", "s."), gap), strings=(*(s.unified.string for s in key), *(True,) * 3),
            lookup=lookup, population=counted,
        )  # fmt: skip

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        rows = pairing.source
        if rows is None:
            return None
        first, last = (inputs.text(rows, pairing.key, name) for name in ("gap_from", "gap_to"))
        # The last part of the key is the end of the gap, which the words name.
        about = inputs.key_words(pairing.key[:-1]) if len(pairing.key) > 1 else inputs.names[0]
        missing = f"{word(first)} is" if first == last else f"{word(first)} to {word(last)} are"
        return inputs.finding(pairing, Class.VIOLATION, f"{self.column} {missing} missing", about=about)
