package riverrun.clients;

import static riverrun.clients.Bench.bytes;
import static riverrun.clients.Bench.fails;
import static riverrun.clients.Bench.same;
import static riverrun.clients.Bench.that;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Administration of topics, configs and the cluster. */
final class TopicAdminCases {
    private TopicAdminCases() {}

    static void addTo(Main.Cases cases) {
        cases.add("admin-create-topics", TopicAdminCases::createTopics);
        cases.add("admin-create-topics-refused", TopicAdminCases::createTopicsRefused);
        cases.add("admin-topic-ids", TopicAdminCases::topicIds);
        cases.add("admin-delete-topics", TopicAdminCases::deleteTopics);
        cases.add("admin-create-partitions", TopicAdminCases::createPartitions);
        cases.add("admin-topic-configs", TopicAdminCases::topicConfigs);
        cases.add("admin-configs-refused", TopicAdminCases::configsRefused);
        cases.add("admin-broker-configs", TopicAdminCases::brokerConfigs);
        cases.add("admin-describe-cluster", TopicAdminCases::describeCluster);
        cases.add("admin-list-offsets", TopicAdminCases::listOffsets);
        cases.add("admin-delete-records", TopicAdminCases::deleteRecords);
        cases.add("admin-describe-producers", TopicAdminCases::describeProducers);
        cases.add("admin-log-dirs", TopicAdminCases::logDirs);
        cases.add("admin-elect-leaders", TopicAdminCases::electLeaders);
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private static TopicDescription described(Admin admin, String topic) throws Exception {
        TopicDescription[] found = {null};
        Bench.eventually(() -> found[0] = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic));
        return found[0];
    }

