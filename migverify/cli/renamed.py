"""Commands of the first release that have another name now: a message names the new one."""

from __future__ import annotations

from collections.abc import Sequence

from migverify.errors import UsageError

RENAMED = {
    "config check": "config",
    "config schema": "config --schema migverify",
    "config keys": "config --keys migverify",
    "recon schema": "config --schema recon",
    "recon keys": "config --keys recon",
    "runbook schema": "config --schema runbook",
    "runbook traffic schema": "config --schema traffic",
    "workload waivers": "config --waivers",
    "tables status": "status",
    "changes audit --delivered": "tables watch --start POSITION --until-drained",
    "changes pipeline": "changes audit --pipeline",
    "workload capture-quality": "workload capture --quality",
    "workload poll": "workload capture --poll",
    "workload nightly": "workload replay --nightly",
    "workload mark-clone": "workload replay --mark-clone",
    "schema snapshot": "guard schema --snapshot",
    "schema diff": "guard schema",
    "schema guard": "guard schema --baseline last",
    "schema history": "guard schema",
    "schema": "guard schema",
    "ids": "guard ids",
    "monitors": "guard monitors",
    "capacity": "guard capacity",
    "runbook lint": "runbook check --offline",
    "runbook plan": "runbook check --offline",
    "runbook preflight": "runbook check",
    "runbook cases": "runbook readiness --dr",
    "runbook call": "runbook ack",
    "runbook start": "runbook ack",
    "runbook done": "runbook ack",
    "runbook accept": "runbook ack",
    "runbook note": "runbook ack --note",
    "runbook fail": "runbook reject",
    "runbook decide": "runbook waive --happened",
    "runbook promote": "runbook handover",
    "runbook takeover": "runbook handover --takeover",
    "runbook compare": "runbook report --compare",
    "runbook export": "runbook report --export",
    "runbook verify-journal": "runbook report --verify",
}
"""Words of the first release -> the command line that does the same now.

An option may be anywhere behind its command.
"""

_WORDS = 3


def refuse_renamed(arguments: Sequence[str]) -> None:
    """Refuse a command line that begins with a name of the first release.

    Raises
    ------
    UsageError
        it does; the message names the command of today.
    """
    words = list(arguments)
    while words and words[0].startswith("-"):
        del words[0]
    commands = [" ".join(words[:count]) for count in range(_WORDS, 0, -1)]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    for old in (*(f"{command} {option}" for command in commands for option in sorted(options)), *commands):
        new = RENAMED.get(old)
        if new is not None:
            raise UsageError(
                f"`migverify {old}` has another name now: `migverify {new}`",
                hint=f"`migverify {new.partition(' --')[0]} --help` shows its options.",
            )
