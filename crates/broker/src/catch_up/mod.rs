//! Catch-up reads: reads of records that have left memory. They have a budget of their own, so that they hold up no other
//! connection. Searches by time share the budget.
//!
//! [`plan`] decides whether a read may wait for the disk.
//!
//! A read that has to wait for the disk does so on a thread that serves no other connection meanwhile. Only so many wait at
//! once for each log dir, each for a piece of a file of bounded size, or to prove about as much of the answer of one fetch
//! ([`crate::fetch`]). That bounds threads, bytes in flight, and the disk's work beside the journal and the segments' writers.
//! Sources take turns: the source that had least time of late is next, of its connections the one that had least, and a
//! source that had much leaves a place to the others. A search may have to inflate a large batch at once, so searches of
//! sources that are not known to be quick leave a place to reads as well ([`InflatingLeave`]). A log dir that hangs holds up
//! no reads of the others. Pages that a read far behind the end of a log brought into the page cache are dropped after it
//! ([`readers`]).

pub(crate) mod plan;
pub(crate) mod readers;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::File;
use riverrun_types::Offset;
use tokio::task::yield_now;
use tokio::time::timeout;

use self::plan::{ColdSpell, FetchStart};
use self::readers::{ReaderId, Readers, Stretch};
use crate::context::ConnectionInfo;
use crate::flow::inflate_offload::{InflatingLeave, Leave, Length};
use crate::flow::source::Source;

/// After so long no sent bytes are on their way any more, as long as the reader is not slow.
const DROP_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a request waits for the turn of a log dir. The disk may hang for the reads that have the turns: a request
/// that waits behind them goes on with records that lie elsewhere.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);

/// The client for whom something is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    pub(crate) source: Source,
    pub(crate) connection: u64,
}

impl Whose {
    /// For the client of a connection.
    pub(crate) fn of(connection: &ConnectionInfo) -> Self {
        Self { source: Source::of(connection.peer.ip()), connection: connection.id }
    }
}

/// A file by identity. It is not kept open for this: once the log has closed or removed it, there is nothing to drop.
#[derive(Clone, Debug)]
struct FileRef(Weak<dyn File>);

impl PartialEq for FileRef {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

/// The catch-up reads of a server.
///
/// Invariants: `spells` holds the open connections, each with its cold spell, if it has one. No read waits for the turn of
/// one log dir while it has that of another.
#[derive(Debug)]
pub(crate) struct CatchUp {
    /// Turns to wait for each log dir.
    turns: Box<[Arc<InflatingLeave>]>,
    distance_bytes: u64,
    spells: Mutex<HashMap<u64, Option<ColdSpell>>>,
    readers: Mutex<Readers<FileRef>>,
}

/// A read far behind the end of its log, until it was sent.
pub(crate) struct FarRead {
    catch_up: Arc<CatchUp>,
    id: ReaderId,
    stretch: Stretch<FileRef>,
}

impl fmt::Debug for FarRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FarRead").field(&self.id).finish()
    }
}

/// Records that were read of a file, and the log's end at that time.
#[derive(Clone, Debug)]
pub(crate) struct FileRead<'a> {
    pub(crate) file: &'a Arc<dyn File>,
    pub(crate) position: u64,
    pub(crate) len: usize,
    pub(crate) offsets: Range<Offset>,
    pub(crate) log_end: Offset,
}

