//! The attacker: a process of its own, so that its own load does not slow the honest client's process.
//!
//! It makes its requests first, prints `ready`, waits for a line, attacks until its time is over, and prints its
//! [`Tally`]. Guarantees that it ends by itself: every wait on a socket has a limit, and every worker a largest number
//! of shots.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use riverrun_measure::process::usage_of;
use riverrun_measure::threads::ThreadSampler;
use serde::{Deserialize, Serialize};

use super::{generated, rows};
use crate::clients::exec;
use crate::wire::{Conn, Dial};

/// Pause of a worker after a connection that failed or was closed, so that an attack becomes a storm of connections
/// only if it is meant to be one.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// Most shots of one worker.
const SHOTS_MAX: u64 = 1_000_000;

/// Longest wait for late workers.
const LATE_MAX: Duration = Duration::from_secs(5);

/// Time for an attacker to make its requests, also in a build without optimisation.
const ARM_LIMIT: Duration = Duration::from_mins(2);

/// Time between two looks at a working attacker.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Number of addresses that the workers of an attack use in turn.
const SOURCES: u8 = 20;

/// Nice value of an attacker that is to take no processor from the server.
const STEP_BACK: i32 = 10;

/// Address of the honest client, which the load of the random order does not share: a source that asks for much gets
/// its turn after others that do so, and so does a client that shares its address.
pub(super) const HONEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 7, 1);

/// Source addresses of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(super) enum From {
    /// Other addresses of the loopback network than the honest client's
    Others,
    /// One other address
    One,
    /// The honest client's own address
    Own,
}

impl From {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Others => "others",
            Self::One => "one",
            Self::Own => "own",
        }
    }

    fn address(self, worker: usize) -> Ipv4Addr {
        match self {
            Self::Others => {
                Ipv4Addr::new(127, 0, 9, 1 + u8::try_from(worker % usize::from(SOURCES)).unwrap_or(0))
            }
            Self::One => Ipv4Addr::new(127, 0, 9, 1),
            Self::Own => HONEST_ADDRESS,
        }
    }
}

/// Arguments of the attacker, which the suite starts itself.
#[derive(Args, Clone, Debug)]
pub(crate) struct AttackerOptions {
    /// The attack
    #[arg(long)]
    name: String,
    /// The server's port
    #[arg(long)]
    port: u16,
    /// The server's admin port
    #[arg(long)]
    admin: u16,
    /// Seconds that it lasts
    #[arg(long)]
    seconds: f64,
    /// Source addresses
    #[arg(long, value_enum)]
    from: From,
    /// It leaves the processors to the others
    #[arg(long)]
    steps_back: bool,
}

/// Outcome of an attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Number of shots.
    pub(super) shots: u64,
    /// Shots after which the server had answered everything.
    pub(super) answered: u64,
    /// Shots that ended with a closed connection or an error.
    pub(super) failed: u64,
    /// Requests that had to be refused and were not.
    pub(super) let_in: u64,
    /// Processor time of the attacker itself.
    pub(super) cpu_seconds: f64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.shots += other.shots;
        self.answered += other.answered;
        self.failed += other.failed;
        self.let_in += other.let_in;
        self.cpu_seconds += other.cpu_seconds;
    }
}

/// Outcome of a shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shot {
    /// The server answered.
    Answered,
    /// No answer was waited for.
    Sent,
    /// The server accepted a request that it has to refuse.
    LetIn,
}

/// The server's address, as the attacker needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) port: u16,
    pub(super) admin: u16,
    pub(super) from: From,
    seconds: f64,
}

/// One of an attack's connections, or one of its series of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    target: Target,
    pub(super) index: usize,
    /// Counts the shots of this worker.
    pub(super) shot: u64,
    deadline: Instant,
}

impl Worker {
    /// Time left for the attack.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(super) fn connect(&self) -> io::Result<Conn> {
        self.connect_to(self.target.port, None)
    }

    /// Connects with a receive buffer of this many bytes.
    pub(super) fn connect_narrow(&self, receive_buffer: usize) -> io::Result<Conn> {
        self.connect_to(self.target.port, Some(receive_buffer))
    }

    pub(super) fn connect_admin(&self) -> io::Result<Conn> {
        self.connect_to(self.target.admin, None)
    }

    fn connect_to(&self, port: u16, receive_buffer: Option<usize>) -> io::Result<Conn> {
        let source = self.target.from.address(self.index);
        let (patience, until) = (self.left(), Some(self.deadline));
        Conn::open(Dial { port, source, patience, until, receive_buffer })
    }

    /// Waits, but not beyond the attack's end.
    pub(super) fn pause(&self, time: Duration) {
        thread::sleep(time.min(self.left()));
    }
}

impl Target {
    /// Prints that all is ready, waits for the word, and lets the workers shoot until the time is over. A shot gets its
    /// worker, and the state that the worker keeps between shots.
    pub(super) fn storm<K: Default>(
        &self,
        workers: usize,
        shot: impl Fn(&Worker, &mut K) -> anyhow::Result<Shot> + Sync,
    ) -> anyhow::Result<Tally> {
        println!("ready");
        let mut word = String::new();
        ensure!(io::stdin().read_line(&mut word)? > 0, "the suite closed the attacker's input");
        let deadline = Instant::now() + Duration::from_secs_f64(self.seconds);
        let cpu_seconds = usage_of(std::process::id())?.cpu_s;
        let counts = Counts::default();
        thread::scope(|scope| {
            for index in 0..workers {
                let (counts, shot) = (&counts, &shot);
                scope.spawn(move || {
                    let mut worker = Worker { target: *self, index, shot: 0, deadline };
                    let mut kept = K::default();
                    while !worker.left().is_zero() && worker.shot < SHOTS_MAX {
                        counts.note(&worker, &shot(&worker, &mut kept));
                        worker.shot += 1;
                    }
                });
            }
        });
        let cpu_seconds = usage_of(std::process::id())?.cpu_s - cpu_seconds;
        Ok(Tally { cpu_seconds, ..counts.tally() })
    }
}

