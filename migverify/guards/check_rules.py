"""What a row of the table of questions is made of, and the one way to put a question.

A row holds whom it concerns, what is wanted, why, and what to do. A judge is data where possible (``Value``, ``Agree``,
``NoneOf``), else a function; both yield results whose empty texts are filled from the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from migverify.errors import PrivilegeError, ReadError, RetryableReadError
from migverify.figures import amount
from migverify.guards.check_read import CheckedServer, Platform, Refusal
from migverify.guards.model import AnswerState, CheckResult, GuardQuestion, first_line, listed, unknown
from migverify.model import Flavor
from migverify.sql import settings as sql


class Work(StrEnum):
    """What is about to begin."""

    TABLES = "tables"
    CHANGES = "changes"
    RECON = "recon"
    WORKLOAD = "workload"
    CUTOVER = "cutover"


ALL = frozenset(Work)


class Of(StrEnum):
    """Whom a question is put to."""

    EACH = "each endpoint"
    SOURCE = "each source"
    TARGET = "the target"
    PAIR = "each source and the target"


@dataclass(frozen=True, slots=True)
class CheckQuestion(GuardQuestion[CheckedServer]):
    """One row of the table of questions.

    Parameters
    ----------
    of, work
        Whom it is put to, and before which work.
    ask, pair
        Judges one endpoint; a source and the target. A refusal that either raises is INCONCLUSIVE, with ``todo`` as
        what to do.
    others
        Further endpoints of the configuration are asked too.
    kinds
        Kinds of servers that it concerns, of a pair the target's; empty: all, or those of the question it is part of.
    parts
        Rows that are put one by one under this one's name; what they leave empty is this one's.
    alone
        Put by ``changes check`` only: the guard has a question of its own for it.
    """

    of: Of = Of.EACH
    work: frozenset[Work] = ALL
    pair: Callable[[CheckedServer, CheckedServer], Iterable[CheckResult]] | None = None
    others: bool = False
    kinds: frozenset[Flavor] = frozenset()
    parts: tuple[CheckQuestion, ...] = ()
    alone: bool = False


def judged(question: CheckQuestion, *servers: CheckedServer) -> Iterator[CheckResult]:
    """Put a question with all its parts. A refusal is INCONCLUSIVE; results that came before it stay.

    Raises
    ------
    RetryableReadError
        the connection to one of ``servers`` is gone.
    """
    for part in question.parts or (question,):
        ask: Callable[..., Iterable[CheckResult]] | None = part.ask if len(servers) == 1 else part.pair
        kinds = part.kinds or question.kinds
        if ask is None or (kinds and servers[-1].flavor not in kinds):
            continue
        name = "" if part is question else part.name
        try:
            for result in ask(*servers):
                yield _completed(question, part, name, result, servers[0])
        except (ReadError, PrivilegeError) as error:
            # A time limit or a lock concerns this row; a lost connection all that follow.
            if isinstance(error, RetryableReadError) and not all(server.alive for server in servers):
                raise
            refused = unknown(first_line(error), refusal_remedy(error, servers[0]))
            yield _completed(question, part, name, refused, servers[0])


def _completed(
    question: CheckQuestion, part: CheckQuestion, name: str, result: CheckResult, server: CheckedServer
) -> CheckResult:
    query = server.shown(result.query or part.query or question.query)
    return replace(
        result, part=result.part or name, threshold=result.threshold or part.threshold, query=query,
        why=result.why or part.why, todo=result.todo or part.todo,
    )  # fmt: skip


def refusal_remedy(error: Refusal, server: CheckedServer) -> str:
    """Return what helps against a refusal: the grant that the server names, else the hint of the error."""
    needed = re.search(r"at least one of\) the (.+?) privilege", error.message)
    return error.hint if needed is None else f"GRANT {needed[1].split(',')[-1].strip()} ON *.* TO {server.account};"


# --- judges that are data ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """Judges a variable of one server by the values that pass.

    Parameters
    ----------
    names
        All spellings that servers use, the newest first; the first one that the server has counts.
    good, right
        Values that pass, in upper case; ``right`` judges instead where they cannot be listed.
    other
        State of any other value.
    absent, absent_means, absent_todo
        What it means that the server has no such variable.
    since
        The first version that has it: on an earlier one its absence passes. Empty: all have it.
    new_session
        It has no global value: a new session gets it from the server's configuration.
    set_to, dynamic, by_session
        The value that the remedy sets (empty: the row's ``todo`` is the remedy), whether that needs no restart, and
        whether open sessions keep a value of their own.
    """

    names: tuple[str, ...]
    good: frozenset[str] = frozenset()
    right: Callable[[str], AnswerState] | None = None
    other: AnswerState = AnswerState.FAIL
    absent: AnswerState = AnswerState.INCONCLUSIVE
    absent_means: str = "the server has no such variable"
    absent_todo: str = ""
    since: tuple[int, ...] = ()
    new_session: bool = False
    set_to: str = ""
    dynamic: bool = True
    by_session: bool = False

    def __call__(self, server: CheckedServer) -> Iterator[CheckResult]:
        """Read the variable and judge it."""
        name = next((n for n in self.names if n in server.variables), self.names[0])
        query = sql.session_variable(name) if self.new_session else sql.global_variable(name)
        part = "" if name == self.names[0] else name  # a row is named after the newest spelling
        value = self._of_new_session(server, query) if self.new_session else server.variables.get(name)
        if value is None:
            too_old = bool(self.since and server.number) and server.number < self.since
            state, means = self.absent, self.absent_means
            if too_old:
                state, means = AnswerState.PASS, "this version has no such variable"
            yield CheckResult(state, means, self.absent_todo, part, query=query)
            return
        todo = self._remedy(name, server) if self.set_to else ""
        yield CheckResult(self.state(value), value or "''", todo, part, query=query)

    def state(self, value: str) -> AnswerState:
        """Judge a value as the server spells it."""
        if self.right is not None:
            return self.right(value)
        return AnswerState.PASS if value.upper() in self.good else self.other

    @staticmethod
    def _of_new_session(server: CheckedServer, query: str) -> str | None:
        rows = server.attempt(lambda: server.session.query(query))
        return _switch(rows[0][0] or "") if isinstance(rows, list) else None

    def _remedy(self, name: str, server: CheckedServer) -> str:
        """Return what to do so that the variable passes, as this kind of server wants it done."""
        if server.platform is not Platform.OWN:
            aurora = server.platform is Platform.AURORA
            group = "DB cluster parameter group" if aurora else "DB parameter group"
            if name == "log_bin":
                how = "binlog_format = ROW there turns the log on" if aurora else "turn backups on"
                return f"In the {group}: {how}, then reboot."
            return f"Set {name} = {self.set_to} in the {group}" + ("." if self.dynamic else ", then reboot.")
        if not self.dynamic:
            return f"Put {name.replace('_', '-')} into the option file and restart the server."
        if server.flavor is Flavor.MYSQL and server.number >= (8,):
            text = f"SET PERSIST {name} = {self.set_to};"
        else:
            text = f"SET GLOBAL {name} = {self.set_to}; and the same in the option file."
        return text + (" Open sessions keep their old value: let the pools reconnect." if self.by_session else "")


def _switch(value: str) -> str:
    return {"1": "ON", "0": "OFF"}.get(value, value.upper())


def equal(source: str, target: str) -> bool:
    """Whether two values mean the same: ``1`` is ``ON``, in any case."""
    return _switch(source) == _switch(target)


def at_least(source: str, target: str) -> bool | None:
    """Whether the target's number is the source's or a larger one; None where a value is no number."""
    numbers = all(value.lstrip("-").isdigit() for value in (source, target))
    return int(target) >= int(source) if numbers else None


@dataclass(frozen=True, slots=True)
class Agree:
    """Judges a variable of a source together with the target's.

    ``agree`` returns None for values that cannot be compared. A server that lacks the variable leaves the row out, or
    makes it INCONCLUSIVE where it is ``required``. ``unit``, where given, adds both values as numbers of that unit.
    """

    name: str
    agree: Callable[[str, str], bool | None] = equal
    other: AnswerState = AnswerState.FAIL
    required: bool = False
    unit: str = ""

    def __call__(self, source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
        """Read the variable of both and compare."""
        if not self.required and not all(self.name in server.variables for server in (source, target)):
            return
        ours, theirs = source.variable(self.name), target.variable(self.name)
        shown, agree = f"source {ours or repr('')}, target {theirs or repr('')}", self.agree(ours, theirs)
        if agree is None:
            raise ReadError(f"{shown}: {self.name} is no number")
        numbers = {f"source_{self.unit}": float(ours), f"target_{self.unit}": float(theirs)} if self.unit else {}
        plain = ours.isdigit() or ours.upper() in ("ON", "OFF")
        literal = ours if plain else "'" + ours.replace("'", "''") + "'"
        yield CheckResult(
            AnswerState.PASS if agree else self.other, shown, f"On the target: SET GLOBAL {self.name} = {literal};",
            query=sql.global_variable(self.name), numbers=numbers,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NoneOf:
    """Judges objects of which there should be none; ``find`` names those that there are.

    Parameters
    ----------
    among
        What they are counted against: ``tables`` or ``databases`` in scope of the first server.
    unseen
        The privilege without which the server hides such objects from the user; empty where the user has it.
    """

    find: Callable[..., Sequence[str]]
    state: AnswerState = AnswerState.FAIL
    among: str = "table"
    unseen: Callable[[CheckedServer], str] = lambda _: ""

    def __call__(self, *servers: CheckedServer) -> Iterator[CheckResult]:
        """List what there is; nothing to be seen is INCONCLUSIVE for a user who may not see such objects."""
        server, names = servers[0], self.find(*servers)
        whole = amount(len(server.tables if self.among == "table" else server.databases), self.among)
        needed = "" if names else self.unseen(server)
        if needed:
            where = needed if " ON " in needed else f"{needed} ON <database>.*"
            value = f"none that {server.grants.account} may see, and without {needed} others are hidden"
            yield unknown(value, f"GRANT {where} TO {server.account};")
            return
        value = f"{len(names)} in {whole}: {listed(names)}" if names else f"none in {whole}"
        state = self.state if names else AnswerState.PASS
        yield CheckResult(state, value, numbers={"found": float(len(names))})
