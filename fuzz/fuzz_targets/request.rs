//! Any bytes as a request of any key and version: no panic, bounded memory, and what is read can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_request(data));
