"""A real Kafka: what is deleted, transactional, not applied or undecodable is seen, and no secret shows."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.carried import change_of

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from migverify.changes.carriers.base import Carried, CarriedItem, Heartbeat, Reject, Watermark
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.committed import CommittedChanges
from migverify.changes.carriers.kafka import KafkaLogin, OffsetRange, committed, fetch
from migverify.changes.carriers.topics import KafkaTopics
from migverify.changes.model import Commit
from migverify.changes.pipeline import (
    PipelineLimits,
    PipelineOutcome,
    SourceCounts,
    TransactionSizes,
    audit,
    measure,
)
from migverify.changes.positions import time_tso, tso_position
from migverify.errors import ChangeError, ConfigError, LabError, PurgedError, UnreachableError
from migverify_lab import kafka

PARTITIONS = 4
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


def test_messages_that_were_deleted_before_they_were_read_are_a_loss(broker: kafka.Broker, topic: str) -> None:
    produce(broker, topic, range(800))
    admin = AdminClient({"bootstrap.servers": broker.servers} | QUIET)
    for future in admin.delete_records([TopicPartition(topic, 2, 150)]).values():
        future.result()
    login = KafkaLogin(broker.servers).resolve()
    with pytest.raises(PurgedError, match="no message at 100"):
        list(fetch(login, OffsetRange(topic, 2, 100, 200)))
    assert len(list(fetch(login, OffsetRange(topic, 2, 150, 200)))) == 50
    with pytest.raises(ChangeError, match="made anew"):
        list(fetch(login, OffsetRange(topic, 1, 100, 300), 5.0))


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
    login = KafkaLogin(broker.servers).resolve()
    wrote = SourceCounts({"shop.orders": 400}, TransactionSizes(40, 400, (0, 40, 0, 0, 0), 10))
    carrier = KafkaTopics(login, [topic], CanalJson())
    facts = measure(carrier, committed(login, group, [topic]), wrote)
    report = audit(facts, PipelineLimits(single_row_share=1.0, transit_seconds=1e12))
    found = {finding.name: finding for finding in report.findings}
    assert found["rows carried"].outcome is PipelineOutcome.PASS
    assert (found["rows applied"].outcome, found["rows applied"].value) == (PipelineOutcome.FAIL, 40)
    assert f"{topic}/2, 40 messages behind" in found["oldest unapplied"].reason
    assert report.partitions[2].pending == 40
    assert found["skew"].value == 1.0
    assert found["missing offsets"].outcome is PipelineOutcome.PASS
    assert committed(login, "mistyped", [topic]) is None
    unknown = audit(measure(carrier, None), PipelineLimits())
    answers = {finding.name: finding.outcome for finding in unknown.findings}
    assert answers["rows applied"] is answers["oldest unapplied"] is PipelineOutcome.INCONCLUSIVE


def test_markers_of_transactions_are_passed_and_bad_messages_are_rejects(broker: kafka.Broker, topic: str) -> None:
    """A transaction ends with an offset that holds no message; rows of an aborted one are not carried."""
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic} | QUIET)
    producer.init_transactions(30)
    for number, keep in ((0, True), (1, False), (2, True)):
        producer.begin_transaction()
        for row in range(5):
            producer.produce(topic, value=insert(number * 5 + row, (number + 1) << 18), partition=0)
        producer.flush(30)
        (producer.commit_transaction if keep else producer.abort_transaction)(30)
    produce(broker, topic, range(1, 2), bad=frozenset({1}))
    source = KafkaTopics(KafkaLogin(broker.servers).resolve(), [topic], CanalJson())
    items = list(source.read())
    changes = [item for item in items if isinstance(item, Carried)]
    assert [(change_of(item).after or {})["id"] for item in changes] == [str(n) for n in (*range(5), *range(10, 15))]
    assert source.bounds[topic, 0] == (0, 18)
    (reject,) = [item for item in items if isinstance(item, Reject)]
    assert (reject.value, reject.place.partition) == (b'{"half": ', 1)
    assert "not JSON" in reject.reason


def test_secrets_are_named_never_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_WORD", "hunter2-qzx")
    login = KafkaLogin("127.0.0.1:1", "SASL_PLAINTEXT", "PLAIN", password_env="KAFKA_WORD")
    assert login.resolve().settings["sasl.password"] == "hunter2-qzx"
    assert "hunter2-qzx" not in repr(login.resolve())


def test_the_client_refuses_wrong_settings_without_showing_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    from migverify.changes.carriers.kafka import connect

    monkeypatch.setenv("KAFKA_WORD", "hunter2-qzx")
    login = KafkaLogin("127.0.0.1:1", "NONSENSE", "PLAIN", password_env="KAFKA_WORD")
    with pytest.raises(ConfigError, match="refuses its settings") as caught:
        connect(login.resolve())
    assert "hunter2-qzx" not in str(caught.value)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from migverify.changes.carriers import kafka as carrier

    with pytest.raises(ConfigError, match="is not set"):
        KafkaLogin("127.0.0.1:1", username_env="NOT_SET_ANYWHERE").resolve()
    monkeypatch.setattr(carrier, "ANSWER_SECONDS", 0.5)
    login = KafkaLogin("127.0.0.1:1").resolve()
    with pytest.raises(UnreachableError, match=r"Kafka 127\.0\.0\.1:1 does not answer \(topic t\)") as caught:
        carrier.bounds(login, ["t"])
    assert "127.0.0.1:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused" in caught.value.message
    assert "reverse.carrier.kafka" in caught.value.hint


def mark(complete_to: int) -> bytes:
    """A watermark of TiCDC's canal-json."""
    return json.dumps(
        {"id": 0, "database": "", "table": "", "isDdl": False, "type": "TIDB_WATERMARK", "es": 1, "ts": 1,
         "_tidb": {"watermarkTs": complete_to}}
    ).encode()  # fmt: skip


