//! `riverrun config docs`: the reference of all options, as Markdown.

use riverrun_broker::config::docs::markdown;
use riverrun_tools::exit::Failure;
use riverrun_tools::text::output::print_text;

pub(super) fn run() -> Result<(), Failure> {
    print_text(&markdown())
}
