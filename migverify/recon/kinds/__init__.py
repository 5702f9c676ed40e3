"""The kinds of rules: one frozen model each, which is the rule as it is written, and knows how it is read and judged.

A kind holds its keys with their meaning, its static checks, its sentence for ``recon check``, the relations that it
needs and its judgment of a pairing; ``migverify.recon.rule`` has what all share. A new one is a class, named below.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from migverify.recon.kinds.groups import Balance, SameGroups, ZeroSum
from migverify.recon.kinds.health import Coverage, Freshness
from migverify.recon.kinds.order import NumberSequence, Transitions
from migverify.recon.kinds.rows import NoRows, Orphans, SameRows, Unique
from migverify.recon.kinds.suites import Expectations

AnyRule = Annotated[
    SameRows | SameGroups | ZeroSum | Balance | Transitions | Orphans | Unique | NumberSequence | Freshness | Coverage
    | NoRows | Expectations,
    Field(discriminator="kind"),
]  # fmt: skip
