package riverrun.clients;

import static riverrun.clients.Bench.bytes;
import static riverrun.clients.Bench.fails;
import static riverrun.clients.Bench.same;
import static riverrun.clients.Bench.text;
import static riverrun.clients.Bench.that;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;

/** Producing: records come out unchanged, and faulty requests are refused by name. */
final class ProduceCases {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private ProduceCases() {}

    static void addTo(Main.Cases cases) {
        cases.add("codecs", ProduceCases::codecs);
        cases.add("topic-compression", ProduceCases::topicCompression);
        cases.add("idempotence", ProduceCases::idempotence);
        cases.add("acks", ProduceCases::acks);
        cases.add("headers-and-nulls", ProduceCases::headersAndNulls);
        cases.add("timestamps", ProduceCases::timestamps);
        cases.add("log-append-time", ProduceCases::logAppendTime);
        cases.add("large-records", ProduceCases::largeRecords);
        cases.add("too-large", ProduceCases::tooLarge);
        cases.add("compacted-needs-keys", ProduceCases::compactedNeedsKeys);
        cases.add("auto-create", ProduceCases::autoCreate);
    }

    /** Each codec into one partition after the other, with several batches each. */
    private static void codecs(Bench bench) throws Exception {
        String topic = bench.topic("codecs", 1);
        for (String codec : CODECS) {
            bench.produce(topic, codec + "-", 1000, "compression.type", codec, "batch.size", 4096, "linger.ms", 5);
        }
        List<ConsumerRecord<byte[], byte[]>> records = bench.read(topic, 1, CODECS.size() * 1000);
        for (int at = 0; at < records.size(); at++) {
            same("offset", records.get(at).offset(), (long) at);
            same("value", text(records.get(at).value()), CODECS.get(at / 1000) + "-" + at % 1000);
        }
    }

    /** The topic's codec wins over the producer's; consumers see the same records. */
    private static void topicCompression(Bench bench) throws Exception {
        for (String codec : List.of("uncompressed", "gzip", "snappy", "lz4", "zstd")) {
            String topic = bench.topic("recompress", 1, "compression.type", codec);
            bench.produce(topic, "plain-", 200, "compression.type", "none");
            bench.produce(topic, "lz4-", 200, "compression.type", "lz4");
            List<ConsumerRecord<byte[], byte[]>> records = bench.read(topic, 1, 400);
            for (int at = 0; at < records.size(); at++) {
                String expected = (at < 200 ? "plain-" : "lz4-") + at % 200;
                same("value under " + codec, text(records.get(at).value()), expected);
            }
        }
    }

