"""migverify proves a migration from MySQL or Aurora to TiDB."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
