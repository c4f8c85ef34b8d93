//! Messages between nodes, over links: in order, each whole, until the link breaks.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::{BoxFuture, Env, Tasks};

/// A network that nodes exchange messages over.
///
/// A link is like a TCP connection: messages arrive in order and once, or the link breaks, and then it is unknown
/// which of the last messages have arrived. Between two links there is no order.
pub trait Network: Send + Sync {
    /// Listens for links at an address. Fails if the address is taken.
    fn listen(&self, address: &str) -> io::Result<Box<dyn LinkListener>>;

    /// Makes a link to the listener at an address. Never returns if the address does not answer: the timeout is the
    /// caller's.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Link>>;
}

/// An address that accepts links, until it is dropped.
pub trait LinkListener: Send {
    /// The address by which other nodes find it.
    fn address(&self) -> String;

    /// Waits for the next link. Safe to drop.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Link>>;
}

/// The two directions of a link. It is closed once both are dropped.
pub struct Link {
    /// The machine on the other side, as far as addresses tell: an IPv4 address, or a network (/64) of IPv6. Anybody on the way
    /// can pretend another one.
    pub source: String,
    /// The outgoing direction.
    pub sender: Box<dyn LinkSender>,
    /// The incoming direction.
    pub receiver: Box<dyn LinkReceiver>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Sends the messages of one side. Dropping it tells the other side that no more come.
pub trait LinkSender: Send {
    /// Hands a message over; waits while too many are on their way. A return says nothing about the message's
    /// arrival. If the future is dropped before it returns, the link cannot be used any more.
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>>;
}

/// Receives the messages of the other side.
pub trait LinkReceiver: Send {
    /// The next message, which has at most `bytes_max` bytes, and no more than the network allows; `None` once the other side
    /// sends no more. A longer one is an error, and takes no memory; the link cannot be used any more. Safe to drop.
    fn receive_at_most(&mut self, bytes_max: usize) -> BoxFuture<'_, io::Result<Option<Bytes>>>;

    /// As [`Self::receive_at_most`], with the network's bound.
    fn receive(&mut self) -> BoxFuture<'_, io::Result<Option<Bytes>>> {
        self.receive_at_most(usize::MAX)
    }
}

/// A cluster node's access to the world outside.
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
