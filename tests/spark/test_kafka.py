"""Changes through a real Kafka into Parquet: what is killed, restarted, cut off or undecodable is seen."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="Kafka on Spark needs pyspark 4.2")

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.kafka import KafkaSource, Login
from migverify.changes.carriers.sequence import Sequence
from migverify.changes.pipeline import Limits, Outcome, audit, measure, open_kafka
from migverify.changes.traffic import SourceCounts, TransactionSizes
from migverify.errors import ChangeError, ConfigError, LabError, PurgedError, UnreachableError
from migverify.lab import kafka
from migverify.spark.kafka_changes import delivery, read_batches, read_once, read_stream, run_query, write_parquet
from migverify.spark.pyfiles import package_root

PARTITIONS = 4
MESSAGES = 5_000
QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    try:
        kafka.provide(lambda _line: None)
    except LabError as error:
        if os.environ.get("MIGVERIFY_REQUIRE_DB") == "1":
            raise
        pytest.skip(f"no Kafka: {error}")
    with kafka.broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def topic(broker: kafka.Broker, request: pytest.FixtureRequest) -> str:
    name = f"changes-{request.node.name.replace('[', '-').replace(']', '')}"
    admin = AdminClient({"bootstrap.servers": broker.servers} | QUIET)
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result()
    return name


def insert(number: int, commit: int) -> bytes:
    """A row of TiCDC's canal-json, as docs.pingcap.com/tidb/stable/ticdc-canal-json shows it."""
    return json.dumps(
        {
            "id": 0, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": False, "type": "INSERT",
            "es": commit >> 18, "ts": commit >> 18, "sql": "", "sqlType": {"id": -5, "amount": 3},
            "mysqlType": {"id": "bigint", "amount": "decimal"}, "old": None,
            "data": [{"id": str(number), "amount": f"{number}.10"}], "_tidb": {"commitTs": commit},
        }
    ).encode()  # fmt: skip


def produce(broker: kafka.Broker, topic: str, numbers: range, bad: frozenset[int] = frozenset()) -> None:
    producer = Producer({"bootstrap.servers": broker.servers} | QUIET)
    for number in numbers:
        value = b'{"half": ' if number in bad else insert(number, (number + 1) << 18)
        producer.produce(topic, value=value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def options(broker: kafka.Broker, topic: str, **more: str) -> dict[str, str]:
    return {"servers": broker.servers, "topics": topic, "format": "canal-json", **more}


def rows(session: Any, folder: Path) -> list[tuple[str, int, int]]:
    """Return (kind, partition, offset) of every row of the finished batches."""
    paths = [str(folder / "changes" / f"batch={batch.number}") for batch in read_batches(folder)]
    frame = session.read.parquet(*paths)
    return [tuple(row) for row in frame.select("kind", "partition", "offset").collect()]


def test_a_batch_is_what_one_process_reads(broker: kafka.Broker, topic: str, sessions: Any) -> None:
    produce(broker, topic, range(400), bad=frozenset({7}))
    frame = read_once(sessions.get(), options(broker, topic))
    spark = {
        (row.partition, row.offset): (row.kind, row.after, row.time, row.key, tuple(row.place or ()))
        for row in frame.collect()
    }
    items = list(KafkaSource(Login(broker.servers).resolve(), [topic], CanalJson()).items())
    assert len(spark) == len(items) == 400
    order = Sequence()
    for item in items:
        order.see(item)
        kind, after, moment, key, at = spark[item.place.partition, item.place.offset]
        if kind == "reject":
            assert item.place.partition == 7 % PARTITIONS
            continue
        assert (after, moment, key, at) == (
            item.change.after, item.change.time, dict(item.key), item.order.at,
        )  # fmt: skip
    assert (order.counts.changes, order.counts.rejects, order.counts.offset_gaps) == (399, 1, 0)


def test_killed_in_the_middle_nothing_is_lost_or_repeated(
    broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path
) -> None:
    bad = frozenset(range(13, MESSAGES, 500))
    produce(broker, topic, range(MESSAGES), bad=bad)
    folder = tmp_path / "result"
    command = [sys.executable, str(package_root() / "spark_jobs" / "read_kafka_changes.py"), str(folder), "slots=2"]
    command += [f"{name}={text}" for name, text in options(broker, topic, max_messages="400").items()]
    job = subprocess.Popen(command, start_new_session=True, cwd=package_root(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((folder / "batches").glob("*.json"))) < 3:
        assert job.poll() is None, "the job ended before it could be killed"
        assert time.monotonic() < deadline, "no batch in 120 seconds"
        time.sleep(0.02)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    held = delivery(folder).messages
    assert 0 < held < MESSAGES, "killed too late to show anything"

    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic, max_messages="2000")), folder))
    found = delivery(folder)
    assert (found.messages, found.changes, found.rejects, found.gaps) == (MESSAGES, MESSAGES - len(bad), len(bad), 0)
    assert found.tables == {"shop.orders": MESSAGES - len(bad)}
    written = Counter(rows(sessions.get(), folder))
    assert set(written.values()) == {1}
    assert {(partition, offset) for _, partition, offset in written} == {
        (number % PARTITIONS, number // PARTITIONS) for number in range(MESSAGES)
    }
    letters = list(DeadLetterFile(folder / "dead-letters.jsonl").read())
    assert sorted(reject.place.offset * PARTITIONS + reject.place.partition for reject in letters) == sorted(bad)
    assert {reject.value for reject in letters} == {b'{"half": '}
    assert all("not JSON" in reject.reason for reject in letters)

    produce(broker, topic, range(MESSAGES, MESSAGES + 100))
    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), folder))
    assert delivery(folder).messages == MESSAGES + 100
    assert len(list(DeadLetterFile(folder / "dead-letters.jsonl").read())) == len(bad)


