//! The controller: what the cluster agrees upon, and the decisions that change it. Pure: an image and a decision in, records out.
//!
//! Three parts. An [`Image`] is what is agreed upon at one moment. A [`Draft`] makes decisions on the newest image, at the member
//! that leads the quorum, by the rules of `docs/replication.md`; their records are one command. The [`Controller`] is every
//! member's [`Machine`]: it applies commands without a decision of its own.
//!
//! A command names the version of the image that it was made from, and no other takes it: a member that leads no more, or did not
//! know the newest image, changes nothing. It drafts again.

mod brokers;
mod decision;
mod draft;
mod image;
mod load;
mod partition;
mod partitions;
mod placement;
mod records;
mod sessions;
mod topics;

use std::sync::Arc;

use bytes::Bytes;

pub use brokers::Newcomer;
pub use decision::{Decided, Decision};
pub use draft::{Draft, Policy, Refusal};
pub use image::{Broker, Configs, Image, PARTITIONS_MAX, Topic};
pub use partition::{DirSlot, Partition, REPLICAS_MAX, Replica, ReplicaSet, Roles};
pub use partitions::IsrChange;
pub use records::{Change, Changed, Endpoint, LogDir, Record, Registration, Run};
pub(crate) use sessions::Sessions;
pub use sessions::lease;
pub use topics::{ConfigChanges, NewPartitions, NewTopic};

use crate::codec::{Malformed, Reader, Writer};
use crate::machine::{Machine, Unreadable};
use records::{ChangeCommand, write_records};

/// Version of the encoding of snapshots.
const SNAPSHOT_VERSION: u8 = 1;

/// The controller's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Taken,
    /// It was made from another image than the newest, and changes nothing.
    Stale {
        /// The version of the newest image.
        version: u64,
    },
    /// It changes nothing: it does not fit the image it was made from. The log of each member says why.
    Unfit,
}

const TAKEN: u8 = 0;
const STALE: u8 = 1;
const UNFIT: u8 = 2;

impl Outcome {
    /// Reads the reply of a member to a command.
    pub fn decode(reply: &Bytes) -> Option<Self> {
        let mut reader = Reader::new(reply);
        Some(match reader.u8().ok()? {
            TAKEN => Self::Taken,
            STALE => Self::Stale { version: reader.u64().ok()? },
            UNFIT => Self::Unfit,
            _ => return None,
        })
    }

    fn encode(&self) -> Bytes {
        let mut writer = Writer::default();
        match self {
            Self::Taken => writer.u8(TAKEN),
            Self::Stale { version } => {
                writer.u8(STALE);
                writer.u64(*version);
            }
            Self::Unfit => writer.u8(UNFIT),
        }
        writer.0.into()
    }
}

/// The image of a member.
#[derive(Clone, Debug, Default)]
pub struct Controller {
    image: Arc<Image>,
}

impl Controller {
    /// The newest image that is agreed upon.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    fn take(&mut self, index: u64, command: ChangeCommand) -> Outcome {
        let version = self.image.version();
        if command.base != version {
            return Outcome::Stale { version };
        }
        match self.image.after(index, command.records) {
            Ok(image) => {
                self.image = Arc::new(image);
                Outcome::Taken
            }
            Err(reason) => {
                tracing::error!(
                    "the change at index {index} of the cluster's metadata does not fit: {reason}"
                );
                Outcome::Unfit
            }
        }
    }

    fn read(snapshot: &Bytes) -> Result<Image, String> {
        let flaw = |Malformed(reason)| reason.to_owned();
        let mut reader = Reader::new(snapshot);
        if reader.u8().map_err(flaw)? != SNAPSHOT_VERSION {
            return Err("the image has a version that this program does not know".to_owned());
        }
        // One record after the other: all of them at once would take as much memory as the image.
        let mut image = Image::default();
        for _ in 0..reader.u32().map_err(flaw)? {
            image.apply(0, reader.record().map_err(flaw)?)?;
        }
        reader.end().map_err(flaw)?;
        Ok(image)
    }
}

impl Draft<'_> {
    /// The command that makes the draft's decisions hold.
    pub fn into_bytes(self) -> Bytes {
        self.into_command().encode()
    }

    /// The same, if every member can read it: what was decided may have texts or lists beyond their bounds.
    pub(crate) fn into_readable(self) -> Option<Bytes> {
        let bytes = self.into_bytes();
        ChangeCommand::decode(&bytes).ok().map(|_| bytes)
    }
}

impl Writer {
    pub(crate) fn decisions(&mut self, decisions: &[Decision]) {
        self.list(decisions, Self::decision);
    }

    pub(crate) fn answers(&mut self, answers: &[Decided]) {
        self.list(answers, Self::decided);
    }
}

impl Reader<'_> {
    pub(crate) fn decisions(&mut self) -> Result<Vec<Decision>, Malformed> {
        self.list(Self::decision)
    }

    pub(crate) fn answers(&mut self) -> Result<Vec<Decided>, Malformed> {
        self.list(Self::decided)
    }
}

impl Machine for Controller {
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<Bytes, Unreadable> {
        let command = ChangeCommand::decode(&Bytes::copy_from_slice(command));
        let command = command.map_err(|Malformed(reason)| Unreadable { index, reason: reason.to_owned() })?;
        Ok(self.take(index, command).encode())
    }

    fn snapshot(&self) -> Bytes {
        let mut writer = Writer::default();
        writer.u8(SNAPSHOT_VERSION);
        write_records(&mut writer, &self.image.to_records().collect::<Vec<_>>());
        writer.0.into()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.image = Arc::new(Self::read(&Bytes::copy_from_slice(snapshot))?);
        Ok(())
    }
}

/// Reads a command, applies it to an image, and reads the snapshot of what it gives; what is accepted is the same after it was
/// written again.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_command(bytes: &Bytes) {
    let Ok(command) = ChangeCommand::decode(bytes) else { return };
    let written = command.encode();
    let again = ChangeCommand::decode(&written).expect("it was just written");
    assert_eq!(again, command);
    let Ok(image) = Image::default().after(1, command.records) else { return };
    let controller = Controller { image: Arc::new(image) };
    let snapshot = controller.snapshot();
    let mut restored = Controller::default();
    restored.restore(&snapshot).expect("it was just written");
    assert_eq!(restored.snapshot(), snapshot);
}

#[cfg(test)]
mod mirror;
#[cfg(test)]
mod tests;
