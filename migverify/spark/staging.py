"""Files of a command that lie on URLs: fetched before it, brought back after it.

For jobs on clusters, whose driver may have nothing but what it is given: configuration and rules come from
``s3://``, ``gs://`` or any other URL that fsspec opens, and findings go there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from migverify.changes.storage import Storage
from migverify.errors import ConfigError

OUTPUTS = frozenset({"--csv"})
NOT_FILES = frozenset({"--store", "--spark-master", "--param"})
_YAML = (".yaml", ".yml")


@contextmanager
def staged(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Yield the arguments of a command with local paths in the place of URLs.

    What the command wrote for ``OUTPUTS`` is brought to their URLs at the end, with any exit code; a file that it
    did not write is not.

    Raises
    ------
    ConfigError
        a URL cannot be read or written, or names no YAML file.
    """
    with tempfile.TemporaryDirectory(prefix="migverify-job-") as scratch:
        written: dict[Path, str] = {}
        local: list[str] = []
        option = ""
        for number, argument in enumerate(_parted(arguments)):
            place = Path(scratch) / str(number)
            if argument.startswith("-"):
                option = argument
            elif "://" in argument and option in OUTPUTS:
                written[place] = argument
                argument, option = str(place), ""
            elif "://" in argument and option not in NOT_FILES:
                argument, option = str(fetch(argument, place)), ""
            else:
                option = ""
            local.append(argument)
        try:
            yield local
        finally:
            bring(written)


def fetch(url: str, into: Path) -> Path:
    """Copy a YAML file, or the YAML files of a folder, and return where they are.

    Raises
    ------
    ConfigError
        there is no such file.
    """
    into.mkdir()
    folder, _, name = url.rstrip("/").rpartition("/")
    if name.endswith(_YAML):
        storage, names = Storage(folder), [name]
    else:
        storage = Storage(url)
        names = [found for found in storage.names() if found.endswith(_YAML)]
    for wanted in names:
        data = storage.read(wanted)
        if data is None:
            raise ConfigError(f"there is no file {wanted} at {storage.url}", hint="Check the URL.")
        (into / wanted).write_bytes(data)
    if not names:
        raise ConfigError(f"there is no YAML file at {storage.url}", hint="Name a .yaml file, or a folder of them.")
    return into / name if name.endswith(_YAML) else into


def bring(written: Mapping[Path, str]) -> None:
    """Copy files to their URLs; those that are not there are left out."""
    for path, url in written.items():
        if path.is_file():
            folder, _, name = url.rpartition("/")
            with path.open("rb") as file, Storage(folder).create(name) as target:
                while block := file.read(1 << 20):
                    target.write(block)


def _parted(arguments: Sequence[str]) -> Iterator[str]:
    """Yield ``--option=value`` as two arguments."""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("--") and equals:
            yield from (name, value)
        else:
            yield argument
