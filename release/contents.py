"""What may be in a wheel: the package and its metadata; no test, no lab beside production, no key or password."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

SECRETS = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    rb"|\bpypi-[A-Za-z0-9_-]{60,}|://[^\s/:@\"'{}<>]+:[^\s/:@\"'{}<>*]{6,}@[a-z0-9.-]+\.(?:com|net|io)\b"
)
ASKING = "migverify/cli/workload_clients_setup.py"
"""The one module of migverify that may ask whether the lab is there, for --own-servers."""


def read(wheel: Path) -> dict[str, bytes]:
    """Return what is in a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def problems(files: dict[str, bytes], package: str) -> list[str]:
    """Return what is in a wheel of ``package`` and should not be, or is missing."""
    wrong = []
    for name, body in sorted(files.items()):
        top = name.split("/")[0]
        if top != package and not (top.startswith(f"{package}-") and top.endswith(".dist-info")):
            wrong.append(f"{name} is no part of {package}")
        if Path(name).name.startswith(("test_", "conftest")) or "/tests/" in name:
            wrong.append(f"{name} is a test")
        if Path(name).suffix in {".pyc", ".pem", ".key", ".env", ".sqlite", ".db", ".log"}:
            wrong.append(f"{name} is no source file")
        if SECRETS.search(body):
            wrong.append(f"{name} holds what looks like a secret")
        if package == "migverify" and name.endswith(".py") and b"migverify_lab" in body and name != ASKING:
            wrong.append(f"{name} names the lab, which is not installed beside a production database")
    needed = {f"{package}/__init__.py", f"{package}/py.typed"}
    return wrong + [f"{name} is missing" for name in sorted(needed - set(files))]
