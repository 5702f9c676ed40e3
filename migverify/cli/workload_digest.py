"""``migverify workload digest``: statements in, one a line, their digests out."""

from __future__ import annotations

import json
import os
import stat
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.workload.meaning import Meaning

_MOST = 10_000
EPILOG = examples(
    """echo '{"sql": "SELECT 1"}' | migverify workload digest --dialect mysql""",
    "migverify workload digest --dialect tidb --classify < statements.jsonl > digests.jsonl",
)


class DialectName(StrEnum):
    """What ``--dialect`` takes."""

    MYSQL = "mysql"
    TIDB = "tidb"


def digest(
    dialect: Annotated[DialectName, typer.Option("--dialect", help="Whose digests.")],
    classify: Annotated[bool, typer.Option("--classify", help='Add what the statement does, as "class".')] = False,
    sql_mode: Annotated[str, typer.Option(metavar="MODES", help="The sql_mode the statements were sent under.")] = "",
    max_digest_length: Annotated[
        int, typer.Option(min=0, max=1 << 20, metavar="BYTES", help="MySQL's setting of that name.")
    ] = 1024,
) -> None:
    r"""Read JSON lines {"sql"} from standard input, write {"digest", "digest_text"} for each, in order.

    Bytes that are no UTF-8 are written as \\udc80 to \\udcff in the JSON text. Memory stays the same however many.
    """
    from migverify.sql.lexer import Modes
    from migverify.workload.meaning import Meanings

    modes = Modes.of(sql_mode)
    meanings = Meanings(dialect.value, shapes=False, max_digest_length=max_digest_length)
    # who sends line by line waits for the answer; a file does not
    waits = not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    write = sys.stdout.write
    printed: dict[int, tuple[Meaning, str]] = {}  # the object is kept with its id, so that no other takes the id
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        sql = _sql_of(line, number)
        write(_line(meanings.meaning(sql, modes), printed, classify=classify))
        if waits:
            sys.stdout.flush()
    sys.stdout.flush()


def _line(found: Meaning, printed: dict[int, tuple[Meaning, str]], *, classify: bool) -> str:
    known = printed.get(id(found))
    if known is None:
        line: dict[str, object] = {"digest": found.digest, "digest_text": found.text}
        if classify:
            line["class"] = found.classification.as_json()
        if len(printed) >= _MOST:
            printed.clear()
        known = printed[id(found)] = (found, json.dumps(line) + "\n")
    return known[1]


def _sql_of(line: bytes, number: int) -> bytes:
    hint = 'Each line is a JSON object with the statement\'s text: {"sql": "SELECT 1"}.'
    try:
        line_content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"line {number} of standard input is not JSON: {error}.", hint=hint) from None
    text = line_content.get("sql") if isinstance(line_content, dict) else None
    if not isinstance(text, str):
        raise UsageError(f'line {number} of standard input has no text under "sql".', hint=hint)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UsageError(
            f"line {number} of standard input holds half a character (a lone surrogate).",
            hint="Write bytes that are no UTF-8 as \\udc80 to \\udcff.",
        ) from None
