//! Progress of something long, on stderr, if that is a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Form of a bar whose total is known; the message names what is done.
pub const OF_ALL: &str = "{bar:30} {percent:>3}%  {msg}  {eta} left";
/// Form of a bar whose total is not known.
pub const WITHOUT_END: &str = "{spinner} {msg}  {elapsed}";

/// Times a second that a bar is drawn.
const HZ: u8 = 10;

/// A bar of this form, up to `total` where that is known; elsewhere than on a terminal one that shows nothing.
pub fn bar(total: Option<u64>, template: &'static str) -> ProgressBar {
    bar_for(std::io::stderr().is_terminal(), total, template)
}

fn bar_for(is_terminal: bool, total: Option<u64>, template: &'static str) -> ProgressBar {
    if !is_terminal {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("templates are constants");
    ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(HZ)).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_one() {
        for template in [OF_ALL, WITHOUT_END] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn program_that_reads_gets_no_bar() {
        assert!(bar_for(false, Some(5), OF_ALL).is_hidden());
    }
}
