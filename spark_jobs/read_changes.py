"""``spark-submit read_changes.py ARCHIVE OUTPUT``: what is new in an archive of binlogs, into Parquet, exactly once."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from migverify.errors import MigverifyError


def main() -> int:
    """Read the command line, run the job, and say what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", help="what `migverify changes archive --to` wrote: a folder or an fsspec URL")
    parser.add_argument("output", help="folder or URL of the Parquet files")
    parser.add_argument("--tables", action="append", default=[], help="pattern of database.table; repeatable")
    parser.add_argument("--since", default="", metavar="FILE", help="first binlog file of a new output")
    parser.add_argument("--master", default=None, help="Spark master or sc:// URL, unless spark-submit names it")
    parser.add_argument("--slots", type=int, default=2, help="files that are decoded at the same time")
    given = parser.parse_args()
    try:
        from migverify.spark.changes_output import RUNNER, ArchiveSource, read_changes
        from migverify.spark.engine import SparkEngine
        from migverify.spark.session import open_session

        session = open_session(given.master, "migverify read_changes", {}, given.slots)
        with closing(SparkEngine(session, {}, given.slots, RUNNER)) as engine:
            source = ArchiveSource(given.archive, tuple(given.tables), given.since)
            done = read_changes(engine, source, given.output)
    except MigverifyError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return int(error.exit_code)
    last = "".join(f", up to {file.partition('=')[2]}:{end}" for file, end in sorted(done.reached.items())[-1:])
    print(f"{done.changes} changes in {done.ranges} ranges{last}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
