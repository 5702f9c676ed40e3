"""Checked documents -> the dataclasses of ``model``: templates filled in, SQL checked, options made plain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from migverify.config.problems import Problem
from migverify.config.yaml_text import Steps
from migverify.recon.fields import split_table
from migverify.recon.load import nearest
from migverify.recon.model import (
    ChangesPart,
    Dataset,
    FilePart,
    Kind,
    Money,
    Part,
    QueryPart,
    Rule,
    Severity,
    TablePart,
    WindowRule,
)
from migverify.recon.parameters import parse_moment
from migverify.recon.statements import check_expression, check_query
from migverify.sql.quoting import quote_name
from migverify.sql.tokens import Form, SqlProblem, tokens

if TYPE_CHECKING:
    from migverify.recon.document import PartPart, UnionPart
    from migverify.recon.load import RulesFile
    from migverify.recon.rule_parts import RulePart, WindowPart

_MAX_SHARDS = 1_024
_PLACEHOLDER = re.compile(r"\{(shard|n)(?::0(\d{1,2}))?\}")
_NUMBERS = re.compile(r"[0-9]{1,9}\.\.[0-9]{1,9}")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = frozenset({Kind.BALANCE, Kind.UNIQUE, Kind.SEQUENCE, Kind.FRESHNESS})
"""Kinds that ask about all rows: they have windows only where the rule itself says so."""
_COMMON = ("name", "kind", "source", "target", "description", "severity", "owner", "money", "window", "settle",
           "rereads", "delay", "key", "compare", "tolerance")  # fmt: skip


def dataset_of(file: RulesFile, name: str, problems: list[Problem]) -> Dataset | None:
    """Return a dataset, or None after adding what is wrong with it to ``problems``."""
    part, steps = file.document.datasets[name], ("datasets", name)
    before = len(problems)
    try:
        if part.union is not None:
            parts = tuple(_union(file, part.union, (*steps, "union"), problems))
        else:
            parts = (_part(file, part, steps, "", problems),)
    except _Unfit as unfit:
        problems.append(file.problem(unfit.steps, f"dataset {name}: {unfit}", unfit.hint))
        return None
    columns = tuple(_columns(file, part.columns or {}, parts, (*steps, "columns"), problems))
    by_shard = tuple(_by_shard(file, part.union, columns, parts, (*steps, "union", "columns"), problems))
    if len(problems) > before:
        return None
    return Dataset(
        name, parts, file.place(steps), columns,
        tuple((column, tuple(texts.items())) for column, texts in part.values.items()),
        part.key or (), part.time, part.static, by_shard,
    )  # fmt: skip


class _Unfit(Exception):  # noqa: N818  (becomes a Problem)
    def __init__(self, steps: Steps, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.steps = steps
        self.hint = hint


def _union(file: RulesFile, part: UnionPart, steps: Steps, problems: list[Problem]) -> Iterator[Part]:
    shards = part.shards or ()
    numbers = list(range(len(shards)))
    if part.range is not None:
        first, last = part.range.split("..")
        if int(last) < int(first) or int(last) - int(first) >= _MAX_SHARDS:
            raise _Unfit(
                (*steps, "range"), f"a range goes from the lower to the higher, at most {_MAX_SHARDS:,} numbers"
            )
        width = len(first) if first.startswith("0") and len(first) > 1 else 0
        numbers = list(range(int(first), int(last) + 1))
        shards = tuple(f"{number:0{width}d}" if width else str(number) for number in numbers)
    _refuse_unlike_names(part.template, (*steps, "template"))
    seen: set[tuple[str, ...]] = set()
    for shard, number in zip(shards, numbers, strict=True):
        found: list[Problem] = []
        filled = _part(file, _filled(part.template, shard, number), (*steps, "template"), shard, found)
        if found:
            problems.extend(found)  # the same in every shard: said once
            return
        where = tuple(str(getattr(filled, name, "")) for name in ("endpoint", "database", "table", "sql", "path"))
        if where in seen:
            raise _Unfit((*steps, "template"), "two shards name the same rows", "Put {shard} or {n} into a name.")
        seen.add(where)
        yield filled


def _refuse_unlike_names(template: PartPart, steps: Steps) -> None:
    """Refuse a placeholder where it would be pasted into SQL text."""
    if template.where is not None and _PLACEHOLDER.search(template.where):
        raise _Unfit((*steps, "where"), "a placeholder stands in names only, not in a condition")
    if template.sql is None:
        return
    try:
        for token in tokens(template.sql):
            if token.form in (Form.STRING, Form.HINT) and _PLACEHOLDER.search(token.text):
                raise _Unfit((*steps, "sql"), "a placeholder stands in names only, not in a text")
    except SqlProblem:
        return  # said by check_query, with its line
    outside = "".join(token.text for token in tokens(template.sql) if token.form in (Form.MARK, Form.WORD))
    if re.search(r"\{(shard|n)", outside):
        raise _Unfit((*steps, "sql"), "a placeholder in SQL stands in backticks", "Write `orders_{shard}`.")


def _filled(template: PartPart, shard: str, number: int) -> PartPart:
    def fill(text: str | None) -> str | None:
        def value(found: re.Match[str]) -> str:
            if found[1] == "n":
                return f"{number:0{int(found[2] or 0)}d}" if found[2] else str(number)
            return shard

        return None if text is None else _PLACEHOLDER.sub(value, text)

    update = {name: fill(getattr(template, name)) for name in ("endpoint", "table", "changes", "path", "parquet")}
    if template.sql is not None:
        try:
            update["sql"] = "".join(
                (fill(t.text) or "") if t.form is Form.NAME else t.text for t in tokens(template.sql)
            )  # fmt: skip
        except SqlProblem:
            update["sql"] = template.sql
    return template.model_copy(update=update)


def _part(file: RulesFile, part: PartPart, steps: Steps, shard: str, problems: list[Problem]) -> Part:
    if part.table is not None:
        database, table = _split(part.table, (*steps, "table"))
        where = _sql(file, part.where, (*steps, "where"), problems, what="condition") if part.where else ""
        return TablePart(part.endpoint or "", database, table, where, shard)
    if part.sql is not None:
        return QueryPart(part.endpoint or "", _sql(file, part.sql, (*steps, "sql"), problems), shard)
    if part.parquet is not None:
        return FilePart(_from(file, part.parquet), shard)
    database, table = _split(part.changes or "", (*steps, "changes"))
    operations = part.operations or ("insert", "update", "delete")
    path = _from(file, part.path) if part.path else ""
    return ChangesPart(part.endpoint or "", path, database, table, operations, bool(part.state), shard)


def _split(text: str, steps: Steps) -> tuple[str, str]:
    try:
        return split_table(text)
    except ValueError as error:
        raise _Unfit(steps, str(error)) from None


def _from(file: RulesFile, path: str) -> str:
    """Return a path that does not depend on the current folder; URLs stay as they are."""
    return path if "://" in path else str(file.path.parent / path)


def _sql(file: RulesFile, sql: str, steps: Steps, problems: list[Problem], *, what: str = "") -> str:
    try:
        return check_expression(sql, what=what) if what else check_query(sql)
    except SqlProblem as problem:
        line = sql.count("\n", 0, problem.start)
        words = f"{'.'.join(str(step) for step in steps)}: {problem.problem}"
        problems.append(file.problem_in(steps, line, words, problem.hint))
        return sql


def _by_shard(
    file: RulesFile, union: UnionPart | None, columns: tuple[tuple[str, str], ...], parts: tuple[Part, ...],
    steps: Steps, problems: list[Problem],
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:  # fmt: skip
    """Yield the shards that have columns of their own, with all their columns, in the order of the dataset's."""
    seen: set[str] = set()
    shards = [part.shard for part in parts]
    for named, mapped in (union.columns if union is not None else {}).items():
        mine = _shards_of(named, shards)
        unknown = mapped.keys() - dict(columns).keys()
        if not mine:
            text, hint = f"there is no shard {named}", nearest(named, shards, "shards")
        elif twice := seen.intersection(mine):
            text, hint = f"the columns of shard {min(twice)} are given twice", ""
        elif unknown:
            text = f"`columns` of the dataset has no {min(unknown)}"
            hint = "Name every column there; a shard says where it finds one."
        else:
            seen.update(mine)
            own = dict(_columns(file, mapped, parts, (*steps, named), problems))
            yield from ((shard, tuple((name, own.get(name, text)) for name, text in columns)) for shard in mine)
            continue
        problems.append(file.problem((*steps, named), text, hint))


