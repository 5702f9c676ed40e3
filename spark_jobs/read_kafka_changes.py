"""``spark-submit read_kafka_changes.py FOLDER servers=... topics=... format=...``: changes from Kafka into Parquet.

Reads what is there and ends; the next run reads on from where this one ended, exactly once. Options are those of the
data source (docs/carriers.md). Executors need confluent-kafka; secrets are names of variables of the driver.
"""

from __future__ import annotations

import sys
from pathlib import Path

from migverify.cli import console
from migverify.errors import ExitCode, MigverifyError, UsageError


def read_changes(arguments: list[str]) -> int:
    """Run one read to the end; return the exit code: 3 when something could not be decoded."""
    from migverify.spark.kafka_changes import delivery, read_stream, run_query, write_parquet
    from migverify.spark.session import close_session, open_session

    if not arguments or not all("=" in option for option in arguments[1:]):
        raise UsageError("read_kafka_changes.py FOLDER servers=... topics=... format=... [option=...]")
    folder, options = Path(arguments[0]), dict(option.split("=", 1) for option in arguments[1:])
    session = open_session(options.pop("master", None), "migverify-kafka", {}, int(options.pop("slots", "4")))
    try:
        run_query(write_parquet(read_stream(session, options), folder))
    finally:
        close_session(session)
    held = delivery(folder)
    console.say(f"{folder}: {held.messages} messages, {held.changes} changes, {held.rejects} rejects")
    return int(ExitCode.INCONCLUSIVE if held.rejects else ExitCode.MATCH)


if __name__ == "__main__":
    try:
        sys.exit(read_changes(sys.argv[1:]))
    except MigverifyError as error:
        console.say_error(error)
        sys.exit(int(error.exit_code))
