//! The load: producers that live through all crashes, each sending bursts to every partition.
//!
//! Guarantees that the recorder has a burst before any of it is sent, and its outcomes before the next burst. So at any
//! instant at most one burst of a stream is not accounted for. A stream is one producer's records to one partition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use riverrun_client::{
    ClientError, ClusterOptions, Compression, Delivery, ErrorKind, Producer, ProducerOptions, ProducerRecord,
    RecordMetadata, TopicPartition,
};
use tokio::task::JoinSet;

use super::event::{Event, Span};
use super::payload::{HEADER_BYTES, Identity, Placed, Places, value_of};
use super::random::Rng;
use super::recorder::Recorder;

/// Small, so that a burst is several batches, which are under way at once.
const BATCH_BYTES: usize = 2048;

/// Longer than a server is down.
const DELIVERY_LIMIT: Duration = Duration::from_mins(1);

/// Time for streams to learn the outcomes of their last burst.
const STOP_LIMIT: Duration = Duration::from_mins(2);

/// Most bytes of a value that is not large.
const SMALL_BYTES_MAX: usize = 900;

/// Different errors that are kept.
const ERRORS_MAX: usize = 20;

/// Behaviour of the producers.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) topic: String,
    pub(crate) partitions: i32,
    /// Number of producers: the first is idempotent and compresses, the last is neither; all kinds from three on.
    pub(crate) producers: u32,
    pub(crate) burst_records_max: u64,
    /// One value in this many is large.
    pub(crate) large_one_in: u64,
    pub(crate) large_bytes_max: usize,
    pub(crate) pause_max: Duration,
    /// Time after which a producer gives a record up.
    pub(crate) delivery_limit: Duration,
}

impl Shape {
    pub(crate) fn usual(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            partitions: 6,
            producers: 3,
            burst_records_max: 12,
            large_one_in: 60,
            large_bytes_max: 60_000,
            pause_max: Duration::from_millis(30),
            delivery_limit: DELIVERY_LIMIT,
        }
    }

    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        let topic: Arc<str> = self.topic.as_str().into();
        (0..self.partitions).map(|index| TopicPartition::new(Arc::clone(&topic), index)).collect()
    }
}

/// Client options for a server that is often down.
pub(super) fn cluster_options(bootstrap: &str) -> ClusterOptions {
    ClusterOptions {
        client_id: "crash".to_owned(),
        retry_backoff: Duration::from_millis(10),
        retry_backoff_max: Duration::from_millis(10),
        reconnect_backoff_max: Duration::from_millis(10),
        retry_timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(20),
        ..ClusterOptions::new(bootstrap)
    }
}

/// Counts of a stream's outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub(super) acked: u64,
    /// Records given up.
    pub(super) failed: u64,
}

/// The outcomes of each stream, including streams without any yet.
pub(super) type Tally = BTreeMap<u32, Outcomes>;

/// Outcomes of the streams so far, for progress and for the checks between crashes. The verdict does not depend on it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    state: Mutex<ProgressState>,
}

#[derive(Debug, Default)]
struct ProgressState {
    tally: Tally,
    /// Failed records with an error that no other try would mend.
    final_failures: u64,
    /// Failed records with no answer to the last attempt.
    unanswered: u64,
    errors: BTreeMap<String, u64>,
    flips: u64,
    crashes: u64,
    is_crashing: bool,
    /// Acks that no check has looked at yet.
    recent: Places,
}

