//! The generated codecs as a whole: every message in every version.
//!
//! Bytes are made from the schema itself by [`sample`], which knows nothing of the generated code, so a wrong version
//! range or a swapped field shows as a difference. [`oracle`] asks an independent implementation, and [`hostile`]
//! feeds bytes that no correct peer sends.

#![expect(clippy::unwrap_used, reason = "all of this binary is a test, its helpers too")]

mod allocation;
mod hostile;
mod messages;
mod oracle;
mod round_trip;
mod sample;
#[expect(dead_code, reason = "the generator uses what these tests have no need of")]
#[path = "../../../../xtask/src/gen_protocol/schema.rs"]
mod schema;

use std::path::Path;
use std::sync::LazyLock;

use riverrun_protocol::catalog::{self, Codec};

/// One message of the schema with its codec.
struct Case {
    message: &'static schema::Message,
    codec: &'static Codec,
}

/// Every message of the schema.
static CASES: LazyLock<Vec<Case>> = LazyLock::new(load);

fn load() -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let files = std::fs::read_dir(directory).expect("the schema is beside the crate");
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let messages = texts.flat_map(|text| schema::parse(&text).unwrap().messages);
    messages.map(|message| case(Box::leak(Box::new(message)))).collect()
}

fn case(message: &'static schema::Message) -> Case {
    let codec = catalog::messages().iter().find(|codec| codec.name == message.name());
    Case { message, codec: codec.expect("every message of the schema has a codec") }
}

/// Calls `check` with a sample of every message in every version, all derived from `seed`.
fn for_each_sample(seed: u64, mut check: impl FnMut(&Case, i16, &[u8])) {
    let mut random = sample::Random(seed);
    for case in CASES.iter() {
        for version in case.codec.versions() {
            check(case, version, &sample::bytes(case.message, version, &mut random));
        }
    }
}
