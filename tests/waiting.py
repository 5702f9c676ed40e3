"""The one way in which a test waits: for a condition, which it names, and asks again until it holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0
"""Seconds after which a condition that never held fails the test: no duration that anything is compared with."""


def wait_for(holds: Callable[[], Any], what: str, *, every: float = 0.02) -> Any:
    """Return what ``holds`` returns once that is true; ``what`` names the condition where it never is."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(every)
