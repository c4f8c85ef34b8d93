//! Any bytes as a command of the controller, or as what a member asks: no panic, and what is accepted can be written and read
//! again, as can the image that it makes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_quorum_command(data));
