//! Any bytes as a state file: no panic, bounded memory, and what is accepted can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_state(data));
