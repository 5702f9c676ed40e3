"""Write expectations_golden.json: what Great Expectations itself answers on a small table of a MySQL server.

Great Expectations is no dependency of migverify; the file is its word, kept. To make it again, in an environment with
``great_expectations==1.24.1`` and PyMySQL: ``python tests/data/expectations_golden.py mysql+pymysql://root@HOST:PORT``
(the server gets a database of the script's own, which is dropped again).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TABLE = (
    "CREATE TABLE golden (id INT PRIMARY KEY, amount DECIMAL(12,2), other DECIMAL(12,2), n INT, m INT, share DOUBLE,"
    " currency CHAR(3), note VARCHAR(20), made DATETIME(6), paid DATETIME(6), nothing INT)",
    "INSERT INTO golden VALUES"
    " (1, 10.00, 10.00, 1, 1, 0.5, 'EUR', 'alpha', '2026-01-01 00:00:00', '2026-01-02 00:00:00', NULL),"
    " (2, 20.50, 20.00, 2, 1, 1.5, 'EUR', 'beta 7', '2026-01-02 00:00:00', '2026-01-02 00:00:00', NULL),"
    " (3, -1.25, NULL, 2, 3, NULL, 'USD', 'gamma', '2026-01-03 12:00:00', '2026-01-01 00:00:00', NULL),"
    " (4, NULL, NULL, NULL, NULL, 2.5, 'JPY', NULL, NULL, NULL, NULL),"
    " (5, 0.00, 5.00, 5, 6, 2.5, NULL, 'alpha', '2026-01-05 00:00:00', '2026-01-06 00:00:00', NULL)",
    "CREATE TABLE golden_empty LIKE golden",
)
Asked = tuple[str, dict[str, Any]]


def _asked() -> list[Asked]:
    """Return (type, arguments) of what is asked; most of them twice, once to hold and once not."""
    column = "expect_column_values_to_"
    asked: list[Asked] = []

    def ask(kind: str, *variants: dict[str, Any], **common: Any) -> None:
        asked.extend((kind, {**common, **variant}) for variant in variants or ({},))

    shares: list[dict[str, Any]] = [{}, {"mostly": 0.6}]
    ask(
        f"{column}not_be_null",
        *({"column": name} for name in ("id", "note", "nothing")),
        {"column": "note", "mostly": 0.8},
    )
    ask(
        f"{column}be_null", *({"column": name} for name in ("id", "note", "nothing")), {"column": "note", "mostly": 0.2}
    )
    ask(f"{column}be_in_set", *shares, column="currency", value_set=["EUR", "USD"])
    ask(f"{column}be_in_set", *shares, column="amount", value_set=[10, 20.5])
    ask(f"{column}not_be_in_set", *shares, column="currency", value_set=["JPY"])
    ask(f"{column}not_be_in_set", *shares, column="n", value_set=[2, 7])
    ask(f"{column}be_between", *shares, {"strict_min": True}, column="amount", min_value=0, max_value=20)
    ask(f"{column}be_between", column="share", max_value=2)
    ask(f"{column}be_between", column="nothing", min_value=1)
    for word in ("match", "not_match"):
        ask(f"{column}{word}_regex", *shares, column="note", regex="^al")
        ask(f"{column}{word}_like_pattern", *shares, column="note", like_pattern="%a")
    ask(
        "expect_column_value_lengths_to_be_between",
        {"max_value": 5},
        {"min_value": 5, "strict_min": True},
        column="note",
    )
    ask("expect_column_value_lengths_to_equal", {"value": 5}, {"value": 5, "mostly": 0.75}, column="note")
    for name in ("id", "n", "note", "nothing"):
        ask(f"{column}be_unique", *shares, column=name)
    missing = ("both_values_are_missing", "either_value_is_missing", "neither")
    for ignored in missing:
        ask("expect_column_pair_values_to_be_equal", column_A="amount", column_B="other", ignore_row_if=ignored)
        ask("expect_column_pair_values_a_to_be_greater_than_b", {}, {"or_equal": True}, column_A="amount",
            column_B="other", ignore_row_if=ignored)  # fmt: skip
    ask("expect_column_pair_values_a_to_be_greater_than_b", {}, {"mostly": 0.6}, column_A="paid", column_B="made")
    for ignored in ("all_values_are_missing", "any_value_is_missing", "never"):
        ask("expect_compound_columns_to_be_unique", column_list=["n", "m"], ignore_row_if=ignored)
        ask("expect_compound_columns_to_be_unique", column_list=["note", "currency"], ignore_row_if=ignored)
        ask("expect_multicolumn_sum_to_equal", column_list=["n", "m"], sum_total=3, ignore_row_if=ignored)
    for name in ("sum", "mean", "min", "max"):
        kind = f"expect_column_{name}_to_be_between"
        ask(kind, {"min_value": -2}, {"max_value": 0}, {"min_value": 7.3125, "max_value": 29.25}, column="amount")
        ask(kind, {"min_value": 0}, column="nothing")
    ask("expect_column_max_to_be_between", {"max_value": 2.5}, {"max_value": 2.5, "strict_max": True}, column="share")
    for name in ("n", "note", "nothing"):
        ask("expect_column_unique_value_count_to_be_between", {"min_value": 3}, {"max_value": 2}, column=name)
        for of in ("unique", "non_null"):
            ask(f"expect_column_proportion_of_{of}_values_to_be_between", {"min_value": 0.75}, {"max_value": 0.5},
                column=name)  # fmt: skip
    for how in ("be_in_set", "contain_set", "equal_set"):
        ask(f"expect_column_distinct_values_to_{how}", {"value_set": ["EUR", "USD", "JPY"]}, {"value_set": ["EUR"]},
            {"value_set": ["EUR", "USD", "JPY", "GBP"]}, column="currency")  # fmt: skip
        ask(f"expect_column_distinct_values_to_{how}", column="nothing", value_set=[1])
    ask("expect_table_row_count_to_equal", {"value": 5}, {"value": 4})
    ask("expect_table_row_count_to_be_between", {"min_value": 1}, {"max_value": 4})
    ask("expect_column_to_exist", {"column": "n"}, {"column": "gone"}, {"column": "n", "column_index": 3},
        {"column": "n", "column_index": 4})  # fmt: skip
    names = ["id", "amount", "other", "n", "m", "share", "currency", "note", "made", "paid", "nothing"]
    ask("expect_table_columns_to_match_ordered_list", {"column_list": names}, {"column_list": names[::-1]})
    ask("expect_table_columns_to_match_set", {"column_set": names[::-1]}, {"column_set": names[1:]},
        {"column_set": names[1:], "exact_match": False}, {"column_set": ["gone"], "exact_match": False})  # fmt: skip
    return asked


def main(url: str) -> None:
    """Ask Great Expectations, and write the file."""
    import great_expectations as gx
    import sqlalchemy as sa

    database = f"{url.rstrip('/')}/migverify_golden"
    server = sa.create_engine(url)
    with server.begin() as connection:
        connection.execute(sa.text("DROP DATABASE IF EXISTS migverify_golden"))
        connection.execute(sa.text("CREATE DATABASE migverify_golden"))
    with sa.create_engine(database).begin() as connection:
        for statement in TABLE:
            connection.execute(sa.text(statement))
    source = gx.get_context(mode="ephemeral").data_sources.add_sql("golden", connection_string=database)
    found = []
    for table in ("golden", "golden_empty"):
        batch = source.add_table_asset(table, table_name=table).add_batch_definition_whole_table("all").get_batch()
        for kind, arguments in _asked():
            made = getattr(gx.expectations, "".join(word.capitalize() for word in kind.split("_")))
            answer = batch.validate(made(**arguments), result_format="SUMMARY")
            result = {name: answer.result[name] for name in ("element_count", "missing_count", "unexpected_count")
                      if answer.result.get(name) is not None}  # fmt: skip
            raised = answer.exception_info.get("raised_exception", True) if answer.exception_info else False
            entry = {
                "table": table,
                "type": kind,
                "kwargs": arguments,
                "success": None if raised else answer.success,
                **result,
            }
            if "observed_value" in answer.result and not isinstance(answer.result["observed_value"], list | dict):
                entry["observed_value"] = answer.result["observed_value"]
            found.append(entry)
    with server.begin() as connection:
        connection.execute(sa.text("DROP DATABASE migverify_golden"))
    lines = ",\n".join("  " + json.dumps(entry, default=str) for entry in found)
    head = json.dumps({"made with": f"great_expectations {gx.__version__}", "table": TABLE}, indent=1)[:-2]
    Path(__file__).with_suffix(".json").write_text(f'{head},\n "answers": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
