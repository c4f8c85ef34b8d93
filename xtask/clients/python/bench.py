"""Shared by all cases: clients of the server under test, unique names, waiting."""

import itertools
import secrets
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 40


class Bench:
    """Makes clients of one server, and unique names."""

    def __init__(self, bootstrap, server):
        self.bootstrap = bootstrap
        self.is_kafka = server == "kafka"
        self._suffix = secrets.token_hex(4)
        self._numbers = itertools.count()

    def name(self, what):
        return f"python-{what}-{self._suffix}-{next(self._numbers)}"

    def settings(self, more):
        return {"bootstrap.servers": self.bootstrap, "broker.address.family": "v4", **more}

    def admin(self):
        return AdminClient(self.settings({}))

    def topic(self, what, partitions, config=None):
        topic = self.name(what)
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result()
        eventually(lambda: same(topic in admin.list_topics(timeout=10).topics, True))
        return topic

    def produce(self, topic, values, settings=None, **message):
        """Produces values keyed by their position and waits for every delivery report."""
        failures = []
        producer = Producer(self.settings(settings or {}))

        def report(error, _message):
            if error is not None:
                failures.append(error)

        for number, value in enumerate(values):
            arguments = {"key": f"key-{number % 31}", **message}
            producer.produce(topic, value=value, on_delivery=report, **arguments)
            producer.poll(0)
        same(producer.flush(PATIENCE_S), 0)
        same(failures, [])

    def consumer(self, settings):
        return Consumer(self.settings({"auto.offset.reset": "earliest", **settings}))

    def read(self, topic, partitions, count, settings=None):
        """Reads partitions from their beginning, without a group's help."""
        consumer = self.consumer({"group.id": self.name("reader"), **(settings or {})})
        try:
            consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
            return poll(consumer, count)
        finally:
            consumer.close()


def poll(consumer, count):
    """Polls until `count` messages have come."""
    messages = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            same(message.error(), None)
            messages.append(message)
    same(len(messages), count)
    return messages


def same(found, expected):
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def eventually(check):
    """Repeats a check until it passes, for states that are reached shortly after a reply."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Member:
    """A member of a group on a thread of its own: it notes values and commits before it polls again."""

    def __init__(self, consumer, topics, seen):
        self._consumer = consumer
        self._seen = seen
        self._stopping = threading.Event()
        self._failure = None
        self._owned = set()
        consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, _consumer, partitions):
        self._owned.update((each.topic, each.partition) for each in partitions)

    def _revoked(self, _consumer, partitions):
        self._owned.difference_update((each.topic, each.partition) for each in partitions)

    def _run(self):
        try:
            while not self._stopping.is_set():
                message = self._consumer.poll(0.1)
                if message is None or self._is_bearable(message.error()):
                    continue
                # An error cannot be compared with nothing.
                error = message.error()
                same(error.str() if error is not None else None, None)
                self._seen.append(message.value().decode())
                self._commit(message)
        except Exception as failure:  # handed to whoever stops the member
            self._failure = failure
        finally:
            self._consumer.close()

    def _is_bearable(self, _error):
        return False

    def _commit(self, message):
        self._consumer.commit(message=message, asynchronous=False)

    def owned(self):
        return set(self._owned)

    def stop(self):
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        same(self._thread.is_alive(), False)
        if self._failure is not None:
            raise self._failure


class Roller(Member):
    """A member of a group in which others come and go all the time. A commit may be refused because the group rebalances;
    the partition's next member then reads the record again. If a group changes its protocol while a member waits in a join,
    the library reports the answer as an error, and joins again by itself."""

    RETRIED = {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
    }

    def _is_bearable(self, error):
        return error is not None and not error.fatal() and error.code() == KafkaError.REBALANCE_IN_PROGRESS

    def _commit(self, message):
        try:
            super()._commit(message)
        except KafkaException as refused:
            error = refused.args[0]
            same((error.fatal(), error.code() in self.RETRIED), (False, True))
