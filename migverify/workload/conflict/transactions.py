"""Statements seen -> transactions of sessions, and which of them a TSO belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from migverify.workload.classify import StatementKind
from migverify.workload.conflict.model import LATEST, SeenStatement, tso_time
from migverify.workload.meaning import Meaning, Meanings

_ENDS = frozenset({"COMMIT", "ROLLBACK"})


@dataclass(slots=True)
class Transaction:
    """Statements of one session that share a transaction; an autocommit statement is one of its own.

    ``start`` is its TSO where the log tells it. ``begin`` and ``end`` are those of its first and last statement.
    """

    session: str
    start: int | None
    statements: list[SeenStatement] = field(default_factory=list)
    internal: bool = False

    @property
    def begin(self) -> int | None:
        """When its first statement came."""
        return min((one.begin for one in self.statements if one.begin is not None), default=None)

    @property
    def end(self) -> int | None:
        """When its last statement was answered."""
        return max((one.end for one in self.statements if one.end is not None), default=None)

    @property
    def explicit(self) -> bool | None:
        """Did the client begin it? None where nothing tells."""
        known = [one.explicit for one in self.statements if one.explicit is not None]
        return any(known) if known else (True if len(self.statements) > 1 else None)


class Statements:
    """All statements seen, by session and by transaction; meanings are found once for each kind of statement."""

    def __init__(self, seen: Iterable[SeenStatement]) -> None:
        self._meanings = Meanings()
        self.by_session: dict[str, list[SeenStatement]] = defaultdict(list)
        for one in seen:
            self.by_session[one.session].append(one)
        for statements in self.by_session.values():
            statements.sort(key=lambda one: (one.begin or 0, one.end or 0))
        self.transactions = [one for session in self.by_session.values() for one in self._split(session)]

    def meaning(self, seen: SeenStatement) -> Meaning:
        """Return what a statement means."""
        return self._meanings.meaning(seen.sql)

    def tables(self, seen: SeenStatement) -> tuple[str, ...] | None:
        """Return its tables as database.table in lower case; None where they are not known."""
        found = self.meaning(seen).shape.tables
        if found is None:
            return None
        return tuple((one if "." in one or not seen.database else f"{seen.database}.{one}").lower() for one in found)

    def writes(self, seen: SeenStatement) -> bool:
        """Tell whether a statement may write rows or lock them."""
        found = self.meaning(seen).classification
        return found.may_write or found.locking

    def touches(self, transaction: Transaction, table: str, *, writing: bool = True) -> SeenStatement | None:
        """Return the last statement of a transaction on a table; ``""`` is any table."""
        return next(
            (
                one for one in reversed(transaction.statements)
                if (not writing or self.writes(one)) and self.on(one, table) and not self._is_end(one)
            ),
            None,
        )  # fmt: skip

    def on(self, seen: SeenStatement, table: str) -> bool:
        """Tell whether a statement names the table; False where its tables are not known."""
        if not table:
            return True
        name = table.lower()
        return any(
            one == name or ("." not in one and one == name.rpartition(".")[2]) for one in self.tables(seen) or ()
        )

    def of_start(self, start: int | None) -> Transaction | None:
        """Return the transaction with this start TSO, by the log's word."""
        if start is None or start == LATEST:
            return None
        return next((one for one in self.transactions if one.start == start), None)

    def by_time(self, start: int, commit: int | None, table: str, skew: int) -> list[Transaction]:
        """Return transactions on a table that can have this start (and commit) by their times, ``skew`` apart at most.

        A transaction takes its start TSO while its first statement runs, its commit TSO while its last one does.
        """
        began = tso_time(start)
        found = []
        for one in self.transactions:
            first = one.statements[0]
            if one.start is not None or first.begin is None or first.end is None or one.end is None:
                continue
            if not first.begin - skew <= began <= first.end + skew:
                continue
            last = one.statements[-1]
            if commit is not None and not (last.begin or first.begin) - skew <= tso_time(commit) <= one.end + skew:
                continue
            if self.touches(one, table) is not None:
                found.append(one)
        return found

    def later(self, seen: SeenStatement) -> SeenStatement | None:
        """Return the statement that follows in the same session."""
        found = self.by_session[seen.session]
        at = found.index(seen) + 1
        return found[at] if at < len(found) else None

    def _is_end(self, seen: SeenStatement) -> bool:
        words = self.meaning(seen).classification.words
        return bool(words) and words[0] in _ENDS

    def _split(self, session: Sequence[SeenStatement]) -> Iterable[Transaction]:
        by_start: dict[int, Transaction] = {}
        current: Transaction | None = None
        for one in session:
            if one.txn is not None and one.txn != LATEST:
                known = by_start.setdefault(one.txn, Transaction(one.session, one.txn, internal=one.internal))
                known.statements.append(one)
                continue
            if one.txn == LATEST or one.explicit is False:
                yield Transaction(one.session, None, [one], one.internal)
                continue
            current = current or Transaction(one.session, None, [], one.internal)
            current.statements.append(one)
            found = self.meaning(one).classification
            inside = one.explicit or (
                found.kind is StatementKind.TRANSACTION and bool(found.words) and found.words[0] in ("BEGIN", "START")
            )
            if not inside or self._is_end(one):
                yield current
                current = None
        if current is not None:
            yield current
        yield from by_start.values()
