//! Names of a partition's files: an offset of 20 digits, and an ending for the kind of file.

use riverrun_types::Offset;

/// Ending of a segment's log file.
pub(crate) const LOG_SUFFIX: &str = ".log";
/// Ending of a segment's index file.
pub(crate) const INDEX_SUFFIX: &str = ".index";
/// Ending of a state file.
pub(crate) const STATE_SUFFIX: &str = ".state";
/// Ending of an empty file whose name says that damage was found in the segment of that name.
pub(crate) const DAMAGED_SUFFIX: &str = ".damaged";
/// Ending of files that retention has taken out of the log and that readers may still hold.
pub(crate) const DELETED_SUFFIX: &str = ".deleted";
/// Ending of a file that is being written in order to replace another.
pub(crate) const NEW_SUFFIX: &str = ".new";

/// Digits of an offset in a name.
const DIGITS: usize = 20;

/// The offset in a name with this ending; none if the name is not one of ours.
pub(crate) fn parse_name(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}
