//! The first start on a data directory, which makes new metadata and with it a new cluster.
//!
//! An empty directory looks like the mount point of a disk that is not mounted. So an owner may forbid such a start, and
//! one that the configuration does not ask for is logged as a warning.

use std::io;
use std::path::Path;

use riverrun_env::Env;

use super::cluster::ClusterImage;
use super::error::MetadataError;

/// The option that allows or forbids such a start.
pub(crate) const OPTION: &str = "data.dir.create";
/// A directory that a server has used has a file whose name begins with one of these.
const PREFIXES: [&str; 2] = ["snapshot", "log-"];

/// Whether `meta` has no metadata.
pub(crate) fn is_first(env: &Env, meta: &Path) -> Result<bool, MetadataError> {
    let entries = match env.fs.read_dir(meta) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.map_err(MetadataError::io("read the directory", meta))?,
    };
    let is_one = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    Ok(!entries.iter().any(|entry| entry.name.to_str().is_some_and(is_one)))
}

/// Refuses a start where `meta` has no metadata. Changes nothing.
pub(crate) fn refuse(env: &Env, meta: &Path) -> Result<(), MetadataError> {
    if is_first(env, meta)? { Err(MetadataError::Absent(meta.to_owned())) } else { Ok(()) }
}

/// Logs that a cluster is new, if this is its first start: a warning, unless it is meant.
pub(crate) fn tell(cluster: &ClusterImage, data: &Path, is_meant: bool) {
    if cluster.starts() > 1 {
        return;
    }
    let (dir, cluster) = (data.display(), cluster.id());
    if is_meant {
        tracing::info!(%dir, %cluster, "a new cluster begins in this directory");
    } else {
        tracing::warn!(
            %dir, %cluster,
            "there was no metadata in this directory, so a new cluster without topics begins in it: if a disk should \
             be mounted here, stop the server and mount it; {OPTION}=false refuses such a start, =true says that it is \
             meant"
        );
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::metadata::Store;
    use crate::metadata::testing::options;

    #[test]
    fn start_that_may_make_nothing_is_refused_without_metadata() {
        let (sim, meta) = (SimEnv::new(1), Path::new("/meta"));
        for is_there in [false, true] {
            if is_there {
                sim.fs.create_dir_all(meta).expect("made");
            }
            let error = refuse(&sim.env(), meta).expect_err("nothing is there").to_string();
            assert!(error.contains("/meta") && error.contains("mount") && error.contains(OPTION), "{error}");
            assert_eq!(sim.fs.exists(meta).expect("known"), is_there);
        }
        drop(Store::open(&sim.env(), &options(&["/logs"])).expect("opens"));
        refuse(&sim.env(), meta).expect("it is there");
    }
}
