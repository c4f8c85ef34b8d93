"""Producing and consuming with librdkafka, alone and in groups of both protocols."""

import threading
import time

from bench import Member, Roller, eventually, poll, same
from confluent_kafka import OFFSET_END, KafkaException, Producer, TopicPartition


def codecs(bench):
    topic = bench.topic("codecs", 1)
    expected = []
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
        values = [f"{codec}-{n}" for n in range(500)]
        bench.produce(topic, values, {"compression.codec": codec, "linger.ms": 20})
        expected += values
    messages = bench.read(topic, 1, len(expected), {"check.crcs": True})
    same([message.value().decode() for message in messages], expected)


def idempotence(bench):
    topic = bench.topic("idempotence", 1)
    values = [str(n) for n in range(3000)]
    bench.produce(topic, values, {"enable.idempotence": True, "batch.num.messages": 20, "linger.ms": 0})
    same([message.value().decode() for message in bench.read(topic, 1, len(values))], values)


def headers_and_nulls(bench):
    topic = bench.topic("headers", 1)
    stamp_ms = int(time.time() * 1000) - 5000
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]
    bench.produce(topic, ["v"], headers=headers, timestamp=stamp_ms)
    bench.produce(topic, [None])
    bench.produce(topic, ["v"], key=None)
    first, tombstone, keyless = bench.read(topic, 1, 3)
    same(first.headers(), headers)
    same(first.timestamp()[1], stamp_ms)
    same((tombstone.key(), tombstone.value()), (b"key-0", None))
    same((keyless.key(), keyless.value()), (None, b"v"))


def large_records(bench):
    topic = bench.topic("large", 1)
    noise = [bytes([n]) * (900 * 1024) for n in range(5)]
    bench.produce(topic, noise)
    messages = bench.read(topic, 1, 5, {"fetch.message.max.bytes": 1000})
    same([message.value() == expected for message, expected in zip(messages, noise)], [True] * 5)


def positions(bench):
    topic = bench.topic("positions", 1)
    bench.produce(topic, [f"v{n}" for n in range(50)])
    consumer = bench.consumer({"group.id": bench.name("positions")})
    partition = TopicPartition(topic, 0)
    try:
        same(consumer.get_watermark_offsets(partition, timeout=10), (0, 50))
        same(consumer.offsets_for_times([TopicPartition(topic, 0, 1)], timeout=10)[0].offset, 0)
        late = TopicPartition(topic, 0, 4_102_444_800_000)
        same(consumer.offsets_for_times([late], timeout=10)[0].offset, OFFSET_END)
        consumer.assign([TopicPartition(topic, 0, 45)])
        same(poll(consumer, 5)[0].offset(), 45)
        consumer.pause([partition])
        bench.produce(topic, ["after"])
        same(consumer.poll(0.5), None)
        consumer.resume([partition])
        same(poll(consumer, 1)[0].value(), b"after")
        consumer.seek(TopicPartition(topic, 0, 10))
        same(poll(consumer, 41)[0].offset(), 10)
    finally:
        consumer.close()


def group(bench, settings):
    """Two members share, one leaves, and a later one resumes where they stopped."""
    topic = bench.topic("group", 4)
    settings = {"group.id": bench.name("group"), "enable.auto.commit": False, **settings}
    seen = []

    def shares(*members):
        return sorted(len(member.owned()) for member in members)

    bench.produce(topic, [f"a{n}" for n in range(100)])
    first = Member(bench.consumer(settings), [topic], seen)
    eventually(lambda: same((shares(first), len(seen)), ([4], 100)))
    second = Member(bench.consumer(settings), [topic], seen)
    eventually(lambda: same(shares(first, second), [2, 2]))
    bench.produce(topic, [f"b{n}" for n in range(100)])
    eventually(lambda: same(len(seen), 200))
    first.stop()
    eventually(lambda: same(shares(second), [4]))
    second.stop()
    same(sorted(seen), sorted([f"a{n}" for n in range(100)] + [f"b{n}" for n in range(100)]))
    bench.produce(topic, ["late"])
    consumer = bench.consumer(settings)
    try:
        consumer.subscribe([topic])
        same(poll(consumer, 1)[0].value(), b"late")
    finally:
        consumer.close()


def classic(strategy):
    settings = {
        "group.protocol": "classic",
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 300,
        "session.timeout.ms": 10_000,
    }
    return lambda bench: group(bench, settings)


def group_consumer(bench):
    group(bench, {"group.protocol": "consumer"})


def group_consumer_regex(bench):
    """librdkafka hands a pattern to the server when the group speaks the consumer protocol."""
    prefix = bench.name("regex")
    for end in ["a", "b"]:
        bench.produce(f"{prefix}-{end}", [end])
    seen = []
    settings = {"group.id": prefix, "group.protocol": "consumer", "enable.auto.commit": False}
    member = Member(bench.consumer(settings), [f"^{prefix}-.*"], seen)
    eventually(lambda: same(sorted(seen), ["a", "b"]))
    member.stop()


def group_rolls(bench):
    """A group goes from one protocol to the other and back, a member at a time and under load. No record is missed, and no
    member gets an error that ends it."""
    partitions = 6
    topic = bench.topic("rolls", partitions)
    name = {"group.id": bench.name("group"), "enable.auto.commit": False}
    fast = {"heartbeat.interval.ms": 300, "session.timeout.ms": 10_000}
    protocols = {
        "classic": {**name, **fast, "group.protocol": "classic"},
        "consumer": {**name, "group.protocol": "consumer"},
    }
    seen, sent, stopping = [], [], threading.Event()

    def write():
        while not stopping.is_set():
            values = [f"r{len(sent) + n}" for n in range(20)]
            bench.produce(topic, values)
            sent.extend(values)

    def member(protocol):
        return Roller(bench.consumer(protocols[protocol]), [topic], seen)

    def shared():
        owned = [each for member in members for each in member.owned()]
        same(sorted(owned), [(topic, index) for index in range(partitions)])

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    members = [member("classic") for _ in range(3)]
    eventually(shared)
    for protocol in ["consumer", "classic"]:
        for index in range(len(members)):
            members[index].stop()
            members[index] = member(protocol)
            eventually(shared)
    stopping.set()
    writer.join()
    eventually(lambda: same(set(sent) - set(seen), set()))
    for each in members:
        each.stop()


def transactions(bench):
    """Kafka accepts a transaction; without them the library reports the server's refusal at once."""
    topic = bench.topic("transactions", 1)
    producer = Producer(bench.settings({"transactional.id": bench.name("tx")}))
    if not bench.is_kafka:
        begun = time.monotonic()
        try:
            producer.init_transactions(20)
        except KafkaException as refused:
            print(f"refused: {refused}")
            same("not supported" in str(refused), True)
            same(time.monotonic() - begun < 5, True)
            return
        raise AssertionError("transactions are not supported, and yet init_transactions succeeded")
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(20)
    same(bench.read(topic, 1, 1, {"isolation.level": "read_committed"})[0].value(), b"kept")


CASES = {
    "codecs": codecs,
    "idempotence": idempotence,
    "headers-and-nulls": headers_and_nulls,
    "large-records": large_records,
    "positions": positions,
    "group-range": classic("range"),
    "group-cooperative": classic("cooperative-sticky"),
    "group-consumer": group_consumer,
    "group-consumer-regex": group_consumer_regex,
    "group-rolls": group_rolls,
    "transactions": transactions,
}