impl ProgressState {
    fn check_final(&self) -> anyhow::Result<()> {
        if self.final_failures > 0 {
            bail!("{} records were refused for good: {:?}", self.final_failures, self.errors);
        }
        Ok(())
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records acked so far.
    pub(super) fn acked(&self) -> u64 {
        self.lock().tally.values().map(|outcomes| outcomes.acked).sum()
    }

    /// Records given up so far.
    pub(super) fn failed(&self) -> u64 {
        self.lock().tally.values().map(|outcomes| outcomes.failed).sum()
    }

    /// Outcomes of each stream so far.
    pub(super) fn tally(&self) -> Tally {
        self.lock().tally.clone()
    }

    /// Fails if a producer was refused for good, or waited without ever getting an answer: a server that cannot accept
    /// records now has to say so.
    pub(super) fn check_refusals(&self) -> anyhow::Result<()> {
        let state = self.lock();
        state.check_final()?;
        if state.unanswered > 0 {
            bail!("{} records were never answered: {:?}", state.unanswered, state.errors);
        }
        Ok(())
    }

    /// Fails if a producer was refused for good, or gave a record up without a cause (`may_give_up`). A server that is
    /// crashed answers nothing, and may refuse for now before that; but nothing is wrong with the records.
    pub(super) fn check_failures(&self, may_give_up: bool) -> anyhow::Result<()> {
        self.lock().check_final()?;
        let failed = self.failed();
        if failed > 0 && !may_give_up {
            bail!("{failed} records were refused or given up: {:?}", self.errors());
        }
        Ok(())
    }

    /// The errors of records that were given up, with their counts.
    pub(super) fn errors(&self) -> BTreeMap<String, u64> {
        self.lock().errors.clone()
    }

    /// Counts a change of the topic's level, if it succeeded.
    pub(super) fn note_flip(&self, changed: bool) {
        self.lock().flips += u64::from(changed);
    }

    /// Changes of the topic's level so far.
    pub(super) fn flips(&self) -> u64 {
        self.lock().flips
    }

    /// Marks the beginning of a crash.
    pub(super) fn begin_crash(&self) {
        self.lock().is_crashing = true;
    }

    /// Marks that the crash with this number was recorded.
    pub(super) fn end_crash(&self, number: u64) {
        let mut state = self.lock();
        (state.crashes, state.is_crashing) = (number, false);
    }

    /// Number of crashes that were recorded; `None` during a crash.
    pub(super) fn crashes(&self) -> Option<u64> {
        let state = self.lock();
        (!state.is_crashing).then_some(state.crashes)
    }

    /// The acks since the last call.
    pub(super) fn take_recent(&self) -> Places {
        std::mem::take(&mut self.lock().recent)
    }

    /// Adds a stream to the tally.
    fn note_stream(&self, stream: u32) {
        self.lock().tally.entry(stream).or_default();
    }

    fn note_acked(&self, partition: &TopicPartition, identity: Identity, offset: i64) {
        let mut state = self.lock();
        state.tally.entry(identity.stream).or_default().acked += 1;
        if offset >= 0 {
            state.recent.entry(partition.clone()).or_default().push(Placed { offset, identity });
        }
    }

    pub(super) fn note_failed(&self, stream: u32, error: &ClientError) {
        let mut state = self.lock();
        state.tally.entry(stream).or_default().failed += 1;
        state.final_failures += u64::from(error.kind() != ErrorKind::Retry);
        state.unanswered += u64::from(is_unanswered(error));
        let text = match error {
            ClientError::Undelivered { attempts: 1.., last: Some(last), .. } => format!("given up: {last}"),
            ClientError::Undelivered { .. } => "given up without an attempt".to_owned(),
            error => error.to_string(),
        };
        let text = without_numbers(&text);
        if state.errors.len() < ERRORS_MAX || state.errors.contains_key(&text) {
            *state.errors.entry(text).or_default() += 1;
        }
    }
}

/// Whether a server kept a client waiting until it gave up, without an answer.
pub(super) fn is_unanswered(error: &ClientError) -> bool {
    match error {
        ClientError::Timeout { .. } => true,
        ClientError::Undelivered { attempts: 1.., last: Some(last), .. } => is_unanswered(last),
        _ => false,
    }
}

/// The text without its numbers: errors that differ only in offsets or sizes are counted as one.
fn without_numbers(text: &str) -> String {
    let mut bare = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            bare.push(letter);
        } else if !bare.ends_with('#') {
            bare.push('#');
        }
    }
    bare
}