def test_a_batch_that_ran_but_does_not_count_is_written_again(
    broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path
) -> None:
    produce(broker, topic, range(200), bad=frozenset({3}))
    reading = options(broker, topic)
    run_query(write_parquet(read_stream(sessions.get(), reading), tmp_path))
    # As if the process had died after the rows and before their line, and before Spark's own commit.
    (tmp_path / "batches" / "000000000.json").unlink()
    for name in ("commits/0", "commits/.0.crc"):
        (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    produce(broker, topic, range(200, 300))
    run_query(write_parquet(read_stream(sessions.get(), reading), tmp_path))
    assert delivery(tmp_path).messages == 300
    assert set(Counter(rows(sessions.get(), tmp_path)).values()) == {1}
    assert len(list(DeadLetterFile(tmp_path / "dead-letters.jsonl").read())) == 1


def test_a_new_partition_is_read_from_its_start(
    broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path
) -> None:
    produce(broker, topic, range(40))
    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path))
    admin = AdminClient({"bootstrap.servers": broker.servers} | QUIET)
    for future in admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": broker.servers, "topic.metadata.refresh.interval.ms": 500} | QUIET)
    deadline = time.monotonic() + 30
    while len(producer.list_topics(topic, timeout=10).topics[topic].partitions) == PARTITIONS:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for number in range(40, 50):
        producer.produce(topic, value=insert(number, (number + 1) << 18), partition=PARTITIONS)
    assert producer.flush(30) == 0
    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path))
    assert delivery(tmp_path).offsets[topic, PARTITIONS] == (0, 9)
    assert delivery(tmp_path).messages == 50


def test_messages_that_were_deleted_before_they_were_read_are_a_loss(
    broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path
) -> None:
    produce(broker, topic, range(400))
    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path))
    produce(broker, topic, range(400, 800))
    admin = AdminClient({"bootstrap.servers": broker.servers} | QUIET)
    for future in admin.delete_records([TopicPartition(topic, 2, 150)]).values():
        future.result()
    with pytest.raises(PurgedError, match=r"deleted offsets 100 to 149 of .*/2"):
        run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path))
    assert delivery(tmp_path).messages == 400


def test_a_result_without_its_checkpoint_is_not_written_on(
    broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path
) -> None:
    produce(broker, topic, range(20))
    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path))
    (tmp_path / "checkpoint").rename(tmp_path / "elsewhere")
    with pytest.raises(ChangeError, match="its checkpoint is gone"):
        write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path)


def test_a_query_that_goes_on_reads_what_comes(
    broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path, eventually: Any
) -> None:
    query = write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path, until_now=False)
    try:
        for number in range(3):
            produce(broker, topic, range(number * 50, number * 50 + 50))
            assert eventually(lambda wanted=number * 50 + 50: delivery(tmp_path).messages == wanted)
    finally:
        query.stop()
    assert delivery(tmp_path).batches >= 3


