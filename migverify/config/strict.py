"""The base of all parts of a YAML file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Base of all parts: no unknown keys, no conversion between types."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, regex_engine="python-re")
