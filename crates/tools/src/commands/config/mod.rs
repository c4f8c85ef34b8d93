//! `riverrun config get|describe|set`: configuration that a running server holds.

mod admin;
mod target;

pub use self::admin::{GetArgs, SetArgs};

use crate::exit::Failure;
use crate::runtime::block_on;

/// Prints the values that hold.
pub fn get(args: GetArgs) -> Result<(), Failure> {
    block_on(Box::pin(admin::get(args)))
}

/// Prints values with where each comes from and what it does.
pub fn describe(args: GetArgs) -> Result<(), Failure> {
    block_on(Box::pin(admin::describe(args)))
}

/// Changes them.
pub fn set(args: SetArgs) -> Result<(), Failure> {
    block_on(Box::pin(admin::set(args)))
}
