//! Files and messages that a member of a quorum reads.

use bytes::Bytes;
use riverrun_cluster::fuzzing::{command, log, message, sealed_log, snapshot};

/// The bytes as a log file, as the records of one whose checksums are good, and as a snapshot.
pub fn check_quorum_files(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    log(&bytes);
    snapshot(&bytes);
    // Each record is behind its length, so that the fuzzer can make many.
    let mut records = Vec::new();
    let mut rest = data;
    while let Some((length, behind)) = rest.split_first() {
        let (record, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        records.push(record);
        rest = behind;
    }
    log(&sealed_log(&records));
}

/// The bytes as what a link begins with, as a request and as an answer.
pub fn check_quorum_message(data: &[u8]) {
    message(&Bytes::copy_from_slice(data));
}

/// The bytes as a command of the controller, and as what a member asks of another.
pub fn check_quorum_command(data: &[u8]) {
    command(&Bytes::copy_from_slice(data));
}
