"""Rules of kind ``expectations``: a suite of Great Expectations on the rows of a dataset, fail closed.

``read_suite`` -> ``check_suite`` -> ``run_suite`` -> ``SuiteOutcome`` -> ``keep_outcome``, ``write_outcome``.

All reads of a suite see one state of an endpoint, on one pinned connection that never writes. What speaks of exact
numbers is computed by migverify (``expectations_exact``), the rest by Great Expectations (``expectations_gx``); both
answer in one shape. An expectation that could not be answered makes the outcome INCONCLUSIVE, never a pass.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from migverify.db.session import Session
from migverify.db.snapshot import Anchor, anchored
from migverify.errors import ConfigError, StoreError
from migverify.model import ColumnDef, Endpoint, KeyText, Verdict
from migverify.recon import expectations_exact as exact
from migverify.recon import expectations_gx as gx
from migverify.recon.candidates import key_order
from migverify.recon.expectation_suite import Expectation, Suite, check_suite, read_suite
from migverify.recon.expectation_types import How
from migverify.recon.expectations_gx import Answer
from migverify.recon.model import Class, Covered, Deviation, Rule, RuleFinding, Window
from migverify.secrets import Secret, remember, scrub
from migverify.sql.expectations import all_rows, batch_of, row_count
from migverify.sql.server import TIDB_PROBE
from migverify.store.base import ResultStore

__all__ = ["Batch", "SuiteOutcome", "check_suite", "keep_outcome", "read_suite", "run_suite", "write_outcome"]

JSON_BLOB = "expectations.json"
HTML_BLOB = "expectations.html"
LISTING = frozenset({"SUMMARY", "COMPLETE"})
"""Result formats that list rows; the others count them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one part of a dataset: ``select`` is a whole SELECT, its parameters bound, that gives ``columns``.

    ``endpoint.snapshot`` is the anchored moment (a TiDB TSO) where there is one.
    """

    endpoint: Endpoint
    select: str
    columns: tuple[ColumnDef, ...]
    shard: str = ""


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """The end of a suite.

    ``findings`` are rows, at most ``limit`` per expectation, and one finding per expectation that speaks of no row or
    of more rows than are listed; ``violations`` is the exact number of (expectation, row) that do not hold, 1 for an
    expectation that speaks of no row. ``reasons`` say why the verdict cannot be MATCH. ``json`` and ``html`` hold the
    result as Great Expectations shows it. ``anchors`` are the moments that were read, one for each endpoint.
    """

    findings: tuple[RuleFinding, ...]
    covered: Covered
    reasons: tuple[str, ...]
    violations: int
    expectations: int
    json: str
    html: str
    answers: tuple[Answer, ...] = field(default=(), repr=False)
    anchors: tuple[Anchor, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """MISMATCH where something does not hold, INCONCLUSIVE where something was not answered, else MATCH."""
        if self.violations:
            return Verdict.MISMATCH
        return Verdict.MATCH if self.expectations and not self.reasons else Verdict.INCONCLUSIVE


class Reader(Protocol):
    """One endpoint at one moment."""

    @property
    def anchor(self) -> Anchor:
        """The moment that is read."""
        ...

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        """Run one statement; every value is the server's text."""
        ...

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        """Like ``query``, each row as column name -> text."""
        ...

    def warnings(self) -> list[str]:
        """Warnings of the last statement."""
        ...

    def engine(self) -> Any:
        """Return a context manager that gives an SQLAlchemy engine over the same connection."""
        ...


OpenReader = Callable[[Endpoint], Any]
"""Endpoint -> context manager that gives a Reader."""


