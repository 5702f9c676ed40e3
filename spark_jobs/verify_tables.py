"""``spark-submit verify_tables.py [options of migverify tables verify]``: the same run on spark-submit's master.

The driver needs migverify and its dependencies; executors get what they need from the driver (docs/spark.md).
"""

from __future__ import annotations

import sys

from migverify.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["tables", "verify", "--engine", "spark"]
    main()
