"""What a Python worker of an executor does with one task.

An executor holds the bare wheel: this module imports the standard library and rooms of migverify that do the same.

An exception that leaves a Python worker comes back as a Java stack trace, and Spark would repeat the task three
more times. So errors are answers here: :class:`TaskCall` puts the runner's text, or what went wrong, into one
text, and :func:`open_answer` turns it back on the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from migverify import errors
from migverify.errors import MigverifyError, ReadError
from migverify.secrets import Secret, scrub

RunTask = Callable[[str, Mapping[str, str]], str]
"""Runs one task: (task text, endpoint name -> password) -> answer text."""

RUN_TASK = "migverify.tables.work:run_task"
"""The runner of the tables road, by name: a worker imports it, the driver never pickles it."""

_ANSWER = "="
_ERROR = "!"


@dataclass(frozen=True, slots=True)
class TaskCall:
    """One task on its way to a Python worker; called there, once, with the only row of its partition.

    ``secrets`` is in no ``repr``: pyspark shows the function in plans and messages, never its pickled bytes.
    """

    runner: str | RunTask
    task: str = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)

    def __call__(self, _row: object = None) -> str:
        """Return the answer or the error as one text, for :func:`open_answer`. Raises nothing on purpose."""
        try:
            answer = _resolve(self.runner)(self.task, self.secrets)
            if not isinstance(answer, str):
                raise ReadError(f"the task runner answered with {type(answer).__name__}, not with text")
        except Exception as error:  # noqa: BLE001 - every error becomes the task's answer; the driver raises it
            return error_answer(error, self.secrets)
        return _ANSWER + answer


def error_answer(error: Exception, secrets: Mapping[str, str]) -> str:
    """Return what went wrong as one line of text, without secrets, for :func:`open_answer`."""
    return _ERROR + json.dumps(_describe(error, secrets))


def open_answer(text: str) -> str:
    """Return the runner's answer out of what a worker sent.

    Raises
    ------
    MigverifyError
        What the runner raised, of the same class, with its message and hint.
    ReadError
        What the runner raised was no ``MigverifyError``, or the text is not a worker's.
    """
    if text.startswith(_ANSWER):
        return text[1:]
    if not text.startswith(_ERROR):
        raise ReadError(f"a Spark worker sent {len(text)} characters that are neither answer nor error")
    said = json.loads(text[1:])
    kind = getattr(errors, said["error"], None)
    if not (isinstance(kind, type) and issubclass(kind, MigverifyError)):
        kind = ReadError
    raise kind(said["message"], hint=said["hint"])


def hide(text: str, secrets: Mapping[str, str]) -> str:
    """Return the text without any of the secrets, in whatever spelling."""
    return scrub(text, [Secret(secret) for secret in secrets.values()])


def _resolve(runner: str | RunTask) -> RunTask:
    if not isinstance(runner, str):
        return runner
    module, _, name = runner.partition(":")
    function: RunTask = getattr(import_module(module), name)
    return function


def _describe(error: Exception, secrets: Mapping[str, str]) -> dict[str, str]:
    if isinstance(error, MigverifyError):
        return {
            "error": type(error).__name__,
            "message": hide(error.message, secrets),
            "hint": hide(error.hint, secrets),
        }
    if isinstance(error, ImportError):
        return {
            "error": errors.ConfigError.__name__,
            "message": hide(f"a Spark executor cannot run tasks: {error}", secrets),
            "hint": "Ship migverify and PyMySQL to the executors: see docs/spark.md.",
        }
    return {
        "error": ReadError.__name__,
        "message": hide(f"{type(error).__name__}: {error}", secrets),
        "hint": "",
    }
