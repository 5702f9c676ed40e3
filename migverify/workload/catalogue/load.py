"""The catalogue's YAML -> entries."""

from __future__ import annotations

import re
from functools import lru_cache

from migverify.model import Flavor
from migverify.workload.catalogue.expected import read_expectations
from migverify.workload.catalogue.match import Catalogue
from migverify.workload.catalogue.model import ASPECTS, Entry, EntryClass, Needs, Probe, Sign, Step, Trigger
from migverify.workload.catalogue.reading import Node, data_files, read_data
from migverify.workload.catalogue.versions import Range, version_of
from migverify.workload.classify import StatementKind

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*-\d{3}")
_REFERENCE = re.compile(
    r"https://(docs\.pingcap\.com/|dev\.mysql\.com/doc/|bugs\.mysql\.com/|github\.com/[\w.-]+/[\w.-]+/"
    r"(issues|pull|blob|commit)/)[^\s]+"
)
MAX_SESSIONS = 4


@lru_cache(maxsize=1)
def load() -> Catalogue:
    """Return the package's catalogue, read once.

    Raises
    ------
    ConfigError
        an entry is damaged; the message says where.
    """
    entries: dict[str, Entry] = {}
    for name in data_files():
        root = read_data(name)
        root.only("seen_on", "entries")
        seen_on = root.text("seen_on")
        for node in root.sequence("entries"):
            entry = read_entry(node, seen_on)
            if entry.id in entries:
                node.refuse(f"the id {entry.id} is taken in {entries[entry.id].where}")
            entries[entry.id] = entry
    return Catalogue(tuple(sorted(entries.values(), key=lambda entry: entry.id)))


def read_entry(node: Node, seen_on: str = "") -> Entry:
    """Read one entry; ``seen_on`` names the servers on which its expected answers were seen.

    Raises
    ------
    ConfigError
        a key is missing, unknown, or holds what it must not.
    """
    node.only(
        "id", "title", "class", "explanation", "remedy", "references", "trigger", "versions", "probe", "no_probe"
    )  # fmt: skip
    identity = node.text("id")
    if not _ID.fullmatch(identity):
        node.refuse(f"{identity!r} is no id: words in lower case, dashes, and three digits")
    for reference in node.texts("references"):
        if not _REFERENCE.fullmatch(reference):
            node.refuse(f"{reference!r} is not a page that may be referred to")
    probe = node.child("probe")
    if (probe is None) == (not node.text("no_probe", "")):
        node.refuse("an entry has either a probe or no_probe, which says why there is none")
    ranges = node.child("versions")
    if ranges is not None:
        ranges.only("mysql", "tidb")
    return Entry(
        id=identity,
        title=node.text("title"),
        kind=EntryClass(node.one_of("class", tuple(EntryClass))),
        explanation=node.text("explanation"),
        remedy=node.text("remedy"),
        references=node.texts("references"),
        trigger=_trigger(node.mapping("trigger"), node),
        source=_range(ranges, "mysql"),
        target=_range(ranges, "tidb"),
        probe=_probe(probe) if probe is not None else None,
        no_probe=node.text("no_probe", ""),
        where=node.where,
        seen_on=seen_on,
    )


def _trigger(fields: dict[str, Node], entry: Node) -> Trigger:
    node = entry.child("trigger")
    if node is None or not fields:
        entry.refuse("the key trigger is missing")
    node.only("text", "without", "kinds", "effects", "volatile", "locking", "signs")
    kinds = node.texts("kinds")
    for kind in kinds:
        if kind not in tuple(StatementKind):
            node.refuse(f"kinds: {kind!r} is no kind of statement")
    signs = tuple(_sign(one) for one in node.sequence("signs"))
    if not signs:
        node.refuse("an entry that shows in nothing labels nothing: give it signs")
    return Trigger(
        signs=signs,
        text=node.pattern("text") if node.has("text") else None,
        without=node.pattern("without") if node.has("without") else None,
        kinds=frozenset(kinds),
        effects=frozenset(node.texts("effects")),
        volatile=frozenset(node.texts("volatile")),
        locking=node.flag("locking", False) if node.has("locking") else None,
    )


def _sign(node: Node) -> Sign:
    node.only("aspect", "source", "target", "message", "values", "detail", "twice")
    aspect = node.one_of("aspect", ASPECTS)
    sign = Sign(
        aspect,
        frozenset(node.numbers("source")),
        frozenset(node.numbers("target")),
        node.pattern("message") if node.has("message") else None,
        node.pattern("values") if node.has("values") else None,
        node.pattern("detail") if node.has("detail") else None,
        node.flag("twice", False),
    )
    numbered = aspect in ("error", "errno")
    if numbered and not (sign.source or sign.target):
        node.refuse("an error is named by its number on a side: source or target")
    if not numbered and (sign.source or sign.target or sign.message):
        node.refuse("source, target and message are of errors")
    return sign


def _range(node: Node | None, key: str) -> Range:
    found = node.child(key) if node is not None else None
    if found is None:
        return Range()
    found.only("min", "max")
    bounds = []
    for name in ("min", "max"):
        text = found.text(name, "")
        version = version_of(text) if text else None
        if text and version is None:
            found.refuse(f"{name}: {text!r} is no version; put it in quotes")
        bounds.append(version)
    return Range(*bounds)


def _probe(node: Node) -> Probe:
    node.only("needs", "setup", "steps", "teardown", "expect", "noted")
    needs = Needs(node.one_of("needs", tuple(Needs)))
    steps = tuple(_step(one) for one in node.sequence("steps"))
    asked = sum(step.asked for step in steps)
    if not asked:
        node.refuse("a probe asks something: give a step `ask`")
    if needs is not Needs.SESSIONS and any(step.session != 1 for step in steps):
        node.refuse("several sessions need `needs: sessions`")
    expect = read_expectations(node, asked)
    if {one.flavor.value for one in expect} < {"mysql", "tidb"}:
        node.refuse("expect names mysql and tidb")
    if needs is Needs.NONE and (node.texts("setup") or node.texts("teardown")):
        node.refuse("a probe that needs nothing has no setup and no teardown")
    return Probe(needs, node.texts("setup"), steps, node.texts("teardown"), expect, node.text("noted", ""))


def _step(node: Node) -> Step:
    if isinstance(node.value, str):
        return Step(node.value)
    node.only("sql", "ask", "on", "waits", "only")
    if node.has("sql") == node.has("ask"):
        node.refuse("a step has either sql or ask")
    session = node.number("on", 1)
    if session is None or not 1 <= session <= MAX_SESSIONS:
        node.refuse(f"on: sessions are 1 to {MAX_SESSIONS}")
    waits = node.child("waits")
    if waits is not None and (not isinstance(waits.value, int | float) or isinstance(waits.value, bool)):
        waits.refuse("waits: this takes seconds")
    seconds = float(str(waits.value)) if waits is not None else None
    only = node.one_of("only", ("mysql", "tidb"), "")
    if only and node.has("ask"):
        node.refuse("a step that is asked is asked on both")
    return Step(
        node.text("ask" if node.has("ask") else "sql"),
        session,
        node.has("ask"),
        seconds,
        Flavor(only) if only else None,
    )
