//! `cargo xtask gen-protocol`: Kafka's messages as Rust, from our own schema.
//!
//! Owns the path from `crates/protocol/schema/*.txt` to `crates/protocol/src/generated`. The result is checked in and
//! formatted by rustfmt; a test compares it with the generator's output, so neither can change alone. The schema's
//! format is drawn in [`schema`], which also refuses what the emitters could not write.

mod codec;
mod emit;
pub(crate) mod schema;
mod types;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use schema::{Message, Role, SchemaFile};

/// Generated files: path below the generated directory, and text.
type Files = BTreeMap<PathBuf, String>;

/// Writes the generated files, and removes those that the schema no longer has.
pub(crate) fn run() -> Result<()> {
    let directory = protocol_crate().join("src/generated");
    let files = generate(&protocol_crate().join("schema"))?;
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    for (path, text) in &files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        fs::write(&path, text)?;
    }
    println!("{} files written", files.len());
    Ok(())
}

fn protocol_crate() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/protocol")
}

/// All generated files from the schema in `directory`.
fn generate(directory: &Path) -> Result<Files> {
    let schema = load(directory)?;
    let mut files = Files::new();
    for file in &schema {
        let below = file.group.as_ref().map(PathBuf::from).unwrap_or_default();
        for message in &file.messages {
            let name = below.join(format!("{}.rs", emit::module_name(message)));
            files.insert(name, emit::message_file(message, response_to(message, file)));
        }
    }
    files.insert("api_key.rs".into(), emit::api_keys(&schema));
    files.insert("catalog.rs".into(), emit::catalog(&schema));
    add_module_lists(&schema, &mut files);
    files.into_iter().map(|(path, text)| Ok((path, rustfmt(&text)?))).collect()
}

fn response_to<'s>(message: &Message, file: &'s SchemaFile) -> Option<&'s Message> {
    let is_request = matches!(message.role, Role::Request { .. });
    file.messages.iter().find(|other| is_request && matches!(other.role, Role::Response { .. }))
}

fn add_module_lists(schema: &[SchemaFile], files: &mut Files) {
    let mut inner = vec!["api_key", "catalog"];
    for file in schema {
        if let Some(group) = &file.group {
            let messages: Vec<_> = file.messages.iter().collect();
            let head = format!("The messages of `{group}`.");
            files.insert(Path::new(group).join("mod.rs"), emit::module_list(&messages, &[], &head));
            inner.push(group);
        }
    }
    let messages: Vec<_> =
        schema.iter().filter(|file| file.group.is_none()).flat_map(|file| &file.messages).collect();
    files.insert("mod.rs".into(), emit::module_list(&messages, &inner, "One module per message."));
}

/// The schema of this checkout.
#[cfg_attr(not(feature = "bench"), expect(dead_code, reason = "the attacks speak the protocol"))]
pub(crate) fn load_schema() -> Result<Vec<SchemaFile>> {
    load(&protocol_crate().join("schema"))
}

/// The request of a file that describes an api.
#[cfg_attr(not(feature = "bench"), expect(dead_code, reason = "the attacks speak the protocol"))]
pub(crate) fn request_of(file: &SchemaFile) -> Option<&Message> {
    file.messages.iter().find(|message| matches!(message.role, Role::Request { .. }))
}

/// Reads every schema file, in order of name.
fn load(directory: &Path) -> Result<Vec<SchemaFile>> {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .with_context(|| directory.display().to_string())?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    paths.iter().map(|path| load_file(path).with_context(|| path.display().to_string())).collect()
}

fn load_file(path: &Path) -> Result<SchemaFile> {
    let file = schema::parse(&fs::read_to_string(path)?)?;
    if file.api.is_some() {
        let roles: Vec<_> = file.messages.iter().map(|message| &message.role).collect();
        let [Role::Request { .. }, Role::Response { .. }] = roles.as_slice() else {
            bail!("an api has one request and then one response");
        };
        let [request, response] = file.messages.as_slice() else { unreachable!("two roles, two messages") };
        ensure!(
            request.root().versions == response.root().versions,
            "request and response differ in versions"
        );
    }
    Ok(file)
}

/// The text as formatted by `cargo fmt`.
fn rustfmt(text: &str) -> Result<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--config-path"])
        .arg(workspace)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt is part of the toolchain file; is the toolchain installed?")?;
    let mut input = child.stdin.take().context("the pipe was asked for")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt refuses the generated code:\n{text}");
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests;