/// Shared state of all parts of a run.
#[derive(Clone)]
pub(super) struct Shared {
    /// Marks this run's values.
    pub(super) run: u64,
    pub(super) bootstrap: String,
    pub(super) recorder: Arc<Recorder>,
    pub(super) progress: Arc<Progress>,
}

/// All the streams.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    streams: JoinSet<anyhow::Result<()>>,
    producers: Vec<Arc<Producer>>,
}

impl Load {
    /// Connects the producers and begins. Streams are numbered from `first_stream`.
    pub(super) async fn start(
        shared: &Shared,
        shape: &Shape,
        first_stream: u32,
        rng: &mut Rng,
    ) -> anyhow::Result<Self> {
        let kinds: Vec<_> =
            (0..shape.producers).map(|index| ProducerKind::of(index, shape.producers)).collect();
        let mut producers = Vec::new();
        for kind in &kinds {
            producers.push(Arc::new(Producer::new(kind.options(shared, shape)).await?));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut streams, mut number) = (JoinSet::new(), first_stream);
        for (kind, producer) in kinds.iter().zip(&producers) {
            for partition in shape.partitions() {
                shared.progress.note_stream(number);
                let stream = Stream {
                    number,
                    partition,
                    exactly_once: *kind != ProducerKind::Plain,
                    producer: Arc::clone(producer),
                    shared: shared.clone(),
                    shape: shape.clone(),
                    rng: rng.fork(),
                    next: 0,
                };
                streams.spawn(stream.run(Arc::clone(&stop)));
                number += 1;
            }
        }
        Ok(Self { stop, streams, producers })
    }

    /// A load without producers.
    #[cfg(test)]
    pub(super) fn without_streams() -> Self {
        Self { stop: Arc::default(), streams: JoinSet::new(), producers: Vec::new() }
    }

    /// Fails if a stream has ended, which none does by itself.
    pub(super) fn must_run(&mut self) -> anyhow::Result<()> {
        match self.streams.try_join_next() {
            None => Ok(()),
            Some(ended) => {
                ended.context("a stream panicked")??;
                bail!("a stream has ended")
            }
        }
    }

