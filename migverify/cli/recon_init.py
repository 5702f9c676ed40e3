"""``migverify recon init``: look at the endpoints and write a first rules file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples, say
from migverify.cli.init import refuse_overwriting, save
from migverify.cli.recon_check import DEFAULT_RULES
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.model import Endpoint, TableRef
    from migverify.recon.starter import SamePlace, SeenTables

EPILOG = examples(
    "migverify recon init",
    "migverify recon init --endpoint ledger --database ledger -o ledger.yaml",
)


def init(
    config: ConfigOption = DEFAULT_CONFIG,
    endpoint: Annotated[
        list[str] | None,
        typer.Option("--endpoint", metavar="NAME", help="Only this endpoint of the configuration; may be repeated."),
    ] = None,
    database: Annotated[
        list[str] | None, typer.Option("--database", metavar="NAME", help="Only this database; may be repeated.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--out", "--output", "-o", metavar="FILE", help="The file to write.")
    ] = DEFAULT_RULES,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a commented rules file by looking at the endpoints of the configuration. Reads only their catalogs."""
    from migverify.config import load_config
    from migverify.recon.starter import MAX_TABLES, starter_text

    refuse_overwriting(output, force)
    loaded = load_config(config)
    seen = [_look(one, loaded, database or []) for one in _chosen(loaded, endpoint)]
    pairs = _pairs(loaded, seen)
    shards = {one.name for one in loaded.sources} if len(loaded.sources) > 1 else set()
    text = starter_text(pairs, [one for one in seen if one.endpoint not in shards])
    save(output, text, force)
    rules = text.count("\n  - name:")
    say(f"wrote {output}: {rules} rule{'' if rules == 1 else 's'} guessed from {len(seen)} endpoints")
    if len(pairs) > MAX_TABLES:
        say(f"  {len(pairs) - MAX_TABLES} more tables are listed in it without rules.")
    say(f"  Read it, then run `migverify recon check {output}`.")


def _chosen(config: Config, names: list[str] | None) -> list[Endpoint]:
    known = {one.name: one for one in config.all_endpoints}
    for name in names or []:
        if name not in known:
            raise UsageError(f"no endpoint is named {name}", hint=f"{config.path} has {', '.join(known)}.")
    return [one for name, one in known.items() if not names or name in names]


def _look(endpoint: Endpoint, config: Config, databases: list[str]) -> SeenTables:
    from migverify.config import is_system_database
    from migverify.db.session import open_session
    from migverify.model import Side
    from migverify.recon.starter import SeenTables, parents
    from migverify.secrets import resolve_password
    from migverify.sql.catalog import REFERENCES, read_tables

    wanted = _wanted(endpoint, config, databases, is_system_database)
    with open_session(endpoint, resolve_password(endpoint).reveal() or None, side=Side.SOURCE) as session:
        tables = tuple(read_tables(session, endpoint.name, wanted))
        references = parents(session.query_named(REFERENCES), endpoint.name)
    return SeenTables(endpoint.name, tables, references)


def _wanted(
    endpoint: Endpoint, config: Config, databases: list[str], system: Callable[[str], bool]
) -> Callable[[str, str], bool]:
    from migverify.config import includes

    migrates = endpoint in config.sources

    def wanted(database: str, table: str) -> bool:
        if system(database) or (databases and database not in databases):
            return False
        return not migrates or includes(config, database, table)

    return wanted


def _pairs(config: Config, seen: list[SeenTables]) -> list[SamePlace]:
    """Tables of the source with the table of the target that the configuration routes them to."""
    from migverify.config import route, shard_of
    from migverify.model import TableDef, TableRef
    from migverify.recon.starter import SamePlace

    by_endpoint = {one.endpoint: one.tables for one in seen}
    targets = {table.ref: table for table in by_endpoint.get(config.target.name, ())}
    found: dict[tuple[str, str], list[TableDef]] = {}
    homes: dict[tuple[str, str], TableRef] = {}
    for source in config.sources:
        for table in by_endpoint.get(source.name, ()):
            name = table.ref.database, table.ref.table
            homes[name] = TableRef(config.target.name, *route(config, shard_of(source), *name))
            found.setdefault(name, []).append(table)
    # A union needs every shard: one without the table, or not looked at, would look like lost rows.
    whole = {name: tables for name, tables in found.items() if len(tables) == len(config.sources)}
    return [SamePlace(tuple(tables), targets[homes[n]]) for n, tables in sorted(whole.items()) if homes[n] in targets]
