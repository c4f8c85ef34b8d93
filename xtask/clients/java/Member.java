package riverrun.clients;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * A member of a group on a thread of its own: it polls, hands each value to the log shared by its group, and commits
 * before it polls again, so that whoever gets its partitions next continues exactly where it stood.
 */
final class Member implements AutoCloseable, ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<String> seen;
    private final Thread thread;
    private final Set<TopicPartition> owned =
            new TreeSet<>((left, right) -> left.toString().compareTo(right.toString()));
    private int revoked;
    private int rebalances;
    private volatile boolean stopping;
    private volatile RuntimeException failure;

    /** Starts a member; {@code seen} is shared with the other members and has to be synchronised. */
    Member(KafkaConsumer<byte[], byte[]> consumer, List<String> seen, Subscription subscription) {
        this.consumer = consumer;
        this.seen = seen;
        subscription.apply(consumer, this);
        thread = new Thread(this::run);
        thread.setDaemon(true);
        thread.start();
    }

    /** Subscription of a consumer: names, or a pattern. */
    interface Subscription {
        void apply(KafkaConsumer<byte[], byte[]> consumer, ConsumerRebalanceListener listener);
    }

    /** Partitions owned now. */
    synchronized Set<TopicPartition> owned() {
        return Set.copyOf(owned);
    }

    /** Partitions taken away so far, over all rebalances. */
    synchronized int revoked() {
        return revoked;
    }

    /** How often partitions were handed out. */
    synchronized int rebalances() {
        return rebalances;
    }

    /** The error that ended the member early, if there was one. */
    RuntimeException failure() {
        return failure;
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        owned.addAll(partitions);
        rebalances++;
    }

    @Override
    public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        owned.removeAll(partitions);
        revoked += partitions.size();
    }

    private void run() {
        try (consumer) {
            while (!stopping) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    seen.add(Bench.text(record.value()));
                }
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        } catch (WakeupException stopped) {
            // How close() interrupts a poll.
        } catch (RuntimeException unexpected) {
            failure = unexpected;
        }
    }

    /** Leaves the group; throws the error of a member that had failed. */
    @Override
    public void close() {
        stopping = true;
        consumer.wakeup();
        try {
            thread.join(Bench.PATIENCE.toMillis());
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException("interrupted while a member left", interrupted);
        }
        if (failure != null) {
            throw failure;
        }
        Bench.that("a member closes in time", !thread.isAlive());
    }

    /** Waits until the members own {@code partitions} in all, spread as evenly as they can be. */
    static void untilEven(int partitions, Member... members) throws InterruptedException {
        Bench.until("an even spread of " + partitions, () -> isEven(partitions, members), () -> state(members));
    }

    private static boolean isEven(int partitions, Member... members) {
        Set<TopicPartition> distinct = new java.util.HashSet<>();
        for (Member member : members) {
            Set<TopicPartition> share = member.owned();
            int least = partitions / members.length;
            int most = (partitions + members.length - 1) / members.length;
            if (share.size() < least || share.size() > most) {
                return false;
            }
            distinct.addAll(share);
        }
        return distinct.size() == partitions;
    }

    private static Object state(Member... members) {
        List<String> shares = new ArrayList<>();
        for (Member member : members) {
            shares.add(member.owned().stream().map(TopicPartition::toString).collect(Collectors.joining(" "))
                    + (member.failure == null ? "" : " failed: " + member.failure));
        }
        return shares;
    }

    /** Closes several members and reports the first failure after all have ended. */
    static void closeAll(Collection<Member> members) {
        List<RuntimeException> failures = new ArrayList<>();
        for (Member member : members) {
            try {
                member.close();
            } catch (RuntimeException failed) {
                failures.add(failed);
            }
        }
        if (!failures.isEmpty()) {
            throw failures.get(0);
        }
    }
}
