"""What is wrong with a YAML file, in words: one error that names file, line, column and key, and never a value."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from migverify.config.yaml_text import Steps, YamlDocument, YamlPlace, YamlProblem, read_yaml
from migverify.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    Model = TypeVar("Model", bound=BaseModel)

_SHOWN_PROBLEMS = 10
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PASSWORD_WORDS = {"password", "passwd", "pwd", "pass", "secret"}


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """One thing that is wrong; problems sort by their position.

    ``text`` begins with file, line and column; ``words`` is the same without them.
    """

    order: tuple[int, int]
    text: str
    hint: str = ""
    words: str = ""


def at(path: Path | str, place: YamlPlace | None) -> str:
    """Spell a place: ``file:line:column``."""
    return f"{place.file or path}:{place.line}:{place.column}" if place else str(path)


def problem_at(path: Path, place: YamlPlace | None, text: str, hint: str = "") -> FileProblem:
    """Return a problem at a place of a file."""
    return FileProblem((place.line, place.column) if place else (0, 0), f"{at(path, place)}: {text}", hint, text)


def refuse(path: Path, problems: Iterable[FileProblem], most: int = _SHOWN_PROBLEMS) -> NoReturn:
    """Raise one ConfigError for all problems, in their order, each said once; at most so many are named.

    Raises
    ------
    ConfigError
        always.
    """
    # One condition for both sides is checked twice, once per side: say it once.
    found = sorted({(one.order, one.text): one for one in problems}.values())
    if len(found) == 1:
        raise ConfigError(found[0].text, hint=found[0].hint)
    lines = [f"{one.text}{' - ' + one.hint if one.hint else ''}" for one in found[:most]]
    if len(found) > most:
        lines.append(f"... and {len(found) - most} more")
    raise ConfigError(f"{path}: {len(found)} problems\n" + "\n".join(lines))


def read_document(path: Path, what: str, hint: str, **options: Any) -> tuple[str, YamlDocument]:
    """Return the text of a YAML file, line ends as they are, and what is in it.

    Parameters
    ----------
    what, hint
        What the file is (``runbook``), and what to do where it is missing.
    options
        For ``read_yaml``.

    Raises
    ------
    ConfigError
        there is no such file, it is not YAML, or a pipe or a device, which would be waited for without an end; the
        message names file, line and column and never shows a value.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise ConfigError(f"{path}: not a regular file", hint=f"Write the {what} to a file.")
        text = path.read_bytes().decode("utf-8")
        return text, read_yaml(text, **options)
    except FileNotFoundError:
        raise ConfigError(f"there is no {what} {path}", hint=hint) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})", hint="Save the file as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from None
    except YamlProblem as problem:
        line = text.splitlines()[problem.place.line - 1 :][:1] if problem.place else []
        hint = 'A value that begins with {{name}} is written in quotes: "{{name}}".' if "{{" in "".join(line) else ""
        raise ConfigError(f"{at(path, problem.place)}: {problem.problem}", hint=hint or problem.hint) from None


def validate(path: Path, document: YamlDocument, root: type[Model]) -> Model:
    """Read a document into its model.

    Raises
    ------
    ConfigError
        names every place that is wrong, and the nearest known key for an unknown one.
    """
    from pydantic import ValidationError

    try:
        return root.model_validate(document.data, context={"path": path})
    except ValidationError as error:
        refuse(path, explain(path, document, error, root))


def explain(
    path: Path, document: YamlDocument, error: ValidationError, root: type[BaseModel], under: Steps = ()
) -> list[FileProblem]:
    """Return what a failed validation found, in words and with places.

    ``under`` is the way to the part that was validated, where it was not the whole of ``root``.
    """
    every = error.errors(include_url=False)
    # A list whose one entry is wrong is not called empty too.
    found = [one for one in every if one["type"] != "too_short" or not any(
        other is not one and other["loc"][: len(one["loc"])] == one["loc"] for other in every)]  # fmt: skip
    return [_explain(path, document, {**details, "loc": (*under, *details["loc"])}, root) for details in found]


