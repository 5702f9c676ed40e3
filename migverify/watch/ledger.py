"""The watch's ledger: keys that were written on the source and are not proved yet. One SQLite file a watch.

A file, because the number of keys has no bound and memory has; and because keys and stream position are written in
one transaction, so that a watch that was killed goes on where it stopped, without a key lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.changes.model import Position
from migverify.errors import StoreError
from migverify.model import KeyText
from migverify.watch.ledger_file import key_text
from migverify.watch.ledger_moving import MovingKeys

if TYPE_CHECKING:
    from migverify.config import Config

OFFSET_BITS = 40
NO_PAIR = 1 << 30
"""Number of notes that are about no pair, and that say nothing against any."""
BY_FILE = "by file"
"""Kind of the notes of sources whose binlog was read from a run's place in the file on."""
STREAM_REASONS = "reasons of the streams"
"""Kind of the state that holds why the last status was no MATCH beyond its tables, as a JSON list."""
OTHER_SERVER = "other server"
"""Kind of the notes of sources that are another server than in the run that a watch starts from."""
SWEPT = "sweep"
"""Origin of keys that a round over a whole table found different."""


class KeyState(IntEnum):
    """What is known of a touched key."""

    PENDING = 0  # not read since its last touch
    DOUBT = 1  # read once since, and the sides differed
    DIVERGED = 2  # the source stood still, the target had applied past, and they still differed
    REREAD = 3  # diverged in an earlier process, which may be repaired since: this process did not read it yet


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """One touched key.

    ``ordinal`` is that of its last touch on ``source``. ``heads`` are, per source, the ordinals that the stream must
    have passed before the row checksums of the last read count as witness; of a key that several shards wrote, those
    of its last touch on each other shard. ``origin`` says why it is here if no write put it here. ``there``: its last
    change left a row, so that a key which is found on neither side is not proved by that. ``found`` is the moment of
    the target as of which a round last found its row different, 0 for none: no older version proves it.
    """

    pair: int
    key: KeyText
    source: int
    ordinal: int
    touches: int
    first: float
    state: KeyState
    reads: int
    source_sum: str | None
    target_sum: str | None
    heads: Mapping[int, int]
    diverged: bool
    origin: str
    there: bool = False
    found: int = 0


@dataclass(frozen=True, slots=True)
class PairCounts:
    """What the ledger says of one pair. ``oldest`` is the Unix time of the oldest unproved touch, None for none."""

    pending: int = 0
    doubt: int = 0
    hot: int = 0
    diverged: int = 0
    oldest: float | None = None
    proved: int = 0
    images: int = 0


_TOUCH = "INSERT INTO touched (pair,key,source,since,seq,touches,first,due,origin,there) VALUES (?,?,?,?,?,?,?,?,?,?) "
# Shards count places apart: what one of them has not applied yet is kept in ``head``, and the first place is unknown.
_TOUCHED_BY_WRITE = (
    _TOUCH + "ON CONFLICT (pair,key) DO UPDATE SET head=CASE WHEN source=excluded.source THEN head ELSE "
    "json_set(CASE WHEN typeof(head)='text' THEN head ELSE '{}' END, '$.\"' || source || '\"', seq) END, "
    # A feed that goes back sends changes from before the first one that waits.
    "since=CASE WHEN source=excluded.source THEN min(since,excluded.since) ELSE 0 END, "
    "seq=CASE WHEN source=excluded.source THEN max(seq,excluded.seq) ELSE excluded.seq END, "
    "source=excluded.source, touches=touches+excluded.touches, state=0, origin='', there=excluded.there"
)
# What no write put there must not make a key begin anew that is being judged already.
_TOUCHED_OTHERWISE = _TOUCH + "ON CONFLICT (pair,key) DO NOTHING"
_COLUMNS = "pair,key,source,seq,touches,first,state,reads,source_sum,target_sum,head,diverged,origin,there,found"