def run_suite(
    rule: Rule, suite: Suite, batches: Sequence[Batch], open_reader: OpenReader, *,
    window: Window | None = None, keep_values: bool = True,
) -> SuiteOutcome:  # fmt: skip
    """Run a checked suite on the parts of a dataset.

    Parameters
    ----------
    suite
        What ``check_suite`` gave back, so that every expectation has been decided.
    batches
        The parts; those of one endpoint are one batch, as their union.
    open_reader
        ``sessions(passwords)`` for real endpoints.
    keep_values
        Whether cell values may be kept; else findings hold keys only, and results hold counts.

    Raises
    ------
    ConfigError
        Great Expectations is not installed, or no part was given.
    EndpointError
        An endpoint cannot be reached.
    """
    if not batches:
        raise ConfigError(
            f"{rule.place}: rule {rule.name}: the dataset has no part", hint="Give it a table or a query."
        )
    gx.load()
    # The union of parts of one endpoint has one set of columns, so the first part's stand for all.
    order = sorted(range(len(batches)), key=lambda n: (batches[n].endpoint.name, n))
    answers: list[tuple[Answer, str]] = []
    rows = 0
    anchors: list[Anchor] = []
    for _, numbers in groupby(order, key=lambda n: batches[n].endpoint.name):
        parts = [batches[n] for n in numbers]
        shard = parts[0].shard if len({part.shard for part in parts}) == 1 else ""
        with open_reader(parts[0].endpoint) as reader:
            found, read = _answers(rule, suite, parts, reader)
            anchors.append(reader.anchor)
        answers += [(answer, shard) for answer in found]
        rows += read
    known = {column.name: column for column in batches[0].columns}
    columns = [known[name] for name in rule.key if name in known] if rule.key else list(batches[0].columns)
    outcome = _outcome(rule, suite, answers, rows, columns, window=window, keep_values=keep_values)
    return replace(outcome, anchors=tuple(anchors))


def _answers(rule: Rule, suite: Suite, parts: Sequence[Batch], reader: Reader) -> tuple[list[Answer], int]:
    batch, columns = batch_of([part.select for part in parts]), parts[0].columns
    rows = int(reader.query(row_count(batch))[0][0] or 0)
    asked = [one for one in suite.expectations if one.how is How.GX]
    shown = _shown_columns(rule, columns)
    listed = suite.result_format in LISTING
    found = [
        exact.answer(reader, batch, columns, one, shown=shown, limit=suite.limit if listed else 0)
        for one in suite.expectations
        if one.how is not How.GX
    ]
    with reader.engine() as engine:
        found += gx.answer_all(
            engine, all_rows(batch), columns, asked, shown=shown, limit=suite.limit, keep=listed
        )  # fmt: skip
    return sorted(found, key=lambda answer: answer.expectation.number), rows


def _shown_columns(rule: Rule, columns: Sequence[ColumnDef]) -> list[str]:
    """Key and money of a row; all columns where the rule has no key, as a row is then told by its text."""
    if not rule.key:
        return [column.name for column in columns]
    money = [rule.money.column] if rule.money else []
    if rule.money and rule.money.constant is None:
        money.append(rule.money.currency)
    return list(dict.fromkeys([*rule.key, *money]))


def _outcome(
    rule: Rule, suite: Suite, answers: Sequence[tuple[Answer, str]], rows: int, columns: Sequence[ColumnDef], *,
    window: Window | None, keep_values: bool,
) -> SuiteOutcome:  # fmt: skip
    findings: dict[KeyText, RuleFinding] = {}
    reasons, violations = [], 0
    for answer, shard in answers:
        if answer.success is None:
            reasons.append(scrub(f"{answer.expectation.label} was not answered: {answer.reason}"))
        elif not answer.success:
            violations += answer.unexpected or 1
            for finding in _findings(rule, answer, shard, window, keep_values=keep_values):
                _merge(findings, finding)
    labels = {answer.expectation.label for answer, _ in answers}
    # Rows by their keys, then what speaks of no row, in the order of the suite.
    ordered = sorted(
        findings.values(), key=lambda f: (True, b"") if f.key[0] in labels else (False, key_order(f.key, columns))
    )
    given = {answer.expectation.number for answer, _ in answers}
    reasons += [f"{one.label} was not answered" for one in suite.expectations if one.number not in given]
    plain = [_kept(answer, keep_values=keep_values) for answer, _ in answers]
    document = gx.as_json(suite.name, plain)
    return SuiteOutcome(
        tuple(ordered), Covered(rows_source=rows, groups=len(suite.expectations)),
        tuple(reasons), violations, len(suite.expectations), scrub(json.dumps(document, indent=1, ensure_ascii=False)),
        scrub(gx.as_html(suite.name, plain)), tuple(plain),
    )  # fmt: skip


