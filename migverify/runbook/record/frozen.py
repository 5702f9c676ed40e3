"""A runbook as JSON and back: what a run is started with is written into its own journal.

So a journal says by itself what was to be done, another machine takes a run over without the file, and a file that
is edited while the run goes on changes nothing. Fields that have their default are left out.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from migverify.errors import JournalError
from migverify.runbook.model import Runbook

__all__ = ["runbook_as_json", "runbook_from_json"]

_Build = Callable[[Any], Any]


def runbook_as_json(runbook: Runbook) -> dict[str, Any]:
    """Return the whole definition as JSON; secrets are names in it, as in the file."""
    told = _plain(runbook)
    return dict(told)


def runbook_from_json(told: Any) -> Runbook:
    """Return the definition that ``runbook_as_json`` told.

    Raises
    ------
    JournalError
        a field is missing, unknown, or of another kind.
    """
    try:
        built = _builder(Runbook)(told)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(f"the runbook in the journal cannot be read: {error}") from None
    if not isinstance(built, Runbook):
        raise JournalError("the runbook in the journal cannot be read")
    return built


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: _plain(getattr(value, name))
            for name, default in _defaults(type(value))
            if default is dataclasses.MISSING or getattr(value, name) != default
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (one.name, one.default if one.default_factory is dataclasses.MISSING else one.default_factory())
        for one in dataclasses.fields(kind)
    )


@cache
def _builder(kind: Any) -> _Build:
    origin = get_origin(kind)
    if origin is tuple:
        item = _builder(get_args(kind)[0])
        return lambda told: tuple(item(one) for one in told)
    if origin in (Union, types.UnionType):
        some = _builder(next(one for one in get_args(kind) if one is not type(None)))
        return lambda told: None if told is None else some(told)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _noun(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is float:
        return float
    if isinstance(kind, type) and kind in (str, int, bool):
        return lambda told: _checked(told, kind)
    return lambda told: told  # free-form: arguments of actions


def _noun(kind: type) -> _Build:
    hints = get_type_hints(kind)
    builders = {one.name: _builder(hints[one.name]) for one in dataclasses.fields(kind)}
    # Most fields are texts and numbers: they are looked at, and not called for.
    simple = {one.name: hints[one.name] for one in dataclasses.fields(kind) if hints[one.name] in (str, int, bool)}

    def build(told: dict[str, Any]) -> Any:
        return kind(**{
            name: value if simple.get(name) is type(value) else builders[name](value) for name, value in told.items()
        })  # fmt: skip

    return build


def _checked(told: Any, kind: type) -> Any:
    if type(told) is not kind:
        raise TypeError(f"{told!r} is not {kind.__name__}")
    return told
