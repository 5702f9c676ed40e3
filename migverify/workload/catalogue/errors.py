"""Error numbers by what they mean to a client: the oracle for "the same outcome" on two kinds of servers.

The data is ``data/errors.yaml``. An error of class X on the source and one of class X on the target are one outcome;
a number that is in no class is a class of its own, so that two unknown numbers never pass as the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from migverify.errors import ConfigError
from migverify.model import Flavor
from migverify.workload.catalogue.reading import Node, read_data

SUCCESS = "ok"


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """One class. ``codes`` hold on every flavor, ``tidb`` on TiDB only. ``retryable``: the same again may succeed."""

    name: str
    meaning: str
    retryable: bool
    codes: frozenset[int]
    tidb: frozenset[int]


@dataclass(frozen=True, slots=True)
class Words:
    """For numbers that stand for anything: the class by what the message says."""

    codes: frozenset[int]
    pattern: re.Pattern[str]
    name: str
    only: Flavor | None


@dataclass(frozen=True, slots=True)
class ErrorClasses:
    """All classes, and the two ways into them."""

    classes: dict[str, ErrorClass]
    words: tuple[Words, ...]
    by_code: dict[int, str]
    of_tidb: dict[int, str]

    def name(self, errno: int, flavor: Flavor, message: str = "") -> str:
        """Return the class of an error; see ``error_class``."""
        if errno == 0:
            return SUCCESS
        if message:
            for one in self.words:
                if errno in one.codes and one.only in (None, flavor) and one.pattern.search(message):
                    return one.name
        found = self.of_tidb.get(errno) if flavor is Flavor.TIDB else None
        return found or self.by_code.get(errno) or f"errno {errno}"


@lru_cache(maxsize=1)
def error_classes() -> ErrorClasses:
    """Return the classes of the package.

    Raises
    ------
    ConfigError
        the data is damaged: an unknown key, a number in two classes; the message says where.
    """
    root = read_data("errors.yaml")
    root.only("classes", "words")
    classes: dict[str, ErrorClass] = {}
    by_code: dict[int, str] = {}
    of_tidb: dict[int, str] = {}
    for name, node in root.mapping("classes").items():
        node.only("meaning", "retryable", "codes", "tidb")
        one = ErrorClass(
            name, node.text("meaning"), node.flag("retryable", False), frozenset(node.numbers("codes")),
            frozenset(node.numbers("tidb")),
        )  # fmt: skip
        classes[name] = one
        for code, table in [(code, by_code) for code in one.codes] + [(code, of_tidb) for code in one.tidb]:
            if code in by_code or code in of_tidb:
                raise ConfigError(f"{node.where}: {code} is in two classes")
            table[code] = name
    words = tuple(_words(node, classes) for node in root.sequence("words"))
    return ErrorClasses(classes, words, by_code, of_tidb)


def _words(node: Node, classes: dict[str, ErrorClass]) -> Words:
    node.only("codes", "class", "pattern", "only")
    name = node.text("class")
    if name not in classes:
        raise ConfigError(f"{node.where}: there is no class {name!r}")
    only = node.text("only", "")
    return Words(frozenset(node.numbers("codes")), node.pattern("pattern"), name, Flavor(only) if only else None)


def error_class(errno: int, flavor: Flavor, message: str = "") -> str:
    """Return what an error means to a client.

    Parameters
    ----------
    errno
        The server's number; 0 is success and gives ``ok``.
    flavor
        Whose number it is: those from 8000 on are TiDB's.
    message
        The server's words, where known: they tell what a generic number (1105) stands for.

    Returns
    -------
    str
        A name of ``data/errors.yaml``, or ``errno N`` for a number that is in no class.
    """
    return error_classes().name(errno, flavor, message)


def retryable(name: str) -> bool:
    """Tell whether the same statement or transaction may succeed when it is sent again; False for ``errno N``."""
    found = error_classes().classes.get(name)
    return found is not None and found.retryable
