"""``migverify.yaml`` -> Config, or one ConfigError that says what, where and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.config.patterns import make_route, parse_pattern
from migverify.config.settings import (
    Config,
    ImmutableBefore,
    Limits,
    OverrideRule,
    Recheck,
    ReportSettings,
    SparkSettings,
    StoreSettings,
    TableFilter,
    TableOverride,
    WatchSettings,
)
from migverify.config.urls import Address, parse_endpoint_url
from migverify.config.yaml_text import Steps, YamlDocument, YamlProblem, read_yaml
from migverify.errors import ConfigError
from migverify.model import Endpoint, Tls

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from migverify.config.document import ConfigDocument, EndpointPart, OverridePart, WatchPart

DEFAULT_NAME = "migverify.yaml"
_SHOWN_PROBLEMS = 10
_PASSWORD_WORDS = {"password", "passwd", "pwd", "pass", "secret"}


def load_config(path: Path, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration file.

    Parameters
    ----------
    path
        The file. Relative paths in it (an SQLite store, the pause file) start at its folder; TLS files do
        not, because they are opened by whichever machine connects.
    environment
        Variables for ``${NAME}``; the process's own by default.

    Raises
    ------
    ConfigError
        The file is missing, is not YAML, or says something it cannot; the message names file, line and column
        and never shows a value.
    """
    text = _read(path)
    try:
        document = read_yaml(text, environment)
    except YamlProblem as problem:
        where = f"{path}:{problem.place.line}:{problem.place.column}" if problem.place else str(path)
        raise ConfigError(f"{where}: {problem.problem}", hint=problem.hint) from None
    if document.data is None:
        raise ConfigError(f"{path}: the file is empty", hint=f"Run `migverify init --force -o {path}`.")
    return _convert(_validate(path, document), path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration file {path}",
            hint="Run `migverify init` to write one, or name another with --config.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})", hint="Save the file as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from None


def _validate(path: Path, document: YamlDocument) -> ConfigDocument:
    from pydantic import ValidationError  # loaded only where a file is read: it costs a tenth of a second

    from migverify.config.document import ConfigDocument

    try:
        return ConfigDocument.model_validate(document.data)
    except ValidationError as error:
        problems = [_explain(path, document, details) for details in error.errors(include_url=False)]
    # One condition for both sides is checked twice, once per side: say it once.
    found = sorted({(order, text): (order, text, hint) for order, text, hint in problems}.values())
    if len(found) == 1:
        raise ConfigError(found[0][1], hint=found[0][2])
    lines = [f"{text}{' - ' + hint if hint else ''}" for _, text, hint in found[:_SHOWN_PROBLEMS]]
    if len(found) > _SHOWN_PROBLEMS:
        lines.append(f"... and {len(found) - _SHOWN_PROBLEMS} more")
    raise ConfigError(f"{path}: {len(found)} problems\n" + "\n".join(lines))


def _explain(path: Path, document: YamlDocument, details: ErrorDetails) -> tuple[tuple[int, int], str, str]:
    steps: Steps = tuple(step for step in details["loc"] if step != "[key]")
    place = document.place(steps)
    where = f"{path}:{place.line}:{place.column}" if place else str(path)
    order = (place.line, place.column) if place else (0, 0)
    if steps[-2:-1] == ("where",):
        steps = steps[:-1] if document.keys.get(steps) is None else steps
    name = key_text(steps)
    if details["type"] == "extra_forbidden":
        hint = _suggest(steps)
        return order, f"{where}: unknown key {name}", hint
    if details["type"] == "missing":
        return order, f"{where}: the key {name} is missing", ""
    words = _wording(details)
    return order, f"{where}: {name + ': ' if name else ''}{words}", ""


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
    if kind == "literal_error":
        return f"this takes one of {context['expected']}"
    for name, words in (
        ("greater_than_equal", "at least"),
        ("less_than_equal", "at most"),
        ("greater_than", "above"),
    ):
        if kind == name:
            bound = context[{"greater_than_equal": "ge", "less_than_equal": "le", "greater_than": "gt"}[name]]
            return f"this takes a number {words} {bound:g}"
    return _WORDS.get(kind) or details["msg"]


def _suggest(steps: Steps) -> str:
    from migverify.config.reference import keys_under, known_keys

    name = str(steps[-1])
    siblings = keys_under(steps[:-1])
    if name.lower() in _PASSWORD_WORDS and "password_env" in siblings:
        return "A password does not belong in the file: use password_env or password_command."
    close = difflib.get_close_matches(name.lower(), siblings, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]}?"
    elsewhere = [key.path for key in known_keys() if key.path.rpartition(".")[2] == name]
    if elsewhere:
        return f"Did you mean {elsewhere[0]}?"
    return f"Known keys here: {', '.join(siblings)}." if siblings else "Remove it."


