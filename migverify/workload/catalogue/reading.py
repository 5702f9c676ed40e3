"""Reading the catalogue's YAML: plain data -> typed values, each error with file, line and column.

A small reader of its own, so that a replay's processes need no pydantic; the published JSON schemas say the same, and a
test holds the two together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NoReturn

from migverify.config.yaml_text import Steps, YamlDocument, YamlProblem, read_yaml
from migverify.errors import ConfigError

_PACKAGE = "migverify.workload.catalogue"


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a document, and what stands there."""

    file: str
    document: YamlDocument
    steps: Steps
    value: object

    @property
    def where(self) -> str:
        """Return ``file:line:column``."""
        place = self.document.place(self.steps)
        return f"{self.file}:{place.line}:{place.column}" if place else self.file

    def refuse(self, text: str, hint: str = "") -> NoReturn:
        """Raise the one error that names this place."""
        raise ConfigError(f"{self.where}: {text}", hint=hint)

    def _fields(self) -> dict[str, object]:
        if not isinstance(self.value, dict):
            self.refuse("this takes a mapping (name: value)")
        return self.value

    def child(self, key: str) -> Node | None:
        """Return what stands under a key, None where the key is missing or has no value."""
        value = self._fields().get(key)
        return None if value is None else Node(self.file, self.document, (*self.steps, key), value)

    def has(self, key: str) -> bool:
        """Tell whether the key is there, even without a value."""
        return key in self._fields()

    def only(self, *known: str) -> None:
        """Refuse every key that is not one of these."""
        for key in self._fields():
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
                hint = f"Did you mean {close[0]}?" if close else f"Known keys here: {', '.join(known)}."
                Node(self.file, self.document, (*self.steps, key), None).refuse(f"unknown key {key}", hint)

    def text(self, key: str, default: str | None = None) -> str:
        """Return the text under a key; without a default a missing or empty one is refused."""
        found = self.child(key)
        if found is None:
            if default is None:
                self.refuse(f"the key {key} is missing")
            return default
        if not isinstance(found.value, str):
            found.refuse(f"{key}: this takes text; put it in quotes")
        if default is None and not found.value.strip():
            found.refuse(f"{key} must not be empty")
        return found.value

    def one_of(self, key: str, known: tuple[str, ...], default: str | None = None) -> str:
        """Return the text under a key, which must be one of these."""
        found = self.text(key, default)
        if found not in known and found != default:
            place = self.child(key) or self
            place.refuse(f"{key}: this takes one of {', '.join(known)}")
        return found

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        found = self.child(key)
        if found is None:
            return default
        if not isinstance(found.value, bool):
            found.refuse(f"{key}: this takes true or false")
        return found.value

    def number(self, key: str, default: int | None = None) -> int | None:
        """Return a whole number of 0 or more."""
        found = self.child(key)
        if found is None:
            return default
        if not isinstance(found.value, int) or isinstance(found.value, bool) or found.value < 0:
            found.refuse(f"{key}: this takes a whole number of 0 or more")
        return found.value

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers; one alone counts as a list."""
        found = self.child(key)
        if found is None:
            return ()
        values = found.value if isinstance(found.value, list) else [found.value]
        result = []
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool):
                found.refuse(f"{key}: this takes whole numbers")
            result.append(value)
        return tuple(result)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one alone counts as a list."""
        found = self.child(key)
        if found is None:
            return ()
        values = found.value if isinstance(found.value, list) else [found.value]
        result = []
        for value in values:
            if not isinstance(value, str):
                found.refuse(f"{key}: this takes texts; put them in quotes")
            result.append(value)
        return tuple(result)

    def pattern(self, key: str) -> re.Pattern[str]:
        """Return a regular expression (case does not matter)."""
        text = self.text(key)
        try:
            return re.compile(text, re.IGNORECASE)
        except re.error as error:
            (self.child(key) or self).refuse(f"{key}: not a regular expression: {error}")

    def mapping(self, key: str) -> dict[str, Node]:
        """Return the nodes under a mapping's keys; empty where the key is missing."""
        found = self.child(key)
        if found is None:
            return {}
        return {
            name: Node(self.file, self.document, (*found.steps, name), value) for name, value in found._fields().items()
        }

    def sequence(self, key: str) -> Iterator[Node]:
        """Yield the nodes of a list; nothing where the key is missing."""
        found = self.child(key)
        if found is None:
            return
        if not isinstance(found.value, list):
            found.refuse(f"{key}: this takes a list (lines that start with -)")
        for number, value in enumerate(found.value):
            yield Node(self.file, self.document, (*found.steps, number), value)


def read_node(text: str, file: str) -> Node:
    """Parse a document.

    Raises
    ------
    ConfigError
        the text is not YAML, or no mapping.
    """
    try:
        document = read_yaml(text, variables=False)
    except YamlProblem as error:
        where = f"{file}:{error.place.line}:{error.place.column}" if error.place else file
        raise ConfigError(f"{where}: {error.problem}", hint=error.hint) from error
    root = Node(file, document, (), document.data)
    if not isinstance(document.data, dict):
        root.refuse("this takes a mapping (name: value)")
    return root


def read_data(name: str) -> Node:
    """Read one file of the package's data."""
    return read_node(resources.files(_PACKAGE).joinpath(f"data/{name}").read_text(encoding="utf-8"), name)


def data_files() -> list[str]:
    """Return the names of the entries' files, sorted."""
    folder = resources.files(_PACKAGE).joinpath("data")
    return sorted(one.name for one in folder.iterdir() if one.name.endswith(".yaml") and one.name != "errors.yaml")


def read_file(path: Path) -> Node:
    """Read a file of the user's.

    Raises
    ------
    ConfigError
        it cannot be read, is no UTF-8, or no YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return read_node(text, str(path))
