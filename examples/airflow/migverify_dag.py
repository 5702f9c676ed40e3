"""Every night: wait for a MATCH of the watch, then prove what was written since the last proof."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG
from migverify_airflow import VerifyTablesOperator, WatchMatchSensor

CONFIG = "/opt/migverify/payments/migverify.yaml"
EXECUTABLE = "/opt/migverify/bin/migverify"
PASSWORDS = {
    "SOURCE_PASSWORD": "payments_mysql",
    "TARGET_PASSWORD": "payments_tidb",
    "STORE_PASSWORD": "migverify_store",
}

with DAG(
    "migverify_payments",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
):
    current = WatchMatchSensor(
        task_id="watch_says_match", config=CONFIG, executable=EXECUTABLE, passwords=PASSWORDS,
        mode="reschedule", poke_interval=30, timeout=3600,
    )  # fmt: skip
    proof = VerifyTablesOperator(
        task_id="verify_tables", config=CONFIG, executable=EXECUTABLE, passwords=PASSWORDS, since="last",
        execution_timeout=timedelta(hours=6),
    )  # fmt: skip
    current >> proof
