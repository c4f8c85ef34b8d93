"""librdkafka's administration calls."""

from bench import Member, eventually, same
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)


def refused(future, code):
    """Checks that a call fails with this error code."""
    try:
        future.result()
    except KafkaException as failure:
        same(failure.args[0].code(), code)
        return
    raise AssertionError(f"succeeded where error {code} was expected")


def topics(bench):
    topic = bench.topic("admin", 2, {"retention.ms": "3600000"})
    admin = bench.admin()
    refused(admin.create_topics([NewTopic(topic, 1, 1)])[topic], KafkaError.TOPIC_ALREADY_EXISTS)
    odd = bench.name("odd")
    wanted = NewTopic(odd, 1, 1, config={"no.such.config": "1"})
    refused(admin.create_topics([wanted])[odd], KafkaError.INVALID_CONFIG)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()

    def described():
        return admin.describe_topics(TopicCollection([topic]))[topic].result()

    eventually(lambda: same(len(described().partitions), 3))
    same(described().is_internal, False)
    admin.delete_topics([topic])[topic].result()
    eventually(lambda: same(topic in admin.list_topics(timeout=10).topics, False))


def configs(bench):
    topic = bench.topic("configs", 1)
    admin = bench.admin()

    def value(name):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return admin.describe_configs([resource])[resource].result()[name].value

    def alter(name, new, how):
        entry = ConfigEntry(name, new, incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])[resource]

    alter("retention.ms", "60000", AlterConfigOpType.SET).result()
    eventually(lambda: same(value("retention.ms"), "60000"))
    alter("retention.ms", None, AlterConfigOpType.DELETE).result()
    eventually(lambda: same(value("retention.ms"), "604800000"))
    refused(alter("no.such.config", "1", AlterConfigOpType.SET), KafkaError.INVALID_CONFIG)


def offsets_and_records(bench):
    topic = bench.topic("offsets", 1)
    bench.produce(topic, [str(n) for n in range(10)])
    admin = bench.admin()
    partition = TopicPartition(topic, 0)

    def offset(spec):
        return admin.list_offsets({partition: spec})[partition].result().offset

    same((offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())), (0, 10))
    same(offset(OffsetSpec.for_timestamp(1)), 0)
    same(0 <= offset(OffsetSpec.max_timestamp()) < 10, True)
    deleted = admin.delete_records([TopicPartition(topic, 0, 6)])
    same([future.result().low_watermark for future in deleted.values()], [6])
    same(offset(OffsetSpec.earliest()), 6)


def cluster(bench):
    admin = bench.admin()
    described = admin.describe_cluster().result()
    same(len(described.nodes), 1)
    same(f"{described.nodes[0].host}:{described.nodes[0].port}", bench.bootstrap)
    same(described.controller.id, described.nodes[0].id)
    partition = TopicPartition(bench.topic("elected", 1), 0)
    results = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result()
    same(results[partition].code(), KafkaError.ELECTION_NOT_NEEDED)


def groups(bench, protocol):
    topic = bench.topic("watched", 1)
    group = bench.name("watched")
    bench.produce(topic, [str(n) for n in range(10)])
    seen = []
    settings = {"group.id": group, "group.protocol": protocol, "enable.auto.commit": False}
    member = Member(bench.consumer(settings), [topic], seen)
    eventually(lambda: same(len(seen), 10))
    admin = bench.admin()
    listed = admin.list_consumer_groups().result()
    same([each.state.name for each in listed.valid if each.group_id == group], ["STABLE"])
    described = admin.describe_consumer_groups([group])[group].result()
    same((described.state.name, described.type.name, len(described.members)), ("STABLE", protocol.upper(), 1))
    same(described.members[0].assignment.topic_partitions[0].topic, topic)
    refused(admin.delete_consumer_groups([group])[group], KafkaError.NON_EMPTY_GROUP)
    member.stop()

    def committed():
        request = [ConsumerGroupTopicPartitions(group)]
        result = admin.list_consumer_group_offsets(request)[group].result()
        return [(each.partition, each.offset) for each in result.topic_partitions]

    same(committed(), [(0, 10)])
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([moved])[group].result()
    same(committed(), [(0, 3)])
    admin.delete_consumer_groups([group])[group].result()
    same(committed(), [])


CASES = {
    "admin-topics": topics,
    "admin-configs": configs,
    "admin-offsets-and-records": offsets_and_records,
    "admin-cluster": cluster,
    "admin-classic-group": lambda bench: groups(bench, "classic"),
    "admin-consumer-group": lambda bench: groups(bench, "consumer"),
}
