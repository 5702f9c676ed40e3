"""YAML text -> plain data that remembers the place of each key.

Stricter than PyYAML's own loader: a key that occurs twice is refused, tags are refused, and plain words keep
the meaning of YAML 1.2 (``no`` is text, ``1e-9`` is a number, ``2026-01-31`` and ``12:30:00`` are text).
Messages never quote a value or a line of the file: the one in error may be the one with a secret on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import yaml

from migverify.codec import MOST_DEPTH

Steps = tuple[str | int, ...]
"""The way to a value: keys and list indexes from the top."""

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_VARIABLE_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_QUOTED = re.compile(r"(alias|anchor|handle|tag) '[^']*'")
_NAMES_OF_VARIABLES = ("password_env", "store_password_env")
_SHELL_COMMANDS = ("password_command", "store_password_command")
_MOST_VALUES = 1_000_000
"""Of a file, counted with what its aliases repeat: aliases of aliases can make a short file endless."""


class YamlPlace(NamedTuple):
    """Line and column, both from 1, and the file where it is not the one that is read. A tuple: there are many."""

    line: int
    column: int
    file: str = ""


@dataclass(slots=True)
class YamlDocument:
    """Plain data with the places of its keys and values."""

    data: object = None
    keys: dict[Steps, YamlPlace] = field(default_factory=dict)
    values: dict[Steps, YamlPlace] = field(default_factory=dict)

    def place(self, steps: Steps) -> YamlPlace | None:
        """Place of the key at ``steps``, else of the nearest key or value above it."""
        while steps:
            found = self.keys.get(steps) or self.values.get(steps)
            if found:
                return found
            steps = steps[:-1]
        return None


class YamlProblem(Exception):  # noqa: N818  (not an error of ours: load_config turns it into a ConfigError)
    """The text is not the YAML we accept."""

    def __init__(self, problem: str, place: YamlPlace | None = None, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = place
        self.hint = hint


class _Loader(yaml.SafeLoader):
    """Resolves plain words as YAML 1.2's core schema does."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):  # fmt: skip
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), list(_first))


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same words by libyaml, where PyYAML was built with it."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def read_yaml(
    text: str,
    environment: Mapping[str, str] | None = None,
    *,
    variables: bool = True,
    exact: bool = False,
) -> YamlDocument:
    """Parse a document, putting variables in the place of ``${NAME}`` and ``${NAME:-default}``.

    ``$${`` is a literal ``${``. A variable counts as part of its scalar: ``port: ${PORT}`` is a
    number, ``port: "${PORT}"`` is text. Without ``variables`` they are refused. With ``exact`` a number with a point
    or an exponent is a Decimal of what is written, never a float.

    Raises
    ------
    YamlProblem
        bad syntax, a key twice, a tag, a variable that is not set.
    """
    _refuse_deep(text)
    try:
        try:
            node = _composed(_FastLoader(text))
        except yaml.YAMLError:  # what libyaml refuses is read again: PyYAML says better where and why
            node = _composed(_Loader(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = YamlPlace(mark.line + 1, mark.column + 1) if mark else None
        words = _QUOTED.sub(r"\1", error.problem or error.context or "damaged")
        raise YamlProblem(f"not valid YAML: {words}", place) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblem(f"not valid YAML: {error.reason}", YamlPlace(line, 1)) from None
    except RecursionError:
        raise YamlProblem("not valid YAML: nested too deeply") from None
    document = YamlDocument()
    if node is not None:
        _refuse_expanding(node)
        filled = os.environ if environment is None else environment
        document.data = _DataBuilder(document, filled if variables else None, exact=exact).build(node, ())
    return document


def _refuse_deep(text: str) -> None:
    """Refuse a text that nests too deeply before anything walks it: libyaml's composer would end the process.

    Its parser does not recurse. Only a text that could be so deep is read for it.
    """
    openers = text.count("[") + text.count("{")
    if openers <= MOST_DEPTH and not _MANY_LEVELS.search(text):
        return
    depth = 0
    loader = _FastLoader(text)
    try:
        while loader.check_event():
            event = loader.get_event()
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                mark = event.start_mark
                raise YamlProblem(
                    f"nested deeper than {MOST_DEPTH} levels", YamlPlace(mark.line + 1, mark.column + 1),
                    "No file of migverify needs more: write it flat.",
                )  # fmt: skip
    except yaml.YAMLError:
        return  # the reader says what is wrong with it
    finally:
        loader.dispose()


_MANY_LEVELS = re.compile(rf"^(?: {{{MOST_DEPTH},}}|(?:\s*[-?:]\s){{8,}})", re.MULTILINE)
"""A line so far in, or with so many entries on it, that the text may be deep without brackets."""


def _composed(loader: Any) -> yaml.Node | None:
    try:
        node: yaml.Node | None = loader.get_single_node()
    finally:
        loader.dispose()
    return node


def _refuse_expanding(root: yaml.Node) -> None:
    """Refuse a document that its aliases make too large, too deep or endless, before any of it is built."""
    sizes: dict[int, tuple[int, int]] = {}  # by identity, as nodes are compared: values below, and levels
    above: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting[-1]
        children = _children(node)
        if id(node) not in above:
            above.add(id(node))
            looping = [child for child in children if id(child) in above and id(child) not in sizes]
            if looping:
                raise YamlProblem("an alias leads back into itself", _place(looping[0]))
            waiting += [child for child in children if id(child) not in sizes]
            continue
        waiting.pop()
        below = [sizes[id(child)] for child in children]
        count, levels = 1 + sum(size for size, _ in below), 1 + max((depth for _, depth in below), default=0)
        sizes[id(node)] = count, levels
        if count > _MOST_VALUES:
            raise YamlProblem(
                f"more than {_MOST_VALUES:,} values, counted with what its aliases repeat", _place(node),
                "Write out what is needed, without aliases of aliases.",
            )  # fmt: skip
        if levels > MOST_DEPTH + 1:
            raise YamlProblem(f"nested deeper than {MOST_DEPTH} levels by its aliases", _place(node), "Write it flat.")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [value for _, value in node.value]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _DataBuilder:
    """Turns nodes into data; one per document."""

    def __init__(self, document: YamlDocument, environment: Mapping[str, str] | None, *, exact: bool) -> None:
        self.document = document
        self.environment = environment
        self.exact = exact

    def build(self, node: yaml.Node, steps: Steps) -> object:
        self.document.values[steps] = _place(node)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, steps)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.build(child, (*steps, number)) for number, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self.mapping(node, steps)
        raise _tagged(node)

    def mapping(self, node: yaml.MappingNode, steps: Steps) -> dict[str, object]:
        result: dict[str, object] = {}
        merged: dict[str, object] = {}
        seen: dict[str, YamlPlace] = {}
        for key_node, value_node in node.value:
            place = _place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlProblem("a key must be one word", place)
            if key_node.tag == _TAG + "merge":
                merged |= self.merge(value_node, steps)
                continue
            key = key_node.value
            if key in seen:
                raise YamlProblem(
                    f"the key {key!r} occurs twice; first in line {seen[key].line}"
                    if key.isidentifier()
                    else f"a key occurs twice; first in line {seen[key].line}",
                    place,
                    "Keep one of the two.",
                )
            seen[key] = place
            result[key] = self.build(value_node, (*steps, key))
            self.document.keys[(*steps, key)] = place
        return merged | result

    def merge(self, node: yaml.Node, steps: Steps) -> dict[str, object]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, object] = {}
        for child in nodes:
            data = self.build(child, steps)
            if not isinstance(data, dict):
                raise YamlProblem("<< takes a mapping", _place(node))
            result = data | result
        return result

    def scalar(self, node: yaml.ScalarNode, steps: Steps) -> object:
        text, tag = node.value, node.tag
        name = str(steps[-1]) if steps else ""
        if name in _NAMES_OF_VARIABLES and _VARIABLE.search(text):
            # Filled in, this would be the secret itself, to be shown as the name of a missing variable.
            raise YamlProblem(f"{name} takes the name of a variable, without ${{}}", _place(node))
        if name in _SHELL_COMMANDS:
            return text  # the shell fills in its variables itself, out of sight of the process list
        if not node.style and _VARIABLE.search(text):
            text = self.fill(text, node)
            # An unset-looking empty value stays text: "" must not turn into the absence of a value.
            tag = _resolve(text) if text else _TAG + "str"
        elif node.style:  # libyaml says '' of a plain word, PyYAML None
            text = self.fill(text, node)
        kind = tag.removeprefix(_TAG)
        if kind == "str" or tag == "!":
            return text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            if kind == "int":
                return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            if kind == "float" and self.exact:
                return Decimal(text)
            if kind == "float":
                return float(re.sub(r"\.(?=[iIN]|n)", "", text))
        except (ValueError, InvalidOperation):
            raise YamlProblem("not a number", _place(node)) from None
        raise _tagged(node)

    def fill(self, text: str, node: yaml.ScalarNode) -> str:
        def value(found: re.Match[str]) -> str:
            if found[0] == "$${":
                return "${"
            if self.environment is None:
                raise YamlProblem(
                    "variables (${...}) are not filled in here", _place(node),
                    "Use a parameter, or write $${ for a literal ${.",
                )  # fmt: skip
            name = _VARIABLE_NAME.fullmatch(found[1])
            if name is None:
                raise YamlProblem(
                    "${...} takes the name of an environment variable",
                    _place(node),
                    "Write $${ for a literal ${.",
                )
            set_to = self.environment.get(name[1])
            if set_to is not None:
                return set_to
            if name[2] is not None:
                return name[2]
            raise YamlProblem(
                f"the environment variable {name[1]} is not set",
                _place(node),
                f"export {name[1]}=... and run again.",
            )

        return _VARIABLE.sub(value, text)


def _resolve(text: str) -> str:
    for tag, pattern in _Loader.yaml_implicit_resolvers.get(text[0], []):
        if pattern.match(text) and tag != _TAG + "merge":
            return tag
    return _TAG + "str"


def _tagged(node: yaml.Node) -> YamlProblem:
    return YamlProblem("tags (!...) are not used here", _place(node), "Remove the tag.")


def _place(node: yaml.Node) -> YamlPlace:
    return YamlPlace(node.start_mark.line + 1, node.start_mark.column + 1)
