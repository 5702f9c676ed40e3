"""``migverify init``: look at both sides and write a commented ``migverify.yaml``."""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.commands import HelpfulCommand
from migverify.cli.console import DEFAULT_CONFIG, examples, say, visible
from migverify.errors import ConfigError, UsageError
from migverify.figures import amount
from migverify.files import write_whole

if TYPE_CHECKING:
    from migverify.cli.survey import Guess, Survey
    from migverify.config import Config

app = typer.Typer()

_SHOWN = 20
_PLACEHOLDERS = ("mysql://migverify@source.example:3306", "tidb://migverify@target.example:4000")


@app.command(
    name="init",
    cls=HelpfulCommand,
    epilog=examples(
        "migverify init --source mysql://app@db1 --target tidb://app@tidb1 --password-env APP_PASSWORD",
        "migverify init --source a=mysql://app@db1 --source b=mysql://app@db2 --target tidb://app@tidb1",
        "migverify init    # a template to fill in",
    ),
)
def init(
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="URL", help="mysql://user@host:3306; SHARD=URL, repeated, for shards."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="URL", help="tidb://user@host:4000 or mysql://...")
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option("--password-env", metavar="NAME", help="Environment variable with the password, both sides."),
    ] = None,
    source_password_env: Annotated[
        str | None, typer.Option("--source-password-env", metavar="NAME", help="The same for the source only.")
    ] = None,
    target_password_env: Annotated[
        str | None, typer.Option("--target-password-env", metavar="NAME", help="The same for the target only.")
    ] = None,
    database: Annotated[
        list[str] | None,
        typer.Option("--database", metavar="NAME", help="Only this source database; may be repeated."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--out", "--output", "-o", metavar="FILE", help="The file to write.")
    ] = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a commented migverify.yaml by looking at both sides, or a template without URLs.

    Reads only the servers' catalogs. Passwords come from environment variables; the file holds their names.
    """
    refuse_overwriting(output, force)
    if not source and target is None:
        save(output, _template(), force)
        say(f"wrote {output}, a template: fill in the URLs, then run `migverify config`")
        return
    if not source or target is None:
        missing = "--target" if target is None else "--source"
        raise UsageError(f"{missing} is missing", hint="Give both URLs, or neither for a template.")
    from migverify.cli.survey import guess_routes, survey

    secrets = (source_password_env or password_env, target_password_env or password_env)
    urls = _named_urls(source)
    config = _endpoints(urls, target, secrets)
    found = [survey(endpoint) for endpoint in config.sources]
    sources = [_limited(one, database or []) for one in found]
    other_side = survey(config.target)
    taken = {name for one in found for name in one.databases}
    targets = {name: other_side.tables(name) for name in other_side.databases}
    routes = guess_routes(_tables_by_database(sources), targets, taken)
    text = _document(urls, target, secrets, sources, other_side, routes, taken)
    save(output, text, force)
    tables = sum(len(one.rows) for one in sources)
    say(f"wrote {output}: {amount(tables, 'table')} of {amount(len(sources), 'source')} to compare")
    for guess in routes:
        say(visible(f"  guessed: {guess.source} is {guess.to} on the target: {guess.reason}; check it", lines=False))
    if tables:
        say("  Read it, then run `migverify tables plan`.")
    else:
        say("  No source table is visible: does the user have SELECT on the databases to compare?")


def refuse_overwriting(output: Path, force: bool) -> None:
    """Refuse a file that is there already, unless it may be replaced, or whose folder is not there."""
    if output.exists() and not force:
        raise UsageError(f"{output} exists already", hint="Give another name with -o, or --force to replace it.")
    if not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent}", hint="Create it first.")


def _named_urls(given: Sequence[str]) -> list[tuple[str, str]]:
    """(shard, URL); the shard of a single source is ``""``."""
    named = []
    for text in given:
        before, separator, after = text.partition("=")
        named.append((before, after) if separator and "://" not in before else ("", text))
    if len(named) > 1 and (len({name for name, _ in named}) < len(named) or "" in dict(named)):
        raise UsageError(
            "several --source need a name each", hint="--source eu=mysql://app@db1 --source us=mysql://app@db2"
        )
    return named


def _endpoints(urls: Sequence[tuple[str, str]], target: str, secrets: tuple[str | None, str | None]) -> Config:
    """Check the endpoints by the same rules as the file that will hold them."""
    from migverify.config import load_config

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "command line"
        path.write_text("\n".join(_endpoint_lines(urls, target, secrets)), encoding="utf-8")
        try:
            return load_config(path)
        except ConfigError as error:
            message = re.sub(re.escape(str(path)) + r"(:\d+:\d+)?: ", "", error.message)
            raise UsageError(message, hint=error.hint) from None


def _limited(found: Survey, wanted: Sequence[str]) -> Survey:
    from dataclasses import replace

    if not wanted:
        return found
    for name in wanted:
        if name not in found.databases:
            raise _not_seen(found, name)
    return replace(
        found,
        databases=tuple(name for name in found.databases if name in wanted),
        rows={name: rows for name, rows in found.rows.items() if name[0] in wanted},
    )


def _not_seen(found: Survey, name: str) -> UsageError:
    """Return the error for a database that a user does not see: a server lists only what the user has a grant on."""
    from migverify.sql.quoting import quote_name

    user = found.endpoint.user
    if close := difflib.get_close_matches(name, found.databases, n=1):
        advice = f"Did you mean {close[0]}?"
    elif found.databases:
        advice = f"{user} sees: {_some(found.databases)}."
    else:
        advice = f"{user} sees no database there."
    grant = f"If it exists, GRANT SELECT ON {quote_name(name)}.* to {user} (docs/privileges.md)."
    return UsageError(f"{found.endpoint.name} has no database {name} that {user} may see", hint=f"{advice} {grant}")


def _document(
    urls: Sequence[tuple[str, str]],
    target_url: str,
    secrets: tuple[str | None, str | None],
    sources: Sequence[Survey],
    target: Survey,
    routes: Sequence[Guess],
    taken: Collection[str] = (),
) -> str:
    from migverify.cli.survey import notes

    tables = _tables_by_database(sources)
    lines = ["# Configuration of migverify; every key is explained in docs/configuration.md.", ""]
    lines += [f"# {one.endpoint.name}: {_plain(one.version)} ({one.flavor})" for one in (*sources, target)]
    lines += [f"# Note: {note}" for note in map(_plain, notes(sources, target))]
    lines += ["", *_endpoint_lines(urls, target_url, secrets), ""]
    lines += _include_lines(sources, target, tables, taken)
    lines += _route_lines(routes)
    lines += _keyless_lines(sources)
    lines += _REST
    return "\n".join(lines) + "\n"


def _tables_by_database(sources: Sequence[Survey]) -> dict[str, list[str]]:
    merged: dict[str, set[str]] = {}
    for one in sources:
        for name in one.databases:
            merged.setdefault(name, set()).update(one.tables(name))
    return {name: sorted(tables) for name, tables in sorted(merged.items()) if tables}


def _endpoint_lines(urls: Sequence[tuple[str, str]], target: str, secrets: tuple[str | None, str | None]) -> list[str]:
    def block(url: str, secret: str | None, indent: str) -> list[str]:
        lines = [f"{indent}url: {_quoted(url)}"]
        if secret is not None:
            lines.append(f"{indent}password_env: {_quoted(secret)}")
        return lines

    if len(urls) == 1 and not urls[0][0]:
        lines = ["source:", *block(urls[0][1], secrets[0], "  ")]
    else:
        lines = ["sources:"]
        for name, url in urls:
            lines += [f"  {_quoted(name)}:", *block(url, secrets[0], "    ")]
    return [*lines, "target:", *block(target, secrets[1], "  ")]


def _include_lines(
    sources: Sequence[Survey], target: Survey, tables: dict[str, list[str]], taken: Collection[str]
) -> list[str]:
    from migverify.config.patterns import quote_part

    lines = ["tables:", "  include:"]
    for name, names in tables.items():
        rows = sum(count for one in sources for (owner, _), count in one.rows.items() if owner == name)
        beside = f"{len(target.tables(name))} on the target" if name in target.databases else "not seen on the target"
        has = f"{amount(len(names), 'table')}, about {amount(rows, 'row')}"
        lines.append(f"    - {_quoted(quote_part(name) + '.*')}    # {has}; {beside}")
    if not tables:
        lines[1:] = ["  # No source database holds a table that this user may see.", '  include: ["*.*"]']
    extra = [name for name in target.databases if name not in {*tables, *taken} and target.tables(name)]
    if extra:
        lines.append(f"  # Databases of the target only: {_some(extra)}")
    return [*lines, "  exclude: []", ""]


def _route_lines(routes: Sequence[Guess]) -> list[str]:
    if not routes:
        return ["# routes:                    # tables with another name on the target; the first match counts",
                "#   - {from: \"old_app.*\", to: \"new_app.*\"}", ""]  # fmt: skip
    lines = ["routes:                      # guessed from the names: check each; the first match counts"]
    for guess in routes:
        lines += [f"  # {_plain(guess.reason)}",
                  f"  - {{from: {_quoted(guess.source)}, to: {_quoted(guess.to)}}}"]  # fmt: skip
    return [*lines, ""]


def _keyless_lines(sources: Sequence[Survey]) -> list[str]:
    keyless = sorted({name for one in sources for name in one.rows.keys() - one.keyed})
    if not keyless:
        return []
    lines = [f"# Without a usable unique key ({len(keyless)}): compared as a whole, row by row checksum, unless an",
             "# override names a key."]  # fmt: skip
    lines += [f"#   {_quoted(f'{database}.{table}')}" for database, table in keyless[:_SHOWN]]
    if len(keyless) > _SHOWN:
        lines.append(f"#   ... and {len(keyless) - _SHOWN} more")
    return [*lines, ""]


_REST = """\
# overrides:
#   - table: "app.orders"
#     key: [id]                # columns that identify a row
#     ignore: [updated_at]     # columns that are not compared
#     where: "deleted = 0"     # only these rows
#     float_tolerance: 1e-9    # default: exact

# store: sqlite:///.migverify/runs.db    # where results go; any SQLAlchemy URL

# limits:
#   chunk_seconds: 0.5         # how long one query should take
#   max_threads_running: 50    # wait while a server is busier than this

# consistency: auto            # quiescent: nobody writes; live: writes go on
# report: {values: false}      # true: keep and show cell values""".splitlines()


def _template() -> str:
    lines = ["# Configuration of migverify; every key is explained in docs/configuration.md.", ""]
    lines += _endpoint_lines([("", _PLACEHOLDERS[0])], _PLACEHOLDERS[1], ("SOURCE_PASSWORD", "TARGET_PASSWORD"))
    lines += ["", "tables:", '  include: ["*.*"]          # system databases are never meant by *', "  exclude: []", ""]
    return "\n".join([*lines, *_route_lines([]), *_REST]) + "\n"


def save(output: Path, text: str, force: bool) -> None:
    """Write the file; a file that appeared meanwhile is kept unless ``force``, which replaces it whole."""
    try:
        if not force:
            with output.open("x", encoding="utf-8") as file:
                file.write(text)
            return
        write_whole(output, text.encode())
    except FileExistsError:
        raise UsageError(f"{output} exists already", hint="Give --force to replace it.") from None
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}", hint="Give another name with -o.") from None


def _quoted(text: str) -> str:
    """Text as a YAML scalar on one line; ``${`` stays what it is."""
    import yaml

    escaped = text.replace("${", "$${")
    scalar: str = yaml.safe_dump(escaped, default_style='"', allow_unicode=True, width=1 << 30)
    return scalar.rstrip("\n")


def _plain(text: str) -> str:
    """Text that cannot end a comment line."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _some(names: Iterable[str]) -> str:
    listed = [_plain(name) for name in names]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