#[derive(Debug, Default)]
struct Counts {
    shots: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    let_in: AtomicU64,
}

impl Counts {
    fn note(&self, worker: &Worker, result: &anyhow::Result<Shot>) {
        let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        add(&self.shots);
        match result {
            Ok(Shot::Answered) => drop(add(&self.answered)),
            Ok(Shot::Sent) => {}
            Ok(Shot::LetIn) => drop((add(&self.answered), add(&self.let_in))),
            // An error at the end of the attack is no fault of the server.
            Err(_) if worker.left().is_zero() => {}
            Err(_) => {
                add(&self.failed);
                worker.pause(PAUSE_AFTER_ERROR);
            }
        }
    }

    fn tally(&self) -> Tally {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Tally {
            shots: get(&self.shots),
            answered: get(&self.answered),
            failed: get(&self.failed),
            let_in: get(&self.let_in),
            cpu_seconds: 0.0,
        }
    }
}

/// Entry point of the attacker's process.
pub(super) fn serve(options: &AttackerOptions) -> anyhow::Result<()> {
    let AttackerOptions { port, admin, from, seconds, steps_back, .. } = *options;
    if steps_back {
        step_back()?;
    }
    let target = Target { port, admin, from, seconds };
    match rows::named(&options.name) {
        Some(attack) => tell(&attack.act(&target)?),
        None => generated::act(&options.name, &target),
    }
}

/// Lowers the priority of this thread, and of threads that it starts.
pub(super) fn step_back() -> anyhow::Result<()> {
    Ok(rustix::process::setpriority_process(None, STEP_BACK)?)
}

/// Prints the outcome of a storm.
pub(super) fn tell(tally: &Tally) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(tally)?);
    Ok(())
}

/// An attacker that has not begun yet. Guarantees that the process has ended when the value is dropped.
pub(super) struct Armed {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    seconds: f64,
}

/// Arguments of an attacker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) name: &'a str,
    pub(super) ports: [u16; 2],
    pub(super) seconds: f64,
    pub(super) from: From,
    /// Behaves as on another machine: its threads do not keep the server's from the processors.
    pub(super) steps_back: bool,
}

impl Armed {
    /// Starts the process and waits until it has made its requests.
    pub(super) fn start(order: Order<'_>) -> anyhow::Result<Self> {
        let Order { name, ports: [port, admin], seconds, from, steps_back } = order;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["attack-attacker", "--name", name, "--from", from.name()]);
        command.args(["--port", &port.to_string(), "--admin", &admin.to_string()]);
        command.args(["--seconds", &seconds.to_string()]).args(steps_back.then_some("--steps-back"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("the pipe was asked for")?;
        let output = BufReader::new(child.stdout.take().context("the pipe was asked for")?);
        let mut armed = Self { child, input, output, seconds };
        armed.ready().with_context(|| format!("the attacker {name} does not get ready"))?;
        Ok(armed)
    }

    /// Waits until the attacker waits for the word; one that storms several times does so before each storm.
    pub(super) fn ready(&mut self) -> anyhow::Result<()> {
        let line = self.line(Instant::now() + ARM_LIMIT, |_| {})?;
        ensure!(line.trim_end() == "ready", "the attacker says {line:?}");
        Ok(())
    }

    /// Gives the word and waits for the outcome; meanwhile `watch` is called repeatedly with the process's id.
    pub(super) fn fire(&mut self, watch: impl FnMut(u32)) -> anyhow::Result<Tally> {
        writeln!(self.input, "go")?;
        let deadline = Instant::now() + Duration::from_secs_f64(self.seconds) + LATE_MAX;
        let line = self.line(deadline, watch)?;
        serde_json::from_str(&line).with_context(|| format!("the attacker says {line:?}"))
    }

    /// The next line that the process prints. An attacker that is late is killed.
    fn line(&mut self, deadline: Instant, mut watch: impl FnMut(u32)) -> anyhow::Result<String> {
        let Self { child, output, .. } = self;
        thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut line = String::new();
                output.read_line(&mut line).map(|_| line)
            });
            while !reading.is_finished() {
                if Instant::now() >= deadline {
                    child.kill()?;
                    bail!("the attacker does not end");
                }
                watch(child.id());
                thread::sleep(LOOK_INTERVAL);
            }
            let line = reading.join().map_err(|_| anyhow::anyhow!("a thread of the suite has panicked"))?;
            Ok(line?)
        })
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Threads of a watched process that were busy.
pub(super) fn busy_threads(sampler: &ThreadSampler, seconds: f64) -> u32 {
    u32::try_from(sampler.busy_threads(seconds)).unwrap_or(u32::MAX)
}

/// Waits for a child of the suite that ends by itself.
pub(super) fn finish(mut child: Child, limit: Duration) -> anyhow::Result<()> {
    match exec::wait(&mut child, limit)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("a child of the suite ended with {status}"),
        None => {
            child.kill()?;
            child.wait()?;
            bail!("a child of the suite did not end within {} s", limit.as_secs())
        }
    }
}
