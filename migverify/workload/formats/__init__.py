"""Readers of capture formats."""

from __future__ import annotations

from datetime import UTC, tzinfo

from migverify.workload.formats.audit import Audit
from migverify.workload.formats.das import ActivityStream
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.slow import SlowLog
from migverify.workload.model import Format


def log_readers(zone: tzinfo = UTC) -> tuple[Format, ...]:
    """Return the readers of the server's own logs; ``zone`` is that of local times in them."""
    return SlowLog(zone), GeneralLog(zone), Audit(zone), ActivityStream()


FORMATS: tuple[Format, ...] = log_readers()
