package riverrun.clients;

import static riverrun.clients.Bench.partitionsOf;
import static riverrun.clients.Bench.same;
import static riverrun.clients.Bench.text;
import static riverrun.clients.Bench.that;
import static riverrun.clients.Bench.until;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;

/** Groups of both protocols: members come and go, every record is seen once, and commits outlive the members. */
final class GroupCases {
    private static final int PARTITIONS = 6;

    private GroupCases() {}

    static void addTo(Main.Cases cases) {
        cases.add("group-range", bench -> lifecycle(bench, classic(RangeAssignor.class)));
        cases.add("group-round-robin", bench -> lifecycle(bench, classic(RoundRobinAssignor.class)));
        cases.add("group-sticky", bench -> lifecycle(bench, classic(StickyAssignor.class)));
        cases.add("group-cooperative", bench -> lifecycle(bench, classic(CooperativeStickyAssignor.class)));
        cases.add("group-cooperative-keeps", GroupCases::cooperativeKeeps);
        cases.add("group-consumer-uniform", bench -> lifecycle(bench, modern("uniform")));
        cases.add("group-consumer-range", bench -> lifecycle(bench, modern("range")));
        cases.add("group-static", GroupCases::staticMember);
        cases.add("group-static-fenced", GroupCases::staticFenced);
        cases.add("group-consumer-static", GroupCases::consumerStatic);
        cases.add("group-pattern", GroupCases::pattern);
        cases.add("group-consumer-regex", GroupCases::consumerRegex);
        cases.add("group-new-partitions", GroupCases::newPartitions);
        cases.add("group-commits", GroupCases::commits);
        cases.add("group-auto-commit", GroupCases::autoCommit);
        cases.add("group-protocol-switch", GroupCases::protocolSwitch);
        cases.add("group-protocols-together", GroupCases::protocolsTogether);
    }

    static Object[] classic(Class<?> assignor) {
        return new Object[] {
            "group.protocol", "classic", "partition.assignment.strategy", assignor.getName(),
            "heartbeat.interval.ms", 300, "session.timeout.ms", 10_000, "enable.auto.commit", false,
        };
    }

    static Object[] modern(String assignor) {
        return new Object[] {
            "group.protocol", "consumer", "group.remote.assignor", assignor, "enable.auto.commit", false,
        };
    }

    static Object[] with(Object[] settings, Object... more) {
        List<Object> all = new ArrayList<>(List.of(settings));
        all.addAll(List.of(more));
        return all.toArray();
    }

    private static Member member(Bench bench, String topic, List<String> seen, Object... settings) {
        return new Member(bench.consumer(settings), seen,
                (consumer, listener) -> consumer.subscribe(List.of(topic), listener));
    }