def _explain(path: Path, document: YamlDocument, details: ErrorDetails, root: type[BaseModel]) -> FileProblem:
    tagged: Steps = tuple(step for step in details["loc"] if step != "[key]")
    steps = _in_the_file(document, tagged)
    place = document.place(steps)
    if steps[-2:-1] == ("where",):
        steps = steps[:-1] if document.keys.get(steps) is None else steps
    name = key_text(steps)
    if details["type"] == "extra_forbidden":
        if not _NAME.fullmatch(str(steps[-1])):  # "password=..." and "password:..." are keys with a secret in them
            where = f" in {key_text(steps[:-1])}" if steps[1:] else ""
            return problem_at(path, place, f"unknown key{where}; it is not shown, as it holds more than a name")
        return problem_at(path, place, f"unknown key {name}", _suggest(tagged, root))
    if details["type"] == "missing":
        return problem_at(path, place, f"the key {name} is missing")
    if details["type"] == "union_tag_not_found":
        tag = str(details["ctx"]["discriminator"]).strip("'")
        return problem_at(path, place, f"the key {key_text((*steps, tag))} is missing")
    if details["type"] == "union_tag_invalid":
        tag = str(details["ctx"]["discriminator"]).strip("'")
        known = str(details["ctx"]["expected_tags"]).replace("'", "")
        return problem_at(
            path, document.place((*steps, tag)), f"{key_text((*steps, tag))}: this takes one of {known}",
            _nearest(str(details["ctx"]["tag"]), known.split(", ")),
        )  # fmt: skip
    if details["type"] in ("literal_error", "enum") and isinstance(details["input"], str):
        choices: list[str] = re.findall(r"'([^']*)'", _choices(details))
        return problem_at(path, place, f"{name}: {_wording(details)}", _nearest(details["input"], choices))
    # CAST(a AS DECIMAL(20,2)) in {...} ends at its comma, and what follows looks like a key.
    torn = details["input"] is None and any(mark in str(steps[-1] if steps else "") for mark in "()'\"")
    hint = "Inside {...} put a text with a comma in quotes." if torn else ""
    return problem_at(path, place, f"{name + ': ' if name else ''}{_wording(details)}", hint)


def _in_the_file(document: YamlDocument, steps: Steps) -> Steps:
    """Steps without the tags that pydantic puts in where one of several models was chosen."""
    data: object = document.data
    kept: list[str | int] = []
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        if isinstance(data, dict) and step not in data and not last and step in data.values():
            continue
        kept.append(step)
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            data = None
    return tuple(kept)


def key_text(steps: Iterable[str | int]) -> str:
    """Spell the way to a key: ``routes[0].from``."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


_WORDS = {
    "string_type": "this takes text; put it in quotes",
    "int_type": "this takes a whole number",
    "int_from_float": "this takes a whole number",
    "float_type": "this takes a number",
    "finite_number": "this takes a finite number",
    "bool_type": "this takes true or false",
    "list_type": "this takes a list (lines that start with -)",
    "tuple_type": "this takes a list (lines that start with -)",
    "dict_type": "this takes a mapping (name: value)",
    "model_type": "this takes a mapping (name: value)",
    "model_attributes_type": "this takes a mapping (name: value)",
    "string_too_short": "this must not be empty",
    "too_short": "this must not be empty",
}


def _wording(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if details["input"] is None:
        return "this key has no value; give it one or remove the key"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_too_long":
        return f"this takes at most {context['max_length']} characters"
    if kind in ("literal_error", "enum"):
        return f"this takes one of {_choices(details)}"
    for name, words in (
        ("greater_than_equal", "at least"),
        ("less_than_equal", "at most"),
        ("greater_than", "above"),
    ):
        if kind == name:
            bound = context[{"greater_than_equal": "ge", "less_than_equal": "le", "greater_than": "gt"}[name]]
            return f"this takes a number {words} {bound:g}"
    return _WORDS.get(kind) or details["msg"]


def _choices(details: ErrorDetails) -> str:
    """Return the values that a key takes; members of an enum by their values."""
    return re.sub(r"<[\w.]+: ('[^']*')>", r"\1", str(details["ctx"]["expected"]))


def _suggest(steps: Steps, root: type[BaseModel]) -> str:
    from migverify.config.reference import keys_under, known_keys

    name = str(steps[-1])
    siblings = keys_under(steps[:-1], root)
    if name.lower() in _PASSWORD_WORDS and "password_env" in siblings:
        return "A password does not belong in the file: use password_env or password_command."
    if near := _nearest(name, siblings):
        return near
    elsewhere = [key.path for key in known_keys(root) if key.path.rpartition(".")[2] == name and not key.only]
    if elsewhere:
        return f"Did you mean {elsewhere[0]}?"
    return f"Known keys here: {', '.join(siblings)}." if siblings else "Remove it."


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else ""
