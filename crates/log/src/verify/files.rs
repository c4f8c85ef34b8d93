//! The check of a log dir's files besides segments: its checkpoint, its log starts, state files.
//!
//! Reads, and changes nothing. The checkpoint's state of a partition decides what damage in it means.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::{Env, OddFile, is_device_error, read_whole, readable_bytes};
use riverrun_types::{Offset, PartitionId};

use super::{Finding, Weight};
use crate::checkpoint::{CHECKPOINT_FILE, DecodeError, DirCheckpoint, PartitionCheckpoint};
use crate::epochs::{EpochCache, EpochEntry};
use crate::error::LogError;
use crate::log_dir::topic_dir;
use crate::log_starts::{self, Change, LOG_STARTS_FILE};
use crate::state_file::{decode_state, state_file};

/// A file of a log dir in bytes at most.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The state of a log dir's partitions by its own files, and the faults of these files.
#[derive(Clone, Debug, Default)]
pub struct LogDirFiles {
    path: PathBuf,
    findings: Vec<Finding>,
    /// None: there is no checkpoint that can be believed.
    partitions: Option<BTreeMap<PartitionId, PartitionCheckpoint>>,
    /// The state of a partition that the checkpoint does not know: nothing of it was synced when it was written.
    young: PartitionCheckpoint,
    was_clean: bool,
}

impl LogDirFiles {
    /// Reads the files of the log dir at `path`. Fails only if the system cannot read.
    pub fn read(env: &Env, path: &Path) -> Result<Self, LogError> {
        let mut files = Self { path: path.to_path_buf(), ..Self::default() };
        let checkpoint = files.read_checkpoint(env)?;
        files.was_clean = checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.is_clean);
        let generation = checkpoint.as_ref().map(|checkpoint| checkpoint.generation);
        let mut partitions = checkpoint.map(|checkpoint| checkpoint.partitions);
        for (partition, change) in files.read_log_starts(env, generation.unwrap_or(0))? {
            if let Some(partitions) = &mut partitions {
                partitions.entry(partition).or_default().change(change);
            }
        }
        files.partitions = partitions;
        Ok(files)
    }

    /// The faults of the files.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The checkpoint's state of a partition, if it can be believed; its silence means that nothing was synced yet.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionCheckpoint> {
        let known = self.partitions.as_ref()?.get(&id).unwrap_or(&self.young);
        (!known.is_lost).then_some(known)
    }

    /// Number of a partition's cuts, if the journals have entries from after `newest` cuts. That number is believed for
    /// a partition that the files do not know, as in a start.
    pub(super) fn cuts_or(&self, id: PartitionId, newest: u32) -> u32 {
        match self.partitions.as_ref().and_then(|partitions| partitions.get(&id)) {
            Some(known) if known.is_lost => known.cuts.max(newest),
            Some(known) => known.cuts,
            None => newest,
        }
    }

    /// Whether there is a checkpoint that can be believed.
    pub fn has_checkpoint(&self) -> bool {
        self.partitions.is_some()
    }

    /// Partitions that have synced records, by the checkpoint, and no directory. After a kill their topics may have
    /// been deleted since: then only those in `named`, from the metadata, are missed.
    pub fn missing_partitions(
        &self,
        env: &Env,
        named: &BTreeSet<PartitionId>,
    ) -> Result<Vec<Finding>, LogError> {
        let mut missing = Vec::new();
        let is_missed = |id: &PartitionId| self.was_clean || named.contains(id);
        for (id, known) in self.partitions.iter().flatten().filter(|(id, _)| is_missed(id)) {
            let path = self.path.join(topic_dir(*id)).join(id.index.to_string());
            let synced = known.durable_end();
            let has_records = known.log_start < synced;
            if has_records && !env.fs.exists(&path).map_err(|error| LogError::io(&path, error))? {
                let what = format!("missing, where offsets up to {synced} were synced");
                missing.push(Finding { path, position: 0, weight: Weight::Damage, what });
            }
        }
        Ok(missing)
    }

    fn find(&mut self, file: &str, position: u64, weight: Weight, what: impl Into<String>) {
        let path = self.path.join(file);
        self.findings.push(Finding { path, position, weight, what: what.into() });
    }

    fn read_checkpoint(&mut self, env: &Env) -> Result<Option<DirCheckpoint>, LogError> {
        let Some(bytes) = read_if_there(env, &self.path.join(CHECKPOINT_FILE))? else {
            self.find(CHECKPOINT_FILE, 0, Weight::Damage, "the checkpoint is missing");
            return Ok(None);
        };
        match bytes.and_then(|bytes| DirCheckpoint::decode(&bytes)) {
            Ok(checkpoint) => Ok(Some(checkpoint)),
            Err(error) => {
                self.find(CHECKPOINT_FILE, 0, Weight::Damage, error.to_string());
                Ok(None)
            }
        }
    }

    fn read_log_starts(
        &mut self,
        env: &Env,
        generation: u64,
    ) -> Result<Vec<(PartitionId, Change)>, LogError> {
        let Some(bytes) = read_if_there(env, &self.path.join(LOG_STARTS_FILE))? else {
            self.find(LOG_STARTS_FILE, 0, Weight::Damage, "the log starts are missing");
            return Ok(Vec::new());
        };
        match bytes.and_then(|bytes| log_starts::decode(&bytes)) {
            Err(error) => {
                self.find(LOG_STARTS_FILE, 0, Weight::Damage, error.to_string());
                Ok(Vec::new())
            }
            Ok(content) => {
                for flaw in content.flaws(generation) {
                    let weight = if flaw.may_be_torn { Weight::TornTail } else { Weight::Damage };
                    self.find(LOG_STARTS_FILE, flaw.position, weight, flaw.what);
                }
                Ok(content.changes(generation).collect())
            }
        }
    }
}

