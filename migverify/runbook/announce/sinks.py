"""Where announcements go: the terminal, a file, a webhook, a command. Each one sends one text, or says why not.

A sink never says where it sends to: a webhook's URL is a secret, and a reason is a status or a class of faults. An
announcement may come twice, after a crash between sending and writing it down; it has an id that tells so.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from migverify.errors import ConfigError
from migverify.opener import opener
from migverify.runbook.actions.builtin import passed_on
from migverify.runbook.announce.moments import GROUPS
from migverify.runbook.model import Sink
from migverify.secrets import Secret, remember, resolve_variable, scrub

__all__ = ["TIMEOUT", "Message", "OpenSink", "SinkError", "open_sink", "sink_problems"]

TIMEOUT = 10.0
"""Seconds for one try, unless the sink says ``timeout``."""
LONGEST_TIMEOUT = 120.0
_SHORT = 15
_AGAIN = frozenset({408, 429})
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_COMMON = frozenset({"only", "link"})
_ARGUMENTS = {
    "stdout": _COMMON, "file": _COMMON | {"path"}, "webhook": _COMMON | {"url_env", "timeout", "ca"},
    "command": _COMMON | {"run", "argv", "env", "secrets", "timeout"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: one line of text. ``id`` is the same in every try: ``<run>/<number of the event>``.

    ``fields`` is for programs, beside the text: service, run, step, state, environment and more. ``topic`` names what
    it is about, the same for all that is said of that: a later one may resolve an earlier one.
    """

    id: str
    run: str
    step: str
    what: str
    text: str
    at: float
    fields: Mapping[str, str] = field(default_factory=dict)
    topic: str = ""


