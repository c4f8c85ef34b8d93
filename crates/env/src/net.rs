//! Messages between nodes, over links: in order, each whole, until the link breaks.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::{BoxFuture, Env, Tasks};

/// A network that nodes exchange messages over.
///
/// A link is like a TCP connection: what is sent arrives in order and once, or the link breaks, and nobody knows what of the
/// last messages has arrived. Between two links there is no order.
pub trait Network: Send + Sync {
    /// Takes links at an address. Fails if it is taken.
    fn listen(&self, address: &str) -> io::Result<Box<dyn LinkListener>>;

    /// Makes a link to whoever listens there. Takes for ever where nobody answers: it is the caller who waits no longer.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Link>>;
}

/// An address at which links are taken, until it is dropped.
pub trait LinkListener: Send {
    /// The address by which others find it.
    fn address(&self) -> String;

    /// Waits for the next link. Safe to drop.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Link>>;
}

/// The two directions of a link. It is closed once both are dropped.
pub struct Link {
    /// What this side says.
    pub sender: Box<dyn LinkSender>,
    /// What the other side says.
    pub receiver: Box<dyn LinkReceiver>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// Sends the messages of one side. Dropped, it tells the other side that no more come.
pub trait LinkSender: Send {
    /// Hands a message over, waiting while too much is on its way. That it returns says nothing about its arrival. If it is dropped
    /// before it returns, the link is of no more use.
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>>;
}

/// Receives the messages of the other side.
pub trait LinkReceiver: Send {
    /// The next message; none once the other side sends no more. Safe to drop.
    fn receive(&mut self) -> BoxFuture<'_, io::Result<Option<Bytes>>>;
}

/// Everything that a node of a cluster may ask of the world outside.
#[derive(Clone)]
pub struct NodeEnv {
    /// Files, clocks, randomness and workers.
    pub env: Env,
    /// Tasks and their timers.
    pub tasks: Arc<dyn Tasks>,
    /// The other nodes.
    pub network: Arc<dyn Network>,
}

impl fmt::Debug for NodeEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEnv").finish_non_exhaustive()
    }
}
