"""Error numbers by what they mean to a client: the oracle for "the same outcome" on two kinds of servers.

The data is ``data/errors.yaml``. An error of class X on the source and one of class X on the target are one outcome;
a number that is in no class is a class of its own, so that two unknown numbers never pass as the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pydantic import model_validator

from migverify.config.allowances import Text
from migverify.config.fields import Strict
from migverify.model import Flavor
from migverify.workload.catalogue.expected import Code, Several
from migverify.workload.catalogue.load import read_data

SUCCESS = "ok"


class ErrorClass(Strict):
    """One class. ``codes`` hold on every flavor, ``tidb`` on TiDB only."""

    meaning: Text
    codes: Several[Code] = ()
    tidb: Several[Code] = ()


class ErrorsDocument(Strict):
    """The file of error classes."""

    classes: dict[str, ErrorClass]

    @model_validator(mode="after")
    def _is_unambiguous(self) -> ErrorsDocument:
        known: set[int] = set()
        for _, code in (*self.numbers(tidb=False), *self.numbers(tidb=True)):
            if code in known:
                raise ValueError(f"{code} is in two classes")
            known.add(code)
        return self

    def numbers(self, *, tidb: bool) -> Iterator[tuple[str, int]]:
        """Yield class and number: those of every flavor, or those of TiDB alone."""
        for name, one in self.classes.items():
            yield from ((name, code) for code in (one.tidb if tidb else one.codes))


@lru_cache(maxsize=1)
def error_classes() -> ErrorsDocument:
    """Return the classes of the package.

    Raises
    ------
    ConfigError
        the data is damaged: an unknown key, a number in two classes; the message says where.
    """
    return read_data("errors.yaml", ErrorsDocument)[1]


@lru_cache(maxsize=2)
def _names(*, tidb: bool) -> dict[int, str]:
    return {code: name for name, code in error_classes().numbers(tidb=tidb)}


def error_class(errno: int, flavor: Flavor) -> str:
    """Return what an error means to a client: a class of the data, ``errno N`` for a number that is in none.

    Parameters
    ----------
    errno
        The server's number; 0 is success and gives ``ok``.
    flavor
        Whose number it is: those from 8000 on are TiDB's.
    """
    if errno == 0:
        return SUCCESS
    found = _names(tidb=True).get(errno) if flavor is Flavor.TIDB else None
    return found or _names(tidb=False).get(errno) or f"errno {errno}"
