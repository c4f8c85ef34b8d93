//! Owns the state that a quorum's commands add up to: the machine that they are for, and how `openraft` feeds it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;

use crate::codec::{Malformed, Reader, Writer};
use crate::log::LogStore;
use crate::types::{LogId, Peer, Reply, SnapshotMeta, StoredMembership, Types, VoterId};

/// A state machine. Every member applies the same commands in the same order, so a reply and the state after it may depend on
/// nothing else: no clock, no randomness, no place in memory.
pub trait Machine: Send + Sync + 'static {
    /// Applies the command at an index of the log; indexes rise, with gaps. A member stops where its program cannot read a command:
    /// others may, and what it would come to is not what they have.
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<Bytes, Unreadable>;

    /// The state as bytes, the same on every member that has applied the same commands.
    fn snapshot(&self) -> Bytes;

    /// Takes the state of a snapshot in place of its own. The error says what is wrong with the bytes; the state is as before then.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String>;
}

/// A command cannot be read by this program: a newer one has written it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command at index {index} cannot be read: {reason}; is a newer program part of the cluster?")]
pub struct Unreadable {
    /// The index.
    pub index: u64,
    /// The reason.
    pub reason: String,
}

/// A machine and how far it has come.
pub(crate) struct Applied<M> {
    pub(crate) machine: M,
    pub(crate) last: Option<LogId>,
    membership: StoredMembership,
    /// A digest of every command and reply so far: two members that have applied as much have the same one.
    pub(crate) digest: u64,
    /// The digests after the last entries, with their indexes, ascending.
    digests: VecDeque<(u64, u64)>,
}

/// Entries whose digests are kept: a member that is further behind is compared later.
const DIGESTS_MAX: usize = 4_096;

/// Members share it: the quorum's tasks change it, and everybody else looks at it.
pub(crate) struct Shared<M>(pub(crate) Arc<Mutex<Applied<M>>>);

impl<M> Clone for Shared<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for Shared<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Adds bytes to a digest: FNV-1a, of which a difference is to be noticed, not defended.
fn add_to(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const SNAPSHOT_MAGIC: &[u8; 8] = b"RIVQSNAP";
const SNAPSHOT_VERSION: u32 = 1;

impl<M: Machine> Applied<M> {
    fn new(machine: M) -> Self {
        let (last, membership, digests) = (None, StoredMembership::default(), VecDeque::new());
        Self { machine, last, membership, digest: 0xcbf2_9ce4_8422_2325, digests }
    }

    /// The digest after the entry of an index, if it is one of the last.
    pub(crate) fn digest_at(&self, index: u64) -> Option<u64> {
        let at = self.digests.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.digests.get(at).map(|(_, digest)| *digest)
    }

    fn apply(
        &mut self,
        id: LogId,
        payload: &EntryPayload<crate::types::Command, VoterId, Peer>,
    ) -> Result<Reply, Unreadable> {
        let reply = self.take(id, payload)?;
        if self.digests.len() == DIGESTS_MAX {
            self.digests.pop_front();
        }
        self.digests.push_back((id.index, self.digest));
        Ok(reply)
    }

    fn take(
        &mut self,
        id: LogId,
        payload: &EntryPayload<crate::types::Command, VoterId, Peer>,
    ) -> Result<Reply, Unreadable> {
        let reply = match payload {
            EntryPayload::Blank => Reply::default(),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(id), membership.clone());
                Reply::default()
            }
            EntryPayload::Normal(command) => {
                let reply = self.machine.apply(id.index, &command.0)?;
                let digest = add_to(self.digest, &id.index.to_le_bytes());
                self.digest = add_to(add_to(digest, &command.0), &reply);
                Reply(reply)
            }
        };
        self.last = Some(id);
        Ok(reply)
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.last, last_membership: self.membership.clone() }
    }

    /// The file of a snapshot: magic, version u32, CRC u32 of what follows, digest u64, what it is of, the machine's bytes.
    fn encode(&self) -> Bytes {
        let mut body = Writer::default();
        body.u64(self.digest);
        #[cfg(test)]
        body.snapshot_meta(&planted_meta(self.meta()));
        #[cfg(not(test))]
        body.snapshot_meta(&self.meta());
        body.0.extend_from_slice(&self.machine.snapshot());
        let mut file = Writer::default();
        file.0.extend_from_slice(SNAPSHOT_MAGIC);
        file.u32(SNAPSHOT_VERSION);
        file.u32(crc32c::crc32c(&body.0));
        file.0.extend_from_slice(&body.0);
        file.0.into()
    }

    /// Takes the state of a snapshot's file.
    fn decode(&mut self, file: &Bytes) -> Result<(), String> {
        let flaw = |Malformed(reason)| reason.to_owned();
        let mut reader = Reader::new(file);
        let magic = reader.u64().map_err(flaw)?;
        let (version, crc) = (reader.u32().map_err(flaw)?, reader.u32().map_err(flaw)?);
        if magic != u64::from_le_bytes(*SNAPSHOT_MAGIC) {
            return Err("it is no snapshot of a quorum".to_owned());
        }
        if version != SNAPSHOT_VERSION {
            return Err(format!(
                "its format has version {version}, and this program knows version {SNAPSHOT_VERSION}"
            ));
        }
        let body = reader.rest();
        if crc32c::crc32c(&body) != crc {
            return Err("it is damaged".to_owned());
        }
        let mut reader = Reader::new(&body);
        let digest = reader.u64().map_err(flaw)?;
        let meta = reader.snapshot_meta().map_err(flaw)?;
        self.machine.restore(&reader.rest())?;
        (self.last, self.membership, self.digest) = (meta.last_log_id, meta.last_membership, digest);
        self.digests.clear();
        Ok(())
    }
}