impl FileRead<'_> {
    /// Bytes of records after these, if they are like these on average.
    fn bytes_behind(&self) -> u64 {
        let records = |range: Range<Offset>| u128::try_from(range.end.0 - range.start.0).unwrap_or_default();
        let after = records(self.offsets.end..self.log_end);
        let bytes = after * self.len as u128 / records(self.offsets.clone()).max(1);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl CatchUp {
    /// `waits_max` reads wait for each of so many log dirs at once; a reader further behind the log end than
    /// `distance_bytes` is far behind.
    pub(crate) fn new(waits_max: usize, log_dirs: usize, distance_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            turns: (0..log_dirs).map(|_| Arc::new(InflatingLeave::with_places(waits_max))).collect(),
            distance_bytes,
            spells: Mutex::default(),
            readers: Mutex::default(),
        })
    }

    /// A connection begins.
    pub(crate) fn begin(&self, connection: u64) {
        self.spells.lock().insert(connection, Some(ColdSpell::OF_NEWCOMER));
    }

    /// A connection is gone. A read that it has begun may still end.
    pub(crate) fn end(&self, connection: u64) {
        self.spells.lock().remove(&connection);
        self.readers.lock().forget(connection);
    }

    /// Whether the connection's next read is expected to meet the disk.
    pub(crate) fn has_spell(&self, connection: u64) -> bool {
        self.spells.lock().get(&connection).is_some_and(Option::is_some)
    }

    /// The connection begins a fetch.
    pub(crate) fn begin_fetch(&self, connection: u64) -> FetchStart {
        let mut spells = self.spells.lock();
        let Some(spell) = spells.get_mut(&connection) else { return FetchStart::WARM };
        let Some((start, left)) = spell.map(ColdSpell::begin_fetch) else { return FetchStart::WARM };
        *spell = left;
        start
    }

    /// Does work for a client that may have to wait for the disk of a log dir, or take long, as one of a bounded number. The
    /// caller has no turn yet. After the work the task goes on on a thread of the runtime, of which there are few: the runtime
    /// has put another thread in the place of the one that waited. None: its turn did not come within [`TURN_WAIT_MAX`], and
    /// nothing was done.
    pub(crate) async fn wait_aside<T>(
        &self,
        log_dir: usize,
        whose: Whose,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        self.do_in_time(log_dir, whose, Length::Unknown, work).await
    }

    /// The same for reads of bounded size.
    pub(crate) async fn read_aside<T>(
        &self,
        log_dir: usize,
        whose: Whose,
        read: impl FnOnce() -> T,
    ) -> Option<T> {
        self.do_in_time(log_dir, whose, Length::Piece, read).await
    }

    /// The same for a read that must not be given up, however late its turn comes, and without a wait after it. So the thread
    /// that has waited, which is one too many, goes on with the task: the caller yields before it does more. The wait for the
    /// turn ends with the caller: a connection that sends nothing for its idle time is closed, and so is one whose answers hold
    /// memory that others wait for.
    pub(crate) async fn read_on_thread<T>(
        &self,
        log_dir: usize,
        whose: Whose,
        read: impl FnOnce() -> T,
    ) -> T {
        let _turn = self.turn(log_dir, whose, Length::Piece).await;
        tokio::task::block_in_place(read)
    }

    /// The same as [`Self::read_on_thread`], if it is its turn at once.
    pub(crate) fn try_read_aside<T>(
        &self,
        log_dir: usize,
        whose: Whose,
        read: impl FnOnce() -> T,
    ) -> Option<T> {
        let turns = &self.turns[log_dir];
        let _turn = turns.try_get(turns.worker_of(whose.source, whose.connection, Length::Piece))?;
        Some(tokio::task::block_in_place(read))
    }

    async fn do_in_time<T>(
        &self,
        log_dir: usize,
        whose: Whose,
        length: Length,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let turn = timeout(TURN_WAIT_MAX, self.turn(log_dir, whose, length)).await.ok()?;
        let done = tokio::task::block_in_place(work);
        drop(turn);
        yield_now().await;
        Some(done)
    }

    async fn turn(&self, log_dir: usize, whose: Whose, length: Length) -> Leave {
        let turns = &self.turns[log_dir];
        turns.get(turns.worker_of(whose.source, whose.connection, length)).await
    }

    /// The connection has met records on the disk.
    pub(crate) fn met_disk(&self, connection: u64) {
        if let Some(spell) = self.spells.lock().get_mut(&connection) {
            *spell = Some(ColdSpell::since_disk(*spell));
        }
    }

    /// The connection's fetch has postponed the partition at `place`: the next one without a session begins there, so that
    /// the partitions behind it have their turn.
    pub(crate) fn begin_next_at(&self, connection: u64, place: usize) {
        if let Some(spell) = self.spells.lock().get_mut(&connection) {
            *spell = Some(ColdSpell::since_postponed(place));
        }
    }

    /// Notes a read; the result goes with it until it was sent, if it is far behind.
    pub(crate) fn follow(self: &Arc<Self>, id: ReaderId, read: FileRead<'_>) -> Option<Box<FarRead>> {
        if read.bytes_behind() <= self.distance_bytes {
            return None;
        }
        self.readers.lock().read(id, &read.offsets);
        let FileRead { file, position, len, offsets, .. } = read;
        let stretch = Stretch { file: FileRef(Arc::downgrade(file)), position, len: len as u64, offsets };
        Some(Box::new(FarRead { catch_up: Arc::clone(self), id, stretch }))
    }
}

impl FarRead {
    /// The range lies on the disk, or did before it was read.
    pub(crate) fn met_disk(&self) {
        self.catch_up.readers.lock().met_cold(self.id);
    }

    /// The range was handed to the socket whole: pages that no reader needs any more leave the page cache.
    pub(crate) fn finish(self) {
        let old = self.catch_up.readers.lock().sent(self.id, self.stretch);
        if !old.is_empty() {
            tokio::spawn(drop_twice(old));
        }
    }
}

/// Drops pages twice: the system silently passes over pages that the network still holds on to, and with large pages over
/// the whole stretch.
async fn drop_twice(stretches: Vec<Stretch<FileRef>>) {
    let stretches = Arc::new(stretches);
    for pause in [Duration::ZERO, DROP_AGAIN_AFTER] {
        tokio::time::sleep(pause).await;
        let stretches = Arc::clone(&stretches);
        tokio::task::spawn_blocking(move || stretches.iter().for_each(drop_cached));
    }
}