def test_a_foreign_checkpoint_is_noticed(broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path) -> None:
    """Its first batch has the number of one that is there, and other offsets: skipping it would lose them."""
    produce(broker, topic, range(40))
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, limit in ((here, "1000"), (there, "8")):
        run_query(write_parquet(read_stream(sessions.get(), options(broker, topic, max_messages=limit)), folder))
    (here / "checkpoint").rename(here / "old")
    shutil.copytree(there / "checkpoint", here / "checkpoint")
    for path in [*(here / "checkpoint" / "commits").iterdir(), *(here / "checkpoint" / "offsets").iterdir()]:
        if path.name not in ("0", ".0.crc") or path.parent.name == "commits":
            path.unlink()
    with pytest.raises(ChangeError, match="other offsets"):
        run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), here))


def test_secrets_are_named_never_given(sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"servers": "127.0.0.1:1", "topics": "t", "format": "canal-json"}
    with pytest.raises(ConfigError, match="would show in Spark's plans"):
        read_stream(sessions.get(), wanted | {"password": "hunter2"})
    with pytest.raises(ConfigError, match=r"KAFKA_WORD .*is not set"):
        read_stream(sessions.get(), wanted | {"password_env": "KAFKA_WORD"})
    monkeypatch.setenv("KAFKA_WORD", "hunter2-qzx")
    login = Login("127.0.0.1:1", "SASL_PLAINTEXT", "PLAIN", password_env="KAFKA_WORD").resolve()
    assert login.settings["sasl.password"] == "hunter2-qzx"
    assert "hunter2-qzx" not in repr(login)


def test_the_audit_sees_what_the_applier_has_not_applied(broker: kafka.Broker, topic: str) -> None:
    """Of 400 rows, 4 partitions with 100 each, the applier has committed 60 on partition 2 and all of the others."""
    produce(broker, topic, range(400))
    group = f"applier-{topic}"
    applier = Consumer({"bootstrap.servers": broker.servers, "group.id": group} | QUIET)
    ends = {number: 60 if number == 2 else 100 for number in range(PARTITIONS)}
    places = [TopicPartition(topic, number, end) for number, end in ends.items()]
    for attempt in range(60):
        try:
            applier.commit(offsets=places, asynchronous=False)
            break
        except KafkaException:  # the broker is still making its topic of offsets
            if attempt == 59:
                raise
            time.sleep(0.5)
    applier.close()
    login = Login(broker.servers).resolve()
    wrote = SourceCounts({"shop.orders": 400}, TransactionSizes(40, 400, (0, 40, 0, 0, 0), 10))
    facts = measure(open_kafka(login, [topic], CanalJson(), group), wrote)
    report = audit(facts, Limits(single_row_share=1.0, transit_seconds=1e12))
    found = {finding.name: finding for finding in report.findings}
    assert found["rows carried"].outcome is Outcome.PASS
    assert (found["rows applied"].outcome, found["rows applied"].value) == (Outcome.FAIL, 40)
    assert f"{topic}/2, 40 messages behind" in found["oldest unapplied"].reason
    assert report.partitions[2].pending == 40
    assert found["skew"].value == 1.0
    assert found["missing offsets"].outcome is Outcome.PASS
    unknown = audit(measure(open_kafka(login, [topic], CanalJson(), "mistyped")), Limits())
    told = {finding.name: finding.outcome for finding in unknown.findings}
    assert told["rows applied"] is told["oldest unapplied"] is Outcome.INCONCLUSIVE


def test_markers_of_transactions_are_passed(broker: kafka.Broker, topic: str, sessions: Any, tmp_path: Path) -> None:
    """A transaction ends with an offset that holds no message; rows of an aborted one are not carried."""
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic} | QUIET)
    producer.init_transactions(30)
    for number, keep in ((0, True), (1, False), (2, True)):
        producer.begin_transaction()
        for row in range(5):
            producer.produce(topic, value=insert(number * 5 + row, (number + 1) << 18), partition=0)
        producer.flush(30)
        (producer.commit_transaction if keep else producer.abort_transaction)(30)
    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path))
    found = delivery(tmp_path)
    assert (found.changes, found.messages, found.gaps) == (10, 10, 7)
    producer.begin_transaction()
    producer.produce(topic, value=insert(99, 9 << 18), partition=0)
    producer.commit_transaction(30)
    run_query(write_parquet(read_stream(sessions.get(), options(broker, topic)), tmp_path))
    assert delivery(tmp_path).changes == 11


