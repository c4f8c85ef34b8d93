package riverrun.clients;

import static riverrun.clients.Bench.bytes;
import static riverrun.clients.Bench.same;
import static riverrun.clients.Bench.that;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Features that Riverrun lacks: they work on Kafka; on Riverrun the library reports them as unsupported, at once. */
final class UnsupportedCases {
    private static final long AT_ONCE_MS = 5000;

    private UnsupportedCases() {}

    static void addTo(Main.Cases cases) {
        cases.add("transactions", UnsupportedCases::transactions);
        cases.add("share-group", UnsupportedCases::shareGroup);
        cases.add("access-lists", UnsupportedCases::accessLists);
    }

    private static void refusedAtOnce(String what, Class<? extends KafkaException> expected, Bench.Call call) {
        long begun = System.nanoTime();
        KafkaException refusal = Bench.fails(what, expected, call);
        System.out.println(refusal);
        that(what + " does not merely time out", !(refusal instanceof TimeoutException));
        that(what + " is refused at once", (System.nanoTime() - begun) / 1_000_000 < AT_ONCE_MS);
    }

    private static void transactions(Bench bench) throws Exception {
        String topic = bench.topic("transactions", 1);
        try (KafkaProducer<byte[], byte[]> producer = bench.producer("transactional.id", bench.name("tx"))) {
            if (!bench.isKafka()) {
                // The lookup of the coordinator comes first and is refused.
                refusedAtOnce("a transactional producer", KafkaException.class, producer::initTransactions);
                return;
            }
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, bytes("dropped")));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, bytes("kept")));
            producer.commitTransaction();
        }
        same("committed", Bench.text(bench.read(topic, 1, 1, "isolation.level", "read_committed").get(0).value()),
                "kept");
    }

    private static void shareGroup(Bench bench) throws Exception {
        String topic = bench.topic("shared", 1);
        String group = bench.name("shared");
        bench.produce(topic, "v", 10);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(bench.settings("group.id", group),
                new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            if (!bench.isKafka()) {
                refusedAtOnce("a share group", UnsupportedVersionException.class, () -> {
                    while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {
                        Thread.sleep(10);
                    }
                });
                return;
            }
            try (Admin admin = bench.admin()) {
                admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(
                        new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"),
                                AlterConfigOp.OpType.SET)))).all().get();
            }
            int[] got = {0};
            Bench.until("shared records", () -> (got[0] += consumer.poll(Duration.ofMillis(200)).count()) >= 10,
                    () -> got[0]);
        }
    }

    private static void accessLists(Bench bench) throws Exception {
        try (Admin admin = bench.admin()) {
            // The Kafka that we start has no authorizer either.
            Bench.fails("access lists", SecurityDisabledException.class,
                    () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        }
    }
}
