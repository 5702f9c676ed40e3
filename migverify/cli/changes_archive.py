"""``migverify changes archive``: keep raw binlog files, and read them again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.changes_check import one_source
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, SourceOption, examples, say
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.changes.archive import ArchiveCheck
    from migverify.changes.manifest import Manifest

EPILOG = examples(
    "migverify changes archive --to /archive/app",
    "migverify changes archive --to s3://bucket/app --follow",
    "migverify changes archive --to /archive/app --since binlog.000120",
    "migverify changes archive --to /archive/app --verify",
)


def archive(
    to: Annotated[
        str, typer.Option("--to", metavar="DIR|URL", help="Where the files are kept: a folder or an fsspec URL.")
    ],
    since: Annotated[
        str, typer.Option(metavar="FILE", help="First file of a new archive, or the one to go on with after a gap.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the archive again: hashes, event checksums, GTIDs. Needs no server.")
    ] = False,
    source: SourceOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Keep the source's raw binlog files, byte for byte, with a manifest of what they cover.

    A new archive begins with the oldest file that the source has; a later run goes on where the last one ended.
    Exit 0: up to date, or whole (--verify); 3: a gap, a damaged file, or the stream cannot be read on.
    """
    from migverify.changes.storage import Storage

    storage = Storage(to)
    if verify:
        if since or follow:
            raise UsageError("--verify reads what is archived; it takes neither --since nor --follow.")
        from migverify.changes.archive import check_archive

        found = check_archive(storage, say)
        typer.echo(json.dumps(_check_dict(found)) if as_json else _check_text(found))
        raise typer.Exit(int(ExitCode.INCONCLUSIVE if found.findings else ExitCode.MATCH))
    from migverify.changes.archive import archive as fetch
    from migverify.changes.server import BinlogServer
    from migverify.config import load_config
    from migverify.secrets import resolve_password

    endpoint = one_source(load_config(config), source)
    server = BinlogServer(endpoint, resolve_password(endpoint).reveal() or None)
    manifest = fetch(storage, server, since=since, follow=follow, say=say)
    typer.echo(json.dumps(manifest_dict(manifest)) if as_json else manifest_text(manifest))


def manifest_dict(manifest: Manifest) -> dict[str, Any]:
    """What an archive covers, as JSON."""
    files = manifest.files
    return {
        "files": [
            {"name": file.name, "state": file.state.value, "bytes": file.bytes, "sha256": file.sha256} for file in files
        ],
        "gaps": [{"after": gap.after, "bytes": gap.bytes, "resumes": gap.resumes} for gap in manifest.gaps],
        "bytes": sum(file.bytes for file in files),
        "first_time": min((file.first_time for file in files), default=None),
        "last_time": max((file.last_time for file in files), default=None),
        "gtids": manifest.covered(),
    }


def manifest_text(manifest: Manifest) -> str:
    """What an archive covers, in a few lines."""
    from migverify.figures import utc

    content = manifest_dict(manifest)
    last = manifest.last
    if last is None:
        return "the archive is empty"
    lines = [
        f"{len(manifest.files)} files, {content['bytes']:,} bytes: {manifest.files[0].name} to {last.name}"
        f" ({last.state.value}, {last.bytes:,} bytes)",
        f"events from {utc(content['first_time'])} to {utc(content['last_time'])}",
    ]
    if content["gtids"]:
        lines.append(f"transactions {content['gtids']}")
    anonymous = sum(file.anonymous for file in manifest.files)
    if anonymous:
        lines.append(f"{anonymous:,} transactions have no GTID: that none is missing is known from offsets only")
    lines += (f"gap: nothing between {gap.after}:{gap.bytes} and {gap.resumes}" for gap in manifest.gaps)
    return "\n".join(lines)


def _check_dict(found: ArchiveCheck) -> dict[str, Any]:
    return {**manifest_dict(found.manifest), "events": found.events, "findings": list(found.findings)}


def _check_text(found: ArchiveCheck) -> str:
    verdict = "whole" if not found.findings else f"NOT whole: {len(found.findings)} findings"
    return "\n".join([manifest_text(found.manifest), f"{found.events:,} events read again; {verdict}", *found.findings])
