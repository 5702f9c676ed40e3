"""The actions that every runbook has: commands, SQL, waits, other commands of migverify, a value of Prometheus."""

from __future__ import annotations

import fcntl
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from migverify.errors import EndpointError, ReadError, UsageError
from migverify.model import Endpoint, Side
from migverify.runbook.actions.action import (
    Action,
    ActionKind,
    ActionResult,
    Argument,
    Bounds,
    Context,
    Outcome,
    Registry,
)
from migverify.runbook.record.process_lock import MARK, descendants, marks_with
from migverify.secrets import Secret, is_secret_name, remember, resolve_password, resolve_variable, scrub

__all__ = ["Finished", "built_in", "endpoint_of", "passed_on", "reading", "run_program"]

KEPT_BYTES = 16384
"""Of each stream, the end; how much there was is reported."""
_OUTPUT_BYTES = 16 << 20
"""How large a program's output may grow on the disk before it is cut to what is kept."""
_GRACE = 2.0
_PASSED_ON = frozenset({"MIGVERIFY", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
                        "TERM", "PYTHONPATH", "VIRTUAL_ENV"})  # fmt: skip
_ARGV = Argument("argv", "list", "Program and arguments; there is no shell.", required=True)
_SECRETS = Argument("secrets", "list", "Environment variables that hold secrets: never kept, never shown.")
_ENV = Argument("env", "map", "More environment variables.")
_CWD = Argument("cwd", "text", "Working directory.")
_COMMAND = (_ARGV, _ENV, _SECRETS, _CWD)
_ENDPOINT = Argument(
    "endpoint", "text", "An endpoint of migverify.yaml: source, source.<shard>, target.", required=True
)
_SQL = Argument("sql", "text", "One statement.", required=True)
_READING = ("SELECT", "WITH", "TABLE", "SHOW", "ADMIN CHECK", "ADMIN SHOW")
_LOCKING = {("FOR", "UPDATE"), ("FOR", "SHARE"), ("LOCK", "IN")}
_WRITING = {"INTO", "OUTFILE", "DUMPFILE", "UPDATE", "DELETE", "INSERT", "REPLACE"}
_ZERO = Bounds(minimum=0, maximum=0)


class Finished:
    """How a program ended: ``code`` None when it was ended from here (``why``)."""

    def __init__(self, code: int | None, why: Outcome, output: str, errors: str, facts: dict[str, Any]) -> None:
        self.code, self.why, self.output, self.errors, self.facts = code, why, output, errors, facts


class _Output:
    """A file without a name that a program writes to, of which the last bytes are kept.

    A file goes on taking what is written when nobody reads it any more: a pipe would end the program. One that grows
    is cut, so that a program that prints for hours does not fill the disk.
    """

    def __init__(self, most: int) -> None:
        self._file, self._most, self._cut = tempfile.TemporaryFile(), most, 0  # noqa: SIM115 - closed by `text`
        fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) | os.O_APPEND)
        self._kept = b""

    def fileno(self) -> int:
        """Return the handle for the program."""
        return self._file.fileno()

    def bound(self) -> None:
        """Cut the file when it has grown beyond what is kept; what it held at its end is remembered."""
        size = os.fstat(self._file.fileno()).st_size
        if size > max(_OUTPUT_BYTES, 2 * self._most):
            self._kept = os.pread(self._file.fileno(), self._most, size - self._most)
            self._cut += size
            os.ftruncate(self._file.fileno(), 0)

    def end(self) -> tuple[bytes, int]:
        """Return the last bytes, and how many there were in all; closes the file."""
        size = os.fstat(self._file.fileno()).st_size
        tail = os.pread(self._file.fileno(), self._most, max(0, size - self._most))
        self._file.close()
        return (self._kept + tail)[-self._most :], self._cut + size


