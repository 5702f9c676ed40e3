"""Builds both distributions from what is committed, in two places, with bills of materials and hashes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from release.machine import Failed, run

PROJECTS = {"migverify": ".", "migverify_lab": "lab"}
MATERIALS = {"cli": "requirements-cli.lock", "spark": "requirements-spark.lock"}
"""The lock of each container image, which is what the extras of the same name bring."""

PLACE = re.compile(
    r"(?<![\w.-])(?:file:|/(?:home|root|tmp|work|Users|builds)/|[A-Za-z]:\\)|//[^\s/\"]+/(?:simple|index|pypi)\b"
)
"""A folder of the machine that built, or an index that it used."""


def build(root: Path, out: Path, scratch: Path, say: Callable[[str], None]) -> None:
    """Fill ``out``: wheel and sdist of both distributions, a bill of materials for each lock, SHA256SUMS."""
    epoch = _git(root, "log", "-1", "--format=%ct").strip()
    if _git(root, "status", "--porcelain"):
        say("note: changes that are not committed are not in the release")
    for name, folder in PROJECTS.items():
        say(f"{name} {_version(root / folder)}")
    first, second = scratch / "first", scratch / "another place"
    for place, zone in ((first, "UTC"), (second, "Pacific/Chatham")):
        export(root, place / "tree")
        for folder in PROJECTS.values():
            distribution(place / "tree" / folder, place / "dist", epoch, zone)
    if digests(first / "dist") != digests(second / "dist"):
        raise Failed(f"two builds of one commit differ: {digests(first / 'dist')} and {digests(second / 'dist')}")
    say(f"ok: two builds in two folders and time zones are the same {len(digests(first / 'dist'))} files")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(first / "dist", out)
    for extra, lock in MATERIALS.items():
        components = bill(first / "tree", lock, out / f"migverify-{_version(root)}-{extra}.cdx.json", epoch)
        say(f"ok: CycloneDX bill of materials of {lock}, {components} components, valid, without local names")
    sums = [f"{digest}  {name}\n" for name, digest in sorted(digests(out).items())]
    (out / "SHA256SUMS").write_text("".join(sums))


def export(root: Path, tree: Path) -> None:
    """Write the files of the last commit into ``tree``: nothing that is only on this machine."""
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree, filter="tar")


def distribution(project: Path, out: Path, epoch: str, zone: str = "UTC", *kinds: str) -> None:
    """Build the wheel and the sdist of a folder, or the ``kinds`` of them."""
    targets = [word for kind in kinds or ("sdist", "wheel") for word in ("-t", kind)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "TZ": zone}
    run([sys.executable, "-m", "hatchling", "build", *targets, "-d", str(out)], project, environment)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def bill(tree: Path, lock: str, path: Path, epoch: str) -> int:
    """Write the bill of materials of a lock, and return how many components it has.

    A package is its name, version and hashes, wherever it comes from: no index is named.
    """
    command = [
        sys.executable, "-m", "cyclonedx_py", "requirements", "--pyproject", "pyproject.toml", "--sv", "1.6",
        "--output-reproducible", "-o", str(path), lock,
    ]  # fmt: skip
    run(command, tree, {**os.environ, "SOURCE_DATE_EPOCH": epoch})
    content = json.loads(path.read_text())
    for component in content["components"]:
        del component["description"]  # the line of the lock
        for reference in component["externalReferences"]:
            if reference["type"] == "distribution":
                reference["url"] = component["purl"]
                reference.pop("comment", None)
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    _check_bill(tree, lock, path)
    return len(content["components"])


def _check_bill(tree: Path, lock: str, path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = path.read_text()
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise Failed(f"{path.name} is not valid: {error}")
    if found := PLACE.search(text):
        raise Failed(f"{path.name} names {found[0]}, a place of this machine or of its registry")
    pinned = {*re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (tree / lock).read_text(), flags=re.MULTILINE)}
    components = {(component["name"], component["version"]) for component in json.loads(text)["components"]}
    if pinned != components:
        raise Failed(f"{path.name} and {lock} differ in {sorted(pinned ^ components)}")
    without = [component["name"] for component in json.loads(text)["components"] if "SHA-256" not in str(component)]
    if without:
        raise Failed(f"{path.name} has no hashes of {without}")


def _version(project: Path) -> str:
    return str(tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"])


def _git(root: Path, *words: str) -> str:
    return run(["git", *words], root, dict(os.environ))