class Ledger(MovingKeys):
    """Touched keys of one watch. Used by one thread; every method is one transaction.

    Raises ``StoreError`` from every method when the file cannot be written or read.
    """

    def touch(
        self,
        keys: Mapping[tuple[int, KeyText], tuple[int, int, int]],
        positions: Mapping[int, tuple[Position, int]],
        now: float,
        *,
        origin: str = "",
        there: Set[tuple[int, KeyText]] | None = None,
        source_sums: Mapping[KeyText, str | None] | None = None,
        found: int = 0,
        firsts: Mapping[tuple[int, KeyText], int] | None = None,
    ) -> None:
        """Count touched keys, and move the position of each source (with its number of commits) in one transaction.

        A key that is touched again is read anew; that it was diverged is remembered until it is proved. ``there`` are
        the keys whose last change left a row, None where that is not known. ``source_sums``
        are row checksums of the source that put keys here without a write; None is a row that is not there. ``found``
        is the moment as of which a round found the rows different, kept also of keys that are here already. ``firsts``
        are the places of the first changes of keys where those are not the last ones.
        """
        before, left = firsts or {}, there or ()
        rows = [
            (pair, key_text(key), source, min(ordinal, before.get((pair, key), ordinal)), ordinal, count, now, now,
             origin, int((pair, key) in left))
            for (pair, key), (count, ordinal, source) in keys.items()
        ]  # fmt: skip
        images: dict[int, int] = {}
        for (pair, _), (count, _, _) in keys.items():
            images[pair] = images.get(pair, 0) + count
        with self._transaction() as db:
            db.executemany(_TOUCHED_OTHERWISE if origin else _TOUCHED_BY_WRITE, rows)
            if origin and there is not None:
                db.executemany(
                    "UPDATE touched SET there=? WHERE pair=? AND key=? AND state=0 AND reads=0 AND origin<>''",
                    [(int((pair, key) in there), pair, key_text(key)) for pair, key in keys],
                )
            db.executemany(
                "UPDATE touched SET source_sum=? WHERE pair=? AND key=? AND state=0 AND reads=0 AND origin<>''",
                [(source_sums[key], pair, key_text(key)) for pair, key in keys if source_sums and key in source_sums],
            )
            if found:
                db.executemany(
                    "UPDATE touched SET found=max(found,?) WHERE pair=? AND key=?",
                    [(found, pair, key_text(key)) for pair, key in keys],
                )
            db.executemany(
                "INSERT INTO proved (pair,keys,rows) VALUES (?,0,?) "
                "ON CONFLICT (pair) DO UPDATE SET rows=rows+excluded.rows",
                list(images.items()),
            )
            db.executemany(
                "INSERT OR REPLACE INTO progress (source,file,offset,gtids,commits) VALUES (?,?,?,?,?)",
                [(s, p.file, p.offset, p.gtids, n) for s, (p, n) in positions.items()],
            )

    def set_back(self, seconds: float) -> None:
        """Move what the ledger knows of times: the clock was set back by so much, and no key is to wait for it."""
        with self._transaction() as db:
            db.execute("UPDATE touched SET due=due-?, first=first-?", [seconds, seconds])

    def due(self, applied: Mapping[int, int], now: float, limit: int) -> list[LedgerKey]:
        """Return keys whose last touch the target has applied and whose wait is over.

        Keys not read since their touch come in the order of the stream, so that a target that is far behind does not
        make this look through all that it has not applied; then those to be read again, the longest due first.
        """
        found: list[LedgerKey] = []
        for source, ordinal in applied.items():
            pending = self._keys(
                "state=0 AND source=? AND seq<=? AND due<=? ORDER BY seq LIMIT ?", [source, ordinal, now, limit]
            )
            found += [k for k in pending if all(applied.get(s, -1) >= at for s, at in k.heads.items() if s != source)]
        for state in (KeyState.DOUBT, KeyState.DIVERGED, KeyState.REREAD):
            again = self._keys("state=? AND due<=? ORDER BY due LIMIT ?", [state, now, limit])
            found += [
                k for k in again
                if k.ordinal <= applied.get(k.source, -1) and all(applied.get(s, -1) >= at for s, at in k.heads.items())
            ]  # fmt: skip
        return found[: 2 * limit]

    def proved(self, keys: Sequence[LedgerKey]) -> set[tuple[int, KeyText]]:
        """Remove keys found equal; returns those that are gone. One touched or found since it was taken stays."""
        gone: set[tuple[int, KeyText]] = set()
        with self._transaction() as db:
            for key in keys:
                found = db.execute(
                    "DELETE FROM touched WHERE pair=? AND key=? AND touches=? AND seq=? AND found=?",
                    (key.pair, key_text(key.key), key.touches, key.ordinal, key.found),
                ).rowcount
                if found:
                    gone.add((key.pair, key.key))
            counts = Counter(pair for pair, _ in gone)
            db.executemany(
                "INSERT INTO proved (pair,keys,rows) VALUES (?,?,0) "
                "ON CONFLICT (pair) DO UPDATE SET keys=keys+excluded.keys",
                list(counts.items()),
            )
        return gone

    def seen(
        self, keys: Iterable[tuple[LedgerKey, KeyState, str | None, str | None, Mapping[int, int], float]], now: float
    ) -> set[tuple[int, KeyText]]:
        """Record reads that found the sides different: key, new state, both row checksums, heads, seconds to wait.

        Returns the keys whose state is recorded. One touched since it was taken keeps its state and waits: what was
        read of it is no witness any more.
        """
        taken: set[tuple[int, KeyText]] = set()
        with self._transaction() as db:
            for key, state, ours, theirs, heads, wait in keys:
                head = heads.get(key.source, 0) if set(heads) <= {key.source} else json.dumps(heads)
                place = (key.pair, key_text(key.key))
                changed = db.execute(
                    "UPDATE touched SET state=?, reads=reads+1, source_sum=?, target_sum=?, head=?, due=?, "
                    "diverged=max(diverged,?) WHERE pair=? AND key=? AND touches=? AND seq=?",
                    (state, ours, theirs, head, now + wait, int(state is KeyState.DIVERGED), *place, key.touches,
                     key.ordinal),
                ).rowcount  # fmt: skip
                if changed:
                    taken.add((key.pair, key.key))
                else:
                    db.execute("UPDATE touched SET reads=reads+1, due=? WHERE pair=? AND key=?", (now + wait, *place))
        return taken

    def wait(self, keys: Iterable[LedgerKey], until: float) -> None:
        """Let keys that could not be read wait."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE touched SET due=? WHERE pair=? AND key=?", [(until, k.pair, key_text(k.key)) for k in keys]
            )

    def note(self, pair: int, kind: str, text: str, *, stale: bool = False) -> bool:
        """Keep a fact about a pair (-1 for the stream) over restarts; returns whether it is new.

        With ``stale``, a new fact also makes the pair stale: until ``settle``, nothing is known of its rows.
        """
        with self._transaction() as db:
            new = bool(db.execute("INSERT OR IGNORE INTO note VALUES (?,?,?)", (pair, kind, text)).rowcount)
            if new and stale:
                db.execute("INSERT OR IGNORE INTO note VALUES (?,'stale',?)", (pair, text))
            return new

    def settle(self, pair: int, replaced: Mapping[str, str]) -> None:
        """Take back what made a pair stale, as its whole table was compared, and replace its notes of some kinds."""
        with self._transaction() as db:
            db.execute("DELETE FROM note WHERE pair=? AND kind='stale'", (pair,))
            # All rows were compared: one that is on neither side was removed, by a statement without row images.
            db.execute("UPDATE touched SET there=0 WHERE pair=?", (pair,))
            for kind, text in replaced.items():
                db.execute("DELETE FROM note WHERE pair=? AND kind=?", (pair, kind))
                db.execute("INSERT INTO note VALUES (?,?,?)", (pair, kind, text))

    def keep(self, kind: str, text: str) -> None:
        """Keep what the watch says of itself for those who read the ledger beside it; the last text of a kind."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO state VALUES (?,?) ON CONFLICT (kind) DO UPDATE SET text=excluded.text"
                " WHERE text<>excluded.text",
                (kind, text),
            )

    def forget(self, pair: int) -> None:
        """Remove the keys of a pair: its whole table is read."""
        with self._transaction() as db:
            db.execute("DELETE FROM touched WHERE pair=?", (pair,))

    def unnote(self, pair: int, kind: str, text: str) -> None:
        """Take a note back: what it said holds no more."""
        with self._transaction() as db:
            db.execute("DELETE FROM note WHERE pair=? AND kind=? AND text=?", (pair, kind, text))

    def notes(self) -> list[tuple[int, str, str]]:
        """Return (pair, kind, text) of all notes."""
        return [(int(p), str(k), str(t)) for p, k, t in self._read("SELECT pair,kind,text FROM note", [])]

    def counts(self, hot_before: float) -> dict[int, PairCounts]:
        """Return what is open per pair; a key first touched before ``hot_before`` and touched since is hot."""
        found: dict[int, PairCounts] = {
            int(p): PairCounts(proved=int(k), images=int(r))
            for p, k, r in self._read("SELECT pair,keys,rows FROM proved", [])
        }
        rows = self._read(
            "SELECT pair, sum(state=0 AND NOT diverged AND NOT (touches>1 AND first<?)), "
            "sum(state=1 AND NOT diverged), "
            "sum(state=0 AND NOT diverged AND touches>1 AND first<?), sum(diverged), "
            "min(CASE WHEN state<>2 THEN first END) FROM touched GROUP BY pair",
            [hot_before, hot_before],
        )
        for pair, pending, doubt, hot, diverged, oldest in rows:
            before = found.get(int(pair), PairCounts())
            found[int(pair)] = PairCounts(
                int(pending), int(doubt), int(hot), int(diverged), oldest, before.proved, before.images
            )
        return found

    def open_before(self, heads: Mapping[int, int]) -> int:
        """Return how many keys last touched at or before these places are neither proved nor diverged.

        Those that several shards wrote count always.
        """
        where = " OR ".join(["typeof(head)='text'", *("(source=? AND seq<=?)" for _ in heads)])
        values = [v for source, seq in heads.items() for v in (source, seq)]
        sql = f"SELECT count(*) FROM touched WHERE state<>2 AND ({where})"  # noqa: S608 - words of this module
        return int(self._read(sql, values)[0][0])

    def since(self) -> dict[int, dict[int, int]]:
        """Return per pair and source the first place whose write is not proved, of keys that are not diverged.

        It is 0 where a key is open that no write of a known place put there.
        """
        found: dict[int, dict[int, int]] = {}
        for pair, source, seq in self._read(
            "SELECT pair,source,min(since) FROM touched WHERE state<>2 GROUP BY pair,source", []
        ):
            found.setdefault(int(pair), {})[int(source)] = int(seq)
        return found

    def doubted_writes(self) -> set[int]:
        """Return the sources with a written key that differed when the target should have applied it."""
        return {int(s) for (s,) in self._read("SELECT DISTINCT source FROM touched WHERE state=1 AND origin=''", [])}

    def diverged_among(self, pair: int, keys: Sequence[KeyText]) -> set[KeyText]:
        """Return which of some keys of a pair are diverged, or were and are not proved since."""
        texts = {key_text(key): key for key in keys}
        marks = ",".join("?" * len(texts))
        sql = f"SELECT key FROM touched WHERE diverged=1 AND pair=? AND key IN ({marks})"  # noqa: S608 - marks only
        return {texts[text] for (text,) in self._read(sql, [pair, *texts])}

    def reread(self, now: float) -> None:
        """Let diverged keys be read before anything is concluded, as they may be repaired since, and no key wait.

        What a key waits for is of an earlier process: half a minute, or longer where its clock was ahead.
        """
        with self._transaction() as db:
            db.execute("UPDATE touched SET state=3, due=0 WHERE state=2")
            db.execute("UPDATE touched SET due=0, first=min(first,?) WHERE due>?", [now, now])

    def keep_round(self, pair: int, state: str) -> None:
        """Keep how far the rounds over a table are."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO round VALUES (?,?)", (pair, state))

    def rounds(self) -> dict[int, str]:
        """Return how far the rounds over each table are."""
        return {int(p): str(s) for p, s in self._read("SELECT pair,state FROM round", [])}

    def progress(self) -> dict[int, tuple[Position, int]]:
        """Return position and number of commits read, per source."""
        rows = self._read("SELECT source,file,offset,gtids,commits FROM progress", [])
        return {int(s): (Position(str(f), int(o), str(g)), int(n)) for s, f, o, g, n in rows}

    def _keys(self, where: str, values: list[object]) -> list[LedgerKey]:
        rows = self._read(f"SELECT {_COLUMNS} FROM touched WHERE {where}", values)  # noqa: S608 - words of this module
        return [
            LedgerKey(r[0], tuple(json.loads(r[1])), r[2], r[3], r[4], r[5], KeyState(r[6]), r[7], r[8], r[9],
                      _heads(r[2], r[10]), bool(r[11]), r[12], bool(r[13]), r[14])
            for r in rows
        ]  # fmt: skip


def ledger_folder(config: Config) -> Path:
    """Return the folder of ledgers: beside the configuration, so that a watch that was killed finds its own."""
    return config.path.parent / ".migverify"


def _heads(source: int, head: int | str) -> dict[int, int]:
    return {source: head} if isinstance(head, int) else {int(s): at for s, at in json.loads(head).items()}


def ordinal_of(position: Position) -> int:
    """Return a number that grows along the binlog of one server: file number, then offset.

    Raises
    ------
    StoreError
        the file name does not end in a number.
    """
    _, _, number = position.file.rpartition(".")
    if not number.isdigit():
        raise StoreError(f"binlog file {position.file!r} has no number: positions cannot be put in order")
    return (int(number) << OFFSET_BITS) + position.offset


def shown(ordinal: int, like: Position | None) -> str:
    """Return a binlog ordinal as the server writes positions; ``like`` is any position of the same binlog."""
    number, offset = ordinal >> OFFSET_BITS, ordinal & ((1 << OFFSET_BITS) - 1)
    stem, _, digits = (like.file if like else "binlog.000000").rpartition(".")
    return f"{stem}.{number:0{len(digits)}}:{offset}"
