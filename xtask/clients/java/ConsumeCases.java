package riverrun.clients;

import static riverrun.clients.Bench.bytes;
import static riverrun.clients.Bench.fails;
import static riverrun.clients.Bench.partitionsOf;
import static riverrun.clients.Bench.same;
import static riverrun.clients.Bench.text;
import static riverrun.clients.Bench.that;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Consuming without a group: positions, times, waiting. */
final class ConsumeCases {
    private ConsumeCases() {}

    static void addTo(Main.Cases cases) {
        cases.add("seek-and-ends", ConsumeCases::seekAndEnds);
        cases.add("offsets-for-times", ConsumeCases::offsetsForTimes);
        cases.add("reset-by-duration", ConsumeCases::resetByDuration);
        cases.add("out-of-range", ConsumeCases::outOfRange);
        cases.add("pause-and-resume", ConsumeCases::pauseAndResume);
        cases.add("read-committed", ConsumeCases::readCommitted);
        cases.add("many-partitions", ConsumeCases::manyPartitions);
        cases.add("long-poll", ConsumeCases::longPoll);
    }

    private static void seekAndEnds(Bench bench) throws Exception {
        String topic = bench.topic("seek", 2);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition empty = new TopicPartition(topic, 1);
        sendTo(bench, first, 100);
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer()) {
            List<TopicPartition> both = List.of(first, empty);
            same("partitions", consumer.partitionsFor(topic).size(), 2);
            same("listed", consumer.listTopics().get(topic).size(), 2);
            same("beginning", consumer.beginningOffsets(both), Map.of(first, 0L, empty, 0L));
            same("end", consumer.endOffsets(both), Map.of(first, 100L, empty, 0L));
            consumer.assign(both);
            consumer.seek(first, 40);
            same("after a seek", text(Bench.poll(consumer, 60).get(0).value()), "v40");
            same("position", consumer.position(first), 100L);
            consumer.seekToBeginning(List.of(first));
            same("after rewinding", Bench.poll(consumer, 100).get(0).offset(), 0L);
            consumer.seekToEnd(both);
            same("position at the end", consumer.position(first), 100L);
            that("nothing at the end", consumer.poll(Duration.ofMillis(300)).isEmpty());
        }
    }

    private static void offsetsForTimes(Bench bench) throws Exception {
        String topic = bench.topic("times", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long base = System.currentTimeMillis() - 100_000;
        try (KafkaProducer<byte[], byte[]> producer = bench.producer("batch.size", 500)) {
            for (int n = 0; n < 100; n++) {
                producer.send(new ProducerRecord<>(topic, 0, base + n * 10L, null, bytes("v" + n)));
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer()) {
            for (int n = 1; n < 100; n += 7) {
                OffsetAndTimestamp exact = consumer.offsetsForTimes(Map.of(partition, base + n * 10L)).get(partition);
                same("offset of an exact time", exact.offset(), (long) n);
                same("its timestamp", exact.timestamp(), base + n * 10L);
                OffsetAndTimestamp between =
                        consumer.offsetsForTimes(Map.of(partition, base + n * 10L - 5)).get(partition);
                same("offset of a time between two", between.offset(), (long) n);
            }
            same("before all", consumer.offsetsForTimes(Map.of(partition, 0L)).get(partition).offset(), 0L);
            same("after all", consumer.offsetsForTimes(Map.of(partition, base + 1_000_000)).get(partition), null);
        }
    }

    /** {@code auto.offset.reset=by_duration} begins at the offset of a time in the past. */
    private static void resetByDuration(Bench bench) throws Exception {
        String topic = bench.topic("by-duration", 1);
        long now = System.currentTimeMillis();
        try (KafkaProducer<byte[], byte[]> producer = bench.producer()) {
            producer.send(new ProducerRecord<>(topic, 0, now - 7_200_000, null, bytes("two hours old")));
            producer.send(new ProducerRecord<>(topic, 0, now - 60_000, null, bytes("a minute old")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(
                "group.id", bench.name("by-duration"), "auto.offset.reset", "by_duration:PT1H")) {
            consumer.assign(partitionsOf(topic, 1));
            same("first read", text(Bench.poll(consumer, 1).get(0).value()), "a minute old");
        }
    }

    private static void outOfRange(Bench bench) throws Exception {
        String topic = bench.topic("range", 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        sendTo(bench, partition, 20);
        try (Admin admin = bench.admin()) {
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(12))).all().get();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer("auto.offset.reset", "earliest")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 3);
            same("earliest left", Bench.poll(consumer, 8).get(0).offset(), 12L);
        }
        Object[] none = {"auto.offset.reset", "none", "group.id", bench.name("none")};
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(none)) {
            consumer.assign(List.of(partition));
            fails("no committed offset", NoOffsetForPartitionException.class,
                    () -> consumer.poll(Duration.ofSeconds(20)));
            consumer.seek(partition, 500);
            fails("beyond the end", OffsetOutOfRangeException.class, () -> {
                while (consumer.poll(Duration.ofSeconds(20)).isEmpty()) {
                    Thread.sleep(10);
                }
            });
        }
    }

    private static void pauseAndResume(Bench bench) throws Exception {
        String topic = bench.topic("pause", 2);
        TopicPartition paused = new TopicPartition(topic, 0);
        TopicPartition flowing = new TopicPartition(topic, 1);
        sendTo(bench, paused, 50);
        sendTo(bench, flowing, 50);
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer()) {
            consumer.assign(List.of(paused, flowing));
            consumer.pause(List.of(paused));
            for (ConsumerRecord<byte[], byte[]> record : Bench.poll(consumer, 50)) {
                same("partition while the other is paused", record.partition(), 1);
            }
            that("paused stays silent", consumer.poll(Duration.ofMillis(300)).isEmpty());
            consumer.resume(List.of(paused));
            same("first after resuming", Bench.poll(consumer, 50).get(0).offset(), 0L);
        }
    }

    private static void readCommitted(Bench bench) throws Exception {
        String topic = bench.topic("committed", 1);
        sendTo(bench, new TopicPartition(topic, 0), 30);
        Object[] isolation = {"isolation.level", "read_committed"};
        same("records", bench.read(topic, 1, 30, isolation).size(), 30);
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(isolation)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            same("last stable offset", consumer.endOffsets(List.of(partition)), Map.of(partition, 30L));
        }
    }

    /** A fetch session over many partitions, of which few change from one fetch to the next. */
    private static void manyPartitions(Bench bench) throws Exception {
        int count = 200;
        String topic = bench.topic("many", count);
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer();
                KafkaProducer<byte[], byte[]> producer = bench.producer()) {
            List<TopicPartition> all = partitionsOf(topic, count);
            consumer.assign(all);
            for (int round = 0; round < 10; round++) {
                Set<Integer> touched = new HashSet<>();
                for (int n = 0; n < 5; n++) {
                    int index = (round * 37 + n * 11) % count;
                    touched.add(index);
                    producer.send(new ProducerRecord<>(topic, index, null, bytes("v")));
                }
                producer.flush();
                Set<Integer> seen = new HashSet<>();
                Bench.poll(consumer, touched.size()).forEach(record -> seen.add(record.partition()));
                same("partitions of round " + round, seen, touched);
                // Dropping and adding a partition changes the session rather than starting a new one.
                consumer.assign(round % 2 == 0 ? all.subList(0, count - 1) : all);
            }
        }
    }

    /** A waiting consumer sees a record soon after it is produced, though it would wait three seconds without one. */
    private static void longPoll(Bench bench) throws Exception {
        String topic = bench.topic("long-poll", 1);
        List<Long> waits = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer("fetch.max.wait.ms", 3000);
                KafkaProducer<byte[], byte[]> producer = bench.producer("linger.ms", 0)) {
            consumer.assign(partitionsOf(topic, 1));
            producer.send(new ProducerRecord<>(topic, bytes("first"))).get();
            Bench.poll(consumer, 1);
            for (int n = 0; n < 11; n++) {
                // Long enough for the fetch to be waiting at the server.
                consumer.poll(Duration.ofMillis(60));
                long begun = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, bytes("v" + n)));
                ConsumerRecords<byte[], byte[]> got = consumer.poll(Duration.ofSeconds(5));
                same("records", got.count(), 1);
                waits.add((System.nanoTime() - begun) / 1_000_000);
            }
        }
        Collections.sort(waits);
        System.out.println("waits in ms: " + waits);
        // The median: on a busy machine one of them may be late for reasons that are not the server's.
        that("half of the waits are below 200 ms", waits.get(waits.size() / 2) < 200);
    }

    private static void sendTo(Bench bench, TopicPartition partition, int count) {
        try (KafkaProducer<byte[], byte[]> producer = bench.producer()) {
            for (int n = 0; n < count; n++) {
                producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), null, bytes("v" + n)));
            }
        }
    }
}