def send(broker: kafka.Broker, topic: str, *messages: tuple[int, bytes], at: float = 0.0) -> None:
    """Send (partition, value) with a message time."""
    producer = Producer({"bootstrap.servers": broker.servers} | QUIET)
    for partition, value in messages:
        producer.produce(topic, value=value, partition=partition, timestamp=int((at or time.time()) * 1000))
    assert producer.flush(30) == 0


def until(
    stream: Iterator[CarriedItem | Heartbeat], stop: Callable[[CarriedItem | Heartbeat], bool]
) -> list[CarriedItem | Heartbeat]:
    found, deadline = [], time.monotonic() + 60
    for item in stream:
        found.append(item)
        if stop(item):
            return found
        assert time.monotonic() < deadline, found[-5:]
    raise AssertionError("the stream ended")


def ids(items: list[CarriedItem | Heartbeat]) -> list[str | None]:
    return [(change_of(item).after or {})["id"] for item in items if isinstance(item, Carried)]


def test_a_topic_is_followed_and_partitions_that_are_added_are_seen(broker: kafka.Broker, topic: str) -> None:
    produce(broker, topic, range(8))
    carrier = KafkaTopics(KafkaLogin(broker.servers).resolve(), [topic], CanalJson())
    stream = carrier.follow(None)
    found = until(stream, lambda item: isinstance(item, Heartbeat))
    while len(ids(found)) < 8:
        found += until(stream, lambda item: isinstance(item, Heartbeat))
    assert sorted(ids(found)) == [str(n) for n in range(8)]
    begun = time.monotonic()
    for _ in range(3):
        until(stream, lambda item: isinstance(item, Heartbeat))
    assert time.monotonic() - begun < 6
    admin = AdminClient({"bootstrap.servers": broker.servers} | QUIET)
    for future in admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)]).values():
        future.result()
    now = time_tso(time.time())
    for _ in range(60):
        try:
            send(broker, topic, (PARTITIONS, insert(99, now)))
            break
        except KafkaException:  # the client does not know the partition yet
            time.sleep(0.2)
    send(broker, topic, *((number, mark(now + 1)) for number in range(PARTITIONS + 1)))
    found = until(stream, lambda item: isinstance(item, Watermark))
    assert (topic, PARTITIONS) in carrier.partitions, "the partition is known before a watermark beyond its change"
    while len([item for item in found if isinstance(item, Watermark)]) < PARTITIONS + 1:
        found += until(stream, lambda item: isinstance(item, Watermark))
    assert "99" in ids(found)


