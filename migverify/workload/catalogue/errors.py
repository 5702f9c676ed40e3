"""Error numbers by what they mean to a client: the oracle for "the same outcome" on two kinds of servers.

The data is ``data/errors.yaml``. An error of class X on the source and one of class X on the target are one outcome;
a number that is in no class is a class of its own, so that two unknown numbers never pass as the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import Field, model_validator

from migverify.config.allowances import Text
from migverify.config.fields import Many, Strict
from migverify.model import Flavor
from migverify.workload.catalogue.expected import Code, Regex, Several
from migverify.workload.catalogue.load import read_data

SUCCESS = "ok"


class ErrorClass(Strict):
    """One class. ``codes`` hold on every flavor, ``tidb`` on TiDB only. ``retryable``: the same again may succeed."""

    meaning: Text
    retryable: bool = False
    codes: Several[Code] = ()
    tidb: Several[Code] = ()


class Words(Strict):
    """For numbers that stand for anything: the class by what the message says."""

    codes: Several[Code]
    pattern: Regex
    name: str = Field(validation_alias="class")
    only: Annotated[Flavor, Field(strict=False)] | None = None


class ErrorsDocument(Strict):
    """The file of error classes."""

    classes: dict[str, ErrorClass]
    words: Many[Words] = ()

    @model_validator(mode="after")
    def _is_unambiguous(self) -> ErrorsDocument:
        known: set[int] = set()
        for _, code in (*self.numbers(tidb=False), *self.numbers(tidb=True)):
            if code in known:
                raise ValueError(f"{code} is in two classes")
            known.add(code)
        for one in self.words:
            if one.name not in self.classes:
                raise ValueError(f"there is no class {one.name!r}")
        return self

    def numbers(self, *, tidb: bool) -> Iterator[tuple[str, int]]:
        """Yield class and number: those of every flavor, or those of TiDB alone."""
        for name, one in self.classes.items():
            yield from ((name, code) for code in (one.tidb if tidb else one.codes))


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
    _, root = read_data("errors.yaml", ErrorsDocument)
    by_code = {code: name for name, code in root.numbers(tidb=False)}
    of_tidb = {code: name for name, code in root.numbers(tidb=True)}
    return ErrorClasses(root.classes, root.words, by_code, of_tidb)


def error_class(errno: int, flavor: Flavor, message: str = "") -> str:
    """Return what an error means to a client.

    Parameters
    ----------
    errno
        The server's number; 0 is success and gives ``ok``.
    flavor
        Whose number it is: those from 8000 on are TiDB's.
    message
        The server's words, where known: they say what a generic number (1105) means.

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