    /** Five small batches in flight to each of several partitions: nothing lost, doubled or out of order. */
    private static void idempotence(Bench bench) throws Exception {
        String topic = bench.topic("idempotence", 3);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = bench.producer(
                "enable.idempotence", true, "batch.size", 200, "linger.ms", 0,
                "max.in.flight.requests.per.connection", 5)) {
            for (int n = 0; n < 6000; n++) {
                sent.add(producer.send(new ProducerRecord<>(topic, n % 3, null, bytes("" + n))));
            }
        }
        for (int n = 0; n < sent.size(); n++) {
            same("acknowledged offset", sent.get(n).get().offset(), (long) (n / 3));
        }
        for (ConsumerRecord<byte[], byte[]> record : bench.read(topic, 3, 6000)) {
            same("order", text(record.value()), "" + (record.offset() * 3 + record.partition()));
        }
    }

    private static void acks(Bench bench) throws Exception {
        String topic = bench.topic("acks", 1);
        for (String acks : List.of("0", "1", "all")) {
            bench.produce(topic, acks + "-", 100, "acks", acks, "enable.idempotence", false);
        }
        List<ConsumerRecord<byte[], byte[]>> records = bench.read(topic, 1, 300);
        same("first", text(records.get(0).value()), "0-0");
        same("last", text(records.get(299).value()), "all-99");
    }

    private static void headersAndNulls(Bench bench) throws Exception {
        String topic = bench.topic("headers", 1);
        try (KafkaProducer<byte[], byte[]> producer = bench.producer("compression.type", "zstd")) {
            ProducerRecord<byte[], byte[]> full = new ProducerRecord<>(topic, bytes("k"), bytes("v"));
            full.headers().add("a", bytes("1")).add("a", bytes("2")).add("none", null).add("empty", new byte[0]);
            producer.send(full);
            producer.send(new ProducerRecord<>(topic, null, bytes("v")));
            producer.send(new ProducerRecord<>(topic, bytes("k"), null));
            producer.send(new ProducerRecord<>(topic, null, null));
            producer.send(new ProducerRecord<>(topic, new byte[0], new byte[0])).get();
        }
        List<ConsumerRecord<byte[], byte[]>> records = bench.read(topic, 1, 5);
        List<String> headers = new ArrayList<>();
        for (Header header : records.get(0).headers()) {
            headers.add(header.key() + "=" + text(header.value()));
        }
        same("headers", headers, List.of("a=1", "a=2", "none=null", "empty="));
        List<String> pairs = new ArrayList<>();
        records.forEach(record -> pairs.add(text(record.key()) + ":" + text(record.value())));
        same("keys and values", pairs, List.of("k:v", "null:v", "k:null", "null:null", ":"));
    }

    private static void timestamps(Bench bench) throws Exception {
        String topic = bench.topic("timestamps", 1);
        long now = System.currentTimeMillis();
        long[] given = {now - 5000, now - 10_000, 0, now};
        try (KafkaProducer<byte[], byte[]> producer = bench.producer("linger.ms", 50)) {
            for (long timestamp : given) {
                producer.send(new ProducerRecord<>(topic, 0, timestamp, null, bytes("" + timestamp)));
            }
            producer.flush();
            long tooFar = now + 2L * 24 * 3600 * 1000;
            fails("two days ahead", InvalidTimestampException.class,
                    () -> producer.send(new ProducerRecord<>(topic, 0, tooFar, null, bytes("x"))).get());
        }
        for (ConsumerRecord<byte[], byte[]> record : bench.read(topic, 1, given.length)) {
            same("timestamp", "" + record.timestamp(), text(record.value()));
            same("kind", record.timestampType(), TimestampType.CREATE_TIME);
        }
    }

    private static void logAppendTime(Bench bench) throws Exception {
        String topic = bench.topic("append-time", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis() - 1000;
        long acknowledged;
        try (KafkaProducer<byte[], byte[]> producer = bench.producer()) {
            acknowledged = producer.send(new ProducerRecord<>(topic, 0, 1000L, null, bytes("old"))).get().timestamp();
        }
        ConsumerRecord<byte[], byte[]> record = bench.read(topic, 1, 1).get(0);
        same("kind", record.timestampType(), TimestampType.LOG_APPEND_TIME);
        same("the producer was told", acknowledged, record.timestamp());
        that("the time of arrival stands in the record", record.timestamp() >= before);
    }

    private static void largeRecords(Bench bench) throws Exception {
        String topic = bench.topic("large", 2);
        byte[] noise = new byte[900 * 1024];
        ThreadLocalRandom.current().nextBytes(noise);
        try (KafkaProducer<byte[], byte[]> producer = bench.producer("buffer.memory", 64L << 20)) {
            for (int n = 0; n < 20; n++) {
                producer.send(new ProducerRecord<>(topic, n % 2, null, noise));
            }
        }
        // A consumer whose limits are far below one record must still get one at a time.
        Object[] small = {"max.partition.fetch.bytes", 1000, "fetch.max.bytes", 1000};
        for (ConsumerRecord<byte[], byte[]> record : bench.read(topic, 2, 20, small)) {
            same("value", record.value(), noise);
        }
    }

    private static void tooLarge(Bench bench) throws Exception {
        String topic = bench.topic("too-large", 1, "max.message.bytes", "20000");
        Object[] settings = {"max.request.size", 8 << 20, "buffer.memory", 64L << 20};
        try (KafkaProducer<byte[], byte[]> producer = bench.producer(settings)) {
            fails("above the topic's limit", RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, new byte[30_000])).get());
            same("the next one is taken", producer.send(new ProducerRecord<>(topic, bytes("x"))).get().offset(), 0L);
        }
        try (KafkaProducer<byte[], byte[]> producer = bench.producer()) {
            fails("above the client's own limit", RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, new byte[2 << 20])).get());
        }
    }

    private static void compactedNeedsKeys(Bench bench) throws Exception {
        String topic = bench.topic("compacted", 1, "cleanup.policy", "compact");
        try (KafkaProducer<byte[], byte[]> producer = bench.producer()) {
            fails("no key", InvalidRecordException.class,
                    () -> producer.send(new ProducerRecord<>(topic, null, bytes("v"))).get());
            producer.send(new ProducerRecord<>(topic, bytes("k"), bytes("v"))).get();
        }
    }

    private static void autoCreate(Bench bench) throws Exception {
        String topic = bench.name("made-by-producing");
        bench.produce(topic, "v", 10);
        same("first", text(bench.read(topic, 1, 10).get(0).value()), "v0");
    }
}
