//! Names the profile of `Cargo.toml` that this crate is built in, because the demo prints rates: they mean little without it.
//!
//! Cargo tells a build script whether the profile descends from `dev` or `release`, but not its name. The name is that of
//! the directory above `build` in the script's own output path.

use std::env;
use std::path::{Path, PathBuf};

/// The profile's name where the path does not tell it: the demo then says that its rates are those of no known build.
const UNKNOWN: &str = "unknown";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo gives each build script a directory"));
    println!("cargo::rustc-env=RIVERRUN_PROFILE={}", profile(&out_dir).unwrap_or(UNKNOWN));
}

fn profile(out_dir: &Path) -> Option<&str> {
    let build = out_dir.ancestors().find(|path| path.file_name().is_some_and(|name| name == "build"))?;
    match build.parent()?.file_name()?.to_str()? {
        // The directory of `dev` is named otherwise, for the sake of older scripts.
        "debug" => Some("dev"),
        name => Some(name),
    }
}