def _kept(answer: Answer, *, keep_values: bool) -> Answer:
    """Return the answer as it may be kept; what a server says of an error can hold values, so it is scrubbed."""
    clean = replace(answer, reason=scrub(answer.reason))
    if keep_values:
        return clean
    held = {name: value for name, value in answer.result.items()
            if isinstance(value, int | float) and not isinstance(value, bool)}  # fmt: skip
    return replace(clean, result=held, rows=())


def _merge(findings: dict[KeyText, RuleFinding], new: RuleFinding) -> None:
    """One finding per key: rows that break two expectations, and rows of one text, are told together."""
    old = findings.get(new.key)
    if old is None:
        findings[new.key] = new
        return
    told = old.message if new.message in old.message else f"{old.message}; {new.message}"
    known = {deviation.column for deviation in old.deviations}
    more = tuple(deviation for deviation in new.deviations if deviation.column not in known)
    same = new.message in old.message  # the row itself stands there more than once
    count = old.counts[0] + new.counts[0] if same else max(old.counts[0], new.counts[0])
    money = old.money if not same or old.money is None or new.money is None else old.money + new.money
    shard = ", ".join(dict.fromkeys(name for name in (*old.shard.split(", "), new.shard) if name))
    findings[new.key] = replace(
        old, message=told, deviations=old.deviations + more, counts=(count, 0), money=money, shard=shard
    )  # fmt: skip


def _findings(
    rule: Rule, answer: Answer, shard: str, window: Window | None, *, keep_values: bool
) -> Iterator[RuleFinding]:
    one = answer.expectation
    at = time.time()
    name = one.description or one.label
    for row in answer.rows:
        yield _row_finding(rule, row, name, shard, window, at, keep_values=keep_values)
    if answer.unexpected is None or len(answer.rows) < answer.unexpected:
        told = _told(answer, keep_values=keep_values)
        yield RuleFinding(
            rule.name, (one.label, *([shard] if shard else [])), Class.VIOLATION, Class.VIOLATION, f"{name}: {told}",
            counts=(answer.unexpected or 0, 0), window=window, at=at, shard=shard,
        )  # fmt: skip


def _told(answer: Answer, *, keep_values: bool) -> str:
    if answer.unexpected is not None:
        listed = f"{len(answer.rows)} of them are listed" if answer.rows else "none is listed"
        of = f" of {answer.considered}" if answer.considered is not None else ""
        return f"{answer.unexpected}{of} rows do not hold; {listed}"
    if answer.expectation.type == "expect_column_to_exist":
        return f"there is no column {answer.expectation.arguments['column']}"
    observed = answer.result.get("observed_value")
    if not keep_values or "observed_value" not in answer.result:
        return "it does not hold"
    return f"observed {'NULL (no rows)' if observed is None else observed}{_bounds(answer.expectation)}"


def _bounds(one: Expectation) -> str:
    given = [f"{name} {format(value, 'f') if isinstance(value, Decimal) else value}"
             for name, value in one.arguments.items() if name not in ("column", "column_list")]  # fmt: skip
    return f", wanted {', '.join(given)}" if given else ""


