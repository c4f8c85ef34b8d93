//! [`LeftOut`] takes the place of `bench`, `perf` and `queue bench` in a build without the feature `bench`: they need the crate of
//! that name, which takes long to compile.

use std::borrow::Borrow;
use std::ffi::OsString;

use clap::Args;

use crate::exit::{Exit, Failure};

/// Takes every flag of the command that is not here.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct LeftOut {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _ignored: Vec<OsString>,
}

/// Says that the command is not here, and how to get it. Takes its flags as any command does: some by value, some not.
pub fn run(_args: impl Borrow<LeftOut>) -> Result<(), Failure> {
    Err(Failure::new(
        Exit::Usage,
        "this build of riverrun is one without bench, perf and queue bench (--no-default-features)",
    )
    .advise("cargo build --release   (makes one with all commands)"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    enum Line {
        Perf(LeftOut),
    }

    #[test]
    fn command_left_out_says_so_whatever_its_flags() {
        for flags in [&[][..], &["--help"], &["run", "A", "--scale", "0.1"], &["produce", "--topic=t", "-x"]]
        {
            let line = Line::try_parse_from([&["riverrun", "perf"], flags].concat());
            let Line::Perf(args) = line.expect("every flag is taken");
            let failure = run(args).expect_err("it is not here");
            assert_eq!(failure.exit, Exit::Usage, "{flags:?}");
            assert!(failure.message().contains("without bench, perf and queue bench"), "{failure}");
        }
    }
}