def run_program(
    argv: Sequence[str], context: Context, *, env: Mapping[str, str] | None = None, cwd: str | None = None,
    kept: int = KEPT_BYTES, own: bool = False,
) -> Finished:  # fmt: skip
    """Run a program without a shell in a group of its own; at the time limit it is ended with all that it started.

    Of each stream the last ``kept`` bytes are returned; how much there was is in the facts.

    It gets MIGVERIFY_RUN, MIGVERIFY_STEP, MIGVERIFY_ATTEMPT and MIGVERIFY_EPOCH: who keeps the highest epoch that it
    saw can refuse an executor whose time is over. Of the environment it gets what programs need to run, and ``env``;
    ``own`` is a command of migverify, which gets all of it.

    A program of an effect is over when the processes that it left behind are, services excepted. Where they go on
    longer than the time limit, or could not be ended, the outcome is UNKNOWN, and they are named.

    Raises
    ------
    UsageError
        the program cannot be started; nothing of it ran.
    """
    if not argv:
        raise UsageError("argv is empty")
    variables = {
        **(os.environ if own else passed_on(os.environ)), **(env or {}), "MIGVERIFY_RUN": context.run,
        "MIGVERIFY_STEP": context.step, "MIGVERIFY_ATTEMPT": str(context.attempt),
        "MIGVERIFY_EPOCH": str(context.epoch), **({MARK: marks_with(context.mark)} if context.mark else {}),
    }  # fmt: skip
    begun = time.monotonic()
    output, errors = _Output(kept), _Output(kept)
    try:
        process = subprocess.Popen(  # noqa: S603 - the runbook's own command; `lint` shows every one of them
            list(argv), stdin=subprocess.DEVNULL, stdout=output.fileno(), stderr=errors.fileno(), cwd=cwd,
            start_new_session=True, env=variables, pass_fds=() if context.handle is None else (context.handle,),
        )  # fmt: skip
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{argv[0]} cannot be started: {reason}") from None
    why = _wait(process, begun + context.timeout, context.canceled, (output, errors))
    left = _left_behind(context, begun + context.timeout, why, (output, errors)) if context.mark else []
    texts, sizes = zip(*((scrub(text.decode("utf-8", "replace")), size) for text, size in (output.end(), errors.end())),
                       strict=True)  # fmt: skip
    facts = {
        "argv": [scrub(one) for one in argv], "seconds": round(time.monotonic() - begun, 3), "exit": process.returncode,
        "stdout": texts[0], "stderr": texts[1], "stdout_bytes": sizes[0], "stderr_bytes": sizes[1],
    }  # fmt: skip
    if left:
        facts |= {"still_running": left}
        return Finished(None, Outcome.UNKNOWN, texts[0], texts[1], facts)
    return Finished(process.returncode if why is Outcome.OK else None, why, texts[0], texts[1], facts)


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what of an environment every program of a runbook gets: nothing that is secret by its name."""
    return {
        name: value for name, value in environment.items()
        if (name in _PASSED_ON or name.startswith(("LC_", "MIGVERIFY_"))) and not is_secret_name(name)
    }  # fmt: skip


def _wait(
    process: subprocess.Popen[bytes], until: float, canceled: threading.Event, outputs: tuple[_Output, _Output]
) -> Outcome:
    why = Outcome.OK
    while True:
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            for one in outputs:
                one.bound()
            if time.monotonic() >= until or canceled.is_set():
                why = Outcome.CANCELED if canceled.is_set() else Outcome.TIMED_OUT
                break
        else:
            return why
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=_GRACE)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    return why


def _left_behind(context: Context, until: float, why: Outcome, outputs: tuple[_Output, _Output]) -> list[str]:
    """Wait for what a program of an effect left behind; after its time limit end it. Returns what still runs."""
    ended = why is not Outcome.OK
    grace = time.monotonic() + 2 * _GRACE
    while left := descendants(context.mark):
        for one in outputs:
            one.bound()
        now = time.monotonic()
        if ended:
            for process in left:
                process.end(signal.SIGTERM if now < grace - _GRACE else signal.SIGKILL)
        if now >= (grace if ended else until) or (not ended and context.canceled.is_set()):
            break
        time.sleep(0.05)
    return [str(process) for process in left]


def _program(arguments: Mapping[str, Any], context: Context) -> Finished:
    env = dict(arguments.get("env", {}))
    for name in arguments.get("secrets", ()):
        env[name] = resolve_variable(name, f"secrets of {context.step or 'a check'}").reveal()
    return run_program(arguments["argv"], context, env=env, cwd=arguments.get("cwd"))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""


def _command(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    done = _program(arguments, context)
    if done.why is Outcome.UNKNOWN:
        text = f"{arguments['argv'][0]} has ended (exit code {done.facts['exit']}), and what it started goes on:"
        return ActionResult(done.why, f"{text} {', '.join(done.facts['still_running'])}", None, done.facts)
    if done.why is not Outcome.OK:
        return ActionResult(done.why, f"{arguments['argv'][0]}: {done.why.value}", None, done.facts)
    words = _last_line(done.errors or done.output)
    text = f"exit code {done.code}{f': {words}' if words else ''}"
    outcome = Outcome.OK if done.code == 0 else Outcome.FAILED
    return ActionResult(outcome, text, done.code, done.facts)


def _command_exit(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    done = _program(arguments, context)
    if done.code is None or done.code < 0:
        why = done.why if done.code is None else Outcome.NO_DATA
        return ActionResult(why, f"{arguments['argv'][0]} was ended: {why.value}", None, done.facts)
    return ActionResult(
        Outcome.OK, f"exit code {done.code}: {_last_line(done.errors or done.output)}", done.code, done.facts
    )


def _command_output(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    done = _program(arguments, context)
    text = done.output.strip()
    if done.code != 0:
        why = done.why if done.code is None else Outcome.NO_DATA
        return ActionResult(why, f"{arguments['argv'][0]}: exit code {done.code}", None, done.facts)
    if not text or done.facts["stdout_bytes"] > KEPT_BYTES:
        said = "printed nothing" if not text else f"printed more than {KEPT_BYTES} bytes"
        return ActionResult(Outcome.NO_DATA, f"{arguments['argv'][0]} {said}", None, done.facts)
    return ActionResult(Outcome.OK, text[:300], text, done.facts)


def endpoint_of(arguments: Mapping[str, Any], context: Context) -> Endpoint:
    """Return the endpoint that ``arguments`` name, with the time limit of the context.

    Raises
    ------
    UsageError
        there is no configuration, or no such endpoint in it.
    """
    from migverify.config import load_config

    if context.config is None:
        raise UsageError("sql needs a migverify.yaml", hint="Name it with --config.")
    loaded = load_config(context.config)
    for one in loaded.all_endpoints:
        if one.name == arguments["endpoint"]:
            return replace(one, query_seconds=context.timeout, snapshot=None)
    known = ", ".join(one.name for one in loaded.all_endpoints)
    raise UsageError(f"{context.config} has no endpoint {arguments['endpoint']}", hint=f"It has {known}.")


def _account(arguments: Mapping[str, Any], context: Context) -> tuple[Endpoint, str | None]:
    endpoint = endpoint_of(arguments, context)
    return endpoint, resolve_password(endpoint).reveal() or None


def _sql(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    from migverify.db.session import open_session
    from migverify.runbook.actions.statements import tracked

    account = _account(arguments, context)
    name = account[0].name
    if name.partition(".")[0] == Side.SOURCE.value:
        return ActionResult(Outcome.FAILED, f"{name} is never written by this tool; use a command of your own")

    with open_session(*account) as session:

        def work(comment: str) -> ActionResult:
            rows = session.execute(f"{comment}{arguments['sql']}")
            return ActionResult(Outcome.OK, f"{rows} rows affected", rows, {"endpoint": name, "sql": arguments["sql"]})

        return tracked(account, session, context, work)


def reading(sql: str) -> str:
    """Return a statement that a check may ask.

    Its words are looked at, not what functions do that it calls; what an account may change is the server's to say.

    Raises
    ------
    UsageError
        it is not one SELECT, SHOW, TABLE, ADMIN CHECK or ADMIN SHOW, or it writes a file or a variable, or locks rows.
    """
    from migverify.sql.lexer import TokenKind
    from migverify.sql.tokens import SqlProblem, tokens, without_comments

    try:
        parts = [part for part in tokens(without_comments(sql)) if part.kind is not TokenKind.SPACE]
    except SqlProblem as problem:
        raise UsageError(f"{sql[:60]!r}: {problem}") from None
    words = [part.text.upper() for part in parts if part.kind is TokenKind.WORD]
    first = " ".join(words[:2]) if words[:1] == ["ADMIN"] else "".join(words[:1])
    if parts and parts[-1].text == ";":
        parts.pop()
    if first not in _READING or any(part.text == ";" for part in parts):
        raise UsageError(
            f"{sql[:60]!r} is not one statement that reads", hint=f"A check may ask {', '.join(_READING)}."
        )
    # WITH may begin an UPDATE or DELETE; a column of such a name is in backquotes.
    locks = any(pair in _LOCKING for pair in pairwise(words))
    if locks or _WRITING & set(words):
        raise UsageError(f"{sql[:60]!r} {'locks rows' if locks else 'writes'}", hint="A check changes nothing.")
    return sql


def _sql_value(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    from migverify.db.session import open_session

    reading(arguments["sql"])
    endpoint = endpoint_of(arguments, context)
    facts = {"endpoint": endpoint.name, "sql": arguments["sql"]}
    try:
        with open_session(endpoint, resolve_password(endpoint).reveal() or None) as session:
            rows = session.query(arguments["sql"])
    except (EndpointError, ReadError) as error:
        return ActionResult(Outcome.NO_DATA, error.message, None, facts)
    if len(rows) != 1 or not rows[0]:
        return ActionResult(Outcome.NO_DATA, f"{len(rows)} rows where one was expected", None, facts)
    value = rows[0][0]
    if value is None:
        return ActionResult(Outcome.NO_DATA, "NULL", None, facts)
    return ActionResult(Outcome.OK, value[:300], value, facts)


def _wait_action(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    seconds = float(arguments["seconds"])
    if seconds > context.timeout:
        return ActionResult(Outcome.FAILED, f"a wait of {seconds:g} s does not fit into {context.timeout:g} s")
    if context.canceled.wait(seconds):
        return ActionResult(Outcome.CANCELED, "the wait was cut short")
    return ActionResult(Outcome.OK, f"waited {seconds:g} s", value=True)


def _prometheus(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    from migverify.guards.prometheus import Prometheus, PrometheusLogin

    name = arguments.get("token_env")
    token = remember(Secret(resolve_variable(name, "token_env of prom.query").reveal())).reveal() if name else None
    server = Prometheus(arguments["url"].rstrip("/"), context.timeout, PrometheusLogin(token=token))
    facts = {"url": arguments["url"], "query": arguments["query"]}
    try:
        samples = server.vector(arguments["query"])
    except ReadError as error:
        return ActionResult(Outcome.NO_DATA, error.message, None, facts)
    if len(samples) != 1 or not math.isfinite(samples[0].value):
        return ActionResult(Outcome.NO_DATA, f"{len(samples)} series where one number was expected", None, facts)
    return ActionResult(Outcome.OK, f"{samples[0].value:g}", samples[0].value, facts)


def built_in() -> Registry:
    """Return a registry with the actions of this module."""
    effect, check = ActionKind.EFFECT, ActionKind.CHECK
    query = (Argument("url", "text", "http://host:9090", required=True),
             Argument("query", "text", "An expression that gives one number.", required=True),
             Argument("token_env", "text", "Environment variable that holds a token."))  # fmt: skip
    return Registry([
        Action("command", effect, "Runs a program; an exit code other than 0 is a failure.", _COMMAND, _command),
        Action("sql", effect, "Runs a statement on a target.", (_ENDPOINT, _SQL), _sql, account=_account),
        Action("wait", check, "Waits.", (Argument("seconds", "number", "How long.", required=True),), _wait_action),
        Action("command.exit", check, "The exit code of a program; 0 when no bound is stated.", _COMMAND,
               _command_exit, _ZERO),
        Action("command.output", check, "What a program prints that ends with 0, without spaces around it.", _COMMAND,
               _command_output),
        Action("sql.value", check, "First column of the only row of a query.", (_ENDPOINT, _SQL), _sql_value),
        Action("prom.query", check, "One number of a Prometheus.", query, _prometheus),
    ])  # fmt: skip
