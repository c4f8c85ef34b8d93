package riverrun.clients;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Shared by all cases: clients of the server under test, unique names, and checks that show both values. */
final class Bench {
    static final Duration PATIENCE = Duration.ofSeconds(40);

    private final String bootstrap;
    private final boolean kafka;
    private final String suffix = Long.toHexString(ThreadLocalRandom.current().nextLong() & 0xffffffffL);
    private final AtomicInteger namesGiven = new AtomicInteger();

    Bench(String bootstrap, String server) {
        this.bootstrap = bootstrap;
        this.kafka = server.equals("kafka");
    }

    /** Whether the server is Kafka itself, for the few cases with another right outcome there. */
    boolean isKafka() {
        return kafka;
    }

    String bootstrap() {
        return bootstrap;
    }

    String name(String what) {
        return "java-" + what + "-" + suffix + "-" + namesGiven.getAndIncrement();
    }

    /** Settings as name, value, name, value. */
    Map<String, Object> settings(Object... pairs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < pairs.length; at += 2) {
            settings.put((String) pairs[at], pairs[at + 1]);
        }
        return settings;
    }

    KafkaProducer<byte[], byte[]> producer(Object... pairs) {
        return new KafkaProducer<>(settings(pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(Object... pairs) {
        Map<String, Object> settings = new HashMap<>(Map.of("auto.offset.reset", "earliest"));
        settings.putAll(settings(pairs));
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    Admin admin() {
        return Admin.create(settings());
    }

    /** Creates a topic with configs given as name, value, name, value, and returns its name. */
    String topic(String what, int partitions, String... configs) throws Exception {
        String topic = name(what);
        Map<String, String> map = new HashMap<>();
        for (int at = 0; at < configs.length; at += 2) {
            map.put(configs[at], configs[at + 1]);
        }
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(map))).all().get();
            eventually(() -> admin.describeTopics(List.of(topic)).allTopicNames().get());
        }
        return topic;
    }

    /** Produces values {@code PREFIX0}, {@code PREFIX1}, ... spread over partitions by key, and waits for all. */
    void produce(String topic, String prefix, int count, Object... pairs) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(pairs)) {
            for (int n = 0; n < count; n++) {
                sent.add(producer.send(new ProducerRecord<>(topic, bytes("key-" + n % 97), bytes(prefix + n))));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    /** Reads partitions from their beginning until {@code count} records have come. */
    List<ConsumerRecord<byte[], byte[]>> read(String topic, int partitions, int count, Object... pairs) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(pairs)) {
            consumer.assign(partitionsOf(topic, partitions));
            consumer.seekToBeginning(consumer.assignment());
            return poll(consumer, count);
        }
    }

    /** Polls until {@code count} records have come; fewer, or more, is a failure. */
    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        same("records read", records.size(), count);
        return records;
    }

    static List<TopicPartition> partitionsOf(String topic, int partitions) {
        List<TopicPartition> all = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            all.add(new TopicPartition(topic, index));
        }
        return all;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    static void that(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError("does not hold: " + what);
        }
    }

    static void same(String what, Object found, Object expected) {
        boolean equal = found instanceof byte[] left && expected instanceof byte[] right
                ? Arrays.equals(left, right)
                : java.util.Objects.equals(found, expected);
        if (!equal) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }

    /** Waits until a condition holds; {@code state} is shown if it never does. */
    static void until(String what, Supplier<Boolean> holds, Supplier<Object> state) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!holds.get()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("never came true: " + what + "; last seen " + state.get());
            }
            Thread.sleep(20);
        }
    }

    /** A call to a client that must be refused, or is repeated until it succeeds. */
    interface Call {
        void run() throws Exception;
    }

    /**
     * Repeats a call until it passes. Kafka's controller answers a change before the node that is asked next has
     * heard of it, so reading it back has to allow for a moment.
     */
    static void eventually(Call call) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        while (true) {
            try {
                call.run();
                return;
            } catch (ExecutionException | AssertionError notYet) {
                if (System.nanoTime() > deadline) {
                    throw notYet;
                }
                Thread.sleep(20);
            }
        }
    }

    /** Runs a call that has to fail with an exception of this class, bare or as a future's cause. */
    static <T extends Throwable> T fails(String what, Class<T> expected, Call call) {
        Throwable thrown;
        try {
            call.run();
            throw new AssertionError(what + ": succeeded, expected " + expected.getSimpleName());
        } catch (ExecutionException wrapped) {
            thrown = wrapped.getCause();
        } catch (Exception bare) {
            thrown = bare;
        }
        if (!expected.isInstance(thrown)) {
            throw new AssertionError(what + ": expected " + expected.getSimpleName() + ", found " + thrown, thrown);
        }
        return expected.cast(thrown);
    }
}