def _shards_of(named: str, shards: Sequence[str]) -> list[str]:
    if named in shards:
        return [named]
    ends = [int(end) for end in named.split("..")] if _NUMBERS.fullmatch(named) else []
    return [shard for shard in shards if ends and shard.isdecimal() and ends[0] <= int(shard) <= ends[1]]


def _columns(
    file: RulesFile, mapped: Mapping[str, str], parts: tuple[Part, ...], steps: Steps, problems: list[Problem]
) -> Iterator[tuple[str, str]]:
    computed = all(isinstance(one, TablePart | QueryPart) for one in parts)
    for name, expression in mapped.items():
        if not name or "\0" in name:
            problems.append(file.problem((*steps, name), f"{name!r} cannot be the name of a column"))
        elif not expression:
            yield name, quote_name(name) if computed else name
        elif computed:
            yield name, _sql(file, expression, (*steps, name), problems, what="expression")
        elif _PLAIN_NAME.fullmatch(expression.removeprefix("_before.")):
            yield name, expression
        else:
            problems.append(
                file.problem(
                    (*steps, name), f"column {name}: no database computes expressions over files and changes",
                    "Give the name of a column; map texts with `values`.",
                )
            )  # fmt: skip


def rule_of(file: RulesFile, steps: Steps) -> Rule:
    """Return a rule with the defaults of its file; what it names is checked by ``checks``."""
    part: RulePart = file.document.rules[int(steps[1])]
    defaults = file.document.defaults
    kind = Kind(part.kind)
    options = {name: getattr(part, name) for name in type(part).model_fields if name not in _COMMON}
    if options.get("groups", ()) is None:
        options["groups"] = ()
    return Rule(
        name=part.name, kind=kind, source=part.source, target=getattr(part, "target", None),
        place=file.place((*steps, "name")),
        key=part.key or (),
        compare=getattr(part, "compare", None) or (),
        tolerance=tuple(getattr(part, "tolerance", {}).items()),
        settle=part.settle if part.settle is not None else defaults.settle,
        severity=Severity(part.severity or defaults.severity),
        owner=part.owner or defaults.owner or "",
        money=None if part.money is None else Money(part.money.column, part.money.currency),
        window=_window(defaults.window if part.window is None and kind not in _WHOLE else part.window),
        rereads=defaults.rereads if part.rereads is None else part.rereads,
        delay=defaults.delay if part.delay is None else part.delay,
        description=part.description,
        options=options,
    )  # fmt: skip


def _window(part: WindowPart | None) -> WindowRule | None:
    if part is None or not part.every:
        return None
    return WindowRule(part.every, parse_moment(part.start) if part.start else None, part.immutable)
