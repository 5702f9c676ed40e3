"""``spark-submit replay_workload.py [options of migverify workload replay]``: the same run on spark-submit's master.

The configuration may be a URL (s3://, gs://, hdfs://, whatever fsspec opens); the capture is a folder that the driver
reads. See docs/replay.md.
"""

from __future__ import annotations

import sys

from migverify.cli import console
from migverify.cli.main import main
from migverify.errors import MigverifyError
from migverify.spark.staging import staged

if __name__ == "__main__":
    try:
        with staged(sys.argv[1:]) as arguments:
            sys.argv[1:] = ["workload", "replay", "--engine", "spark", *arguments]
            main()
    except MigverifyError as error:
        console.say_error(error)
        sys.exit(int(error.exit_code))
