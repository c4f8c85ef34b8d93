//! Kafka's server options that mean nothing here, each with advice for someone who brings Kafka's file along.

const ONE_NODE: &str = "there are no other nodes; leave it out";
const NO_REPLICAS: &str = "there are no replicas; leave it out";
const NO_CLASSES: &str = "no class is ever loaded by its name; leave it out";
const NO_ACCESS_CONTROL: &str = "access control is not supported yet";
const NO_QUOTAS: &str = "quotas are not supported yet";
const NOT_TIERED: &str = "tiered storage is not supported yet";
const NO_TRANSACTIONS: &str = "transactions are not supported yet";
const GROUPS_NEED_NO_THREADS: &str = "groups are served by num.network.threads; leave it out";
const NOTHING_TO_PURGE: &str = "a request that waits leaves nothing behind; leave it out";
const CLEANER_PIECES: &str =
    "the cleaner reads in pieces of a fixed size; set log.cleaner.dedupe.buffer.size for its memory";

/// Exact names, or prefixes that end with a dot, and the advice.
const REFUSED: &[(&str, &str)] = &[
    ("add.partitions.to.txn.", NO_TRANSACTIONS),
    ("alter.config.policy.class.name", NO_CLASSES),
    ("alter.log.dirs.", "partitions do not move between log dirs; leave it out"),
    ("auto.leader.rebalance.enable", NO_REPLICAS),
    (
        "background.threads",
        "the work on logs has threads of its own, log.cleaner.threads for compaction; leave it out",
    ),
    ("broker.heartbeat.interval.ms", ONE_NODE),
    ("broker.session.timeout.ms", ONE_NODE),
    ("client.quota.callback.class", NO_CLASSES),
    ("config.providers", "values are taken as they stand; set what is secret in the environment"),
    ("connection.failed.authentication.delay.ms", "clients do not authenticate yet"),
    ("connections.max.reauth.ms", "clients do not authenticate yet"),
    ("controlled.shutdown.enable", ONE_NODE),
    ("create.topic.policy.class.name", NO_CLASSES),
    ("delegation.token.", "clients do not authenticate yet"),
    ("delete.records.purgatory.", NOTHING_TO_PURGE),
    ("early.start.listeners", "listeners open when everything is ready; leave it out"),
    ("fetch.purgatory.", NOTHING_TO_PURGE),
    ("follower.fetch.last.tiered.offset.enable", NOT_TIERED),
    (
        "group.consumer.regex.refresh.interval.ms",
        "patterns are matched again whenever topics change; leave it out",
    ),
    (
        "group.coordinator.append.linger.ms",
        "changes of groups that come together are synced together; leave it out",
    ),
    ("group.coordinator.background.threads", GROUPS_NEED_NO_THREADS),
    ("group.coordinator.cached.buffer.max.bytes", GROUPS_NEED_NO_THREADS),
    (
        "group.coordinator.rebalance.protocols",
        "both protocols, classic and consumer, are always there; leave it out",
    ),
    ("group.coordinator.threads", GROUPS_NEED_NO_THREADS),
    ("initial.broker.registration.timeout.ms", ONE_NODE),
    ("internal.", "it is for Kafka's own tests; leave it out"),
    ("kafka.metrics.", "metrics are at /metrics of admin.listen; leave it out"),
    ("leader.imbalance.", NO_REPLICAS),
    ("listener.name.", "the options of connections hold for all listeners"),
    ("log.cleaner.io.buffer.load.factor", CLEANER_PIECES),
    ("log.cleaner.io.buffer.size", CLEANER_PIECES),
    ("log.dir.failure.timeout.ms", "a server stops at once when its last log dir has failed; leave it out"),
    ("log.flush.scheduler.interval.ms", "set durability, which says what an acked record survives"),
    (
        "log.flush.start.offset.checkpoint.interval.ms",
        "set log.flush.offset.checkpoint.interval.ms, which is for both",
    ),
    ("log.initial.task.delay.ms", "the work on logs begins when the server has started; leave it out"),
    ("log.local.retention.bytes", NOT_TIERED),
    ("log.local.retention.ms", NOT_TIERED),
    ("log.message.downconversion.enable", "records have one format, 2; leave it out"),
    ("log.message.format.version", "records have one format, 2; leave it out"),
    (
        "max.connection.creation.rate",
        "the rate of new connections has no bound; set max.connections or max.connections.per.ip",
    ),
    ("metadata.max.", "metadata lies in data.dir; leave it out"),
    ("metric.reporters", "metrics are at /metrics of admin.listen; leave it out"),
    ("metrics.", "metrics are at /metrics of admin.listen; leave it out"),
    ("num.replica.alter.log.dirs.threads", "partitions do not move between log dirs; leave it out"),
    ("offsets.load.buffer.size", "offsets are loaded in pieces of a fixed size; leave it out"),
    ("principal.builder.class", NO_CLASSES),
    ("producer.purgatory.", NOTHING_TO_PURGE),
    ("quota.window.", NO_QUOTAS),
    ("replication.quota.", NO_REPLICAS),
    ("request.timeout.ms", ONE_NODE),
    ("security.inter.broker.protocol", ONE_NODE),
    ("security.providers", NO_CLASSES),
    ("server.max.startup.time.ms", "a start takes as long as it needs to; leave it out"),
    ("share.", "share groups are not supported yet"),
    ("socket.connection.setup.timeout.", ONE_NODE),
    ("telemetry.max.bytes", "the metrics of clients are not taken; leave it out"),
    ("unclean.leader.election.interval.ms", NO_REPLICAS),
    ("unstable.", "there are no unstable requests or features; leave it out"),
    ("broker.id", "set node.id"),
    ("log.dir", "set log.dirs, or data.dir for everything"),
    ("process.roles", "one process is the whole server; leave it out"),
    ("controller.", "there is no separate controller; leave it out"),
    ("metadata.log.", "metadata lies in data.dir; leave it out"),
    ("inter.broker.listener.name", ONE_NODE),
    ("inter.broker.protocol.version", ONE_NODE),
    ("listener.security.protocol.map", "every listener is plain text, whatever its name; leave it out"),
    ("ssl.", "TLS is not supported yet"),
    ("sasl.", "SASL is not supported yet"),
    ("authorizer.class.name", NO_ACCESS_CONTROL),
    ("super.users", NO_ACCESS_CONTROL),
    ("zookeeper.", "there is no ZooKeeper; leave it out"),
    ("log.flush.interval.messages", "set durability, which says what an acked record survives"),
    ("log.flush.interval.ms", "set durability, which says what an acked record survives"),
    ("num.io.threads", "requests are served by num.network.threads"),
    ("num.replica.fetchers", NO_REPLICAS),
    ("num.recovery.threads.per.data.dir", "logs are recovered when they are first used; leave it out"),
    ("replica.", NO_REPLICAS),
    ("transaction.", NO_TRANSACTIONS),
    ("transactional.", NO_TRANSACTIONS),
    ("remote.", NOT_TIERED),
    ("group.share.", "share groups are not supported yet"),
    ("group.streams.", "streams groups are not supported yet"),
];

/// The advice for an option that Kafka has and this server does not.
pub(crate) fn reason(key: &str) -> Option<&'static str> {
    let matches = |name: &str| key == name || (name.ends_with('.') && key.starts_with(name));
    REFUSED.iter().find(|(name, _)| matches(name)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_that_exists_is_refused() {
        for def in crate::config::broker::definitions() {
            assert_eq!(reason(def.name), None, "{}", def.name);
        }
    }

    /// The names are those that Kafka 4.3.1 answers for itself.
    #[test]
    fn options_of_a_kafka_broker_exist_here_or_have_a_reason() {
        let names = include_str!("refused/kafka-4.3.txt").lines().filter(|line| !line.starts_with('#'));
        let is_known =
            |name: &&str| crate::config::broker::definition(name).is_some() || reason(name).is_some();
        let unknown: Vec<&str> = names.filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "{unknown:#?}");
    }

    #[test]
    fn options_of_kafka_are_told_from_typing_mistakes() {
        assert!(reason("ssl.keystore.location").is_some());
        assert!(reason("log.dir").is_some());
        assert_eq!(reason("log.dirz"), None);
    }
}
