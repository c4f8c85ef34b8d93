//! `riverrun queue append`: lines from stdin.

use std::io::BufRead as _;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use riverrun_queue::{AppendOptions, Durability, NewRecord};

use super::queue_failure;
use crate::exit::Failure;

/// Flags of `queue append`.
#[derive(Args, Debug)]
pub struct AppendArgs {
    /// The queue's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Text that ends the key of a line; a line without it is an error. Without this option lines are values
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    key_separator: Option<String>,
    /// Sync each record before the next is read
    #[arg(long)]
    sync: bool,
}

pub(super) fn run(args: &AppendArgs) -> Result<(), Failure> {
    let queue = super::open(&args.dir).map_err(|error| queue_failure(&error))?;
    let durability = if args.sync { Durability::Sync } else { Durability::Async };
    let options = AppendOptions { durability, ..AppendOptions::default() };
    let mut appender = queue.appender(options).map_err(|error| queue_failure(&error))?;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = input
            .read_until(b'\n', &mut line)
            .map_err(|error| Failure::io("cannot read the input", &error))?;
        if read == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let (key, value) = split(text, args.key_separator.as_deref(), number)?;
        let record = NewRecord { key, value: Some(value), ..NewRecord::default() };
        appender.append_record(&record).map_err(|error| queue_failure(&error))?;
    }
    Ok(())
}

/// Key and value of a line. Where there is a separator, which is not empty, each line has to have it.
fn split<'a>(
    line: &'a [u8],
    separator: Option<&str>,
    number: u64,
) -> Result<(Option<&'a [u8]>, &'a [u8]), Failure> {
    let Some(separator) = separator else { return Ok((None, line)) };
    let found = line.windows(separator.len()).position(|part| part == separator.as_bytes());
    let at = found.ok_or_else(|| {
        Failure::usage(format!("line {number} of the input: no {separator:?} between key and value"))
    })?;
    Ok((Some(&line[..at]), &line[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_splits_at_the_first_separator() {
        let split =
            |line, separator| split(line, separator, 7).map_err(|failure| failure.message().to_owned());
        assert_eq!(split(b"a::b::c", Some("::")), Ok((Some(b"a".as_slice()), b"b::c".as_slice())));
        assert_eq!(split(b"a:b", None), Ok((None, b"a:b".as_slice())));
        let refused = split(b"abc", Some("::")).expect_err("no separator");
        assert!(refused.contains("line 7") && refused.contains("\"::\""), "{refused}");
    }
}
