//! The files themselves.

/// Names and texts, in the order in which they are run.
pub(super) const ALL: &[(&str, &str)] = &[
    ("a-max-throughput.yaml", include_str!("files/a-max-throughput.yaml")),
    ("a-latency-subscriptions.yaml", include_str!("files/a-latency-subscriptions.yaml")),
    ("a-latency-partitions.yaml", include_str!("files/a-latency-partitions.yaml")),
    ("a-catch-up.yaml", include_str!("files/a-catch-up.yaml")),
    ("a-mixed.yaml", include_str!("files/a-mixed.yaml")),
    ("b-small-batches.yaml", include_str!("files/b-small-batches.yaml")),
    ("b-partitions.yaml", include_str!("files/b-partitions.yaml")),
    ("b-linger.yaml", include_str!("files/b-linger.yaml")),
    ("b-keys.yaml", include_str!("files/b-keys.yaml")),
    ("c-partitions.yaml", include_str!("files/c-partitions.yaml")),
    ("c-disks.yaml", include_str!("files/c-disks.yaml")),
    ("c-record-sizes.yaml", include_str!("files/c-record-sizes.yaml")),
    ("c-acks.yaml", include_str!("files/c-acks.yaml")),
    ("c-producers.yaml", include_str!("files/c-producers.yaml")),
    ("c-consumers.yaml", include_str!("files/c-consumers.yaml")),
    ("c-cached-readers.yaml", include_str!("files/c-cached-readers.yaml")),
    ("c-read-beside-write.yaml", include_str!("files/c-read-beside-write.yaml")),
    ("c-long-run.yaml", include_str!("files/c-long-run.yaml")),
    ("c-disk-full.yaml", include_str!("files/c-disk-full.yaml")),
    ("d-one-at-a-time.yaml", include_str!("files/d-one-at-a-time.yaml")),
    ("d-async.yaml", include_str!("files/d-async.yaml")),
];
