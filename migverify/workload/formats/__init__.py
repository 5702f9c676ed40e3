"""Readers of capture formats."""

from __future__ import annotations

from migverify.workload.model import Format

FORMATS: tuple[Format, ...] = ()
