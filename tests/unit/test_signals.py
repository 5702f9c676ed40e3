"""A signal at any step of the main thread ends what waits, and never waits for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from migverify.signals import ENDING, SignalEvent, handled, say_at_once

AT_EACH_STEP = """
import faulthandler, signal, sys, threading
from migverify.signals import SignalEvent
Event = {event}

def ends(step):
    event, left = Event(), [step]
    signal.signal(signal.SIGINT, lambda *_: (sys.settrace(None), event.set()))
    def trace(frame, kind, _):
        if kind == "line" and frame.f_code.co_filename.endswith(("threading.py", "signals.py")):
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signal.SIGINT)
        return trace
    sys.settrace(trace)
    event.wait(0.01)
    sys.settrace(None)
    return left[0] <= 0, event.is_set()

faulthandler.dump_traceback_later({seconds}, exit=True)
step = 1
while True:
    came, is_set = ends(step)
    if not came:
        break
    if not is_set:
        sys.exit("lost at step " + str(step))
    step += 1
print(step)
"""


def at_each_step(event: str, seconds: float) -> subprocess.CompletedProcess[str]:
    code = AT_EACH_STEP.format(event=event, seconds=seconds)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.clocks
def test_a_signal_at_any_step_of_a_wait_sets_the_event() -> None:
    ours = at_each_step("SignalEvent", 30)
    assert ours.returncode == 0, ours.stderr
    assert int(ours.stdout) > 3


@pytest.mark.clocks
def test_the_event_of_threading_waits_for_itself() -> None:
    # Why there is another one: when this fails, Python has mended it, and SignalEvent can go.
    theirs = at_each_step("threading.Event", 3)
    assert theirs.returncode == 1
    assert "Timeout" in theirs.stderr


def test_all_who_wait_are_woken_and_it_stays_set() -> None:
    event, woken = SignalEvent(), []
    assert not event.is_set()
    assert not event.wait(0)
    assert not event.wait(-1)
    threads = [threading.Thread(target=lambda: woken.append(event.wait())) for _ in range(5)]
    for thread in threads:
        thread.start()
    event.set()
    event.set()
    for thread in threads:
        thread.join(30)
    assert woken == [True] * 5
    assert event.is_set()
    assert event.wait()
    with pytest.raises(TypeError, match="stays set"):
        event.clear()


def test_handlers_are_given_back_and_only_the_main_thread_sets_them() -> None:
    before, got = [signal.getsignal(number) for number in ENDING], list[int]()
    with handled(ENDING, got.append):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert got == [signal.SIGTERM, signal.SIGINT]
    assert [signal.getsignal(number) for number in ENDING] == before

    def elsewhere() -> None:
        with handled(ENDING, got.append):
            assert [signal.getsignal(number) for number in ENDING] == before
            got.clear()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(30)
    assert got == []


def test_a_sentence_is_said_while_the_stream_is_being_written() -> None:
    # The reader reads nothing, so the write is under way when the signal comes.
    code = (
        "import signal, sys\n"
        "from migverify.signals import say_at_once\n"
        "signal.signal(signal.SIGTERM, lambda *_: (say_at_once('stopping'), sys.exit(7)))\n"
        "print('up', flush=True)\n"
        "sys.stderr.write('x' * 10_000_000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"up\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        told = process.stderr.read()
        assert b"stopping\n" in told
        assert b"Traceback" not in told
        assert process.wait(30) == 7


def test_a_closed_standard_error_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    say_at_once("heard \udcff")
    assert capfd.readouterr().err == "heard \\udcff\n"
    kept = os.dup(2)
    try:
        os.close(2)
        say_at_once("unheard")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
