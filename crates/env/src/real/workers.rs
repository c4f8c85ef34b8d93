//! Workers of the operating system: one thread each.

use std::io;
use std::thread::{self, Builder, JoinHandle};

use crate::{Step, Wake, Work, Worker, Workers};

/// Runs each worker on a thread of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealWorkers;

impl Workers for RealWorkers {
    fn start(&self, name: &str, mut work: Box<dyn Work>) -> io::Result<Box<dyn Worker>> {
        let run = move || {
            loop {
                match work.step() {
                    Step::Again => {}
                    Step::Sleep(None) => thread::park(),
                    Step::Sleep(Some(time)) => thread::park_timeout(time),
                    Step::Done => return,
                }
            }
        };
        Ok(Box::new(RealWorker(Builder::new().name(name.to_owned()).spawn(run)?)))
    }
}

struct RealWorker(JoinHandle<()>);

impl Worker for RealWorker {
    fn wake(&self) -> Wake {
        self.0.thread().clone().into()
    }

    fn join(self: Box<Self>) -> bool {
        self.0.thread().id() == thread::current().id() || self.0.join().is_ok()
    }
}