/// The meta of a snapshot with a planted bug.
#[cfg(test)]
fn planted_meta(mut meta: SnapshotMeta) -> SnapshotMeta {
    use crate::planted::{Planted, is_planted};
    if is_planted(Planted::SnapshotMidApply) {
        let before =
            |id: LogId| LogId::new_term_index(id.committed_leader_id().term, id.index.saturating_sub(1));
        meta.last_log_id = meta.last_log_id.map(before);
    }
    if is_planted(Planted::MembershipLost) {
        meta.last_membership = StoredMembership::default();
    }
    meta
}

/// `openraft`'s view of the machine.
pub(crate) struct StateMachine<M> {
    applied: Shared<M>,
    store: LogStore,
    newest: Newest,
}

/// The newest snapshot, as it lies on the disk.
type Newest = Arc<Mutex<Option<Snapshot<CommittedLeader, VoterId, Peer, Bytes>>>>;
type CommittedLeader = openraft::type_config::alias::CommittedLeaderIdOf<Types>;

impl<M> fmt::Debug for StateMachine<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").finish_non_exhaustive()
    }
}

impl<M: Machine> StateMachine<M> {
    /// Begins with a snapshot's file, or with nothing.
    pub(crate) fn new(machine: M, store: LogStore, snapshot: Option<Bytes>) -> Result<Self, String> {
        let mut applied = Applied::new(machine);
        let mut newest = None;
        if let Some(file) = snapshot {
            applied.decode(&file)?;
            newest = Some(Snapshot { meta: applied.meta(), snapshot: file });
        }
        let applied = Shared(Arc::new(Mutex::new(applied)));
        Ok(Self { applied, store, newest: Arc::new(Mutex::new(newest)) })
    }

    pub(crate) fn shared(&self) -> Shared<M> {
        self.applied.clone()
    }
}

impl<M: Machine> RaftStateMachine<Types> for StateMachine<M> {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.applied.0.lock();
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let reply = self.applied.0.lock().apply(entry.log_id, &entry.payload);
            let reply = reply.map_err(|unreadable| {
                tracing::error!("this member of the quorum stops: {unreadable}");
                io::Error::other(unreadable)
            })?;
            if let Some(responder) = responder {
                responder.send(reply);
            }
        }
        Ok(())
    }

    /// The state of this moment: what is applied meanwhile is not in it.
    async fn get_snapshot_builder(&mut self) -> Builder {
        let applied = self.applied.0.lock();
        let snapshot = Snapshot { meta: applied.meta(), snapshot: applied.encode() };
        Builder { snapshot, store: self.store.clone(), newest: self.newest.clone() }
    }

    /// Durable when it returns.
    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> io::Result<()> {
        self.store.save_snapshot(index_of(meta), snapshot.clone()).await?;
        self.applied.0.lock().decode(&snapshot).map_err(io::Error::other)?;
        note_newest(&self.newest, Snapshot { meta: meta.clone(), snapshot });
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<Snapshot<CommittedLeader, VoterId, Peer, Bytes>>> {
        Ok(self.newest.lock().clone())
    }
}

/// A snapshot that is to be stored.
pub(crate) struct Builder {
    snapshot: Snapshot<CommittedLeader, VoterId, Peer, Bytes>,
    store: LogStore,
    newest: Newest,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Bytes;

    /// Durable when it returns.
    async fn build_snapshot(&mut self) -> io::Result<Snapshot<CommittedLeader, VoterId, Peer, Bytes>> {
        self.store.save_snapshot(index_of(&self.snapshot.meta), self.snapshot.snapshot.clone()).await?;
        note_newest(&self.newest, self.snapshot.clone());
        Ok(self.snapshot.clone())
    }
}

fn index_of(meta: &SnapshotMeta) -> Option<u64> {
    meta.last_log_id.map(|id| id.index)
}

/// Notes a snapshot that was stored. One that was built may come behind a newer one that has arrived meanwhile.
fn note_newest(newest: &Newest, snapshot: Snapshot<CommittedLeader, VoterId, Peer, Bytes>) {
    let mut newest = newest.lock();
    if newest.as_ref().is_none_or(|known| index_of(&known.meta) <= index_of(&snapshot.meta)) {
        *newest = Some(snapshot);
    }
}

/// A machine that is any bytes.
#[cfg(feature = "fuzzing")]
struct AnyBytes(Vec<u8>);

#[cfg(feature = "fuzzing")]
impl Machine for AnyBytes {
    fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<Bytes, Unreadable> {
        Ok(Bytes::new())
    }

    fn snapshot(&self) -> Bytes {
        self.0.clone().into()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.0 = snapshot.to_vec();
        Ok(())
    }
}

/// Reads a snapshot's file, as it is and with a good checksum; what is accepted is the same after it was written again.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_snapshot(file: &Bytes) {
    let mut sealed = Writer::default();
    sealed.0.extend_from_slice(SNAPSHOT_MAGIC);
    sealed.u32(SNAPSHOT_VERSION);
    sealed.u32(crc32c::crc32c(file));
    sealed.0.extend_from_slice(file);
    for file in [file.clone(), sealed.0.into()] {
        let mut applied = Applied::new(AnyBytes(Vec::new()));
        if applied.decode(&file).is_ok() {
            let written = applied.encode();
            let mut again = Applied::new(AnyBytes(Vec::new()));
            again.decode(&written).expect("it was just written");
            assert_eq!(again.encode(), written);
        }
    }
}
