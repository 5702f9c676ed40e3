"""Passwords: where they come from, and how they are kept out of every text.

A password exists in two places only: in a ``Secret``, which shows itself to nobody who does not ask by name,
and in the driver that sends it. Each secret that is resolved here is remembered until the process ends, so that the
last message of a dying process can still be scrubbed of it.
"""

from __future__ import annotations

import contextlib
import hmac
import html
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import cycle
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

from migverify.errors import ConfigError
from migverify.model import Endpoint

COMMAND_SECONDS = 30.0
_MASKS = ("***", "[hidden]", "")
_PASSWORDS = ("PASSWORD", "PASSWD", "_PWD", "PASSPHRASE")
_SECRET_NAMES = (*_PASSWORDS, "SECRET", "TOKEN", "_KEY")
_SHORTEST = 4
_NOT_FOUND = (126, 127)  # the shell's exit codes for "cannot run" and "no such command"


class Secret:
    """Text that does not show: not in ``repr``, ``str``, format strings, pickles or JSON."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the driver that needs it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, specification: str) -> str:
        return format("***", specification)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = (text.encode("utf-8", "surrogatepass") for text in (self._text, other._text))
        return hmac.compare_digest(mine, theirs)

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memory: dict[int, Any]) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        # A pickle of a plan, a task or an error travels to logs and disks; a secret must be sent on purpose.
        raise TypeError("a Secret is not pickled; hand over reveal() where it is needed")


_known: set[Secret] = set()


def known_secrets() -> frozenset[Secret]:
    """Return every secret resolved in this process."""
    return frozenset(_known)


def remember(secret: Secret) -> Secret:
    """Have ``known_secrets`` return a secret that came from elsewhere (a worker's task, a prompt)."""
    if secret:
        _known.add(secret)
    return secret


def resolve_password(endpoint: Endpoint, environment: Mapping[str, str] | None = None) -> Secret:
    """Return the password of an endpoint; an empty one where none is configured.

    Raises
    ------
    ConfigError
        The variable is not set, or the command fails, takes longer than ``COMMAND_SECONDS`` or prints
        nothing.
    """
    if endpoint.password_env is not None:
        return resolve_variable(endpoint.password_env, f"password_env of {endpoint.name}", environment)
    if endpoint.password_command is not None:
        return command_output(endpoint.password_command, f"password_command of {endpoint.name}")
    return Secret("")


def resolve_variable(name: str, used_by: str, environment: Mapping[str, str] | None = None) -> Secret:
    """Return the text of an environment variable as it is; ``used_by`` says in messages who wants it.

    Raises
    ------
    ConfigError
        The variable is not set. Set but empty is an empty password.
    """
    text = (os.environ if environment is None else environment).get(name)
    if text is None:
        raise ConfigError(f"the environment variable {name} ({used_by}) is not set", hint=f"export {name}=...")
    return remember(Secret(text))


def without_secrets(value: Any) -> Any:
    """Return JSON data whose texts, and names of fields, hold no secret that this process knows."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub(str(key)): without_secrets(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one) for one in value]
    return value


def is_secret_name(name: str) -> bool:
    """Whether a variable holds a secret by its name."""
    return name.upper().endswith(_SECRET_NAMES)


def remember_environment(environment: Mapping[str, str] | None = None) -> None:
    """Have every password of the environment scrubbed, also one that nothing here has resolved.

    A text of less than four letters is a part of too many words to be taken out of all of them.
    """
    for name, value in (os.environ if environment is None else environment).items():
        if name.upper().endswith(_PASSWORDS) and len(value) >= _SHORTEST:
            remember(Secret(value))


def command_output(command: str, what: str) -> Secret:
    """Return the password that a command prints; ``what`` names it in messages.

    It runs in a shell of its own group, so that a time limit ends its children too.

    Raises
    ------
    ConfigError
        It fails, takes longer than ``COMMAND_SECONDS`` or prints nothing.
    """
    try:
        process = subprocess.Popen(  # noqa: S602  (the user's own configuration, pipes and all)
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what} cannot be started: {type(error).__name__}") from None
    try:
        output, _ = process.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{what} took longer than {COMMAND_SECONDS:g} seconds",
            hint="Run it by hand; it has no terminal here, so it cannot ask anything.",
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing of the group is left: fine
            os.killpg(process.pid, signal.SIGKILL)
        _close(process)
    if process.returncode != 0:
        raise ConfigError(f"{what} failed: {_ended(process.returncode)}", hint="Run it by hand to read its messages.")
    try:
        text = output.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{what} printed bytes that are not UTF-8") from None
    text = text.removesuffix("\n")
    if not text:
        raise ConfigError(f"{what} printed nothing", hint="It has to print the password to standard output.")
    return remember(Secret(text))


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()


def _ended(code: int) -> str:
    """How a password command ended; not what it printed: the password may be in that, in any spelling."""
    if code in _NOT_FOUND:
        return f"exit code {code}, the shell found no such command"
    ended = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    return f"{ended}; its messages are not shown, as they may hold the password"


_LOGIN = re.compile(r"(?<=://)\S*@")
_COLON = re.compile(r":|%3a", re.IGNORECASE)


def hide_logins(text: str) -> str:
    """Return a text whose URLs hold no password.

    A password may hold any character, so everything from the first colon to the last ``@`` of the word goes, and the
    user too where another character than a colon ends the name.
    """

    def hide(match: re.Match[str]) -> str:
        login = match[0][:-1]
        if not _COLON.search(login):
            return match[0]
        user, colon, _ = login.partition(":")
        return f"{user if colon and not re.search('[/@%?#]', user) else ''}:***@".removeprefix(":")

    return _LOGIN.sub(hide, text)


def scrub(text: str, secrets: Iterable[Secret] | None = None, *, whole_words: bool = False) -> str:
    """Return a message without any of the secrets, in any spelling.

    Parameters
    ----------
    text
        A message, a traceback, a log line.
    secrets
        What must not show; by default every secret this process resolved. Removed are the text itself and the
        text percent-encoded, escaped as SQL, JSON, HTML or Python would, and as hex.
    whole_words
        For sentences of migverify and of servers: a secret of less than four letters is removed only where it is a
        whole word. A mask inside of a word that everybody knows would spell the secret out.
    """
    hidden = frozenset(secret for secret in (known_secrets() if secrets is None else secrets) if secret)
    if not hidden:
        return text
    pattern = _pattern(hidden, whole_words)
    for mask in _MASKS:
        # The mask itself, or the mask with the text around it, can spell a short password.
        result = pattern.sub(mask, text)
        if not pattern.search(result):
            return result
    while pattern.search(result):
        result = pattern.sub("", result)
    return result


def scrub_sentence(text: str) -> str:
    """Return a sentence or a command of migverify as people read and type it: without passwords, its files as given.

    A file's name that holds the password as a part of it is no secret: without it the command could not be typed.
    """
    parts = _GIVEN_FILE.split(hide_logins(text))
    return "".join(part if of_file else scrub(part, whole_words=True) for part, of_file in zip(parts, cycle((0, 1))))


_GIVEN_FILE = re.compile(
    r"""(?<![^\s`])((?:--(?:config|store|runs|cases)|migverify (?:fleet|runbook) [a-z-]+)[ =](?!-)"""
    r"""(?:'[^'?]*'|"[^"?]*"|\\.|[^\s'"\\?])+)"""
)
"""An option, or a command, and the file that it was given, as a shell reads its quotes."""


@lru_cache(maxsize=8)  # a journal line has dozens of texts, and the secrets of a process are the same for all
def _pattern(hidden: frozenset[Secret], whole_words: bool) -> re.Pattern[str]:
    ordered = sorted((secret.reveal() for secret in hidden), key=len)  # the longer of two that share a spelling counts
    is_short = {spelling: len(text) < _SHORTEST for text in ordered for spelling in _spellings(text)}
    return re.compile("|".join(
        _alone(spelling) if whole_words and is_short[spelling] else re.escape(spelling)
        for spelling in sorted(is_short, key=len, reverse=True)
    ))  # fmt: skip


def _alone(spelling: str) -> str:
    """Return a pattern of a text that is no part of a longer word; the edges of a sign need no such care."""
    before = r"(?<!\w)" if spelling[0].isalnum() else ""
    after = r"(?!\w)" if spelling[-1].isalnum() else ""
    return f"{before}{re.escape(spelling)}{after}"


def _spellings(text: str) -> set[str]:
    raw = text.encode("utf-8", "surrogatepass")
    percent = {quote(raw, safe=safe) for safe in ("", "/", "/:@", "!*'()")} | {quote_plus(raw)}
    backslashed = text.translate(_SQL_ESCAPES)
    spellings = {
        text,
        text.strip(),
        backslashed,
        text.replace("'", "''"),
        text.replace("\\", "\\\\").replace("'", "''"),
        text.replace("\\", "\\\\").replace('"', '\\"'),
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        html.escape(text),
        html.escape(text, quote=False),
        repr(text)[1:-1],
        ascii(text)[1:-1],
        repr(raw)[2:-1],
        *percent,
        *(re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in percent),
    }
    if len(raw) > 2:
        spellings |= {raw.hex(), raw.hex().upper()}
    return {spelling for spelling in spellings if spelling}


_SQL_ESCAPES = str.maketrans({
    "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", '"': '\\"', "'": "\\'", "\\": "\\\\",
})  # fmt: skip