/// The bytes of a file, or the error if it is no file, or the disk does not give them back. None if it does not exist.
fn read_if_there(env: &Env, path: &Path) -> Result<Option<Result<Vec<u8>, DecodeError>>, LogError> {
    let io = |error| LogError::io(path, error);
    match read_whole(&*env.fs, path, FILE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(Ok(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if let Some(odd) = OddFile::of(&error) => Ok(Some(Err(DecodeError::Odd(odd)))),
        Err(error) if is_device_error(&error) => {
            let position = readable_bytes(&*env.fs, path).map_err(io)?;
            Ok(Some(Err(DecodeError::Unreadable(position))))
        }
        Err(error) => Err(io(error)),
    }
}

/// Checks the state files in a partition's directory, of which the checkpoint may name one.
pub(super) fn check_states(
    env: &Env,
    dir: &Path,
    partition: PartitionId,
    there: &[Offset],
    known: Option<&PartitionCheckpoint>,
) -> Result<Vec<Finding>, LogError> {
    let mut findings = Vec::new();
    for offset in there {
        let path = dir.join(state_file(*offset));
        let Some(bytes) = read_if_there(env, &path)? else { continue };
        let decoded = bytes.and_then(|bytes| decode_state(&bytes, partition, *offset));
        // State files above the recovery point may be torn, and are removed by the next start.
        let is_covered = known.is_none_or(|known| *offset <= known.recovery_point);
        let what = match (decoded, known) {
            (Err(error), _) => error.to_string(),
            (Ok(state), Some(known)) if is_covered && !agree(&state.epochs, known, *offset) => {
                "its leader epochs are not those of the checkpoint".to_owned()
            }
            _ => continue,
        };
        let weight = if is_covered { Weight::Damage } else { Weight::TornTail };
        findings.push(state_finding(path, weight, &what));
    }
    let named = known.and_then(|known| known.producers_at);
    if let Some(missing) = named.filter(|named| !there.contains(named)) {
        findings.push(state_finding(
            dir.join(state_file(missing)),
            Weight::Damage,
            "the state file is missing",
        ));
    }
    Ok(findings)
}

/// Whether a state as of `offset` has the epochs that the checkpoint has, as far as both reach.
fn agree(state: &EpochCache, known: &PartitionCheckpoint, offset: Offset) -> bool {
    let common = |epochs: &[EpochEntry]| {
        let common =
            epochs.iter().filter(|entry| (known.log_start.0 + 1..offset.0).contains(&entry.start_offset.0));
        common.copied().collect::<Vec<_>>()
    };
    common(state.entries()) == common(known.epochs.entries())
}

fn state_finding(path: PathBuf, weight: Weight, what: &str) -> Finding {
    let what = format!("{what}; the next start goes on from the state file before it and from the log");
    Finding { path, position: 0, weight, what }
}
