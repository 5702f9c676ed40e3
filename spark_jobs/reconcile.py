"""``spark-submit reconcile.py [options of migverify recon run]``: the same run on spark-submit's master.

``--config``, the rules and ``--csv`` may be URLs (s3://, gs://, hdfs://, whatever fsspec opens); with
``--store`` the results are in a database, and no local state is needed. See docs/recon-spark.md.
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
            sys.argv[1:] = ["recon", "run", "--engine", "spark", *arguments]
            main()
    except MigverifyError as error:
        console.say_error(error)
        sys.exit(int(error.exit_code))
