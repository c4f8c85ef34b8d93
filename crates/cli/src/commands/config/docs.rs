//! `riverrun config docs`: the reference of all options, as Markdown.

use riverrun_broker::config::docs::markdown;

use crate::exit::Failure;
use crate::text::output::print_text;

pub(super) fn run() -> Result<(), Failure> {
    print_text(&markdown())
}
