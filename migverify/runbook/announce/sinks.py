"""Where announcements go: terminal, file, webhook, PagerDuty, Slack, command. Each one sends one text, or says why not.

A sink never says where it sends to: a webhook's URL is a secret, and a reason is a status or a class of faults. An
announcement may come twice, after a crash between sending and writing it down; it has an id that tells so.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from migverify.errors import ConfigError
from migverify.runbook.actions.builtin import passed_on
from migverify.runbook.announce import pagerduty, slack
from migverify.runbook.announce.http import Poster, escaped, fault_of, is_address, poster, secret_url
from migverify.runbook.announce.message import Message, Send, SinkError
from migverify.runbook.announce.moments import GROUPS
from migverify.runbook.model import Sink
from migverify.secrets import Secret, remember, resolve_variable, scrub

__all__ = ["TIMEOUT", "Message", "OpenSink", "SinkError", "open_sink", "sink_problems"]

TIMEOUT = 10.0
"""Seconds for one try, unless the sink says ``timeout``."""
LONGEST_TIMEOUT = 120.0
_VARIABLES = ("url_env", "routing_key_env", "token_env")
"""Arguments that name an environment variable which holds a secret."""
_SECRETS = {
    "url": ("a webhook's URL", "url_env"), "routing_key": ("a routing key", "routing_key_env"),
    "token": ("a token", "token_env"),
}  # fmt: skip
_COMMON = frozenset({"only", "link"})
_ARGUMENTS = {
    "stdout": _COMMON, "file": _COMMON | {"path"}, "webhook": _COMMON | {"url_env", "timeout", "ca"},
    "command": _COMMON | {"run", "argv", "env", "secrets", "timeout"},
    "pagerduty": _COMMON | {"routing_key_env", "api", "timeout", "ca"},
    "slack": _COMMON | {"url_env", "token_env", "channel", "api", "timeout", "ca"},
}  # fmt: skip


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
            found.append(f"sink {sink.name}: {_unknown(name, known)}")
    found += [f"sink {sink.name}: {why}" for why in _wrong_arguments(sink)]
    variables = [*(sink.arguments.get(name) for name in _VARIABLES), *_texts(sink.arguments.get("secrets"))]
    for variable in variables:
        if isinstance(variable, str) and variable not in (os.environ if environment is None else environment):
            found.append(f"sink {sink.name}: the environment variable {variable} is not set")
    return found


def _unknown(name: str, known: frozenset[str]) -> str:
    secret = _SECRETS.get(name)
    if secret is not None and secret[1] in known:
        return f"{secret[0]} is a secret: say {secret[1]}, the name of a variable"
    return f"there is no argument {name}; it has {', '.join(sorted(known)) or 'none'}"


def _wrong_arguments(sink: Sink) -> list[str]:
    given, found = sink.arguments, list[str]()
    if sink.kind == "file" and not _text(given.get("path")):
        found.append("path is missing: the file that announcements are appended to")
    if sink.kind == "webhook" and not _text(given.get("url_env")):
        found.append("url_env is missing: the name of the variable that holds the URL")
    if sink.kind == "pagerduty" and not _text(given.get("routing_key_env")):
        found.append("routing_key_env is missing: the name of the variable that holds the integration key")
    if sink.kind == "slack":
        found += _wrong_slack(given)
    if "api" in given and not _is_address(given["api"]):
        found.append("api is the address of the API: https (http only to this machine), without a query or a login")
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


def _wrong_slack(given: Mapping[str, Any]) -> Iterator[str]:
    hook, token = _text(given.get("url_env")), _text(given.get("token_env"))
    if bool(hook) == bool(token):
        yield "url_env (an incoming webhook) or token_env (chat.postMessage) is needed, and not both"
    elif token and not _text(given.get("channel")):
        yield "channel is missing: the id of the channel that the token may post to"
    elif hook and ("channel" in given or "api" in given):
        yield "channel and api belong to token_env: an incoming webhook has a channel of its own"


def _is_address(value: Any) -> bool:
    text = _text(value)
    return is_address(text) and not (urlsplit(text).query or urlsplit(text).username)


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
        url = resolve_variable(arguments["url_env"], f"url_env of sink {sink.name}", environment)
        return partial(_post, poster(secret_url(url), arguments.get("ca"), timeout, sink.name))
    if sink.kind == "pagerduty":
        return _pagerduty(sink, environment, timeout)
    if sink.kind == "slack":
        return _slack(sink, environment, timeout)
    names = _texts(arguments.get("secrets"))
    secrets = {name: resolve_variable(name, f"secrets of sink {sink.name}", environment) for name in names}
    return partial(_run, _argv(arguments), arguments.get("env", {}), secrets, timeout)


def _pagerduty(sink: Sink, environment: Mapping[str, str] | None, timeout: float) -> Send:
    given = sink.arguments
    secret = resolve_variable(given["routing_key_env"], f"routing_key_env of sink {sink.name}", environment)
    key = remember(pagerduty.routing_key(secret))
    to = poster(
        Secret(given.get("api", pagerduty.ENQUEUE)), given.get("ca"), timeout, sink.name, pagerduty.refusal_words
    )
    return pagerduty.sender(key, to)


def _slack(sink: Sink, environment: Mapping[str, str] | None, timeout: float) -> Send:
    given = sink.arguments
    if "url_env" in given:
        url = resolve_variable(given["url_env"], f"url_env of sink {sink.name}", environment)
        return slack.sender(poster(secret_url(url), given.get("ca"), timeout, sink.name, slack.refusal_words))
    token = resolve_variable(given["token_env"], f"token_env of sink {sink.name}", environment)
    url = Secret(given.get("api", slack.POST_MESSAGE))
    to = poster(url, given.get("ca"), timeout, sink.name, slack.refusal_words)
    return slack.sender(to, token, given["channel"])


def _refusing(reason: str) -> Send:
    def send(_message: Message, _canceled: threading.Event) -> None:
        raise SinkError(reason, final=True)

    return send


def _print(stream: TextIO | None, message: Message, _canceled: threading.Event) -> None:
    stream = stream if stream is not None else sys.stdout
    try:
        stream.write(f"{_clock(message.at)} {message.text}\n")
        stream.flush()
    except (OSError, ValueError) as error:  # closed, or nobody reads it any more
        raise SinkError(f"it cannot be written: {fault_of(error)}") from None


def _append(path: Path, message: Message, _canceled: threading.Event) -> None:
    line = f"{_clock(message.at)} [{message.id}] {message.text}\n".encode("utf-8", "replace")
    try:
        # A link may lead to a file of somebody else, where the folder is one that others may write to.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "ab", buffering=0) as file:
            written = file.write(line)  # one write: lines of several runs do not mix
            os.fsync(file.fileno())
    except OSError as error:
        why = "it is a symbolic link, and is not followed" if error.errno == errno.ELOOP else fault_of(error)
        raise SinkError(f"it cannot be written: {why}") from None
    if written != len(line):
        raise SinkError(f"only {written} of {len(line)} bytes could be written")


def _post(poster: Poster, message: Message, _canceled: threading.Event) -> None:
    """Post ``{"text": ..., "fields": {...}}`` as JSON: Slack and those like it read the text, programs the fields."""
    body = json.dumps({"text": escaped(message.text), "fields": dict(message.fields)}).encode("ascii")
    poster.post(message, body)


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
            raise SinkError(f"{argv[0]} cannot be started: {fault_of(error)}") from None
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


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
