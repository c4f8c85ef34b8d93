package riverrun.clients;

import static riverrun.clients.Bench.fails;
import static riverrun.clients.Bench.partitionsOf;
import static riverrun.clients.Bench.same;
import static riverrun.clients.Bench.that;
import static riverrun.clients.Bench.until;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** Administration of groups, of both protocols. */
final class GroupAdminCases {
    private GroupAdminCases() {}

    static void addTo(Main.Cases cases) {
        cases.add("admin-classic-group", bench -> liveGroup(bench, GroupType.CLASSIC));
        cases.add("admin-consumer-group", bench -> liveGroup(bench, GroupType.CONSUMER));
        cases.add("admin-group-offsets", GroupAdminCases::offsets);
        cases.add("admin-unknown-group", GroupAdminCases::unknownGroup);
        cases.add("admin-remove-members", GroupAdminCases::removeMembers);
    }

    /** A group with one member is listed, described and protected; when the member has left it can be deleted. */
    private static void liveGroup(Bench bench, GroupType type) throws Exception {
        String topic = bench.topic("watched", 3);
        String group = bench.name("watched");
        bench.produce(topic, "v", 30);
        Object[] protocol = type == GroupType.CLASSIC
                ? GroupCases.classic(RangeAssignor.class) : GroupCases.modern("uniform");
        Object[] settings = GroupCases.with(protocol, "group.id", group, "client.id", "watched-client");
        List<String> seen = new CopyOnWriteArrayList<>();
        try (Admin admin = bench.admin()) {
            Member member = new Member(bench.consumer(settings), seen,
                    (consumer, listener) -> consumer.subscribe(List.of(topic), listener));
            Member.untilEven(3, member);
            until("all records", () -> seen.size() == 30, seen::size);
            checkListing(admin, group, type);
            checkDescription(admin, group, type, Set.copyOf(partitionsOf(topic, 3)));
            fails("deleting it while it lives", GroupNotEmptyException.class,
                    () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            fails("deleting offsets in use", GroupSubscribedToTopicException.class, () -> admin
                    .deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(topic, 0))).all().get());
            fails("moving offsets in use", UnknownMemberIdException.class, () -> admin.alterConsumerGroupOffsets(group,
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0))).all().get());
            member.close();
            until("the group is empty", () -> stateOf(admin, group) == GroupState.EMPTY, () -> stateOf(admin, group));
            admin.deleteConsumerGroups(List.of(group)).all().get();
            that("gone", list(admin).stream().noneMatch(listed -> listed.groupId().equals(group)));
        }
    }

    private static Collection<GroupListing> list(Admin admin) throws Exception {
        return admin.listGroups().all().get();
    }

    private static GroupState stateOf(Admin admin, String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState();
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    private static void checkListing(Admin admin, String group, GroupType type) throws Exception {
        GroupListing listed = list(admin).stream().filter(one -> one.groupId().equals(group)).findFirst().orElseThrow();
        same("type", listed.type(), Optional.of(type));
        same("state", listed.groupState(), Optional.of(GroupState.STABLE));
        same("protocol", listed.protocol(), "consumer");
        GroupType other = type == GroupType.CLASSIC ? GroupType.CONSUMER : GroupType.CLASSIC;
        ListGroupsOptions otherType = new ListGroupsOptions().withTypes(Set.of(other));
        that("filtered by type", admin.listGroups(otherType).all().get().stream()
                .noneMatch(one -> one.groupId().equals(group)));
        ListGroupsOptions stable = new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE));
        that("filtered by state", admin.listGroups(stable).all().get().stream()
                .anyMatch(one -> one.groupId().equals(group)));
    }

    private static void checkDescription(Admin admin, String group, GroupType type, Set<TopicPartition> partitions)
            throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        same("type", found.type(), type);
        same("state", found.groupState(), GroupState.STABLE);
        same("assignor", found.partitionAssignor(), type == GroupType.CLASSIC ? "range" : "uniform");
        same("coordinator", found.coordinator(), admin.describeCluster().controller().get());
        same("members", found.members().size(), 1);
        MemberDescription member = found.members().iterator().next();
        same("client id", member.clientId(), "watched-client");
        same("host", member.host(), "/127.0.0.1");
        same("assignment", member.assignment().topicPartitions(), partitions);
        if (type == GroupType.CLASSIC) {
            same("by the classic call", admin.describeClassicGroups(List.of(group)).all().get().get(group).state(),
                    org.apache.kafka.common.ClassicGroupState.STABLE);
        }
    }

    /** Offsets without any member: set, read for several groups at once, moved, deleted. */
    private static void offsets(Bench bench) throws Exception {
        String topic = bench.topic("offsets", 2);
        String group = bench.name("offsets");
        bench.produce(topic, "v", 20);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        try (Admin admin = bench.admin()) {
            admin.alterConsumerGroupOffsets(group,
                    Map.of(first, new OffsetAndMetadata(4, "by hand"), second, new OffsetAndMetadata(2))).all().get();
            Map<TopicPartition, OffsetAndMetadata> found =
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            same("offset", found.get(first).offset(), 4L);
            same("metadata", found.get(first).metadata(), "by hand");
            same("offset of the other", found.get(second).offset(), 2L);
            admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(0))).all().get();
            admin.deleteConsumerGroupOffsets(group, Set.of(second)).all().get();
            found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            same("moved", found.get(first).offset(), 0L);
            same("deleted", found.get(second), null);
            try (KafkaConsumer<byte[], byte[]> consumer = bench.consumer("group.id", group)) {
                consumer.subscribe(List.of(topic));
                Bench.poll(consumer, 20);
            }
            admin.deleteConsumerGroups(List.of(group)).all().get();
            same("offsets of a deleted group",
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(), Map.of());
        }
    }

    private static void unknownGroup(Bench bench) throws Exception {
        String group = bench.name("absent");
        try (Admin admin = bench.admin()) {
            fails("describing it", GroupIdNotFoundException.class,
                    () -> admin.describeConsumerGroups(List.of(group)).all().get());
            fails("deleting it", GroupIdNotFoundException.class,
                    () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            same("its offsets", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(), Map.of());
        }
    }

    /** Static members that leave stay in the group until they are removed. */
    private static void removeMembers(Bench bench) throws Exception {
        String topic = bench.topic("removed", 1);
        String group = bench.name("removed");
        Object[] settings = GroupCases.with(GroupCases.classic(RangeAssignor.class),
                "group.id", group, "group.instance.id", "one");
        try (Admin admin = bench.admin()) {
            try (Member member = new Member(bench.consumer(settings), new CopyOnWriteArrayList<>(),
                    (consumer, listener) -> consumer.subscribe(List.of(topic), listener))) {
                Member.untilEven(1, member);
            }
            same("still a member", admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size(),
                    1);
            admin.removeMembersFromConsumerGroup(group,
                    new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("one")))).all().get();
            until("the group is empty", () -> stateOf(admin, group) == GroupState.EMPTY, () -> stateOf(admin, group));
            fails("removing it twice", UnknownMemberIdException.class, () -> admin.removeMembersFromConsumerGroup(group,
                    new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("one")))).all().get());
        }
    }
}
