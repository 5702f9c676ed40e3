"""Processes that a case keeps beside the servers: the load, and what faults leave running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from migverify.errors import UsageError
from migverify.lab.chaos_load import BankLoad, LoadOptions
from migverify.lab.chaos_world import World

OnEnd = Callable[[Callable[[], Any]], Any]
"""Is handed what ends the process when it is told to."""


def run(world: World, name: str, arguments: Sequence[str], on_end: OnEnd) -> None:
    """Be one of the processes until it is over.

    Raises
    ------
    UsageError
        there is none of that name.
    """
    jobs: dict[str, Callable[[World, Sequence[str], threading.Event], None]] = {"load": _load, **_more()}
    if name not in jobs:
        raise UsageError(f"no process is called {name!r}", hint="This command is for `migverify lab chaos` itself.")
    ended = threading.Event()
    on_end(ended.set)
    jobs[name](world, arguments, ended)


def _more() -> dict[str, Callable[[World, Sequence[str], threading.Event], None]]:
    from migverify.lab import chaos_channel as channel
    from migverify.lab import chaos_outside as outside
    from migverify.lab import chaos_statements as statements

    return {"storm": statements.be_storm, "report": statements.be_report, "alter": statements.be_alter,
            "hog": statements.be_hog, "readers": outside.be_readers, "channel": channel.be_channel}  # fmt: skip


def _load(world: World, _arguments: Sequence[str], ended: threading.Event) -> None:
    asked = world.read("load") or {}
    load = BankLoad(LoadOptions(
        world.server(asked["side"]), world.ledger_path, asked["clients"], asked["rate"], asked["ids"],
        world.clock_path, asked.get("ca", ""),
    ))  # fmt: skip

    def end() -> None:
        ended.wait()
        load.stop()

    threading.Thread(target=end, daemon=True).start()
    load.run()
