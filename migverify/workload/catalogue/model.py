"""The nouns of the catalogue: entries, what shows them, the probes that find out where they hold.

Entries are frozen pydantic models of the YAML files; their JSON schema is made from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from migverify.config.allowances import Text
from migverify.config.fields import Many, Strict
from migverify.model import Flavor
from migverify.workload.catalogue.expected import Code, ExpectedAnswers, ExpectedByServer, Regex, Several, expectations
from migverify.workload.catalogue.versions import Version, version_of
from migverify.workload.classify import Classification, StatementKind

MAX_SESSIONS = 4
_ID = r"[a-z0-9]+(-[a-z0-9]+)*-\d{3}"
_REFERENCE = re.compile(
    r"https://(docs\.pingcap\.com/|dev\.mysql\.com/doc/|bugs\.mysql\.com/|github\.com/[\w.-]+/[\w.-]+/"
    r"(issues|pull|blob|commit)/)[^\s]+"
)


class EntryClass(StrEnum):
    """What a difference does to an application."""

    BLOCKER = "blocker"  # a statement that works on the source fails on the target
    RETRYABLE = "retryable"  # fails on the target now and then; the same again may succeed
    DATA_VISIBLE = "data-visible"  # other values, counts or ids
    METADATA = "metadata"  # other types, lengths, flags, warnings, messages
    SILENT = "silent"  # no error, and not what the statement requested
    ORDERING = "ordering"  # the same rows in another order
    CLIENT = "client"  # shows in drivers and pools


class Needs(StrEnum):
    """What a probe needs."""

    NONE = "none"  # reads, or only changes its own session
    SCRATCH = "scratch"  # tables in the scratch database
    SESSIONS = "sessions"  # the same, with two sessions at once
    ACCOUNT = "account"  # creates a user


Aspect = Literal[
    "error", "errno", "sqlstate", "message", "unanswered", "results", "rows", "row-count", "order", "value", "null",
    "float", "form", "decimal-scale", "json", "json-form", "json-text", "temporal", "temporal-fraction", "columns",
    "type", "length", "decimals", "flags", "charset", "affected-rows", "changed-rows", "did-not-recur", "insert-id",
    "info", "warnings", "status", "latency", "plan", "eviction", "batch-counts", "read-only",
]  # fmt: skip
"""What a ``Difference`` may be about, the last three of drivers and pools; another one is refused in an entry."""

ASPECTS: tuple[str, ...] = get_args(Aspect)


class Sign(Strict):
    """One way in which an entry shows: an aspect, and for errors the numbers of both sides (0 is success).

    ``source`` and ``target`` empty means: not asked about.
    """

    aspect: Aspect = Field(description="What differs.")
    source: Several[Code] = Field(default=(), description="Of errors: the source's numbers; 0 is success.")
    target: Several[Code] = Field(default=(), description="Of errors: the target's numbers; 0 is success.")
    message: Regex | None = Field(
        default=None, description="Of errors: found in the target's words, or in the source's where no target is named."
    )
    values: Regex | None = Field(default=None, description="Found in one of the two texts.")
    detail: Regex | None = Field(default=None, description="Found in the difference's detail.")
    twice: bool = Field(default=False, description="The target's number is twice the source's.")

    @model_validator(mode="after")
    def _numbers_are_of_errors(self) -> Sign:
        numbered = self.aspect in ("error", "errno")
        if numbered and not (self.source or self.target):
            raise ValueError("an error is named by its number on a side: source or target")
        if not numbered and (self.source or self.target or self.message):
            raise ValueError("source, target and message are of errors")
        return self


class Trigger(Strict):
    """Which statements an entry speaks of; all that is given must hold."""

    text: Regex | None = Field(default=None, description="Found in the digest text.")
    without: Regex | None = Field(default=None, description="Not found in the digest text.")
    kinds: Several[Annotated[StatementKind, Field(strict=False)]] = Field(
        default=(), description="Kinds of statements."
    )
    effects: Several[str] = Field(default=(), description="Side effects of which the statement has one.")
    volatile: Several[str] = Field(default=(), description="Volatile functions of which the statement has one.")
    locking: bool | None = Field(default=None, description="A locking read, or not.")
    signs: Annotated[Many[Sign], Field(min_length=1)] = Field(description="How it shows; one of them suffices.")

    def speaks_of(self, text: str, classification: Classification) -> bool:
        """Tell whether a statement is one of those."""
        if self.text is not None and not self.text.search(text):
            return False
        if self.without is not None and self.without.search(text):
            return False
        if self.kinds and classification.kind not in self.kinds:
            return False
        if self.effects and classification.effects.isdisjoint(self.effects):
            return False
        if self.volatile and classification.volatile.isdisjoint(self.volatile):
            return False
        return self.locking is None or self.locking == classification.locking


def _step(value: object) -> object:
    return {"sql": value} if isinstance(value, str) else value


class ProbeStep(Strict):
    """One statement of a probe: ``sql`` must succeed, the answer of one under ``ask`` is what the probe is about."""

    must: Text | None = Field(default=None, validation_alias="sql", description="A statement that must succeed.")
    ask: Text | None = Field(default=None, description="A statement whose answer is compared.")
    session: int = Field(default=1, ge=1, le=MAX_SESSIONS, validation_alias="on", description="The session.")
    waits: float | None = Field(
        default=None, description="Seconds after which a step that has not ended waits while the next one runs."
    )
    only: Literal["mysql", "tidb"] | None = Field(default=None, description="The flavor it is for.")

    @model_validator(mode="after")
    def _is_one(self) -> ProbeStep:
        if (self.must is None) == (self.ask is None):
            raise ValueError("a step has either sql or ask")
        if self.only is not None and self.asked:
            raise ValueError("a step that is asked is asked on both")
        return self

    @property
    def sql(self) -> str:
        """The statement."""
        return self.ask or self.must or ""

    @property
    def asked(self) -> bool:
        """Whether its answer is compared."""
        return self.ask is not None


class Probe(Strict):
    """Statements that find out whether an entry holds."""

    needs: Annotated[Needs, Field(strict=False)] = Field(description="What it needs.")
    setup: Several[Text] = Field(default=(), description="Statements before it, in session 1.")
    steps: Many[Annotated[ProbeStep, BeforeValidator(_step, json_schema_input_type=str | ProbeStep)]] = Field(
        description="Its statements, in their order."
    )
    teardown: Several[Text] = Field(default=(), description="Statements after it; refusals are no failures.")
    answers: ExpectedByServer = Field(
        validation_alias="expect",
        description="What each asked step answers, by server: mysql, tidb, tidb < 6.6, tidb >= 8.0.",
    )
    noted: str = Field(default="", description="What else a reader must know.")

    @model_validator(mode="after")
    def _is_complete(self) -> Probe:
        if not self.asked:
            raise ValueError("a probe asks something: give a step `ask`")
        if self.needs is not Needs.SESSIONS and any(step.session != 1 for step in self.steps):
            raise ValueError("several sessions need `needs: sessions`")
        if self.needs is Needs.NONE and (self.setup or self.teardown):
            raise ValueError("a probe that needs nothing has no setup and no teardown")
        for server, outcomes in self.answers.items():
            if len(outcomes) != len(self.asked):
                raise ValueError(f"expect.{server}: {len(outcomes)} outcomes for {len(self.asked)} asked steps")
        if {one.flavor for one in self.expect} < {Flavor.MYSQL, Flavor.TIDB}:
            raise ValueError("expect names mysql and tidb")
        return self

    @property
    def asked(self) -> tuple[ProbeStep, ...]:
        """Return the steps whose answers are compared."""
        return tuple(step for step in self.steps if step.asked)

    @cached_property
    def expect(self) -> tuple[ExpectedAnswers, ...]:
        """The expected answers by server; those with a bound on the version first: the first that fits counts."""
        return expectations(self.answers)


def _version(text: object) -> object:
    version = version_of(text) if isinstance(text, str) else None
    if version is None:
        raise ValueError("this is no version; put it in quotes")
    return version


KnownVersion = Annotated[tuple[int, ...], BeforeValidator(_version, json_schema_input_type=str)]


class VersionRange(Strict):
    """Versions of one server."""

    min: KnownVersion | None = Field(default=None, description="From this version on.")
    max: KnownVersion | None = Field(default=None, description="Up to this version.")

    def holds(self, version: Version | None) -> bool:
        """Tell whether a version may be in the range, with all releases of ``max``; an unknown one may."""
        if version is None:
            return True
        if self.min is not None and version < self.min:
            return False
        return self.max is None or version[: len(self.max)] <= self.max

    def text(self) -> str:
        """Return the range in words."""
        low = ".".join(map(str, self.min)) if self.min else ""
        high = ".".join(map(str, self.max)) if self.max else ""
        if low and high:
            return low if low == high else f"{low} to {high}"
        return f"{low} and later" if low else f"up to {high}" if high else "all"


class VersionRanges(Strict):
    """Where an entry is known."""

    mysql: VersionRange = VersionRange()
    tidb: VersionRange = VersionRange()


def _reference(text: str) -> str:
    if not _REFERENCE.fullmatch(text):
        raise ValueError(f"{text!r} is not a page that may be referred to")
    return text


class CatalogueEntry(Strict):
    """One known difference."""

    id: str = Field(pattern=f"^{_ID}$", description="Words in lower case, dashes, and three digits.")
    title: Text = Field(description="One line.")
    kind: Annotated[EntryClass, Field(strict=False)] = Field(
        validation_alias="class", description="What it does to an application."
    )
    explanation: Text = Field(description="Why it is so.")
    remedy: Text = Field(description="What to do.")
    references: Several[Annotated[str, AfterValidator(_reference)]] = Field(default=(), description="Public pages.")
    trigger: Trigger = Field(description="Which statements it speaks of, and how it shows.")
    versions: VersionRanges = Field(
        default=VersionRanges(), description="Where it is known; elsewhere it labels nothing."
    )
    probe: Probe | None = Field(default=None, description="Statements that find out whether it holds.")
    no_probe: str = Field(default="", description="Why there is no probe.")
    seen_on: str = Field(
        default="", description="The servers on which the expected answers were seen; those of the file by default."
    )

    @model_validator(mode="after")
    def _has_a_probe_or_says_why_not(self) -> CatalogueEntry:
        if (self.probe is None) == (not self.no_probe):
            raise ValueError("an entry has either a probe or no_probe, which says why there is none")
        return self


class CatalogueDocument(Strict):
    """A file of entries."""

    seen_on: Text = Field(description="The servers on which the expected answers were seen.")
    entries: Many[CatalogueEntry] = Field(description="Known differences.")


TITLE = "migverify difference catalogue"


class ProbeState(StrEnum):
    """What a probe found on the user's pair."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"  # both sides answer alike here
    CHANGED = "changed"  # a side answers otherwise than either expectation
    NOT_RUN = "not run"


class LabelState(StrEnum):
    """What a finding of a replay is called."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    BLOCKER = "blocker"


@dataclass(frozen=True, slots=True)
class Label:
    """How the catalogue calls a finding.

    ``ids`` are the entries that explain at least one of its differences; ``links`` are pages that say more of these.
    """

    state: LabelState = LabelState.UNKNOWN
    ids: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
