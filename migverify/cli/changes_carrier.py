"""``migverify changes tail`` and ``changes audit`` of a carrier: what a changefeed of TiDB carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.changes_carrier_options import CarrierOptions, with_carrier
from migverify.cli.changes_output import print_changes, table_filter
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, TablesOption, examples, json_text, say
from migverify.errors import ChangeError, EndpointError, UsageError

if TYPE_CHECKING:
    from migverify.changes.carriers.committed import CommittedChanges
    from migverify.changes.ddl import DdlFinding
    from migverify.changes.model import Item, Position

TAIL_EPILOG = examples(
    "migverify changes tail --format canal-json --kafka broker:9092 --topic shop --time-zone UTC --json",
    "migverify changes tail --format open-protocol --file events.cdc --since 445644800000000000",
    "migverify changes tail --format canal-json --file /mnt/sink --follow --dead-letters dead.jsonl",
)
AUDIT_EPILOG = examples(
    "migverify changes audit --format canal-json --kafka broker:9092 --topic shop --time-zone UTC",
    "migverify changes audit --format open-protocol --file events.cdc --since 445644800000000000 --json",
)
_SHOWN = 20

ChosenOption = Annotated[
    bool, typer.Option("--carrier", help="Read a carrier; --format, --kafka and --topic imply it.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TSO", help="Start behind this commit timestamp. Default: the oldest.")
]


@with_carrier
def tail(
    carrier: CarrierOptions,
    chosen: ChosenOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    since: SinceOption = None,
    tables: TablesOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as messages come, until Ctrl-C.")] = False,
    dead_letters: Annotated[
        Path | None, typer.Option("--dead-letters", metavar="FILE", help="With --follow: keep what cannot be decoded.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the changes that a changefeed of TiDB carries, up to its last watermark; exit 3 when not all is certain.

    Changes are printed in the order of their commits, when every partition has passed them. With --follow a message
    that cannot be decoded is printed as a statement on any table.
    """
    from migverify.changes.carriers.dead_letters import DeadLetterFile

    del chosen
    if follow is not (dead_letters is not None):
        raise UsageError("give --dead-letters with --follow: messages that cannot be decoded are kept there")
    letters = None if dead_letters is None else DeadLetterFile(dead_letters)
    wanted = table_filter(tables)
    changes = _changes(carrier, config, since, letters)
    print_changes(changes.items(), wanted, as_json=as_json, at_once=follow)
    _refuse_without_watermark(changes)
    if changes.unfinished:
        say(f"{changes.unfinished} changes are newer than the last watermark and were not printed")


