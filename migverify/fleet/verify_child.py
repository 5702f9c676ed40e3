"""The process of one verification: a command of migverify that ends when the process that began it is gone.

``python -m migverify.fleet.verify_child tables verify ...``. Standard input is a pipe that nothing is written to: it
ends when the other process does, also by ``kill -9``. The run in the store is cut off then, and is resumed next time.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def main() -> None:
    """Run the command of the arguments."""
    lifeline = os.dup(0)  # what the command starts must not inherit it: its end would never come then
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with, args=(lifeline,), name="lifeline", daemon=True).start()
    # A shell that begins a job in the background has it ignore Ctrl-C, and so would this process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[0] = "migverify"
    runpy.run_module("migverify", run_name="__main__")


def _end_with(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