def test_on_a_cluster(broker: kafka.Broker, topic: str, sessions: Any, cluster: Any, tmp_path: Path) -> None:
    """Executors get migverify from the driver; the reader and its login travel inside the pickled source."""
    produce(broker, topic, range(200), bad=frozenset({3}))
    session = sessions.get(cluster.url, slots=2)
    assert read_once(session, options(broker, topic)).count() == 200
    run_query(write_parquet(read_stream(session, options(broker, topic)), tmp_path))
    assert (delivery(tmp_path).changes, delivery(tmp_path).rejects) == (199, 1)


def test_batches_are_shared_by_what_is_left() -> None:
    from migverify.spark.kafka_source import share

    ends = {("t", 0): 1000, ("t", 1): 100, ("t", 2): 5}
    assert share({("t", 2): 5}, ends, None) == ends
    assert share({("t", 2): 5}, ends, 2000) == ends
    assert share({("t", 2): 5}, ends, 110) == {("t", 0): 100, ("t", 1): 10, ("t", 2): 5}
    assert share({("t", 2): 4}, ends, 10) == {("t", 0): 9, ("t", 1): 1, ("t", 2): 5}, "none starves"
    start = dict.fromkeys(ends, 0)
    rounds = 0
    while start != ends:
        following = share(start, ends, 7)
        assert all(start[here] <= following[here] <= ends[here] for here in ends)
        assert following != start
        start, rounds = following, rounds + 1
    assert rounds < 400


def test_what_is_lost_or_made_anew_is_an_error() -> None:
    from migverify.spark.kafka_source import check_loss

    here = ("t", 0)
    check_loss({here: 5}, {here: (5, 5), ("t", 1): (0, 9)})
    for wanted, found, reason in (
        ({here: 5}, {here: (6, 9)}, "deleted offsets 5 to 5"),
        ({here: 5}, {here: (0, 4)}, "made anew"),
        ({here: 5}, {}, "no partition"),
        ({here: 5}, {here: (5, 5), ("t", 1): (1, 9)}, "deleted offsets 0 to 0 of t/1"),
    ):
        with pytest.raises(ChangeError, match=reason):
            check_loss(wanted, found)


def test_options_are_checked_before_anything_runs() -> None:
    from migverify.spark.kafka_source import Settings

    wanted = {"servers": "h:1", "topics": "a, b", "format": "debezium"}
    assert Settings.of(wanted).topics == ("a", "b")
    for changed, reason in (
        ({"servers": ""}, "needs the option servers"),
        ({"max_messages": "0"}, "max_messages"),
        ({"max_messages": "x"}, "is wrong"),
        ({"types": "[]"}, "holds no column types"),
        ({"types": "{"}, "is wrong"),
        ({"typo": "1"}, "has no option typo"),
        ({"flavor": "oracle"}, "is wrong"),
        ({"time_zone": "Mars/North"}, "no time zone"),
    ):
        with pytest.raises(ConfigError, match=reason):
            Settings.of(wanted | changed)


def test_the_client_refuses_wrong_settings_without_showing_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    from migverify.changes.carriers.kafka import connect

    monkeypatch.setenv("KAFKA_WORD", "hunter2-qzx")
    login = Login("127.0.0.1:1", "NONSENSE", "PLAIN", password_env="KAFKA_WORD")
    with pytest.raises(ConfigError, match="refuses its settings") as caught:
        connect(login.resolve())
    assert "hunter2-qzx" not in str(caught.value)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from migverify.changes.carriers import kafka as carrier

    with pytest.raises(ConfigError, match="is not set"):
        Login("127.0.0.1:1", username_env="NOT_SET_ANYWHERE").resolve()
    monkeypatch.setattr(carrier, "ANSWER_SECONDS", 0.5)
    login = Login("127.0.0.1:1").resolve()
    consumer = carrier.connect(login)
    with pytest.raises(UnreachableError, match=r"Kafka 127\.0\.0\.1:1 does not answer"):
        carrier.bounds(login, consumer, ["t"])
    consumer.close()
