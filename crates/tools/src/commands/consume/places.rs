//! Which partitions are read, where they begin and end, and where in them reading starts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverrun_client::{ClientError, Consumer, FoundOffset, OffsetSpec, StartAt, TopicPartition};
use riverrun_types::{ErrorKind, Offset};

use super::start::From;
use crate::exit::{Exit, Failure};
use crate::logging;

/// Partitions whose ranges an error tells at most.
const RANGES_TOLD: usize = 10;

/// The first offset of a partition and the one after its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) begin: Offset,
    pub(super) end: Offset,
}

/// All partitions of the topics, or those of the numbers in `only`.
pub(super) async fn partitions(
    consumer: &Consumer,
    topics: &[String],
    only: &[i32],
) -> Result<BTreeSet<TopicPartition>, Failure> {
    let mut partitions = BTreeSet::new();
    for name in topics {
        let about = |error| Failure::from(error).about(format!("topic {name}"));
        let topic = consumer.cluster().topic(name, false).await.map_err(about)?;
        let count = topic.partitions.len();
        let exists = |number: i32| usize::try_from(number).is_ok_and(|number| number < count);
        if let Some(missing) = only.iter().find(|number| !exists(**number)) {
            let text = format!("topic {name} has no partition {missing}; it has {count}, numbered from 0");
            return Err(Failure::new(Exit::NotFound, text));
        }
        let wanted = topic.partitions.iter().map(|partition| partition.index);
        let wanted = wanted.filter(|index| only.is_empty() || only.contains(index));
        partitions.extend(wanted.map(|index| TopicPartition::new(name.as_str(), index)));
    }
    Ok(partitions)
}

/// The known bounds of partitions.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) bounds: BTreeMap<TopicPartition, Bounds>,
    /// Those that do not say now where they begin and end.
    pub(super) silent: BTreeSet<TopicPartition>,
}

/// The bounds of partitions now. Those that do not answer keep the others waiting for `patience` at most.
pub(super) fn bounds(
    consumer: &Consumer,
    partitions: &BTreeSet<TopicPartition>,
    patience: Duration,
) -> impl Future<Output = Result<Known, Failure>> + Send + 'static {
    let find = |spec| {
        let wanted = partitions.iter().map(|partition| (partition.clone(), spec)).collect();
        consumer.find_offsets(wanted, patience)
    };
    let (ends, begins) = (find(OffsetSpec::Latest), find(OffsetSpec::Earliest));
    async move {
        let mut known = Known::default();
        // The ends first: a beginning asked for later may have moved on, and is then at most the end.
        let ends = offsets(ends.await, &mut known.silent)?;
        let begins = offsets(begins.await, &mut known.silent)?;
        let both = ends.into_iter().map(|(partition, end)| {
            let begin = begins.get(&partition).copied().unwrap_or(end).min(end);
            (partition, Bounds { begin, end })
        });
        known.bounds = both.filter(|(partition, _)| !known.silent.contains(partition)).collect();
        Ok(known)
    }
}

type Found = Vec<(TopicPartition, Result<Option<FoundOffset>, ClientError>)>;

