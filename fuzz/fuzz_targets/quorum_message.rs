//! Any bytes as a message between members of a quorum: no panic, and what is accepted can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_quorum_message(data));
