//! The records that metadata consists of, in the log and in a snapshot.
//!
//! They are JSON inside of checksummed frames. A record or field that this program does not know stops the reading: a
//! newer program wrote it, and leaving it out would lose it.

use riverrun_types::TopicId;
use serde::{Deserialize, Serialize};

use crate::config::{GroupOverrides, TopicOverrides};
use crate::cordon::Cordon;

/// One step of the metadata's history. The records of one frame hold together: all of them happened, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Record {
    /// The node started for the `starts`-th time. An older program calls the number an epoch: all partitions were led in it.
    NodeStarted {
        #[serde(alias = "epoch")]
        starts: i32,
    },
    /// Changes that were made before this start may be lost, and their owner has given them up.
    ChangesLost { before: i32 },
    /// A log dir came into use. Its index is the number of those before it.
    LogDirAdded { id: String, path: String },
    /// A log dir was found under another path.
    LogDirMoved { index: u16, path: String },
    /// Another directory, of this id, has taken the place of a log dir, whose records are given up, if it had any.
    LogDirReplaced { index: u16, id: String },
    /// In a snapshot: a log dir whose records were given up at this start.
    LogDirGivenUp { id: String, start: i32 },
    /// A log dir that held nothing is removed. Those behind it have the index before their own from here on.
    LogDirRemoved { index: u16 },
    /// The clients' cordon; `None`: the configuration's holds again.
    LogDirsCordoned { cordon: Option<Cordon> },
    /// A topic was made; `dirs` has the log dir's index of each partition, and `starts` is the origin of all. Topics of an
    /// older program have none: their partitions are led in epochs that count all starts, as they were by that program.
    TopicCreated {
        #[serde(with = "topic_id_text")]
        id: TopicId,
        name: String,
        dirs: Vec<u16>,
        configs: TopicOverrides,
        #[serde(default)]
        starts: i32,
    },
    /// A topic was deleted. Its files may still be there.
    TopicDeleted {
        #[serde(with = "topic_id_text")]
        id: TopicId,
    },
    /// In a snapshot: a deleted topic that may still have files, with the log dirs of its partitions.
    TopicDoomed {
        #[serde(with = "topic_id_text")]
        id: TopicId,
        dirs: Vec<u16>,
    },
    /// The files of a deleted topic are gone.
    TopicDiscarded {
        #[serde(with = "topic_id_text")]
        id: TopicId,
    },
    /// A topic got more partitions; `dirs` and `starts` are theirs.
    PartitionsAdded {
        #[serde(with = "topic_id_text")]
        id: TopicId,
        dirs: Vec<u16>,
        #[serde(default)]
        starts: i32,
    },
    /// The count of partitions ever added to existing topics, whether or not they are still there.
    AddedPartitionsCounted { count: i64 },
    /// The configs that a topic sets for itself from here on.
    TopicConfigsSet {
        #[serde(with = "topic_id_text")]
        id: TopicId,
        configs: TopicOverrides,
    },
    /// The configs that a consumer group sets for itself from here on; none: it sets nothing.
    GroupConfigsSet { group: String, configs: GroupOverrides },
    /// Producer ids below `end` may have been given out.
    ProducerIdsReserved { end: i64 },
}

/// The first frame of the log and of the snapshot: their cluster and node, and which log belongs to which snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) cluster_id: String,
    pub(crate) node_id: i32,
    /// A snapshot is followed by the log of the same generation.
    pub(crate) generation: u64,
    /// Frames in the whole file, this one included; 0 in a log, which grows.
    pub(crate) frames: u64,
    /// In a snapshot: the server stopped in order after it, and no log follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_last: bool,
}

/// The identity of a log dir, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirIdentity {
    pub(crate) cluster: String,
    pub(crate) node: i32,
    pub(crate) dir: String,
}

/// A payload of JSON. Serializing into memory fails for no value of the types above.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("records have only text keys and no failing serializers")
}

mod topic_id_text {
    use riverrun_types::TopicId;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &TopicId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TopicId, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_newer_program_is_not_skipped() {
        for newer in [
            r#"[{"tenant_created":{"name":"x"}}]"#,
            r#"[{"node_started":{"starts":1,"rack":"a"}}]"#,
            r#"[{"node_started":{}}]"#,
            r#"[{"log_dirs_cordoned":{"cordon":"some"}}]"#,
        ] {
            assert!(serde_json::from_str::<Vec<Record>>(newer).is_err(), "{newer}");
        }
    }

    #[test]
    fn records_come_back_from_their_text_and_hold_no_zero_byte() {
        let records = vec![
            Record::NodeStarted { starts: 3 },
            Record::ChangesLost { before: 3 },
            Record::TopicCreated {
                id: TopicId([7; 16]),
                name: "a".into(),
                dirs: vec![0, 1],
                configs: [("retention.ms".to_owned(), "a\0b".to_owned())].into(),
                starts: 3,
            },
            Record::TopicDeleted { id: TopicId([255; 16]) },
            Record::LogDirsCordoned { cordon: Some(Cordon::All) },
            Record::LogDirsCordoned { cordon: Some(Cordon::Dirs(vec![1, 0])) },
            Record::LogDirsCordoned { cordon: None },
            Record::LogDirRemoved { index: 7 },
            Record::GroupConfigsSet {
                group: "g".into(),
                configs: [("consumer.session.timeout.ms".to_owned(), "50000".to_owned())].into(),
            },
            Record::AddedPartitionsCounted { count: 1 << 40 },
            Record::LogDirReplaced { index: 7, id: "a".into() },
            Record::LogDirGivenUp { id: "b".into(), start: 8 },
        ];
        let json = to_json(&records);
        assert!(!json.contains(&0));
        assert_eq!(serde_json::from_slice::<Vec<Record>>(&json).expect("readable"), records);
    }
}