/// The offsets that were found. A partition whose error may pass is silent; any other error is one of all.
fn offsets(
    found: Found,
    silent: &mut BTreeSet<TopicPartition>,
) -> Result<BTreeMap<TopicPartition, Offset>, Failure> {
    let mut offsets = BTreeMap::new();
    for (partition, found) in found {
        match found {
            Ok(Some(found)) => drop(offsets.insert(partition, found.offset)),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Retry => drop(silent.insert(partition)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(offsets)
}

/// Fails if no partition has this offset, and says of which partitions it lies outside if others have it, or may.
pub(super) fn check_offset(known: &Known, offset: Offset) -> Result<(), Failure> {
    let bounds = &known.bounds;
    let outside: Vec<_> =
        bounds.iter().filter(|(_, bounds)| !(bounds.begin..=bounds.end).contains(&offset)).collect();
    let range = |(partition, bounds): &(&TopicPartition, &Bounds)| {
        format!("{partition} begins at {} and ends at {}", bounds.begin.0, bounds.end.0)
    };
    if outside.len() < bounds.len() || !known.silent.is_empty() {
        for place in &outside {
            logging::note(&format!(
                "offset {} is out of range: {}; it is read from the nearest offset",
                offset.0,
                range(place)
            ));
        }
        return Ok(());
    }
    let ranges: Vec<_> = outside.iter().take(RANGES_TOLD).map(range).collect();
    let more = match outside.len().saturating_sub(RANGES_TOLD) {
        0 => String::new(),
        more => format!(", and {more} more partitions do not have it either"),
    };
    let message = format!("offset {} is out of range: {}{more}", offset.0, ranges.join(", "));
    Err(Failure::usage(message).advise("--from beginning, --from end, or --from -10 for the last 10"))
}

/// The start of reading in each partition. Silent ones are to be moved when they answer.
pub(super) fn starts(known: &Known, from: From) -> Vec<(TopicPartition, StartAt)> {
    let started = known.bounds.iter().map(|(partition, bounds)| (partition.clone(), start(*bounds, from)));
    started.chain(known.silent.iter().map(|partition| (partition.clone(), StartAt::Earliest))).collect()
}

/// The start of reading in a partition.
pub(super) fn start(bounds: Bounds, from: From) -> StartAt {
    let Bounds { begin, end } = bounds;
    match from {
        From::Beginning => StartAt::Offset(begin),
        From::End => StartAt::Offset(end),
        From::Offset(offset) => StartAt::Offset(Offset(offset).clamp(begin, end)),
        From::BeforeEnd(count) => StartAt::Offset(Offset(end.0.saturating_sub(count)).max(begin)),
        From::Time(time) => StartAt::Timestamp(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_of_no_partition_is_an_error_with_the_ranges() {
        let of = |ranges: &[(i64, i64)]| {
            let bounds = ranges.iter().map(|&(begin, end)| Bounds { begin: Offset(begin), end: Offset(end) });
            let bounds = (0..).map(|index| TopicPartition::new("t", index)).zip(bounds).collect();
            Known { bounds, silent: BTreeSet::new() }
        };
        for (ranges, offset, good) in [
            (&[(10, 20)][..], 9, false),
            (&[(10, 20)], 10, true),
            (&[(10, 20)], 20, true),
            (&[(10, 20)], 21, false),
            (&[(0, 5), (0, 30)], 21, true),
            (&[(0, 5), (0, 7)], 21, false),
        ] {
            assert_eq!(check_offset(&of(ranges), Offset(offset)).is_ok(), good, "{ranges:?} {offset}");
        }
        let failure = check_offset(&of(&[(3, 5); 12]), Offset(1)).expect_err("out of range");
        assert_eq!(failure.exit, Exit::Usage);
        let mut known = of(&[(3, 5)]);
        known.silent.insert(TopicPartition::new("t", 1));
        assert!(check_offset(&known, Offset(1)).is_ok(), "the silent one may have it");
        for part in ["offset 1 ", "t-0 begins at 3 and ends at 5", "and 2 more partitions"] {
            assert!(failure.message().contains(part), "{part} in {}", failure.message());
        }
    }

    #[test]
    fn a_place_outside_of_a_partition_becomes_the_nearest_in_it() {
        let bounds = Bounds { begin: Offset(10), end: Offset(20) };
        for (from, offset) in [
            (From::Beginning, 10),
            (From::End, 20),
            (From::Offset(0), 10),
            (From::Offset(15), 15),
            (From::Offset(i64::MAX), 20),
            (From::BeforeEnd(3), 17),
            (From::BeforeEnd(0), 20),
            (From::BeforeEnd(i64::MAX), 10),
        ] {
            assert_eq!(start(bounds, from), StartAt::Offset(Offset(offset)), "{from:?}");
        }
    }
}
