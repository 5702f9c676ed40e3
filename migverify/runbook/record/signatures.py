"""Approvals signed with an SSH key: ``ssh-keygen -Y sign`` and ``-Y verify``, in a namespace of their own.

What is signed names the run, the step, its attempt, the hash of step and evidence, the person and the time: a signature
of anything else, of another run or of an earlier attempt does not verify.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from migverify.errors import ConfigError, UsageError
from migverify.runbook.model import Person
from migverify.runbook.record.chain import canonical

__all__ = ["NAMESPACE", "check_keys", "fingerprint", "keys_in", "payload", "sign", "verify"]

NAMESPACE = "migverify-approval"
_SECONDS = 60.0  # a key on a token waits for a finger
_KEY = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)[\w@.-]* [A-Za-z0-9+/=]+( [^\n]*)?")


def payload(run: str, step: str, attempt: int, of: str, digest: str, person: str, at: float) -> bytes:
    """Return the bytes that an approval signs; ``at`` is Unix seconds."""
    signed: dict[str, Any] = {
        "run": run, "step": step, "attempt": attempt, "of": of, "hash": digest, "person": person, "at": at,
    }  # fmt: skip
    return canonical(signed)


def sign(text: bytes, key: Path) -> str:
    """Sign with a private key (or a public one whose private half an agent holds); returns the armored signature.

    Raises ConfigError: there is no ``ssh-keygen``, or it refuses the key.
    """
    done = _run(["-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE], text)
    if done.returncode != 0 or b"BEGIN SSH SIGNATURE" not in done.stdout:
        raise ConfigError(f"the approval was not signed with {key}: {_words(done)}")
    return done.stdout.decode("ascii")


@lru_cache(maxsize=4096)  # a journal is read again and again, and each of its signatures costs a process
def verify(text: bytes, signature: str, person: Person) -> str:
    """Return why a signature is not this person's of this text; empty: it is.

    Raises ConfigError: there is no ``ssh-keygen``.
    """
    if not person.ssh_key:
        return f"{person.name} has no ssh_key in the runbook"
    if not _KEY.fullmatch(person.ssh_key.strip()):
        return f"the ssh_key of {person.name} is not one line of a public key"
    with tempfile.TemporaryDirectory(prefix="migverify-") as folder:
        allowed, signed = Path(folder) / "allowed", Path(folder) / "signature"
        # One constant principal: a name with a comma or a star would be a pattern in this file.
        allowed.write_text(f'signer namespaces="{NAMESPACE}" {person.ssh_key.strip()}\n')
        signed.write_text(signature)
        done = _run(
            ["-Y", "verify", "-q", "-f", str(allowed), "-I", "signer", "-n", NAMESPACE, "-s", str(signed)], text
        )
    return "" if done.returncode == 0 else f"the signature is not {person.name}'s of this approval: {_words(done)}"


def fingerprint(key: str) -> str:
    """Return the fingerprint of a public key's line, as ``ssh-keygen -l`` shows it; empty: it is no key."""
    try:
        blob = base64.b64decode(key.split()[1], validate=True)
    except (IndexError, binascii.Error):
        return ""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")


def keys_in(text: str) -> dict[str, str]:
    """Return the fingerprint of each person's key in a file of lines ``PERSON ssh-ed25519 AAAA...``.

    Raises UsageError: a line is something else, or a person is there twice.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, key = line.strip().partition(" ")
        if not _KEY.fullmatch(key.strip()) or not fingerprint(key) or name in found:
            raise UsageError(f"line {number} of the keys is no PERSON and public key, or the person's second one",
                             hint="Write one line a person: carol ssh-ed25519 AAAA...")  # fmt: skip
        found[name] = fingerprint(key)
    return found


def check_keys(people: Iterable[Person], anchored: dict[str, str]) -> list[str]:
    """Hold the keys of a journal's people against those known outside; returns what differs."""
    found = []
    for one in people:
        key = fingerprint(one.ssh_key) if one.ssh_key else ""
        known = anchored.get(one.name, "")
        if key and not known:
            found.append(f"{one.name} has the key {key} in the journal, and none in the file of keys")
        elif key != known:
            found.append(f"the key of {one.name} is {key or 'missing'} in the journal, and {known} in the file of keys")
    return found


def _run(arguments: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise ConfigError("there is no ssh-keygen on this machine", hint="Install the OpenSSH client.")
    try:
        return subprocess.run([program, *arguments], input=text, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise ConfigError(f"ssh-keygen took longer than {_SECONDS:g} seconds") from None


def _words(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
