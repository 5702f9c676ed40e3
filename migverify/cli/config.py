"""``migverify config``: check a configuration and what its users may do, print schemas and keys of files."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli import workload_probe
from migverify.cli.commands import Form, add
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples
from migverify.errors import ConfigError, UsageError
from migverify.outputs import registry

if TYPE_CHECKING:
    from pydantic import BaseModel

    from migverify.config import Config

app = typer.Typer()

_EPILOG = examples(
    "migverify config",
    "migverify config -c staging.yaml --json",
    "migverify config --grants",
    "migverify config --grants --for 'tables verify' --for 'tables repair --apply'",
    "migverify config --schema recon > recon.schema.json",
    "migverify config --schema run            # of what `tables verify --json` prints",
)


class SchemaName(StrEnum):
    """A file that people write, by the name of its schema."""

    MIGVERIFY = "migverify"
    RECON = "recon"
    RUNBOOK = "runbook"
    TRAFFIC = "traffic"
    WAIVERS = "waivers"
    DRIFT = "drift"
    FLEET = "fleet"


class KeysName(StrEnum):
    """A file whose model makes the table of its keys in the documentation, and its JSON schema."""

    MIGVERIFY = "migverify"
    RECON = "recon"


def config_(
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was understood, without secrets.")] = False,
    grants: Annotated[
        bool, typer.Option("--grants", help="Ask the servers, and print every GRANT that the users lack.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="COMMAND", help="With --grants: what this command needs; may be given again."),
    ] = None,
) -> None:
    """Read the configuration and say what it means, and open its certificate files. No server is asked.

    With --grants the servers are asked what their users may do, and what is
    missing is printed as statements for an administrator; default: for every
    command but `tables repair --apply`.

    Exit 2 when something is wrong; with --grants 1 when a grant is missing, 3
    when a server cannot be reached.
    """
    from migverify.config import comparison_digest, describe, full_digest, load_config

    loaded = load_config(config)
    _open_certificates(loaded)
    if only and not grants:
        raise UsageError("--for goes with --grants", hint="migverify config --grants --for 'tables verify'")
    if grants:
        from migverify.cli.grants import print_missing

        raise typer.Exit(int(print_missing(loaded, only or [], as_json=as_json)))
    digests = {"comparison_digest": comparison_digest(loaded), "full_digest": full_digest(loaded)}
    if as_json:
        typer.echo(json.dumps(describe(loaded) | digests, indent=2, ensure_ascii=False))
        return
    for endpoint in loaded.all_endpoints:
        secret = endpoint.password_env or ("a command" if endpoint.password_command else "none")
        typer.echo(
            f"{endpoint.name}: {endpoint.user}@{endpoint.host}:{endpoint.port}, password from {secret}, "
            f"tls {endpoint.tls.mode}, {endpoint.connections} connections"
        )
    typer.echo(f"store: {loaded.store.url}")
    typer.echo(f"tables: {', '.join(pattern.text for pattern in loaded.tables.include)}")
    if loaded.tables.exclude:
        typer.echo(f"without: {', '.join(pattern.text for pattern in loaded.tables.exclude)}")
    for entry in loaded.routes:
        where = f" (shard {entry.shard})" if entry.shard else ""
        typer.echo(f"route: {entry.pattern.text} -> {entry.to}{where}")
    for rule in loaded.overrides:
        typer.echo(f"override: {rule.table.text}")
    typer.echo(f"{config} is valid (digest {digests['comparison_digest'][:12]})")


def _open_certificates(loaded: Config) -> None:
    from migverify.db import tls

    named = [(endpoint.name, endpoint.tls) for endpoint in loaded.all_endpoints]
    for name, encryption in [*named, ("store", loaded.store.tls)]:
        try:
            tls.options(encryption)
        except ConfigError as error:
            raise ConfigError(f"{loaded.path}: {name}: {error.message}", hint=error.hint) from None


def schema(
    name: Annotated[str, typer.Argument(help="Which file, or which output (docs/json.md lists them).")],
) -> None:
    """Print a JSON schema: of a file that people write, for editors that check it, or of what --json prints."""
    if name in (SchemaName.MIGVERIFY, SchemaName.RECON):
        from migverify.config.reference import json_schema_text

        typer.echo(json_schema_text(*_document(KeysName(name))), nl=False)
    elif name in tuple(SchemaName):
        typer.echo((files("migverify") / f"schemas/{name}.schema.json").read_text(encoding="utf-8"), nl=False)
    elif name in registry.names():
        typer.echo((files("migverify") / f"schemas/output/{name}.schema.json").read_text(encoding="utf-8"), nl=False)
    else:
        raise UsageError(
            f"--schema {name}: there is no such schema",
            hint=f"Files: {', '.join(SchemaName)}. Outputs of --json: {', '.join(registry.names())}.",
        )


def keys(name: Annotated[KeysName, typer.Argument(help="Which file.")]) -> None:
    """Print every key of a file with its default and meaning, as the Markdown table of the documentation."""
    from migverify.config.reference import markdown

    typer.echo(markdown(_document(name)[0]), nl=False)


def _document(name: KeysName) -> tuple[type[BaseModel], str]:
    """Return the model of a file, and the title of its schema."""
    if name is KeysName.RECON:
        from migverify.recon.document import TITLE, RulesDocument

        return RulesDocument, TITLE
    from migverify.config.settings import Config

    return Config, "migverify.yaml"


add(app, "config", config_, _EPILOG, (
    Form(("--schema",), schema,
         examples("migverify config --schema migverify > migverify.schema.json", "migverify config --schema run"),
         f"Print a JSON schema: {', '.join(SchemaName)}, or of an output."),
    Form(("--keys",), keys, examples("migverify config --keys recon"),
         f"Print the table of all keys: {', '.join(KeysName)}."),
    Form(("--waivers",), workload_probe.waivers, workload_probe.WAIVERS_EPILOG, "Check a file of waivers."),
))  # fmt: skip
