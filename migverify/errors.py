"""Every error migverify raises, and the exit codes.

::

    MigverifyError                      anything migverify says on purpose; carries an exit code and a hint
    ├── UsageError                      (2) the command line asks for something that does not exist
    ├── ConfigError                     (2) migverify.yaml, a variable or a secret is wrong or missing
    ├── PlanError                       (2) a plan file is damaged, foreign or older than its configuration
    ├── EndpointError                   (2) a server refuses the session as it is configured
    │   ├── PrivilegeError              (2) the user lacks a grant; the message names it
    │   ├── LoginError                  (2) the server does not let this user in; another attempt cannot help
    │   └── UnreachableError            (3) nothing answers there now: refused, no such host, TLS, no connection left
    ├── StoreError                      (3) run results cannot be written or read; nothing is lost
    │   ├── StoreSettingError               (2) the store's URL, user, database or driver is wrong
    │   ├── JournalError                    (3) a run's journal is damaged, or says what cannot have happened
    │   └── FencedError                     (3) another executor took the run over; this one may not go on
    ├── LabError                        (2) the lab's servers cannot be built, started or loaded
    ├── RepairError                     (3) a repair is refused or stopped; the target is as it was reported
    ├── TrafficError                    (3) a share of traffic cannot be set, read or proved
    ├── ChangeError                     (3) a change stream cannot be read exactly from here on
    │   └── PurgedError                     (3) the place to read from is not on the server any more
    └── ReadError                       (3) a query on an endpoint failed
        ├── RetryableReadError          (3) connection lost, lock wait: worth another attempt
        │   └── TimeLimitError          (3) the query's time limit is over: worth a smaller query
        ├── CanceledError               (3) the run was asked to stop
        ├── ReplacedError               (3) the name means another table, or the table has other columns, than at first
        └── IncompleteReadError         (3) the answer came, but does not cover what was asked

The numbers of the exit codes are in this module only.
"""

from __future__ import annotations

from enum import IntEnum

from migverify import __version__


class ExitCode(IntEnum):
    """What the process returns to its caller; the contract of every command."""

    MATCH = 0
    MISMATCH = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INTERRUPTED = 130


CHANGED_SINCE = "the table or its configuration changed since run"
NOTHING_TO_RECHECK = "there is nothing to recheck"
"""What the errors say of a run that cannot be resumed or rechecked: only a new run can follow it."""
CONTRACT_VERSION = 1
"""Version of the exit codes and of the schemas of JSON outputs; docs/json.md says when it is raised."""


def wheel_hint(extra: str = "", *, lab: bool = False) -> str:
    """Return how a missing extra, or the lab, is installed: from the wheels of the release.

    On the public index the name migverify is another project's, so no message may name it without its file.
    """
    file = f"./migverify{'_lab' if lab else ''}-{__version__}-py3-none-any.whl{f'[{extra}]' if extra else ''}"
    return f"Run pip install '{file}' with the wheel of the release (docs/install.md)"


class MigverifyError(Exception):
    """Base of all errors that migverify raises on purpose.

    Parameters
    ----------
    message
        What happened and where (endpoint, table pair, chunk, SQL, file and line). Never holds a secret.
    hint
        What the reader can do about it, as one sentence; empty when the message says it.
    """

    exit_code: ExitCode = ExitCode.INCONCLUSIVE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions on their way to the driver; the default form would lose the hint.
        return (_rebuild, (type(self), self.message, self.hint))

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    @property
    def line(self) -> str:
        """The message and what to do, in one line."""
        joint = " " if self.message.rstrip().endswith((".", "!", "?", ":")) else ". "
        return " ".join((f"{self.message}{joint}{self.hint}" if self.hint else self.message).split())

    @property
    def headline(self) -> str:
        """The first line of the message; of several problems also the first one."""
        first, *problems = self.message.split("\n")
        return f"{first}, the first: {problems[0]}" if first.endswith(" problems") and problems else first


def _rebuild(kind: type[MigverifyError], message: str, hint: str) -> MigverifyError:
    return kind(message, hint=hint)


class UsageError(MigverifyError):
    """The command line asks for something that does not exist."""

    exit_code = ExitCode.USAGE


class NoRunError(UsageError):
    """The store holds no run that ``last`` could mean."""


class ConfigError(MigverifyError):
    """The configuration, a variable it names, or a secret is wrong or missing."""

    exit_code = ExitCode.USAGE


class PlanError(MigverifyError):
    """A plan file is damaged, foreign, or older than its configuration."""

    exit_code = ExitCode.USAGE


class EndpointError(MigverifyError):
    """A server cannot be reached, or refuses the session as it is configured."""

    exit_code = ExitCode.USAGE


class PrivilegeError(EndpointError):
    """The user lacks a grant; the message names it."""


class LoginError(EndpointError):
    """The server does not let this user in: wrong password, locked account, no such database."""


class UnreachableError(EndpointError):
    """No session can be made now: nothing answers, no such host, TLS fails, no connection is left.

    Nothing is known then, and the configuration may be right, so this is INCONCLUSIVE.
    """

    exit_code = ExitCode.INCONCLUSIVE


class LabError(MigverifyError):
    """The lab's servers cannot be built, started or loaded."""

    exit_code = ExitCode.USAGE


class StoreError(MigverifyError):
    """Run results cannot be written or read."""


class StoreSettingError(StoreError):
    """The store cannot be opened as it is configured: its URL, user, database or driver is wrong."""

    exit_code = ExitCode.USAGE


class JournalError(StoreError):
    """A run's journal is damaged, or says what cannot have happened; the message names the line."""


class FencedError(StoreError):
    """Another executor took the run over: this one may not write or do anything more."""


class RepairError(MigverifyError):
    """A repair is refused or stopped."""


class TrafficError(MigverifyError):
    """A share of traffic cannot be set, read or proved on an instance; the message names it."""


class ChangeError(MigverifyError):
    """A change stream cannot be read exactly from here on; what was read before is certain."""


class PurgedError(ChangeError):
    """The server has deleted the binlog that the wanted position lies in."""


class ReadError(MigverifyError):
    """A query on an endpoint failed; the chunk it belongs to is not verified."""


class RetryableReadError(ReadError):
    """Connection lost, lock wait or time limit: worth another attempt."""


class TimeLimitError(RetryableReadError):
    """The server stopped a query at its time limit: the same query again would end the same."""


class CanceledError(ReadError):
    """The run was asked to stop; what was being read does not count."""


class ReplacedError(ReadError):
    """The name means another table than at first, or the table has other columns: the reads are not of one table."""


class IncompleteReadError(ReadError):
    """The answer came, but does not cover what was asked."""


def in_words(error: MigverifyError) -> str:
    """Return why a read failed without the server's words, for remarks beside a verdict that does not depend on it.

    What a server says names users, hosts and statements, and reads as if something were wrong with the verdict.
    """
    if isinstance(error, PrivilegeError):
        return "the user lacks a privilege for it (docs/privileges.md)"
    if isinstance(error, LoginError):
        return "the server does not let the user in"
    if isinstance(error, TimeLimitError):
        return "the query hit its time limit"
    if isinstance(error, EndpointError | RetryableReadError):
        return "the server could not be reached, or ended the query"
    return "the server did not answer the query" if "\n  SQL: " in error.message else error.message