class SinkError(Exception):
    """A try that failed.

    Parameters
    ----------
    reason
        Says no URL, no argument, no secret.
    final
        Another try would end the same.
    wait
        Seconds that the other side asks to be left alone for.
    """

    def __init__(self, reason: str, *, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.final, self.wait = reason, final, wait


Send = Callable[["Message", threading.Event], None]
"""Sends a message; raises SinkError. With the event set nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class OpenSink:
    """A sink that can be sent to, from any thread. ``timeout``: seconds for one try; ``link``: the run's page."""

    name: str
    timeout: float
    sender: Send
    link: str = ""

    def send(self, message: Message, canceled: threading.Event) -> None:
        """Send; raises SinkError."""
        if self.link:
            fields = {**message.fields, "link": self.link}
            message = replace(message, text=f"{message.text} {self.link}", fields=fields)
        self.sender(message, canceled)


def sink_problems(sink: Sink, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return what is wrong with a sink's definition, and which variables it needs and has not."""
    known, found = _ARGUMENTS.get(sink.kind), list[str]()
    if known is None:
        return [f"sink {sink.name}: there is no kind {sink.kind}; there are {', '.join(_ARGUMENTS)}"]
    for name in sink.arguments:
        if name not in known:
            given = "a webhook's URL is a secret: say url_env, the name of a variable" if name == "url" else (
                f"there is no argument {name}; it has {', '.join(sorted(known)) or 'none'}"
            )  # fmt: skip
            found.append(f"sink {sink.name}: {given}")
    found += [f"sink {sink.name}: {why}" for why in _wrong_arguments(sink)]
    variables = [sink.arguments.get("url_env"), *_texts(sink.arguments.get("secrets"))]
    for variable in variables:
        if isinstance(variable, str) and variable not in (os.environ if environment is None else environment):
            found.append(f"sink {sink.name}: the environment variable {variable} is not set")
    return found


def _wrong_arguments(sink: Sink) -> list[str]:
    given, found = sink.arguments, list[str]()
    if sink.kind == "file" and not _text(given.get("path")):
        found.append("path is missing: the file that announcements are appended to")
    if sink.kind == "webhook" and not _text(given.get("url_env")):
        found.append("url_env is missing: the name of the variable that holds the URL")
    if sink.kind == "command" and not _argv(given):
        found.append("run is missing: the command that reads the announcement")
    env = given.get("env", {})
    if not isinstance(env, Mapping) or not all(isinstance(one, str) for pair in env.items() for one in pair):
        found.append("env is a map of texts: variables that the command gets besides PATH, HOME and the like")
    if "ca" in given and not _text(given["ca"]):
        found.append("ca is the path of a PEM file")
    only = given.get("only", ())
    if not isinstance(only, list | tuple) or not set(only) <= set(GROUPS):
        found.append(f"only is a list of {', '.join(GROUPS)}")
    if "link" in given and not _text(given["link"]).startswith(("http://", "https://")):
        found.append("link is the address of the run's page: http or https")
    timeout = given.get("timeout", TIMEOUT)
    good = isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout <= LONGEST_TIMEOUT
    if not good:
        found.append(f"timeout is a number of seconds, above 0 and up to {LONGEST_TIMEOUT:g}")
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []


def _argv(given: Mapping[str, Any]) -> list[str]:
    if "argv" in given:
        argv = _texts(given["argv"])
        return argv if len(argv) == len(given["argv"]) else []
    try:
        return shlex.split(_text(given.get("run")))
    except ValueError:
        return []


def open_sink(sink: Sink, environment: Mapping[str, str] | None = None, stdout: TextIO | None = None) -> OpenSink:
    """Open a sink; what it needs of secrets is resolved, and remembered to be kept out of every text.

    One that cannot be opened refuses every text, and says why.

    Parameters
    ----------
    stdout
        What the kind ``stdout`` writes to; None: the standard output at the time of writing.
    """
    problems = sink_problems(sink, environment)
    try:
        sender = _refusing("; ".join(problems)) if problems else _sender(sink, environment, stdout)
    except ConfigError as error:
        sender = _refusing(scrub(error.message))
    timeout = TIMEOUT if problems else float(sink.arguments.get("timeout", TIMEOUT))
    return OpenSink(sink.name, timeout, sender, _text(sink.arguments.get("link")))


def _sender(sink: Sink, environment: Mapping[str, str] | None, stdout: TextIO | None) -> Send:
    arguments, timeout = sink.arguments, float(sink.arguments.get("timeout", TIMEOUT))
    if sink.kind == "stdout":
        return partial(_print, stdout)
    if sink.kind == "file":
        return partial(_append, Path(arguments["path"]).expanduser())
    if sink.kind == "webhook":
        url = _secret_url(resolve_variable(arguments["url_env"], f"url_env of sink {sink.name}", environment))
        # A proxy would look for an address of this machine on its own.
        proxies = urlsplit(url.reveal()).hostname not in _LOOPBACK
        try:
            return partial(_post, url, opener(arguments.get("ca"), proxies=proxies), timeout)
        except OSError as error:
            raise ConfigError(f"sink {sink.name}: its ca cannot be read: {_why(error)}") from None
    names = _texts(arguments.get("secrets"))
    secrets = {name: resolve_variable(name, f"secrets of sink {sink.name}", environment) for name in names}
    return partial(_run, _argv(arguments), arguments.get("env", {}), secrets, timeout)


def _secret_url(url: Secret) -> Secret:
    """Remember also the parts of the URL that are a key by themselves: its path, and a password in it."""
    try:
        parts = urlsplit(url.reveal().strip())
    except ValueError:
        raise ConfigError("its URL cannot be read") from None
    plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if plain or (parts.scheme == "https" and parts.hostname):
        # A short word could stand in any text, and would be hidden everywhere.
        for part in (parts.path.strip("/"), parts.path.rstrip("/").rpartition("/")[2], parts.query, parts.password):
            if part and len(part) > _SHORT:
                remember(Secret(part))
        return url
    raise ConfigError("its URL has to be https (http only to this machine)")


def _refusing(why: str) -> Send:
    def send(_message: Message, _canceled: threading.Event) -> None:
        raise SinkError(why, final=True)

    return send


def _print(stream: TextIO | None, message: Message, _canceled: threading.Event) -> None:
    stream = stream if stream is not None else sys.stdout
    try:
        stream.write(f"{_clock(message.at)} {message.text}\n")
        stream.flush()
    except (OSError, ValueError) as error:  # closed, or nobody reads it any more
        raise SinkError(f"it cannot be written: {_why(error)}") from None


def _append(path: Path, message: Message, _canceled: threading.Event) -> None:
    line = f"{_clock(message.at)} [{message.id}] {message.text}\n".encode("utf-8", "replace")
    try:
        # A link may lead to a file of somebody else, where the folder is one that others may write to.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "ab", buffering=0) as file:
            written = file.write(line)  # one write: lines of several runs do not mix
            os.fsync(file.fileno())
    except OSError as error:
        why = "it is a symbolic link, and is not followed" if error.errno == errno.ELOOP else _why(error)
        raise SinkError(f"it cannot be written: {why}") from None
    if written != len(line):
        raise SinkError(f"only {written} of {len(line)} bytes could be written")


def _post(
    url: Secret, to: urllib.request.OpenerDirector, timeout: float, message: Message, _canceled: threading.Event
) -> None:
    """Post ``{"text": ..., "fields": {...}}`` as JSON: Slack and those like it read the text, programs the fields."""
    body = json.dumps({"text": _escaped(message.text), "fields": dict(message.fields)}).encode("ascii")
    headers = {"Content-Type": "application/json", "User-Agent": "migverify", "Idempotency-Key": message.id}
    try:
        request = urllib.request.Request(url.reveal().strip(), body, headers, method="POST")  # noqa: S310
        with to.open(request, timeout=timeout) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        # The body of a refusal may repeat what was sent, or where: its status says enough.
        with error:
            raise _refused(error.code, error.headers.get("Retry-After")) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SinkError(_why(error)) from None
    if not 200 <= status < 300:
        raise _refused(status, None)


def _refused(status: int, wait: str | None) -> SinkError:
    final = 300 <= status < 500 and status not in _AGAIN
    seconds = float(wait) if wait is not None and wait.isdigit() and len(wait) < 6 else 0.0
    return SinkError(f"status {status}", final=final, wait=seconds)


def _run(
    argv: Sequence[str], env: Mapping[str, str], secrets: Mapping[str, Secret], timeout: float, message: Message,
    canceled: threading.Event,
) -> None:  # fmt: skip
    """Run a program without a shell, with the text on its standard input; end its whole group at the time limit.

    Of the environment it gets what every program of a runbook gets, and what ``env`` and ``secrets`` name.
    """
    variables = {
        **passed_on(os.environ), **env, **{name: secret.reveal() for name, secret in secrets.items()},
        "MIGVERIFY_RUN": message.run, "MIGVERIFY_STEP": message.step, "MIGVERIFY_WHAT": message.what,
        "MIGVERIFY_ANNOUNCEMENT": message.id,
        **{f"MIGVERIFY_{name.upper()}": value for name, value in message.fields.items()},
    }  # fmt: skip
    # Files, not pipes: a child that left the group could hold a pipe open, and reading it would never end.
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as errors:
        text.write(f"{message.text}\n".encode("utf-8", "replace"))
        text.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - the runbook's own command
                argv, stdin=text, stdout=subprocess.DEVNULL, stderr=errors, env=variables, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise SinkError(f"{argv[0]} cannot be started: {_why(error)}") from None
        until = time.monotonic() + timeout
        while process.poll() is None:
            if canceled.is_set() or time.monotonic() >= until:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself in this moment
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise SinkError("it was ended from here" if canceled.is_set() else f"it took longer than {timeout:g} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
        if process.returncode != 0:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2000))
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            words = scrub(lines[-1].strip()[:200]) if lines else ""
            raise SinkError(f"exit code {process.returncode}{f': {words}' if words else ''}")


def _why(error: Exception) -> str:
    """Return the class of a fault: its own text may hold a host or a path that is a secret."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return "the certificate is not verified"
    if isinstance(inner, TimeoutError):
        return "no answer in time"
    if isinstance(inner, socket.gaierror):
        return "its name is not resolved"
    if isinstance(inner, OSError) and inner.strerror and not isinstance(inner, ssl.SSLError):
        return inner.strerror
    return type(inner).__name__ if isinstance(inner, Exception) else type(error).__name__


def _escaped(text: str) -> str:
    # Otherwise a reason that holds `<!channel>` would wake everybody, and `<...|...>` would be a link.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
