"""Datasets as a rules file writes them, and as they are read: templates filled in for each shard, SQL checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from migverify.config.fields import Many, Strict
from migverify.config.yaml_text import Steps
from migverify.recon.fields import Names, ScalarText, Shards, Table, split_table
from migverify.recon.model import ChangesPart, Dataset, FilePart, Part, QueryPart, RulePlace, TablePart
from migverify.recon.statements import check_expression, check_query
from migverify.sql.lexer import TokenKind
from migverify.sql.quoting import quote_name
from migverify.sql.tokens import SqlProblem, SqlToken, tokens

_MAX_SHARDS = 1_024
_PLACEHOLDER = re.compile(r"\{(shard|n)(?::0(\d{1,2}))?\}")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = r"[0-9]+\.\.[0-9]+"
Operation = Literal["insert", "update", "delete"]


class PartPart(Strict):
    """Where rows come from: one of `table`, `sql`, `parquet` and `changes`."""

    endpoint: str | None = Field(
        default=None,
        min_length=1,
        description="Whose rows: `source`, `source.<shard>`, `target`, or a name under `endpoints` in migverify.yaml.",
    )
    table: Table | None = Field(
        default=None, description="All rows of a table, as `database.table`; backticks around a name with a dot."
    )
    where: str | None = Field(
        default=None, min_length=1, description="Condition on the rows of `table`; may hold `:parameters`."
    )
    sql: str | None = Field(
        default=None, min_length=1, description="Rows of one SELECT that only reads; may hold `:parameters`."
    )
    parquet: str | None = Field(
        default=None,
        min_length=1,
        description="Rows of Parquet files: a path or a pattern. A relative one starts at the folder of this file."
        " Needs the Spark engine.",
    )
    changes: Table | None = Field(
        default=None,
        description="Row changes of a table, as `database.table`: from the binlog of `endpoint`, of a TiDB from the"
        " changefeed that `reverse.carrier` names, or from `path`.",
    )
    path: str | None = Field(
        default=None,
        min_length=1,
        description="With `changes`: an archive of `changes archive`, or copied binlog files, instead of `endpoint`.",
    )
    operations: Many[Operation] | None = Field(
        default=None, min_length=1, description="With `changes`: only `insert`, `update` or `delete`. Default: all."
    )
    state: bool | None = Field(
        default=None, description="With `changes`: true keeps only the last change of each key. Default: false."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> PartPart:
        given = [name for name in ("table", "sql", "parquet", "changes", "union") if getattr(self, name, None)]
        if len(given) != 1:
            wanted = "`table`, `sql`, `parquet`, `changes`" + (" or `union`" if hasattr(self, "union") else "")
            raise ValueError(f"{' and '.join(f'`{n}`' for n in given) or 'nothing'} is given; give one of {wanted}")
        kind = given[0]
        takes = {"table": {"endpoint", "where"}, "sql": {"endpoint"}, "parquet": set(), "union": set(),
                 "changes": {"endpoint", "path", "operations", "state"}}[kind]  # fmt: skip
        for name in ("endpoint", "where", "path", "operations", "state"):
            if getattr(self, name) is not None and name not in takes:
                raise ValueError(f"`{kind}` takes no `{name}`")
        if kind in ("table", "sql") and self.endpoint is None:
            raise ValueError(f"`endpoint` is missing beside `{kind}`")
        if kind == "changes" and (self.endpoint is None) == (self.path is None):
            raise ValueError("`changes` takes `endpoint` or `path`, one of them")
        return self


class UnionPart(Strict):
    """The same rows from many shards."""

    template: PartPart = Field(
        description="One dataset without `columns` and `key`. `{shard}` and `{n}` (with leading zeros: `{n:02}`) name"
        " the shard in `endpoint`, `table`, `changes`, `path` and `parquet`, and in `sql` in names in backticks."
    )
    shards: Shards | None = Field(default=None, description="Names of the shards; `{n}` counts them from 0.")
    range: str | None = Field(
        default=None,
        pattern=_RANGE,
        description="Instead of `shards`: numbers as `0..63`, or `00..63` with leading zeros; both ends count.",
    )

    @model_validator(mode="after")
    def _one_list(self) -> UnionPart:
        if (self.shards is None) == (self.range is None):
            raise ValueError("give `shards` or `range`, one of them")
        return self


class DatasetPart(PartPart):
    """A named set of rows."""

    union: UnionPart | None = Field(default=None, description="The same rows from many shards, as one dataset.")
    columns: Annotated[
        dict[str, str] | None,
        BeforeValidator(
            lambda value: dict.fromkeys(value, "") if isinstance(value, list) and _texts(value) else value,
            json_schema_input_type=list[str] | dict[str, str],
        ),
    ] = Field(
        default=None,
        min_length=1,
        description="Which columns: a list of names, or `name: expression` over the columns of the table (domain"
        " mapping). Default: all, as they are.",
    )
    values: dict[str, dict[str, ScalarText]] = Field(
        default_factory=dict, description="Per column, a text of this side and the text it is compared as."
    )
    key: Names | None = Field(default=None, description="Columns that identify a row, where a rule names none.")
    time: str | None = Field(
        default=None,
        min_length=1,
        description="Column of the time (UTC DATETIME or TIMESTAMP) that windows cut.",
    )
    static: bool = Field(default=False, description="true: nothing writes to it, so no settle time is needed.")


def _texts(value: list[Any]) -> bool:
    return all(isinstance(one, str) for one in value) and len(set(value)) == len(value)


class UnfitDatasetError(ValueError):
    """What is wrong with a dataset: where below it, how many lines into the text there, what, and what to do."""

    def __init__(self, steps: Steps, text: str, hint: str = "", line: int | None = None) -> None:
        super().__init__(text)
        self.steps, self.hint, self.line = steps, hint, line


def dataset_of(part: DatasetPart, name: str, place: RulePlace, folder: Path) -> Dataset:
    """Return a dataset as it is read: the template filled in for each shard, its SQL checked.

    Raises UnfitDatasetError: the first thing that is wrong with it.
    """
    parts = tuple(_union(part.union, folder)) if part.union is not None else (_part(part, (), "", folder),)
    columns = tuple(_columns(part.columns or {}, parts, ("columns",)))
    values = tuple((column, tuple(texts.items())) for column, texts in part.values.items())
    return Dataset(name, parts, place, columns, values, part.key or (), part.time, part.static)


def _union(union: UnionPart, folder: Path) -> Iterator[Part]:
    shards = union.shards or ()
    numbers = list(range(len(shards)))
    if union.range is not None:
        first, last = union.range.split("..")
        if not 0 <= int(last) - int(first) < _MAX_SHARDS:
            text = f"a range goes from the lower to the higher, at most {_MAX_SHARDS:,} numbers"
            raise UnfitDatasetError(("union", "range"), text)
        width = len(first) if first.startswith("0") else 0
        numbers = list(range(int(first), int(last) + 1))
        shards = tuple(f"{number:0{width}d}" for number in numbers)
    steps: Steps = ("union", "template")
    _refuse_pasted(union.template, steps)
    seen: set[tuple[str, ...]] = set()
    for shard, number in zip(shards, numbers, strict=True):
        filled = _part(_filled(union.template, shard, number), steps, shard, folder)
        where = tuple(str(getattr(filled, name, "")) for name in ("endpoint", "database", "table", "sql", "path"))
        if where in seen:
            raise UnfitDatasetError(steps, "two shards name the same rows", "Put {shard} or {n} into a name.")
        seen.add(where)
        yield filled


def _refuse_pasted(template: PartPart, steps: Steps) -> None:
    """Refuse a placeholder where it would be pasted into SQL text."""
    if template.where is not None and _PLACEHOLDER.search(template.where):
        raise UnfitDatasetError((*steps, "where"), "a placeholder is allowed in names only, not in a condition")
    for token in _tokens(template.sql or "", (*steps, "sql")):
        if token.kind in (TokenKind.STRING, TokenKind.HINT) and _PLACEHOLDER.search(token.text):
            raise UnfitDatasetError((*steps, "sql"), "a placeholder is allowed in names only, not in a text")
    outside = "".join(
        t.text for t in _tokens(template.sql or "", (*steps, "sql")) if t.kind in (TokenKind.OPERATOR, TokenKind.WORD)
    )
    if re.search(r"\{(shard|n)", outside):
        text, hint = "a placeholder in SQL needs backticks around it", "Write `orders_{shard}`."
        raise UnfitDatasetError((*steps, "sql"), text, hint)


def _filled(template: PartPart, shard: str, number: int) -> PartPart:
    def value(found: re.Match[str]) -> str:
        return shard if found[1] == "shard" else f"{number:0{int(found[2] or 1)}d}"

    texts = {name: getattr(template, name) for name in ("endpoint", "table", "changes", "path", "parquet")}
    update = {name: text and _PLACEHOLDER.sub(value, text) for name, text in texts.items()}
    if template.sql is not None:
        names = (
            _PLACEHOLDER.sub(value, t.text) if t.kind is TokenKind.QUOTED else t.text for t in tokens(template.sql)
        )
        update["sql"] = "".join(names)
    return template.model_copy(update=update)


def _part(part: PartPart, steps: Steps, shard: str, folder: Path) -> Part:
    def path(text: str) -> str:  # it does not depend on the current folder; URLs stay as they are
        return text if "://" in text else str(folder / text)

    if part.sql is not None:
        return QueryPart(part.endpoint or "", _checked(part.sql, (*steps, "sql"), check_query), shard)
    if part.parquet is not None:
        return FilePart(path(part.parquet), shard)
    option = "table" if part.table is not None else "changes"
    try:
        database, table = split_table(part.table or part.changes or "")
    except ValueError as error:
        raise UnfitDatasetError((*steps, option), str(error)) from None
    if part.table is not None:
        condition = partial(check_expression, what="condition")
        where = _checked(part.where, (*steps, "where"), condition) if part.where else ""
        return TablePart(part.endpoint or "", database, table, where, shard)
    operations = part.operations or ("insert", "update", "delete")
    archive = path(part.path) if part.path else ""
    return ChangesPart(part.endpoint or "", archive, database, table, operations, bool(part.state), shard)


def _tokens(sql: str, steps: Steps) -> list[SqlToken]:
    try:
        return list(tokens(sql))
    except SqlProblem as problem:
        raise _unfit_sql(sql, steps, problem) from None


def _checked(sql: str, steps: Steps, check: Callable[[str], str]) -> str:
    try:
        return check(sql)
    except SqlProblem as problem:
        raise _unfit_sql(sql, steps, problem) from None


def _unfit_sql(sql: str, steps: Steps, problem: SqlProblem) -> UnfitDatasetError:
    return UnfitDatasetError(steps, problem.problem, problem.hint, sql.count("\n", 0, problem.start))


def _columns(mapped: Mapping[str, str], parts: tuple[Part, ...], steps: Steps) -> Iterator[tuple[str, str]]:
    computed = all(isinstance(one, TablePart | QueryPart) for one in parts)
    for name, expression in mapped.items():
        here = (*steps, name)
        if not name or "\0" in name:
            raise UnfitDatasetError(here, f"{name!r} cannot be the name of a column")
        if not expression:
            yield name, quote_name(name) if computed else name
        elif computed:
            yield name, _checked(expression, here, partial(check_expression, what="expression"))
        elif _PLAIN_NAME.fullmatch(expression.removeprefix("_before.")):
            yield name, expression
        else:
            raise UnfitDatasetError(
                here, f"column {name}: no database computes expressions over files and changes",
                "Give the name of a column; map texts with `values`.",
            )  # fmt: skip