def _convert(document: ConfigDocument, path: Path) -> Config:
    if document.source is not None:
        sources: tuple[Endpoint, ...] = (_endpoint("source", document.source),)
    else:
        sources = tuple(_endpoint(f"source.{name}", part) for name, part in (document.sources or {}).items())
    folder = path.parent
    limits: dict[str, Any] = document.limits.model_dump()
    if limits["pause_file"] is not None:
        limits["pause_file"] = str(folder / limits["pause_file"])
    return Config(
        path=path,
        sources=sources,
        target=_endpoint("target", document.target),
        store=StoreSettings(_store_url(document.store, folder), document.store_password_env),
        tables=TableFilter(
            tuple(parse_pattern(text) for text in document.tables.include),
            tuple(parse_pattern(text) for text in document.tables.exclude),
        ),
        routes=tuple(make_route(part.from_, part.to, part.shard) for part in document.routes),
        overrides=tuple(OverrideRule(parse_pattern(part.table), _override(part)) for part in document.overrides),
        limits=Limits(**limits),
        recheck=Recheck(document.recheck.delay, document.recheck.rounds),
        watch=_watch(document.watch),
        consistency=document.consistency,
        report=ReportSettings(document.report.values),
        hash=document.hash,
        spark=SparkSettings(document.spark.master, tuple(document.spark.conf.items())),
    )


def _endpoint(name: str, part: EndpointPart) -> Endpoint:
    if part.url is not None:
        address = parse_endpoint_url(part.url)
    else:
        address = Address(part.host or "", part.port or 3306, part.user or "")
    return Endpoint(
        name=name,
        host=address.host,
        port=address.port,
        user=address.user,
        password_env=part.password_env,
        password_command=part.password_command,
        tls=Tls(part.tls.effective_mode, part.tls.ca, part.tls.cert, part.tls.key),
        connections=part.connections,
        query_seconds=part.query_seconds,
        snapshot=part.snapshot,
        resource_group=part.resource_group,
        low_priority=part.low_priority,
        session=tuple(part.session.items()),
    )


def _watch(part: WatchPart) -> WatchSettings:
    ids = {"": part.checkpoint_id} if isinstance(part.checkpoint_id, str) else part.checkpoint_id or {}
    return WatchSettings(
        part.applied, part.settle_seconds, part.checkpoint, tuple(sorted(ids.items())), part.marker, part.delay,
        part.hot_seconds, part.sweep_rows, part.drain_seconds,
    )  # fmt: skip


def _override(part: OverridePart) -> TableOverride:
    tolerances = dict(part.float_tolerance)
    before = part.immutable_before
    return TableOverride(
        key=None if part.key is None else tuple(part.key),
        ignore=tuple(part.ignore),
        rename=tuple(part.rename.items()),
        where_source=part.where.source,
        where_target=part.where.target,
        float_tolerance=tolerances.pop("*", None),
        column_tolerances=tuple(tolerances.items()),
        immutable_before=None if before is None else ImmutableBefore(before.column, before.value),
    )


def _store_url(url: str, folder: Path) -> str:
    scheme, _, rest = url.partition("://")
    name = rest[1:]
    relative = scheme.split("+")[0].lower() == "sqlite" and name and not name.startswith(("/", ":memory:", "file:"))
    return f"{scheme}:///{folder / name}" if relative else url
