//! Images and options for tests of what is built on them.

use std::path::PathBuf;

use super::StoreOptions;
use super::image::Image;
use super::records::{Head, Record};

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

/// Node 1 with these log dirs, of whichever cluster.
pub(crate) fn options(dirs: &[&str]) -> StoreOptions {
    StoreOptions {
        dir: "/meta".into(),
        node_id: 1,
        cluster_id: None,
        log_dirs: dirs.iter().map(PathBuf::from).collect(),
    }
}
