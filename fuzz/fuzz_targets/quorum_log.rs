//! Any bytes as the log and the snapshot of a quorum's member: no panic, and what is accepted can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_quorum_files(data));
