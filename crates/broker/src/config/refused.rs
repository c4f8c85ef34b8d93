//! Kafka's server options that mean nothing here, with what to do instead, so that someone who brings Kafka's file
//! along is told more than "unknown".

/// Exact names, or prefixes that end with a dot, and what to say.
const REFUSED: &[(&str, &str)] = &[
    ("broker.id", "set node.id"),
    ("log.dir", "set log.dirs, or data.dir for everything"),
    ("process.roles", "one process is the whole server; leave it out"),
    ("controller.", "there is no separate controller; leave it out"),
    ("metadata.log.", "metadata lies in data.dir; leave it out"),
    ("inter.broker.listener.name", "there are no other brokers; leave it out"),
    ("listener.security.protocol.map", "every listener is plain text, whatever its name; leave it out"),
    ("ssl.", "TLS is not supported yet"),
    ("sasl.", "SASL is not supported yet"),
    ("authorizer.class.name", "access control is not supported yet"),
    ("zookeeper.", "there is no ZooKeeper; leave it out"),
    ("log.flush.interval.messages", "set durability, which says what an acked record survives"),
    ("log.flush.interval.ms", "set durability, which says what an acked record survives"),
    ("num.io.threads", "requests are served by num.network.threads"),
    ("num.replica.fetchers", "there are no replicas; leave it out"),
    ("num.recovery.threads.per.data.dir", "logs are recovered when they are first used; leave it out"),
    ("replica.", "there are no replicas; leave it out"),
    ("offsets.topic.replication.factor", "it is always 1 on a server of one node; leave it out"),
    ("transaction.", "transactions are not supported yet"),
    ("transactional.", "transactions are not supported yet"),
    ("remote.log.", "tiered storage is not supported yet"),
    ("group.share.", "share groups are not supported yet"),
    ("share.coordinator.", "share groups are not supported yet"),
    ("group.streams.", "streams groups are not supported yet"),
];

/// What to say of an option that Kafka has and this server does not.
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

    #[test]
    fn options_of_kafka_are_told_from_typing_mistakes() {
        assert!(reason("ssl.keystore.location").is_some());
        assert!(reason("log.dir").is_some());
        assert_eq!(reason("log.dirz"), None);
    }
}