    private static void createTopics(Bench bench) throws Exception {
        try (Admin admin = bench.admin()) {
            String topic = bench.name("created");
            NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "123456"));
            admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all().get();
            that("validation creates nothing", !admin.listTopics().names().get().contains(topic));
            CreateTopicsResult made = admin.createTopics(List.of(wanted));
            same("partitions in the answer", made.numPartitions(topic).get(), 3);
            same("replication in the answer", made.replicationFactor(topic).get(), 1);
            same("config in the answer", made.config(topic).get().get("retention.ms").value(), "123456");
            TopicDescription found = described(admin, topic);
            that("listed", admin.listTopics().names().get().contains(topic));
            same("partitions", found.partitions().size(), 3);
            same("id", found.topicId(), made.topicId(topic).get());
            found.partitions().forEach(partition -> {
                same("in-sync replicas", partition.isr(), partition.replicas());
                same("leader", partition.leader(), partition.replicas().get(0));
            });
            String defaults = bench.name("defaults");
            admin.createTopics(List.of(new NewTopic(defaults, Optional.empty(), Optional.empty()))).all().get();
            String placed = bench.name("placed");
            int node = found.partitions().get(0).leader().id();
            admin.createTopics(List.of(new NewTopic(placed, Map.of(0, List.of(node), 1, List.of(node))))).all().get();
            same("partitions by default", described(admin, defaults).partitions().size(), 1);
            same("partitions as placed", described(admin, placed).partitions().size(), 2);
        }
    }

    private static void createTopicsRefused(Bench bench) throws Exception {
        String existing = bench.topic("existing", 1);
        try (Admin admin = bench.admin()) {
            fails("a name twice", TopicExistsException.class,
                    () -> create(admin, new NewTopic(existing, 1, (short) 1)));
            fails("a bad name", InvalidTopicException.class, () -> create(admin, new NewTopic("a b", 1, (short) 1)));
            fails("a long name", InvalidTopicException.class,
                    () -> create(admin, new NewTopic("x".repeat(250), 1, (short) 1)));
            fails("no partitions", InvalidPartitionsException.class,
                    () -> create(admin, new NewTopic(bench.name("none"), 0, (short) 1)));
            fails("more replicas than nodes", InvalidReplicationFactorException.class,
                    () -> create(admin, new NewTopic(bench.name("wide"), 1, (short) 3)));
            for (Map<String, String> config : List.of(
                    Map.of("no.such.config", "1"), Map.of("retention.ms", "soon"), Map.of("cleanup.policy", "shred"),
                    Map.of("max.message.bytes", "-1"))) {
                fails("config " + config, InvalidConfigurationException.class,
                        () -> create(admin, new NewTopic(bench.name("odd"), 1, (short) 1).configs(config)));
            }
            that("nothing was created", admin.listTopics().names().get().stream()
                    .noneMatch(name -> name.contains("-odd-") || name.contains("-wide-")));
        }
    }

    private static void create(Admin admin, NewTopic topic) throws Exception {
        admin.createTopics(List.of(topic)).all().get();
    }

    private static void topicIds(Bench bench) throws Exception {
        String topic = bench.topic("by-id", 2);
        try (Admin admin = bench.admin()) {
            Uuid id = described(admin, topic).topicId();
            TopicCollection ids = TopicCollection.ofTopicIds(List.of(id));
            same("name by id", admin.describeTopics(ids).allTopicIds().get().get(id).name(), topic);
            admin.deleteTopics(ids).all().get();
            Bench.eventually(() -> fails("describing a deleted id", UnknownTopicIdException.class,
                    () -> admin.describeTopics(ids).allTopicIds().get()));
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            Uuid second = described(admin, topic).topicId();
            that("a topic created again has a new id", !second.equals(id));
        }
    }

    private static void deleteTopics(Bench bench) throws Exception {
        String topic = bench.topic("deleted", 3);
        bench.produce(topic, "v", 10);
        try (Admin admin = bench.admin()) {
            admin.deleteTopics(List.of(topic)).all().get();
            Bench.eventually(() -> that("not listed", !admin.listTopics().names().get().contains(topic)));
            fails("describing it", UnknownTopicOrPartitionException.class,
                    () -> admin.describeTopics(List.of(topic)).allTopicNames().get());
            fails("deleting it twice", UnknownTopicOrPartitionException.class,
                    () -> admin.deleteTopics(List.of(topic)).all().get());
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        bench.produce(topic, "again", 1);
        same("offset of the first record in the new one", bench.read(topic, 1, 1).get(0).offset(), 0L);
    }

    private static void createPartitions(Bench bench) throws Exception {
        String topic = bench.topic("grown", 2);
        try (Admin admin = bench.admin()) {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            Bench.eventually(() -> same("partitions", described(admin, topic).partitions().size(), 4));
            for (int count : new int[] {4, 3}) {
                fails("to " + count, InvalidPartitionsException.class,
                        () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all().get());
            }
            fails("of a topic that is not there", UnknownTopicOrPartitionException.class, () -> admin
                    .createPartitions(Map.of(bench.name("absent"), NewPartitions.increaseTo(4))).all().get());
        }
        try (KafkaProducer<byte[], byte[]> producer = bench.producer()) {
            same("a new partition takes records",
                    producer.send(new ProducerRecord<>(topic, 3, null, bytes("v"))).get().offset(), 0L);
        }
    }

    private static Config describe(Admin admin, ConfigResource resource) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }

    private static void alter(Admin admin, ConfigResource resource, String name, String value, AlterConfigOp.OpType how)
            throws Exception {
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(new ConfigEntry(name, value), how));
        admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    private static void untilValue(Admin admin, ConfigResource resource, String name, String value) throws Exception {
        Bench.eventually(() -> same(name, describe(admin, resource).get(name).value(), value));
    }

    private static void topicConfigs(Bench bench) throws Exception {
        ConfigResource topic = resource(bench.topic("configured", 1, "segment.bytes", "1048576"));
        try (Admin admin = bench.admin()) {
            ConfigEntry given = describe(admin, topic).get("segment.bytes");
            same("given at creation", given.value(), "1048576");
            same("its source", given.source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
            same("its type", given.type(), ConfigEntry.ConfigType.INT);
            same("its first synonym", given.synonyms().get(0).value(), "1048576");
            ConfigEntry untouched = describe(admin, topic).get("segment.ms");
            same("a default", untouched.value(), "604800000");
            that("a default says so", untouched.isDefault());
            alter(admin, topic, "retention.ms", "60000", AlterConfigOp.OpType.SET);
            untilValue(admin, topic, "retention.ms", "60000");
            alter(admin, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
            untilValue(admin, topic, "cleanup.policy", "delete,compact");
            alter(admin, topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
            untilValue(admin, topic, "cleanup.policy", "compact");
            alter(admin, topic, "retention.ms", null, AlterConfigOp.OpType.DELETE);
            untilValue(admin, topic, "retention.ms", "604800000");
            that("documented", describe(admin, topic).get("retention.ms").documentation() != null);
        }
    }

    private static void configsRefused(Bench bench) throws Exception {
        ConfigResource topic = resource(bench.topic("steady", 1));
        try (Admin admin = bench.admin()) {
            for (String[] pair : new String[][] {
                {"no.such.config", "1"}, {"retention.ms", "soon"}, {"cleanup.policy", "shred"},
                {"min.cleanable.dirty.ratio", "2"}, {"compression.type", "lzma"}}) {
                fails(String.join("=", pair), InvalidConfigurationException.class,
                        () -> alter(admin, topic, pair[0], pair[1], AlterConfigOp.OpType.SET));
            }
            fails("of a topic that is not there", UnknownTopicOrPartitionException.class, () -> alter(admin,
                    resource(bench.name("absent")), "retention.ms", "1", AlterConfigOp.OpType.SET));
            fails("describing one that is not there", UnknownTopicOrPartitionException.class,
                    () -> describe(admin, resource(bench.name("absent"))));
            long set = describe(admin, topic).entries().stream()
                    .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG).count();
            same("configs that were set after all", set, 0L);
        }
    }

    private static void brokerConfigs(Bench bench) throws Exception {
        try (Admin admin = bench.admin()) {
            String node = admin.describeCluster().controller().get().idString();
            Config config = describe(admin, new ConfigResource(ConfigResource.Type.BROKER, node));
            for (String name : List.of("log.segment.bytes", "log.retention.ms", "num.partitions", "message.max.bytes",
                    "auto.create.topics.enable", "offsets.retention.minutes", "listeners")) {
                that(name + " is described", config.get(name) != null);
            }
        }
    }

    private static void describeCluster(Bench bench) throws Exception {
        try (Admin admin = bench.admin()) {
            DescribeClusterResult cluster = admin.describeCluster();
            same("nodes", cluster.nodes().get().size(), 1);
            same("address", cluster.nodes().get().iterator().next().port(),
                    Integer.parseInt(bench.bootstrap().split(":")[1]));
            same("controller", cluster.controller().get(), cluster.nodes().get().iterator().next());
            that("cluster id", !cluster.clusterId().get().isBlank());
            that("features are described", admin.describeFeatures().featureMetadata().get() != null);
            Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(false)).names().get();
            that("internal topics are marked", !names.contains("__consumer_offsets"));
        }
    }

    private static ListOffsetsResultInfo offset(Admin admin, TopicPartition partition, OffsetSpec spec)
            throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private static void listOffsets(Bench bench) throws Exception {
        TopicPartition partition = new TopicPartition(bench.topic("listed", 1), 0);
        long base = System.currentTimeMillis() - 60_000;
        long[] ages = {0, 10, 50, 20, 30};
        try (Admin admin = bench.admin()) {
            same("latest of nothing", offset(admin, partition, OffsetSpec.latest()).offset(), 0L);
            same("largest timestamp of nothing", offset(admin, partition, OffsetSpec.maxTimestamp()).offset(), -1L);
            try (KafkaProducer<byte[], byte[]> producer = bench.producer("batch.size", 0)) {
                for (long age : ages) {
                    producer.send(new ProducerRecord<>(partition.topic(), 0, base + age, null, bytes("v")));
                }
            }
            same("earliest", offset(admin, partition, OffsetSpec.earliest()).offset(), 0L);
            same("latest", offset(admin, partition, OffsetSpec.latest()).offset(), 5L);
            ListOffsetsResultInfo largest = offset(admin, partition, OffsetSpec.maxTimestamp());
            same("largest timestamp", largest.timestamp(), base + 50);
            same("its offset", largest.offset(), 2L);
            ListOffsetsResultInfo timed = offset(admin, partition, OffsetSpec.forTimestamp(base + 15));
            same("first at or after a time", timed.offset(), 2L);
            same("its timestamp", timed.timestamp(), base + 50);
            same("after all", offset(admin, partition, OffsetSpec.forTimestamp(base + 51)).offset(), -1L);
            fails("of a partition that is not there", UnknownTopicOrPartitionException.class, () -> admin
                    .listOffsets(Map.of(new TopicPartition(bench.name("absent"), 0), OffsetSpec.latest()),
                            new org.apache.kafka.clients.admin.ListOffsetsOptions().timeoutMs(3000)).all().get());
        }
    }

    private static void deleteRecords(Bench bench) throws Exception {
        String topic = bench.topic("cut", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        bench.produce(topic, "v", 20);
        try (Admin admin = bench.admin()) {
            same("low watermark", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(7)))
                    .lowWatermarks().get(partition).get().lowWatermark(), 7L);
            same("earliest", offset(admin, partition, OffsetSpec.earliest()).offset(), 7L);
            same("first left", bench.read(topic, 1, 13).get(0).offset(), 7L);
            fails("beyond the end", OffsetOutOfRangeException.class, () -> admin
                    .deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(21))).all().get());
            // -1 means everything.
            same("all", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1)))
                    .lowWatermarks().get(partition).get().lowWatermark(), 20L);
        }
    }

    private static void describeProducers(Bench bench) throws Exception {
        String topic = bench.topic("producers", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        bench.produce(topic, "v", 10, "enable.idempotence", true, "batch.size", 0);
        try (Admin admin = bench.admin()) {
            List<ProducerState> states =
                    admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            same("producers", states.size(), 1);
            same("last sequence", states.get(0).lastSequence(), 9);
            that("a producer id", states.get(0).producerId() >= 0);
            same("no transaction", states.get(0).currentTransactionStartOffset().isPresent(), false);
        }
    }

    private static void logDirs(Bench bench) throws Exception {
        String topic = bench.topic("dirs", 2);
        bench.produce(topic, "v", 50);
        try (Admin admin = bench.admin()) {
            int node = admin.describeCluster().controller().get().id();
            Map<String, LogDirDescription> dirs =
                    admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
            List<Integer> found = new ArrayList<>();
            for (LogDirDescription dir : dirs.values()) {
                same("error", dir.error(), null);
                that("the volume's size is known", dir.totalBytes().orElse(0) > 0);
                dir.replicaInfos().forEach((partition, info) -> {
                    if (partition.topic().equals(topic)) {
                        found.add(partition.partition());
                        that("size of " + partition, info.size() > 0);
                    }
                });
            }
            same("partitions", Set.copyOf(found), Set.of(0, 1));
            TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, node);
            that("the replica's directory", dirs.containsKey(
                    admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir()));
        }
    }

    private static void electLeaders(Bench bench) throws Exception {
        TopicPartition partition = new TopicPartition(bench.topic("elected", 1), 0);
        TopicPartition absent = new TopicPartition(bench.name("absent"), 0);
        try (Admin admin = bench.admin()) {
            for (ElectionType kind : ElectionType.values()) {
                Map<TopicPartition, Optional<Throwable>> results =
                        admin.electLeaders(kind, Set.of(partition, absent)).partitions().get();
                same("nothing to elect", results.get(partition).map(Object::getClass),
                        Optional.of(ElectionNotNeededException.class));
                same("nothing to elect for", results.get(absent).map(Object::getClass),
                        Optional.of(UnknownTopicOrPartitionException.class));
            }
        }
    }
}
