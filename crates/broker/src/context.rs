//! The sender of a request, as every handler knows it, and the one place where handlers check its permissions.
//!
//! Nothing authenticates yet, so every principal is anonymous and [`RequestContext::authorize`] allows
//! everything. The calls stand in the handlers all the same, so that access control changes this file only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::flow::source::Source;

/// The identity that a connection has proved, in Kafka's `Type:name` form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal(Arc<str>);

impl Principal {
    /// The identity of a connection that has not authenticated.
    pub(crate) fn anonymous() -> Self {
        Self(Arc::from("User:ANONYMOUS"))
    }

    /// The principal as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Facts that do not change during a connection's life, and counts of its requests.
#[derive(Debug)]
pub(crate) struct ConnectionInfo {
    /// Number of the connection since the server's start.
    pub(crate) id: u64,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// Name of the listener that accepted it: the listener decides which advertised address the client gets.
    pub(crate) listener: Arc<str>,
    /// The identity of the client.
    pub(crate) principal: Principal,
    /// Requests of this connection that are worked on aside: meanwhile no later one is started.
    aside: AtomicUsize,
    /// Fetches of this connection that wait for records.
    parked_fetches: AtomicUsize,
}

/// While it lives, counts one fetch that waits for records, of its connection and of the server.
#[derive(Debug)]
pub(crate) struct ParkedFetch<'a> {
    connection: &'a ConnectionInfo,
    all: &'a AtomicUsize,
    /// Whether no other fetch of the connection waited when this one began to.
    pub(crate) is_only: bool,
}

impl Drop for ParkedFetch<'_> {
    fn drop(&mut self) {
        self.connection.parked_fetches.fetch_sub(1, Ordering::Relaxed);
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// While it lives, counts one request that is worked on aside.
#[derive(Debug)]
pub(crate) struct WorkAside(Arc<ConnectionInfo>);

impl ConnectionInfo {
    /// A connection that has not authenticated.
    pub(crate) fn new(id: u64, peer: SocketAddr, listener: Arc<str>) -> Self {
        Self {
            id,
            peer,
            listener,
            principal: Principal::anonymous(),
            aside: AtomicUsize::new(0),
            parked_fetches: AtomicUsize::new(0),
        }
    }

    /// A request of this connection is worked on aside from now on, until the result is dropped.
    pub(crate) fn begin_aside(self: &Arc<Self>) -> WorkAside {
        self.aside.fetch_add(1, Ordering::Relaxed);
        WorkAside(Arc::clone(self))
    }

    /// A fetch of this connection waits for records from now on, until the result is dropped; `all` counts those of the server.
    pub(crate) fn park_fetch<'a>(&'a self, all: &'a AtomicUsize) -> ParkedFetch<'a> {
        let before = self.parked_fetches.fetch_add(1, Ordering::Relaxed);
        all.fetch_add(1, Ordering::Relaxed);
        ParkedFetch { connection: self, all, is_only: before == 0 }
    }

    /// Fetches of this connection that wait for records.
    pub(crate) fn parked_fetches(&self) -> usize {
        self.parked_fetches.load(Ordering::Relaxed)
    }

    /// Whether a request of this connection is worked on aside.
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed) > 0
    }
}

impl Drop for WorkAside {
    fn drop(&mut self) {
        self.0.aside.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Facts about the sender of one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    /// The connection that the request came in on.
    pub(crate) connection: Arc<ConnectionInfo>,
    /// The client's own name for itself; empty if it gave none. Not proved, and escaped wherever it is logged.
    pub(crate) client_id: Arc<str>,
}

/// An operation on a resource, in the words of Kafka's ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Fetch records, join a group, commit offsets.
    Read,
    /// Produce records.
    Write,
    /// Make a topic.
    Create,
    /// Delete a topic, records, a group.
    Delete,
    /// Change partitions.
    Alter,
    /// See that a resource exists and how it stands.
    Describe,
    /// See the configuration.
    DescribeConfigs,
    /// Change the configuration.
    AlterConfigs,
    /// Requests that servers of a cluster send each other. None of ours needs it; clients are told that they may.
    ClusterAction,
    /// Obtain a producer id.
    IdempotentWrite,
}

/// The resource of an [`Operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource<'a> {
    /// The whole server.
    Cluster,
    /// A topic, by name.
    Topic(&'a str),
    /// A consumer group, by id.
    Group(&'a str),
}

impl RequestContext {
    /// The source of the request, by which clients have their shares.
    pub(crate) fn source(&self) -> Source {
        Source::of(self.connection.peer.ip())
    }

    /// Whether the sender may do `operation` to `resource`. Allows everything until there is access control.
    #[expect(clippy::unused_self, reason = "access control decides by the principal of this context")]
    pub(crate) fn authorize(&self, _operation: Operation, _resource: Resource<'_>) -> bool {
        true
    }

    /// The client's address as Kafka shows it in group descriptions: `/` and the IP.
    pub(crate) fn client_host(&self) -> String {
        format!("/{}", self.connection.peer.ip())
    }
}