def test_a_partition_that_was_added_while_nobody_read_is_no_loss(broker: kafka.Broker, topic: str) -> None:
    """Nothing of it is older than the position, and nothing of it was ever deleted."""
    now = time.time()
    old, since, new = (time_tso(now - seconds) for seconds in (40, 30, 20))
    send(broker, topic, *((number, mark(old)) for number in range(PARTITIONS)), at=now - 40)
    admin = AdminClient({"bootstrap.servers": broker.servers} | QUIET)
    for future in admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)]).values():
        future.result()
    for _ in range(60):
        try:
            send(broker, topic, (PARTITIONS, insert(99, new)))
            break
        except KafkaException:  # the client does not know the partition yet
            time.sleep(0.2)
    send(broker, topic, *((number, mark(new + 1)) for number in range(PARTITIONS + 1)))
    carrier = KafkaTopics(KafkaLogin(broker.servers).resolve(), [topic], CanalJson())
    items = list(CommittedChanges(carrier, tso_position(since)).items())
    assert [item.end.offset for item in items if isinstance(item, Commit)] == [new]
    for future in admin.delete_records([TopicPartition(topic, PARTITIONS, 1)]).values():
        future.result()
    carrier = KafkaTopics(KafkaLogin(broker.servers).resolve(), [topic], CanalJson())
    with pytest.raises(PurgedError, match=f"{topic}/{PARTITIONS}"):
        list(CommittedChanges(carrier, tso_position(since)).items())


def test_it_begins_by_message_time_and_refuses_what_retention_took(broker: kafka.Broker, topic: str) -> None:
    now = time.time()
    old = [(number % PARTITIONS, insert(number, time_tso(now - 500))) for number in range(200)]
    send(broker, topic, *old, at=now - 500)
    send(broker, topic, *((number, insert(1000 + number, time_tso(now - 5))) for number in range(PARTITIONS)))
    login = KafkaLogin(broker.servers).resolve()
    since = tso_position(time_tso(now - 100))
    stream = KafkaTopics(login, [topic], CanalJson()).follow(since)
    found = until(stream, lambda item: isinstance(item, Heartbeat))
    while not {str(1000 + n) for n in range(PARTITIONS)} <= set(ids(found)):
        found += until(stream, lambda item: isinstance(item, Heartbeat))
    assert PARTITIONS < len(ids(found)) <= 11 * PARTITIONS, "a few before it, not all"
    admin = AdminClient({"bootstrap.servers": broker.servers} | QUIET)
    for future in admin.delete_records([TopicPartition(topic, 2, 20)]).values():
        future.result()
    until(KafkaTopics(login, [topic], CanalJson()).follow(since), lambda item: isinstance(item, Heartbeat))
    for future in admin.delete_records([TopicPartition(topic, 2, 50)]).values():
        future.result()
    with pytest.raises(PurgedError, match=f"has deleted offsets 0 to 49 of {topic}/2"):
        next(KafkaTopics(login, [topic], CanalJson()).follow(since))


def test_markers_and_aborted_rows_are_no_missing_offsets(broker: kafka.Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic} | QUIET)
    producer.init_transactions(30)
    for number, keep in ((0, True), (1, False), (2, True)):
        producer.begin_transaction()
        for row in range(5):
            producer.produce(topic, value=insert(number * 5 + row, (number + 1) << 18), partition=0)
        producer.flush(30)
        (producer.commit_transaction if keep else producer.abort_transaction)(30)
    stream = KafkaTopics(KafkaLogin(broker.servers).resolve(), [topic], CanalJson()).follow(None)
    found = until(stream, lambda item: isinstance(item, Heartbeat))
    while len(ids(found)) < 10:
        found += until(stream, lambda item: isinstance(item, Heartbeat))
    assert ids(found) == [str(n) for n in (*range(5), *range(10, 15))]
    assert not [item for item in found if isinstance(item, Reject)]


def test_a_lost_broker_is_asked_again_and_nothing_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("lost")
    with kafka.broker(folder) as running:
        admin = AdminClient({"bootstrap.servers": running.servers} | QUIET)
        for future in admin.create_topics([NewTopic("lost", 1, 1)]).values():
            future.result()
        send(running, "lost", (0, insert(1, 1)))
        stream = KafkaTopics(KafkaLogin(running.servers).resolve(), ["lost"], CanalJson()).follow(None)
        assert ids(until(stream, lambda item: isinstance(item, Carried))) == ["1"]
        send(running, "lost", (0, insert(2, 2)))
        os.kill(running.process.pid, signal.SIGSTOP)
        timer = threading.Timer(15.0, os.kill, (running.process.pid, signal.SIGCONT))
        timer.start()
        try:
            found = until(stream, lambda item: isinstance(item, Carried))
        finally:
            timer.join()
        assert ids(found) == ["2"]
        send(running, "lost", (0, insert(3, 3)))
        assert ids(until(stream, lambda item: isinstance(item, Carried))) == ["3"]