    /** One, two, three members, then two again, with records in each state; then a new member resumes. */
    private static void lifecycle(Bench bench, Object[] protocol) throws Exception {
        String topic = bench.topic("life", PARTITIONS);
        Object[] settings = with(protocol, "group.id", bench.name("life"));
        List<String> seen = new CopyOnWriteArrayList<>();
        List<Member> members = new ArrayList<>();
        bench.produce(topic, "a", 300);
        for (String prefix : List.of("b", "c", "d")) {
            members.add(member(bench, topic, seen, settings));
            Member.untilEven(PARTITIONS, members.toArray(new Member[0]));
            bench.produce(topic, prefix, 300);
        }
        untilSeen(seen, 1200);
        members.remove(0).close();
        Member.untilEven(PARTITIONS, members.toArray(new Member[0]));
        bench.produce(topic, "e", 300);
        untilSeen(seen, 1500);
        Member.closeAll(members);
        Set<String> expected = new HashSet<>();
        for (String prefix : List.of("a", "b", "c", "d", "e")) {
            for (int n = 0; n < 300; n++) {
                expected.add(prefix + n);
            }
        }
        same("distinct values", new HashSet<>(seen), expected);
        same("values in all: each once", seen.size(), expected.size());
        bench.produce(topic, "late", 10);
        try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(settings)) {
            consumer.subscribe(List.of(topic));
            for (ConsumerRecord<byte[], byte[]> record : Bench.poll(consumer, 10)) {
                that("a resumed group reads only what is new", text(record.value()).startsWith("late"));
            }
        }
    }

    private static void untilSeen(List<String> seen, int count) throws InterruptedException {
        until(count + " records seen", () -> seen.size() >= count, seen::size);
    }

    /** The point of the cooperative protocol: partitions that a member keeps are never revoked. */
    private static void cooperativeKeeps(Bench bench) throws Exception {
        String topic = bench.topic("keeps", PARTITIONS);
        Object[] settings = with(classic(CooperativeStickyAssignor.class), "group.id", bench.name("keeps"));
        List<String> seen = new CopyOnWriteArrayList<>();
        try (Member first = member(bench, topic, seen, settings)) {
            Member.untilEven(PARTITIONS, first);
            try (Member second = member(bench, topic, seen, settings)) {
                Member.untilEven(PARTITIONS, first, second);
                same("partitions taken from the first member", first.revoked(), PARTITIONS / 2);
            }
        }
    }

    /** A static member that returns within its session gets its partitions back, without a rebalance of others. */
    private static void staticMember(Bench bench) throws Exception {
        String topic = bench.topic("static", PARTITIONS);
        Object[] settings = with(classic(RangeAssignor.class), "group.id", bench.name("static"));
        List<String> seen = new CopyOnWriteArrayList<>();
        try (Member other = member(bench, topic, seen, with(settings, "group.instance.id", "other"))) {
            Member before = member(bench, topic, seen, with(settings, "group.instance.id", "one"));
            Member.untilEven(PARTITIONS, other, before);
            Set<TopicPartition> had = before.owned();
            int rebalances = other.rebalances();
            before.close();
            try (Member after = member(bench, topic, seen, with(settings, "group.instance.id", "one"))) {
                until("the partitions come back", () -> after.owned().equals(had), after::owned);
                same("rebalances that the other member saw", other.rebalances(), rebalances);
            }
        }
    }

    /** Of two members with one instance id, the classic protocol fences the older. */
    private static void staticFenced(Bench bench) throws Exception {
        String topic = bench.topic("fenced", 1);
        Object[] settings =
                with(classic(RangeAssignor.class), "group.id", bench.name("fenced"), "group.instance.id", "same");
        List<String> seen = new CopyOnWriteArrayList<>();
        Member older = member(bench, topic, seen, settings);
        Member.untilEven(1, older);
        try (Member newer = member(bench, topic, seen, settings)) {
            Member.untilEven(1, newer);
            until("the older is fenced", () -> older.failure() != null, older::owned);
            Bench.fails("the older", FencedInstanceIdException.class, older::close);
        }
    }

    /** The consumer protocol keeps a static member's place while it is away, and refuses a second of its name. */
    private static void consumerStatic(Bench bench) throws Exception {
        String topic = bench.topic("consumer-static", PARTITIONS);
        Object[] settings =
                with(modern("uniform"), "group.id", bench.name("consumer-static"), "group.instance.id", "same");
        List<String> seen = new CopyOnWriteArrayList<>();
        Member older = member(bench, topic, seen, settings);
        Member.untilEven(PARTITIONS, older);
        Member newer = member(bench, topic, seen, settings);
        until("the newer is refused", () -> newer.failure() != null, newer::owned);
        Bench.fails("the newer", UnreleasedInstanceIdException.class, newer::close);
        older.close();
        try (Member back = member(bench, topic, seen, settings)) {
            Member.untilEven(PARTITIONS, back);
        }
    }

    /** The classic client's pattern: it looks for topics itself and finds one that is created later. */
    private static void pattern(Bench bench) throws Exception {
        String prefix = bench.name("pattern");
        List<String> seen = new CopyOnWriteArrayList<>();
        bench.produce(prefix + "-a", "a", 10);
        Object[] settings = with(classic(RangeAssignor.class), "group.id", prefix, "metadata.max.age.ms", 500);
        try (Member member = new Member(bench.consumer(settings), seen,
                (consumer, listener) -> consumer.subscribe(Pattern.compile(prefix + "-.*"), listener))) {
            untilSeen(seen, 10);
            bench.produce(prefix + "-b", "b", 10);
            untilSeen(seen, 20);
            same("topics", member.owned().size(), 2);
        }
    }

    /** The consumer protocol's regex: the server looks for topics. */
    private static void consumerRegex(Bench bench) throws Exception {
        String prefix = bench.name("regex");
        List<String> seen = new CopyOnWriteArrayList<>();
        bench.produce(prefix + "-a", "a", 10);
        bench.produce(prefix + "-b", "b", 10);
        bench.produce("other-" + prefix, "other", 10);
        SubscriptionPattern regex = new SubscriptionPattern(prefix + "-[a-z]");
        try (Member member = new Member(bench.consumer(with(modern("uniform"), "group.id", prefix)), seen,
                (consumer, listener) -> consumer.subscribe(regex, listener))) {
            untilSeen(seen, 20);
            same("topics", member.owned().size(), 2);
            bench.produce(prefix + "-c", "c", 10);
            untilSeen(seen, 30);
        }
        that("only matching topics were read", seen.stream().noneMatch(value -> value.startsWith("other")));
    }

    /** Added partitions are assigned, under both protocols. */
    private static void newPartitions(Bench bench) throws Exception {
        for (Object[] protocol : List.of(classic(RangeAssignor.class), modern("uniform"))) {
            String topic = bench.topic("grows", 2);
            Object[] settings = with(protocol, "group.id", bench.name("grows"), "metadata.max.age.ms", 500);
            try (Member member = member(bench, topic, new CopyOnWriteArrayList<>(), settings);
                    Admin admin = bench.admin()) {
                Member.untilEven(2, member);
                admin.createPartitions(Map.of(topic, org.apache.kafka.clients.admin.NewPartitions.increaseTo(5)))
                        .all().get();
                Member.untilEven(5, member);
            }
        }
    }

    /** Commits by hand: with metadata, asynchronously, read back, and by a consumer that assigns itself. */
    private static void commits(Bench bench) throws Exception {
        String topic = bench.topic("commits", 2);
        List<TopicPartition> both = partitionsOf(topic, 2);
        for (String protocol : List.of("classic", "consumer")) {
            String group = bench.name("commits");
            Object[] settings = {"group.id", group, "group.protocol", protocol, "enable.auto.commit", false};
            try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(settings)) {
                consumer.assign(both);
                same("before any", consumer.committed(new HashSet<>(both)).get(both.get(0)), null);
                consumer.commitSync(Map.of(both.get(0), new OffsetAndMetadata(3, "noted")));
                List<String> answers = Collections.synchronizedList(new ArrayList<>());
                consumer.commitAsync(Map.of(both.get(1), new OffsetAndMetadata(5)),
                        (offsets, error) -> answers.add(error == null ? "committed" : error.toString()));
                until("the asynchronous commit answers", () -> {
                    consumer.poll(Duration.ofMillis(50));
                    return !answers.isEmpty();
                }, () -> answers);
                same("the asynchronous commit", answers, List.of("committed"));
            }
            try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(settings)) {
                Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new HashSet<>(both));
                same("offset", found.get(both.get(0)).offset(), 3L);
                same("metadata", found.get(both.get(0)).metadata(), "noted");
                same("offset of the other", found.get(both.get(1)).offset(), 5L);
            }
        }
    }

    private static void autoCommit(Bench bench) throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String topic = bench.topic("auto-commit", 1);
            bench.produce(topic, "v", 25);
            Object[] settings = {"group.id", bench.name("auto-commit"), "group.protocol", protocol};
            try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(settings)) {
                consumer.subscribe(List.of(topic));
                Bench.poll(consumer, 25);
            }
            bench.produce(topic, "late", 1);
            try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(settings)) {
                consumer.subscribe(List.of(topic));
                same("the only new one", text(Bench.poll(consumer, 1).get(0).value()), "late0");
            }
        }
    }

    /** A group whose members have left changes its protocol and keeps its offsets, in both directions. */
    private static void protocolSwitch(Bench bench) throws Exception {
        String topic = bench.topic("switch", 1);
        String group = bench.name("switch");
        int round = 0;
        for (String protocol : List.of("classic", "consumer", "classic")) {
            bench.produce(topic, "round" + round + "-", 10);
            Object[] settings = {"group.id", group, "group.protocol", protocol};
            try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer(settings)) {
                consumer.subscribe(List.of(topic));
                for (ConsumerRecord<byte[], byte[]> record : Bench.poll(consumer, 10)) {
                    that(protocol + " resumes", text(record.value()).startsWith("round" + round + "-"));
                }
            }
            round++;
        }
    }

    /**
     * A classic client knocks at a group whose live member speaks the consumer protocol. Whether it is let in (Kafka
     * does) or refused by name, the group goes on and no record is lost.
     */
    private static void protocolsTogether(Bench bench) throws Exception {
        String topic = bench.topic("together", PARTITIONS);
        String group = bench.name("together");
        List<String> seen = new CopyOnWriteArrayList<>();
        try (Member modern = member(bench, topic, seen, with(modern("range"), "group.id", group))) {
            Member.untilEven(PARTITIONS, modern);
            Member classic = member(bench, topic, seen, with(classic(RangeAssignor.class), "group.id", group));
            until("the classic member is let in or refused",
                    () -> classic.failure() != null || !classic.owned().isEmpty(), classic::owned);
            bench.produce(topic, "v", 300);
            untilSeen(seen, 300);
            System.out.println("the classic member: " + (classic.failure() == null ? "let in" : classic.failure()));
            if (classic.failure() != null) {
                Bench.fails("the classic member", InconsistentGroupProtocolException.class, classic::close);
            } else {
                classic.close();
            }
            Member.untilEven(PARTITIONS, modern);
        }
        same("each once", new HashSet<>(seen).size(), seen.size());
    }
}