    /// Lets each stream end its burst, and closes the producers.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let all = async {
            while let Some(ended) = self.streams.join_next().await {
                ended.context("a stream panicked")??;
            }
            for producer in &self.producers {
                producer.close().await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(STOP_LIMIT, all).await.context("the last bursts were never answered")?
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProducerKind {
    Idempotent,
    IdempotentCompressing,
    /// With one request at a time, because repeats would change the order otherwise.
    Plain,
}

impl ProducerKind {
    fn of(index: u32, count: u32) -> Self {
        match index {
            0 if count > 2 => Self::IdempotentCompressing,
            last if count > 1 && last == count - 1 => Self::Plain,
            _ => Self::Idempotent,
        }
    }

    fn options(self, shared: &Shared, shape: &Shape) -> ProducerOptions {
        let mut cluster = cluster_options(&shared.bootstrap);
        if self == Self::Plain {
            cluster.in_flight_max = 1;
        }
        ProducerOptions {
            idempotent: self != Self::Plain,
            compression: if self == Self::IdempotentCompressing {
                Compression::Lz4
            } else {
                Compression::None
            },
            linger: Duration::ZERO,
            batch_bytes: BATCH_BYTES,
            delivery_timeout: shape.delivery_limit,
            ..ProducerOptions::new(cluster)
        }
    }
}

struct Stream {
    number: u32,
    partition: TopicPartition,
    exactly_once: bool,
    producer: Arc<Producer>,
    shared: Shared,
    shape: Shape,
    rng: Rng,
    /// Sequence of the next record.
    next: u64,
}

type Outcome = Result<RecordMetadata, ClientError>;

impl Stream {
    async fn run(mut self, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
        let (partition, exactly_once) = (self.partition.clone(), self.exactly_once);
        self.shared
            .recorder
            .record(&[Event::Stream { stream: self.number, partition, exactly_once }])
            .await?;
        while !stop.load(Ordering::Relaxed) {
            self.burst().await?;
            tokio::time::sleep(self.rng.up_to(self.shape.pause_max)).await;
        }
        Ok(())
    }

    async fn burst(&mut self) -> anyhow::Result<()> {
        let span = Span {
            stream: self.number,
            first: self.next,
            count: 1 + self.rng.below(self.shape.burst_records_max),
        };
        self.next += span.count;
        self.shared.recorder.record(&[Event::Sent(span)]).await?;
        let mut deliveries = Vec::new();
        for sequence in span.first..self.next {
            deliveries.push(self.send(Identity { stream: self.number, sequence }).await);
        }
        let mut outcomes = Vec::new();
        for delivery in deliveries {
            outcomes.push(match delivery {
                Ok(delivery) => delivery.await,
                Err(error) => Err(error),
            });
        }
        self.shared.recorder.record(&events(span, &outcomes)).await?;
        self.note(span, &outcomes);
        Ok(())
    }

    async fn send(&mut self, identity: Identity) -> Result<Delivery, ClientError> {
        let size = if self.rng.one_in(self.shape.large_one_in) {
            self.rng.size_below(self.shape.large_bytes_max)
        } else {
            self.rng.size_below(SMALL_BYTES_MAX)
        };
        let value = value_of(self.shared.run, identity, HEADER_BYTES + size);
        let record = ProducerRecord {
            partition: Some(self.partition.partition),
            ..ProducerRecord::new(&*self.partition.topic, value)
        };
        self.producer.send(record).await
    }

    fn note(&self, span: Span, outcomes: &[Outcome]) {
        for (sequence, outcome) in (span.first..).zip(outcomes) {
            match outcome {
                Ok(placed) => {
                    let identity = Identity { stream: self.number, sequence };
                    self.shared.progress.note_acked(&self.partition, identity, placed.offset.0);
                }
                Err(error) => self.shared.progress.note_failed(self.number, error),
            }
        }
    }
}

/// The outcomes of a burst; equal ones that follow each other become one event.
fn events(span: Span, outcomes: &[Outcome]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for (sequence, outcome) in (span.first..).zip(outcomes) {
        let one = Span { stream: span.stream, first: sequence, count: 1 };
        match (events.last_mut(), outcome) {
            (Some(Event::Failed(failed)), Err(_)) => failed.count += 1,
            (Some(Event::Acked { span: acked, offset: Some(first) }), Ok(placed))
                if *first + acked.count as i64 == placed.offset.0 =>
            {
                acked.count += 1;
            }
            (_, Ok(placed)) => {
                let offset = Some(placed.offset.0).filter(|offset| *offset >= 0);
                events.push(Event::Acked { span: one, offset });
            }
            (_, Err(_)) => events.push(Event::Failed(one)),
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use riverrun_client::{ApiKey, ErrorCode};
    use riverrun_types::{Offset, TimestampMs};

    #[test]
    fn equal_successive_outcomes_are_one_event() {
        let acked = |offset| {
            Ok(RecordMetadata {
                topic: "t".into(),
                partition: 0,
                offset: Offset(offset),
                timestamp: TimestampMs(0),
            })
        };
        let failed = || Err(ClientError::Closed);
        let outcomes = [acked(5), acked(6), acked(9), failed(), failed(), acked(-1), acked(10)];
        let span = |first, count| Span { stream: 1, first, count };
        let expected = [
            Event::Acked { span: span(3, 2), offset: Some(5) },
            Event::Acked { span: span(5, 1), offset: Some(9) },
            Event::Failed(span(6, 2)),
            Event::Acked { span: span(8, 1), offset: None },
            Event::Acked { span: span(9, 1), offset: Some(10) },
        ];
        assert_eq!(events(span(3, 7), &outcomes), expected);
    }

    fn undelivered(last: Option<ClientError>) -> ClientError {
        let (after, attempts) = (Duration::from_secs(1), u32::from(last.is_some()));
        let (topic, last) = ("t".into(), last.map(Arc::new));
        ClientError::Undelivered { topic, partition: 0, after, attempts, server: None, last }
    }

    #[test]
    fn final_refusal_and_silence_are_found() {
        let found = |error: ClientError| {
            let progress = Progress::default();
            progress.note_failed(1, &error);
            progress.check_refusals().map_err(|fault| fault.to_string())
        };
        let told = |code| ClientError::Server { code, message: None };
        let silence = || ClientError::Timeout {
            address: "a".to_owned(),
            api: ApiKey::Produce,
            after: Duration::from_secs(1),
        };
        assert_eq!(found(undelivered(Some(told(ErrorCode::KAFKA_STORAGE_ERROR)))), Ok(()));
        assert_eq!(found(undelivered(None)), Ok(()), "it stood behind others");
        assert!(found(told(ErrorCode::INVALID_RECORD)).unwrap_err().contains("for good"));
        for error in [silence(), undelivered(Some(silence()))] {
            assert!(found(error).unwrap_err().contains("never answered"));
        }
    }

    #[test]
    fn producer_that_may_give_up_must_not_be_refused() {
        let found = |error: ClientError, may_give_up| {
            let progress = Progress::default();
            progress.note_failed(1, &error);
            progress.check_failures(may_give_up).map_err(|fault| fault.to_string())
        };
        let told = |code| ClientError::Server { code, message: None };
        for may_give_up in [false, true] {
            let fault = found(told(ErrorCode::INVALID_RECORD), may_give_up).unwrap_err();
            assert!(fault.contains("1 records were refused for good"), "{fault}");
        }
        // The server refuses for now, or is gone.
        for last in [Some(told(ErrorCode::KAFKA_STORAGE_ERROR)), None] {
            assert_eq!(found(undelivered(last.clone()), true), Ok(()));
            assert!(found(undelivered(last), false).unwrap_err().contains("given up"));
        }
    }

    #[test]
    fn stream_without_outcomes_is_in_the_tally() {
        let progress = Progress::default();
        progress.note_stream(1);
        progress.note_stream(2);
        progress.note_acked(&TopicPartition::new("t", 0), Identity { stream: 2, sequence: 0 }, 0);
        progress.note_failed(2, &undelivered(None));
        let expected = [(1, Outcomes::default()), (2, Outcomes { acked: 1, failed: 1 })];
        assert_eq!(progress.tally(), Tally::from(expected));
        assert_eq!((progress.acked(), progress.failed()), (1, 1));
    }

    #[test]
    fn number_of_crashes_is_unknown_during_a_crash() {
        let progress = Progress::default();
        assert_eq!(progress.crashes(), Some(0));
        progress.begin_crash();
        assert_eq!(progress.crashes(), None, "the server may answer still");
        progress.end_crash(1);
        assert_eq!(progress.crashes(), Some(1));
    }

    #[test]
    fn errors_that_differ_in_numbers_are_one() {
        assert_eq!(without_numbers("7 bytes of 16384 left, 2"), "# bytes of # left, #");
    }

    #[test]
    fn three_producers_have_all_kinds() {
        use ProducerKind::{Idempotent, IdempotentCompressing, Plain};
        assert_eq!(
            [0, 1, 2].map(|index| ProducerKind::of(index, 3)),
            [IdempotentCompressing, Idempotent, Plain]
        );
        assert_eq!(ProducerKind::of(0, 1), Idempotent);
    }
}