def _row_finding(
    rule: Rule, row: Mapping[str, Any], name: str, shard: str, window: Window | None, at: float, *, keep_values: bool
) -> RuleFinding:  # fmt: skip
    texts = {column: as_text(value) for column, value in row.items()}
    if rule.key and all(column in texts for column in rule.key):
        key: KeyText = tuple(texts[column] for column in rule.key)
    elif keep_values:
        key = tuple(texts.values())
    else:  # the row's text is its values: only its hash may be kept
        framed = json.dumps(list(texts.values()), ensure_ascii=True)
        key = ("sha256:" + hashlib.sha256(framed.encode()).hexdigest(),)
    money, currency = _money(rule, texts)
    shown = tuple(Deviation(column, text, None) for column, text in texts.items() if column not in rule.key)
    return RuleFinding(
        rule.name, key, Class.VIOLATION, Class.VIOLATION, name, shown if keep_values else (), money, currency,
        (1, 0), window, 1, at, shard,
    )  # fmt: skip


def _money(rule: Rule, row: Mapping[str, str | None]) -> tuple[Decimal | None, str | None]:
    amount = row.get(rule.money.column) if rule.money else None
    if rule.money is None or amount is None:
        return None, None
    return abs(Decimal(amount)), rule.money.constant or row.get(rule.money.currency)


def as_text(value: Any) -> str | None:
    """Return canonical text of a value that a driver gave: numbers without an exponent, bytes as hex, NULL as None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return "0x" + bytes(value).hex()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


class _SessionReader:
    """A pinned session in one transaction that only reads; ``anchor`` is the moment that it reads."""

    def __init__(self, session: Session, anchor: Anchor) -> None:
        self._session = session
        self.anchor = anchor
        self.query = session.query
        self.query_named = session.query_named
        self.warnings = session.warnings

    @contextmanager
    def engine(self) -> Iterator[Any]:
        from sqlalchemy import create_engine
        from sqlalchemy.pool import StaticPool

        with self._session.driver() as connection:
            # The URL names no host, no user and no password: whatever prints it tells nothing.
            engine = create_engine(
                "mysql+pymysql://", creator=lambda: connection, poolclass=StaticPool, pool_reset_on_return=None
            )
            try:
                yield engine
            finally:
                engine.dispose()


def sessions(passwords: Callable[[Endpoint], str | None]) -> OpenReader:
    """Return what opens a reader of an endpoint: read-only where the server can, at one moment everywhere."""

    @contextmanager
    def opened(endpoint: Endpoint) -> Iterator[Reader]:
        password = passwords(endpoint)
        remember(Secret(password or ""))
        secrets = {} if password is None else {endpoint.name: password}
        # One session: a transaction at its timestamp on TiDB, one consistent snapshot elsewhere.
        with anchored(endpoint, secrets, 1, TIDB_PROBE) as found:
            yield _SessionReader(found.sessions[0], found.anchor)

    return opened


def keep_outcome(store: ResultStore, run_id: str, rule: str, outcome: SuiteOutcome) -> None:
    """Keep the result's JSON and HTML in the store, under the rule's name."""
    store.add_blob(run_id, rule, JSON_BLOB, outcome.json.encode())
    store.add_blob(run_id, rule, HTML_BLOB, outcome.html.encode())


def write_outcome(store: ResultStore, run_id: str, rule: str, folder: Path) -> tuple[Path, ...]:
    """Write the results of a rule that a run kept: one JSON and one HTML file per window, the first without a number.

    Raises
    ------
    StoreError
        The run kept none, or a file cannot be written.
    """
    written: list[Path] = []
    stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in rule)
    for blob in (JSON_BLOB, HTML_BLOB):
        for number, content in enumerate(store.blobs(run_id, rule, blob)):
            path = folder / f"{stem}{f'-{number}' if number else ''}.{blob}"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError as error:
                raise StoreError(f"{path} cannot be written: {error.strerror}") from error
            written.append(path)
    if not written:
        raise StoreError(f"run {run_id} kept no result of rule {rule}", hint="Is it a rule of kind expectations?")
    return tuple(written)


def explain(suite: Suite) -> Iterator[str]:
    """Yield one line per expectation of a checked suite: what it asks, and who computes it."""
    for one in suite.expectations:
        who = "Great Expectations" if one.how is How.GX else "migverify, exactly"
        yield f"{one.label}{_bounds(one)}: {who}"
