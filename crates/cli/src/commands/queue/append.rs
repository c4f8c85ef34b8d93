//! `riverrun queue append`: lines from stdin.

use std::io::BufRead as _;
use std::path::PathBuf;

use clap::Args;
use riverrun_queue::{AppendOptions, Durability, NewRecord};

use super::queue_failure;
use crate::exit::Failure;

/// Flags of `queue append`.
#[derive(Args, Debug)]
pub(crate) struct AppendArgs {
    /// The queue's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What ends the key of a line; without it lines are values
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key_separator: Option<String>,
    /// Sync each record before the next is read
    #[arg(long)]
    sync: bool,
}

pub(crate) fn run(args: &AppendArgs) -> Result<(), Failure> {
    let queue = super::open(&args.dir).map_err(|error| queue_failure(&error))?;
    let durability = if args.sync { Durability::Sync } else { Durability::Async };
    let options = AppendOptions { durability, ..AppendOptions::default() };
    let mut appender = queue.appender(options).map_err(|error| queue_failure(&error))?;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input
            .read_until(b'\n', &mut line)
            .map_err(|error| Failure::io("cannot read the input", &error))?;
        if read == 0 {
            return Ok(());
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let (key, value) = split(text, args.key_separator.as_deref());
        let record = NewRecord { key, value: Some(value), ..NewRecord::default() };
        appender.append_record(&record).map_err(|error| queue_failure(&error))?;
    }
}

/// Key and value of a line; one without the separator is a value.
fn split<'a>(line: &'a [u8], separator: Option<&str>) -> (Option<&'a [u8]>, &'a [u8]) {
    let separator = separator.unwrap_or_default().as_bytes();
    let found =
        (!separator.is_empty()).then(|| line.windows(separator.len()).position(|part| part == separator));
    match found.flatten() {
        Some(at) => (Some(&line[..at]), &line[at + separator.len()..]),
        None => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_splits_at_the_first_separator() {
        assert_eq!(split(b"a::b::c", Some("::")), (Some(b"a".as_slice()), b"b::c".as_slice()));
        assert_eq!(split(b"abc", Some("::")), (None, b"abc".as_slice()));
        assert_eq!(split(b"a:b", None), (None, b"a:b".as_slice()));
    }
}
