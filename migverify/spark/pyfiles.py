"""Packs what a bare executor needs into one zip for ``--py-files``."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from migverify import __version__
from migverify.errors import ConfigError

PACKAGES = ("migverify", "pymysql")
"""Pure Python, importable from a zip. ``cryptography`` is not: see docs/spark.md for logins that need it."""


def build_pyfiles(directory: Path) -> Path:
    """Write ``migverify-<version>-pyfiles.zip`` into a directory and return its path.

    The zip holds the packages of :data:`PACKAGES` and has the same bytes for the same files. It appears under
    its name only when complete.

    Raises
    ------
    ConfigError
        A package is not installed as plain files, or the directory cannot be written.
    """
    files = list(_files())
    target = directory / f"migverify-{__version__}-pyfiles.zip"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=directory, prefix=target.name, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in _folders(name for name, _ in files):
                    archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), b"")
                for name, path in files:
                    # A fixed time: the same files give the same zip, so Spark's file cache can trust the name.
                    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                    info.compress_type = zipfile.ZIP_DEFLATED
                    info.external_attr = 0o644 << 16
                    archive.writestr(info, path.read_bytes())
            Path(part).chmod(0o644)
            Path(part).replace(target)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write {target}: {error.strerror}", hint="Name a directory that can be written."
        ) from error
    return target


def package_root() -> Path:
    """Return the directory that holds the ``migverify`` package: what a local worker needs on its path."""
    return _folder("migverify").parent


def _files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        folder = _folder(package)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield f"{package}/{path.relative_to(folder).as_posix()}", path


def _folders(names: Iterable[str]) -> list[str]:
    """Return an entry for each folder: without it a package that has no ``__init__.py`` is not found in a zip."""
    return sorted(
        {"/".join(name.split("/")[:depth]) + "/" for name in names for depth in range(1, name.count("/") + 1)}
    )


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigError(
            f"the package {package} is not installed as plain files, so it cannot be packed for Spark executors",
            hint="Install migverify with pip into a directory, not as a zip.",
        )
    return Path(spec.origin).parent
