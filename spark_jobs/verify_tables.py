"""``spark-submit verify_tables.py [options of migverify tables verify]``: the same run on spark-submit's master.

The configuration may be a URL (s3://, gs://, hdfs://, whatever fsspec opens); with ``--store`` the results are in a
database. The driver needs migverify and its dependencies; executors get what they need from the driver (docs/spark.md).
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
            sys.argv[1:] = ["tables", "verify", "--engine", "spark", *arguments]
            main()
    except MigverifyError as error:
        console.say_error(error)
        sys.exit(int(error.exit_code))
