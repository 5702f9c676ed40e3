"""What a reverse feed carries, and how."""

from __future__ import annotations

from dataclasses import dataclass

from migverify.errors import LabError
from migverify_lab.feed.emitter import Dispatch

PROTOCOLS = ("canal-json", "open-protocol")
OUTPUTS = ("kafka", "files", "storage")
OLD_VALUES = ("all", "changed", "off")
INTERVAL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """What a feed carries, and how.

    Attributes
    ----------
    tables
        Tables that the feed's own connections write: ``database.table`` or ``database.*``.
    polled
        Small tables that anybody writes; read whole at each snapshot. No table may be in both.
    out
        ``kafka``, ``files`` or ``storage`` (the storage sink's folder, canal-json alone).
    servers
        A broker that runs; empty starts one in the feed's folder.
    old
        Old values of updates: ``all``, ``changed`` columns, or ``off``.
    full_types
        canal-json: types with their parameters in the messages.
    apply
        Whether MySQL follows.
    name
        The applier's row in the checkpoint table.
    interval
        Seconds between two watermarks.
    since
        Where it begins where the folder does not say how far a feed was; 0 is now. Polled tables are then read as they
        were at that timestamp.
    user
        The account that writes to MySQL.
    idle_checkpoints
        Whether the applier records its position while nothing changes; else MySQL's binlog rests.
    """

    tables: tuple[str, ...] = ()
    polled: tuple[str, ...] = ()
    protocol: str = "canal-json"
    out: str = "files"
    servers: str = ""
    topic: str = "reverse"
    partitions: int = 2
    dispatch: str = "index-value"
    old: str = "all"
    full_types: bool = False
    apply: bool = True
    name: str = "reverse"
    faults: tuple[str, ...] = ()
    seed: int = 1
    interval: float = INTERVAL_SECONDS
    since: int = 0
    user: str = "feed"
    idle_checkpoints: bool = True

    def __post_init__(self) -> None:
        chosen = ((self.protocol, PROTOCOLS), (self.out, OUTPUTS), (self.old, OLD_VALUES),
                  (self.dispatch, tuple(Dispatch)))  # fmt: skip
        for word, words in chosen:
            if word not in words:
                raise LabError(f"the reverse feed knows no {word!r}", hint=f"Say one of: {', '.join(words)}.")
        if self.out == "storage" and (self.protocol != "canal-json" or self.apply):
            raise LabError("the storage sink is written as canal-json, and not applied",
                           hint="Say protocol='canal-json', apply=False.")  # fmt: skip

    def covers(self, name: str) -> bool:
        """Whether a table is reported by the feed's own connections."""
        database = name.partition(".")[0]
        return name not in self.polled and any(pattern in (f"{database}.*", name) for pattern in self.tables)

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases whose tables are carried."""
        return tuple(sorted({name.partition(".")[0] for name in (*self.tables, *self.polled)}))
