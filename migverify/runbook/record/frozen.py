"""A runbook as JSON and back: what a run is started with is written into its own journal.

So a journal says by itself what was to be done, another machine takes a run over without the file, and a file that
is edited while the run goes on changes nothing. Fields that have their default are left out.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from migverify.errors import JournalError
from migverify.runbook.model import Runbook

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["runbook_as_json", "runbook_from_json"]


@cache
def _adapter() -> TypeAdapter[Runbook]:
    from pydantic import TypeAdapter

    return TypeAdapter(Runbook)


def runbook_as_json(runbook: Runbook) -> dict[str, Any]:
    """Return the whole definition as JSON; secrets are names in it, as in the file."""
    body: dict[str, Any] = _adapter().dump_python(runbook, mode="json", exclude_defaults=True)
    return body


def runbook_from_json(body: Any) -> Runbook:
    """Return the definition of ``runbook_as_json``; raises JournalError when a field is missing, unknown, or wrong."""
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise JournalError(f"the runbook in the journal cannot be read: {where}: {first['msg']}") from None
