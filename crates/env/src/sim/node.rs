//! A machine of a simulated world: a disk, clocks, and the parts of its one process.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use riverrun_types::TimestampMs;

use super::network::SimNetwork;
use super::world::{Body, NodeId, PartId, Shared};
use super::{SimClock, SimEnv};
use crate::{BoxFuture, Clock, Env, NodeEnv, TaskHandle, Tasks, Wake, Work, Worker, Workers};

/// A machine of a [`World`](super::World).
pub struct SimNode {
    id: NodeId,
    name: String,
    sim: SimEnv,
    shared: Arc<Shared>,
}

impl fmt::Debug for SimNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNode").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SimNode {
    pub(super) fn new(id: NodeId, name: &str, sim: SimEnv, shared: Arc<Shared>) -> Self {
        Self { id, name: name.to_owned(), sim, shared }
    }

    /// Its name, which is its address on the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its disk and its clocks, for reading and for injecting faults.
    pub fn sim(&self) -> &SimEnv {
        &self.sim
    }

    /// The environment of code that runs on it.
    pub fn env(&self) -> NodeEnv {
        let here = || Here { node: self.id, shared: Arc::clone(&self.shared) };
        NodeEnv {
            env: Env {
                workers: Arc::new(here()),
                clock: Arc::new(here().clock(&self.sim)),
                ..self.sim.env()
            },
            tasks: Arc::new(here()),
            network: Arc::new(SimNetwork { node: self.id, shared: Arc::clone(&self.shared) }),
        }
    }

    /// Ends its process as a kill does: all of its parts and its listeners are gone, and its system closes its links.
    /// Written bytes stay.
    pub fn kill(&self) {
        self.shared.unlisten(self.id);
        self.shared.remove_all(self.id);
    }

    /// Takes its power away: as [`Self::kill`], but the other sides of its links are not told, and unsynced bytes are
    /// lost as [`SimFileSystem::crash`](super::SimFileSystem::crash) decides.
    pub fn cut_power(&self) {
        self.shared.forget_links(self.id);
        self.kill();
        self.sim.fs.crash();
    }

    /// Pauses all of its parts, as of a virtual machine that is stopped, while its clocks go on; or resumes them.
    pub fn pause(&self, is_paused: bool) {
        self.shared.state.lock().node(self.id).pause(is_paused);
    }

    /// Makes its clocks faster than the world's time by `ppm` millionths, or slower.
    pub fn set_drift(&self, ppm: i32) {
        self.shared.state.lock().node(self.id).set_drift(ppm);
    }
}

/// The node on which parts are started.
struct Here {
    node: NodeId,
    shared: Arc<Shared>,
}

impl Here {
    fn clock(self, sim: &SimEnv) -> NodeClock {
        NodeClock { here: self, shown: Arc::clone(&sim.clock) }
    }
}

/// The clocks of a node. A part that sleeps by them lets the other parts go on meanwhile.
struct NodeClock {
    here: Here,
    shown: Arc<SimClock>,
}

impl Clock for NodeClock {
    fn wall(&self) -> TimestampMs {
        self.shown.wall()
    }

    fn monotonic(&self) -> Duration {
        self.shown.monotonic()
    }

    fn boot(&self) -> Duration {
        self.shown.boot()
    }

    fn sleep(&self, time: Duration) {
        self.here.shared.pass(self.here.node, time);
    }
}

impl Workers for Here {
    fn start(&self, _name: &str, work: Box<dyn Work>) -> io::Result<Box<dyn Worker>> {
        let id = self.shared.add(self.node, Body::Worker(work));
        Ok(Box::new(SimWorker { id, shared: Arc::clone(&self.shared) }))
    }
}

impl Tasks for Here {
    fn spawn(&self, _name: &str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let id = self.shared.add(self.node, Body::Task(task));
        let shared = Arc::downgrade(&self.shared);
        TaskHandle::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.remove(id);
            }
        })
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.shared.sleep(self.node, time)
    }
}

struct SimWorker {
    id: PartId,
    shared: Arc<Shared>,
}

impl Worker for SimWorker {
    fn wake(&self) -> Wake {
        let (id, shared) = (self.id, Arc::downgrade(&self.shared));
        Wake::simulated(Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.wake(id);
            }
        }))
    }

    fn join(self: Box<Self>) -> bool {
        self.shared.finish(self.id);
        // A panic is the simulation's.
        true
    }
}
