"""How a run ends, as an exit code: the contract of ``runbook run`` and ``runbook status --wait``."""

from __future__ import annotations

from enum import IntEnum

from migverify.errors import ExitCode
from migverify.runbook.events import RunState

__all__ = ["RunExit", "exit_of"]


class RunExit(IntEnum):
    """One code for each end, beside those of ``ExitCode``. Only 0 says that everything was done."""

    COMPLETED = ExitCode.MATCH
    REFUSED = ExitCode.USAGE
    NOT_OVER = ExitCode.INCONCLUSIVE  # held, or under way; a dry run too: it has shown that nothing was done
    ROLLED_BACK = 90
    ABORTED_CLEAN = 91
    ABORTED_DIRTY = 92
    FAILED_PAST_PNR = 93
    INTERRUPTED = ExitCode.INTERRUPTED


_ENDS = {
    RunState.COMPLETED: RunExit.COMPLETED, RunState.ROLLED_BACK: RunExit.ROLLED_BACK,
    RunState.ABORTED_CLEAN: RunExit.ABORTED_CLEAN, RunState.ABORTED_DIRTY: RunExit.ABORTED_DIRTY,
    RunState.FAILED_PAST_PNR: RunExit.FAILED_PAST_PNR,
}  # fmt: skip


def exit_of(state: RunState) -> RunExit:
    """Return the exit code of a run in this state."""
    return _ENDS.get(state, RunExit.NOT_OVER)
