//! Topics that are made because they are needed: those that a client names, and the server's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Catalog;
use crate::config::{BrokerConfig, TopicOverrides};
use crate::flow::source::Source;
use crate::metadata::{Draft, MetadataError, NewTopic, Topic, TopicError};
use crate::topic_names::OFFSETS_TOPIC;

impl Catalog {
    /// How many of `wanted` topics may be made for a source because a request names them. They count as made.
    pub(crate) fn grant_creations(&self, source: Source, wanted: usize) -> usize {
        self.auto_creations.take(source, wanted, self.ports.env.clock.monotonic())
    }

    /// Makes missing topics that a client asked for. Answers the reason for each that could not be made; one that another
    /// request has made meanwhile is fine. `tell` is called with the topics that were made, also where the request has gone
    /// meanwhile.
    pub(crate) async fn create_missing_topics(
        &self,
        source: Source,
        names: Vec<String>,
        tell: impl FnOnce(&[String]) + Send + 'static,
    ) -> Result<BTreeMap<String, TopicError>, MetadataError> {
        let config = Arc::clone(&self.ports.config);
        let plan = move |draft: &mut Draft<'_>| {
            let (mut made, mut refused) = (Vec::new(), BTreeMap::new());
            for name in names {
                match draft.create_topic(default_topic(&config, &name)) {
                    Ok(_) => made.push(name),
                    Err(TopicError::Exists(_)) => {}
                    Err(error) => _ = refused.insert(name, error),
                }
            }
            (made, refused)
        };
        let follow = |ended: Result<(Vec<String>, _), _>| {
            let (made, refused) = ended?;
            tell(&made);
            Ok(refused)
        };
        self.propose_and(source, plan, follow).await
    }

    /// The topic of group offsets, made if it is not there.
    pub(crate) async fn offsets_topic(&self, source: Source) -> Result<Arc<Topic>, MetadataError> {
        if let Some(topic) = self.cluster().topic(OFFSETS_TOPIC) {
            return Ok(Arc::clone(topic));
        }
        let new = default_topic(&self.ports.config, OFFSETS_TOPIC);
        let made = self.propose(source, move |draft| match draft.image().cluster.topic(OFFSETS_TOPIC) {
            Some(topic) => Ok(Arc::clone(topic)),
            None => draft.create_topic(new),
        });
        made.await?.map_err(|error| MetadataError::OffsetsTopic(error.to_string()))
    }
}

/// A topic that is made because someone needs it: the server's own with the options that it needs, any other with the
/// defaults.
pub(super) fn default_topic(config: &BrokerConfig, name: &str) -> NewTopic {
    let partition_count = match name {
        OFFSETS_TOPIC => config.groups.offsets_topic_num_partitions,
        _ => config.server.num_partitions,
    };
    NewTopic { name: name.to_owned(), partition_count, configs: required_configs(config, name) }
}

/// The configs that a topic of this name needs to do what it is for: none, but for the server's own.
fn required_configs(config: &BrokerConfig, name: &str) -> TopicOverrides {
    if name != OFFSETS_TOPIC {
        return TopicOverrides::new();
    }
    let configs = [
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("segment.bytes", config.groups.offsets_topic_segment_bytes.to_string()),
    ];
    configs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::aside;
    use crate::config::check_topic_configs;
    use crate::start::open_broker;

    #[test]
    fn topics_that_are_made_are_told_of_though_the_request_goes() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let sim = SimEnv::new(1);
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        let broker = open_broker(sim.env(), config).expect("starts");
        let runtime = aside::runtime().expect("a runtime");
        let ((tell, is_told), (go_on, may_go_on)) = (mpsc::sync_channel(1), mpsc::sync_channel::<()>(1));
        sim.fs.during_next_sync(move || {
            tell.send(()).expect("the test waits");
            may_go_on.recv_timeout(PATIENCE).expect("the test goes on");
        });
        let (hear, heard) = mpsc::sync_channel(1);
        let request = runtime.spawn(async move {
            let tell = move |made: &[String]| hear.send(made.to_vec()).expect("the test waits");
            broker.catalog.create_missing_topics(Source::SOME, vec!["t".to_owned()], tell).await
        });
        is_told.recv_timeout(PATIENCE).expect("it begins");
        request.abort();
        assert!(runtime.block_on(request).is_err(), "its request has gone");
        go_on.send(()).expect("it waits");
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(vec!["t".to_owned()]));
    }

    #[test]
    fn the_offsets_topic_is_compacted_and_its_configs_are_valid() {
        let config = BrokerConfig::default();
        let new = default_topic(&config, OFFSETS_TOPIC);
        assert_eq!(new.partition_count, 50);
        assert_eq!(new.configs.get("cleanup.policy").map(String::as_str), Some("compact"));
        assert_eq!(check_topic_configs(&config, &new.configs), Ok(()));
    }

    #[test]
    fn another_topic_takes_the_servers_defaults() {
        let config = BrokerConfig::from_pairs([("num.partitions", "7")]).expect("valid");
        let new = default_topic(&config, "clicks");
        assert_eq!((new.partition_count, new.configs.len()), (7, 0));
    }
}