/// Only advice: where it fails, the system drops the pages when it needs room.
fn drop_cached(stretch: &Stretch<FileRef>) {
    if let Some(file) = stretch.file.0.upgrade()
        && let Err(error) = file.advise_dont_need(stretch.position, stretch.len)
    {
        tracing::debug!(%error, "records that were read far behind stay in the page cache");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use riverrun_env::OpenMode;
    use riverrun_env::sim::SimEnv;
    use riverrun_types::{PartitionId, TopicId};

    use super::plan::{SPELL_FETCHES, Thread};
    use super::*;

    const ID: ReaderId =
        ReaderId { partition: PartitionId { topic: TopicId([7; 16]), index: 0 }, connection: 5 };

    const SOME: Whose = Whose { source: Source::SOME, connection: 5 };

    fn file() -> Arc<dyn File> {
        SimEnv::new(1).env().fs.open("/log".as_ref(), OpenMode::CreateNew).unwrap()
    }

    fn read(file: &Arc<dyn File>, log_end: i64) -> FileRead<'_> {
        FileRead { file, position: 0, len: 1000, offsets: Offset(100)..Offset(110), log_end: Offset(log_end) }
    }

    #[test]
    fn distance_of_a_read_follows_from_the_size_of_its_records() {
        let file = file();
        for (log_end, bytes) in [(110, 0), (120, 1000), (1110, 100_000), (90, 0)] {
            assert_eq!(read(&file, log_end).bytes_behind(), bytes, "{log_end}");
        }
        let all = FileRead { len: usize::MAX, offsets: Offset(0)..Offset(1), ..read(&file, i64::MAX) };
        assert_eq!(all.bytes_behind(), u64::MAX);
    }

    #[test]
    fn only_a_read_far_behind_is_followed() {
        let (catch_up, file) = (CatchUp::new(1, 1, 1000), file());
        assert!(catch_up.follow(ID, read(&file, 120)).is_none());
        assert!(catch_up.follow(ID, read(&file, 121)).is_some());
    }

    #[test]
    fn new_connection_is_cold_and_a_cold_one_for_some_fetches() {
        let catch_up = CatchUp::new(1, 1, 0);
        let begins_cold = || catch_up.begin_fetch(5).thread == Thread::Own;
        catch_up.begin(5);
        assert!(begins_cold(), "nothing is known of it");
        assert!(!begins_cold());
        catch_up.met_disk(5);
        for _ in 0..SPELL_FETCHES {
            assert!(begins_cold());
        }
        assert!(!begins_cold() && !catch_up.has_spell(5));
    }

    #[test]
    fn read_that_outlives_its_connection_leaves_no_spell() {
        let catch_up = CatchUp::new(1, 1, 0);
        catch_up.begin(5);
        catch_up.end(5);
        catch_up.met_disk(5);
        catch_up.begin_next_at(5, 1);
        assert!(catch_up.spells.lock().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn task_goes_on_on_a_network_thread_after_its_read() {
        let catch_up = CatchUp::new(4, 1, 0);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let reads = (0..12).map(|connection| {
            let (catch_up, running, most) = (Arc::clone(&catch_up), Arc::clone(&running), Arc::clone(&most));
            tokio::spawn(async move {
                let pause = || std::thread::sleep(Duration::from_millis(3));
                catch_up.wait_aside(0, Whose { connection, ..SOME }, pause).await;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                pause();
                running.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for read in reads.collect::<Vec<_>>() {
            read.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 1, "there is one thread");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn waits_for_a_log_dir_are_bounded_and_hold_up_no_other() {
        let catch_up = CatchUp::new(1, 2, 0);
        let (release, wait) = std::sync::mpsc::sync_channel::<()>(1);
        let (report, is_running) = tokio::sync::oneshot::channel();
        let first = tokio::spawn({
            let catch_up = Arc::clone(&catch_up);
            async move {
                let work = move || {
                    report.send(()).expect("the test listens");
                    wait.recv().expect("the test releases it");
                };
                catch_up.wait_aside(0, SOME, work).await;
            }
        });
        is_running.await.unwrap();
        let second = tokio::spawn({
            let catch_up = Arc::clone(&catch_up);
            async move { catch_up.wait_aside(0, SOME, || ()).await }
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!second.is_finished(), "it is not its turn");
        assert_eq!(catch_up.try_read_aside(0, SOME, || ()), None);
        catch_up.wait_aside(1, SOME, || ()).await;
        assert_eq!(catch_up.try_read_aside(1, SOME, || ()), Some(()));
        release.send(()).unwrap();
        first.await.unwrap();
        second.await.unwrap();
    }
}
