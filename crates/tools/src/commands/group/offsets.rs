//! Questions of groups' commands to partitions: begins, ends, and the offset at a time.

use std::collections::BTreeMap;

use riverrun_client::{Admin, Isolation, OffsetSpec, TopicPartition};
use riverrun_types::Offset;

use crate::exit::Failure;

/// One offset of each partition. A partition without such an offset is missing in the answer.
pub(super) async fn find(
    admin: &Admin,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
) -> Result<BTreeMap<TopicPartition, Offset>, Failure> {
    let wanted = partitions.iter().map(|partition| (partition.clone(), spec)).collect();
    let mut found = BTreeMap::new();
    for (partition, result) in admin.list_offsets(wanted, Isolation::ReadUncommitted).await {
        let about = |error| Failure::from(error).about(&partition);
        if let Some(offset) = result.map_err(about)? {
            found.insert(partition, offset.offset);
        }
    }
    Ok(found)
}