@with_carrier
def audit(
    carrier: CarrierOptions,
    chosen: ChosenOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    since: SinceOption = None,
    tables: TablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that what a changefeed of TiDB carries is complete up to its last watermark.

    Exit 0: complete; 3: not proved, with the reason.
    """
    from migverify.model import Verdict

    del chosen
    counts, wanted = CarriedAudit(), table_filter(tables)
    changes = _changes(carrier, config, since, None)
    try:
        counts.take(changes.items(), wanted)
        _refuse_without_watermark(changes)
    except ChangeError as error:
        counts.reasons.append(error.line)
    counts.unfinished = changes.unfinished
    verdict = Verdict.INCONCLUSIVE if counts.reasons else Verdict.MATCH
    if as_json:
        typer.echo(json_text({"verdict": verdict.value, **counts.as_dict()}))
    else:
        for line in counts.lines():
            typer.echo(line)
        typer.echo(verdict.value)
    raise typer.Exit(int(verdict.exit_code))


@dataclass(slots=True)
class CarriedAudit:
    """What a changefeed carried. ``complete_to`` is the timestamp below which it is complete; 0 for none."""

    complete_to: int = 0
    first: int = 0
    last: int = 0
    transactions: int = 0
    tables: dict[str, Counter[str]] = field(default_factory=dict)
    statements: list[DdlFinding] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    unfinished: int = 0

    def take(self, items: Iterator[Item], wanted: Callable[[str, str], bool] | None) -> None:
        """Count what the changes hold."""
        from migverify.changes.ddl import ddl_finding
        from migverify.changes.decode import count_rows
        from migverify.changes.model import Commit, Idle, Rows, Statement

        for item in items:
            if isinstance(item, Rows):
                if wanted is None or wanted(item.table.database, item.table.table):
                    self.tables.setdefault(item.table.name, Counter())[item.op.value] += count_rows(item)
            elif isinstance(item, Statement):
                self.statements.append(ddl_finding(item))
            elif isinstance(item, Commit):
                self.transactions += 1
                self.first = self.first or int(item.gtid)
                self.last = max(self.last, int(item.gtid))
            elif isinstance(item, Idle):
                self.complete_to = item.at.offset + 1

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "reasons": self.reasons, "complete_to": self.complete_to or None, "first": self.first or None,
            "last": self.last or None, "transactions": self.transactions, "unfinished": self.unfinished,
            "tables": dict(sorted(self.tables.items())),
            "schema_changes": [asdict(one) | {"op": one.op.value} for one in self.statements],
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the lines for a reader."""
        yield f"the changefeed is {'not proved to be complete' if self.reasons else 'complete'}"
        yield from (f"  {reason}" for reason in self.reasons)
        yield f"  complete to   {_shown(self.complete_to)}"
        if self.transactions:
            yield f"  commits       {_shown(self.first)} to {_shown(self.last)}"
        yield f"  transactions  {self.transactions}"
        for table, ops in sorted(self.tables.items()):
            yield f"  rows          {table}: " + ", ".join(f"{rows} {op}" for op, rows in ops.items())
        for statement in self.statements[:_SHOWN]:
            yield f"  schema change {statement}"
        if len(self.statements) > _SHOWN:
            yield f"  schema change {len(self.statements) - _SHOWN} more: see --json"
        if self.unfinished:
            yield f"  note          {self.unfinished} changes are newer than the last watermark"


def _shown(tso: int) -> str:
    from migverify.changes.positions import tso_time

    moment = datetime.fromtimestamp(tso_time(tso), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"TSO {tso} ({moment})" if tso else "nothing: no watermark of every partition"


def _changes(carrier: CarrierOptions, config: Path, since: str | None, letters: Any) -> CommittedChanges:
    from migverify.changes.carriers.committed import CommittedChanges

    start = _timestamp(since)
    messages = carrier.source().carrier()
    return CommittedChanges(messages, start, letters=letters, newest=_newest(config))


def _timestamp(text: str | None) -> Position | None:
    from migverify.changes.positions import tso_position

    if text is None:
        return None
    digits = text.removeprefix("tso:")
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) < 1 << 63:
        raise UsageError(f"not a commit timestamp: {text[:100]!r}", hint="Write a TSO such as 445644800000000000.")
    return tso_position(int(digits))


def _refuse_without_watermark(changes: CommittedChanges) -> None:
    if changes.unfinished and not changes.has_watermark:
        raise ChangeError(
            f"{changes.unfinished} changes came without a watermark of every partition: nothing shows that "
            "they are all.",
            hint="Let the changefeed send watermarks: canal-json needs enable-tidb-extension=true.",
        )


def _newest(path: Path) -> Callable[[], int] | None:
    """Return how to ask the configured TiDB for its present timestamp; None without a configuration or a TiDB."""
    if not path.exists():
        return None
    from migverify.config import load_config
    from migverify.db.session import open_session
    from migverify.db.snapshot import current_timestamp
    from migverify.model import Flavor
    from migverify.secrets import resolve_password

    endpoint = load_config(path).target

    def ask() -> int:
        try:
            with open_session(endpoint, resolve_password(endpoint).reveal() or None) as session:
                return current_timestamp(session) if session.flavor is Flavor.TIDB else _NO_LIMIT
        except EndpointError as error:
            say(f"{endpoint.name} was not asked whether the messages are its own: {error.message}")
            return _NO_LIMIT

    return ask


_NO_LIMIT = 1 << 63
