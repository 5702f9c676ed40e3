"""The process of one effect. It goes on when the executor is gone, holds the process lock, and writes down its end.

``python -m migverify.runbook.run.effect_process`` is started by ``in_own_process``. It reads the effect from standard
input, says that it is ready, and begins only on command: an executor that lost its lease meanwhile, or that is
gone, tells it nothing. SIGTERM cancels the effect; nothing else ends it early.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.codec import parse_json
from migverify.errors import StoreError
from migverify.runbook.actions.action import ActionResult, Context, Outcome, Registry
from migverify.runbook.record.process_lock import MARK, adopt_orphans, marks_with, read_record, write_record
from migverify.secrets import remember_environment, without_secrets
from migverify.signals import SignalEvent

if TYPE_CHECKING:
    from migverify.runbook.model import Effect  # the process of an effect is there in half the time without models

__all__ = ["Carrier", "in_own_process"]

Carrier = Callable[[Registry, "Effect", Context, Callable[[], None]], ActionResult]
"""Carries an effect out: (registry, effect, context, a last look at the lease, which raises FencedError)."""
_READY, _GO = b"ready\n", b"go\n"
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class _Request:
    action: str
    arguments: dict[str, Any]
    run: str
    step: str
    attempt: int
    epoch: int
    timeout: float
    folder: str
    config: str | None
    handle: int
    mark: str
    record: str


def in_own_process(
    _registry: Registry, effect: Effect, context: Context, may_begin: Callable[[], None]
) -> ActionResult:
    """Carry an effect out in a process of its own, and return what it wrote down.

    Raises
    ------
    FencedError
        ``may_begin`` raises it: nothing was done.
    """
    if context.handle is None or context.record is None or context.folder is None:
        return ActionResult(Outcome.FAILED, "an effect without a process lock is not carried out")
    before = len(read_record(context.record))
    request = _Request(
        effect.action, effect.arguments, context.run, context.step, context.attempt, context.epoch, effect.timeout,
        str(context.folder), str(context.config) if context.config is not None else None, context.handle, context.mark,
        str(context.record),
    )  # fmt: skip
    process = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", __spec__.name if __spec__ is not None else __name__], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(context.handle,),
        env={**os.environ, MARK: marks_with(context.mark)},
    )  # fmt: skip
    begun = _begun(process, request, may_begin)
    asked = False
    while begun and process.poll() is None:
        if context.canceled.wait(_POLL) and not asked:
            process.send_signal(signal.SIGTERM)
            asked = True
        elif asked:
            process.wait()
    code = process.wait()
    ends = [one["result"] for one in read_record(context.record)[before:] if "result" in one]
    if ends:
        ended = ends[-1]
        return ActionResult(Outcome(ended["outcome"]), ended["text"], ended["value"], ended["evidence"])
    if not begun:
        return ActionResult(Outcome.FAILED, f"the process of the effect did not begin: exit code {code}")
    return ActionResult(Outcome.UNKNOWN, f"the process of the effect ended without a word: exit code {code}")


def _begun(process: subprocess.Popen[bytes], request: _Request, may_begin: Callable[[], None]) -> bool:
    """Hand the effect over, and let it begin after a last look; returns whether it got the command."""
    if process.stdin is None or process.stdout is None:
        return False
    with process.stdin as stdin, process.stdout as stdout:
        try:
            stdin.write(json.dumps(asdict(request)).encode() + b"\n")
            stdin.flush()
            if stdout.readline() != _READY:
                return False
            may_begin()
            stdin.write(_GO)
            stdin.flush()
        except BrokenPipeError:
            return False
    return True


def main() -> None:
    """Carry out the effect that standard input names, and write down how it ended."""
    canceled = SignalEvent()
    signal.signal(signal.SIGTERM, lambda _number, _frame: canceled.set())
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the executor is gone
    request = _Request(**parse_json(line))
    remember_environment()
    registry = _registry_of(request.action)
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    if sys.stdin.buffer.readline() != _GO:
        return  # it was fenced, or is gone
    sys.stdout.close()
    context = Context(
        request.run, request.step, request.attempt, request.epoch, request.timeout, canceled, Path(request.folder),
        Path(request.config) if request.config is not None else None, request.handle, request.mark,
        Path(request.record),
    )  # fmt: skip
    result = registry.run(request.action, request.arguments, context)
    ended: Mapping[str, Any] = {
        "outcome": result.outcome.value, "text": result.text, "value": result.value, "evidence": result.evidence,
    }  # fmt: skip
    write_record(context.record or Path(request.record), result=without_secrets(ended))


def _registry_of(action: str) -> Registry:
    """Return a registry with an action: the small one is there in half the time."""
    from migverify.runbook.actions.builtin import built_in
    from migverify.runbook.actions.registry import full_registry

    small = built_in()
    return small if action in small else full_registry()


if __name__ == "__main__":
    try:
        main()
    except StoreError as error:
        raise SystemExit(error.message) from None
