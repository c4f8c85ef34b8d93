//! Images and options for tests.

use std::path::{Path, PathBuf};

use riverrun_types::TopicId;

use super::error::MetadataError;
use super::image::Image;
use super::producer_ids::PRODUCER_IDS_BLOCK;
use super::records::{Head, Record};
use super::{Store, StoreOptions};

/// An image without topics, of node 1 with `dirs` log dirs.
pub(crate) fn image(dirs: usize) -> Image {
    let head = Head { cluster_id: "c".into(), node_id: 1, generation: 0, frames: 0, is_last: false };
    let mut image = Image::new(&head);
    for index in 0..dirs {
        let added = Record::LogDirAdded { id: index.to_string(), path: format!("/{index}") };
        image.apply(added).expect("fits an empty image");
    }
    image
}

/// The path of a partition in a log dir.
pub(crate) fn partition_path(log_dir: &str, id: TopicId, partition: &str) -> PathBuf {
    let hex = format!("{:032x}", u128::from_be_bytes(id.0));
    let topic = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    Path::new(log_dir).join(topic).join(partition)
}

/// Node 1 with these log dirs, of any cluster.
pub(crate) fn options(dirs: &[&str]) -> StoreOptions {
    StoreOptions {
        dir: "/meta".into(),
        node_id: 1,
        cluster_id: None,
        log_dirs: dirs.iter().map(PathBuf::from).collect(),
    }
}

/// The first producer id of a new block.
pub(crate) fn producer_id(store: &Store) -> Result<i64, MetadataError> {
    store.change(|draft| draft.reserve_producer_ids(PRODUCER_IDS_BLOCK))
}
