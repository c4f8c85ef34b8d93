//! Attacks, kills, full disks and lost log readers in random order, under the crash suite's load and beside an honest client.
//!
//! Owns the order, which one seed decides, and the rounds: each has a server of its own, on a small disk of its own if
//! the machine allows that. The attackers leave the processors to the server, as if they were on other machines,
//! because their threads outnumber the processors. The crash suite keeps account of the acked records: its load runs
//! all the time, and its verdict ends each round. The honest client has to be served within its bound, except while the
//! server is down or its disk is full and shortly after.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use riverrun_client::NewTopic;
use riverrun_measure::threads::ThreadSampler;

use super::attacker::{Armed, From, Order, Tally, busy_threads};
use super::burn::{self, Effort};
use super::disk_probe::DiskProbe;
use super::honest::{Honest, Seen, Shape};
use super::judge::{TIMES_MAX, ms};
use super::rows::Attack;
use super::run::Field;
use crate::bench::metrics::Metrics;
use crate::clients::exec;
use crate::clients::server::Server;
use crate::crash::disk::{self, Disk, FileSystem};
use crate::crash::random::Rng;
use crate::crash::run::{Allowed, Run};
use crate::crash::{self, Guest, Settings, load};
use crate::wire::{Conn, Dial};

/// Length of a round. At its end the server is stopped, the acked records are looked for, and the next round begins
/// with an empty disk.
const ROUND: Duration = Duration::from_mins(4);

/// Size of a round's disk, a sparse file, and the space below which the round ends, so that the disk is full only when
/// a step fills it.
const DISK_BYTES: u64 = 6 << 30;
const FREE_BYTES_MIN: u64 = 2 << 30;

/// The longest attack, and the longest time for which a disk is full.
const ATTACK_MAX: Duration = Duration::from_secs(5);
const FULL_MAX: Duration = Duration::from_secs(3);

/// Time after which, following a restart, a full disk or an attack, the honest client is served as usual, and the
/// server has no work of the attack left.
const CALM_MAX: Duration = Duration::from_secs(20);
const CALM_LOOK: Duration = Duration::from_millis(400);

/// Requests that are worked on aside, and those that wait for it. A client that sends a long request and closes leaves
/// it in its socket's buffer, where the server cannot know of it: with it, the next step would be one attack more than
/// drawn.
const ASIDE: [&str; 2] = ["riverrun_requests_aside", "riverrun_requests_waiting_for_turn_aside"];

/// Syncs that an ack may wait for: the one under way when the record comes, and its own.
const ACK_SYNCS: u32 = 2;

/// Lines that kcat writes, and its time limit.
const KCAT_LINES: usize = 1000;
const KCAT_LIMIT: Duration = Duration::from_secs(30);

/// Longest stop of a server.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Longest wait of a connection for preparations.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings for the small disk.
const SETTINGS: &[&str] = &["log.retention.check.interval.ms=500", "log.dir.reserve.bytes=16777216"];

/// Length of the run, its seed, and its attacks.
pub(super) struct Plan {
    pub(super) time: Duration,
    pub(super) seed: u64,
    pub(super) attacks: Vec<&'static dyn Attack>,
}

/// One event in the life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Attack,
    /// Two attacks at once.
    Attacks,
    Kill,
    FullDisk,
    /// kcat, a client of another project, writes and reads.
    Kcat,
    /// A kill, followed by a start with a log reader that is gone or works again.
    LogReader,
}

impl Step {
    fn draw(rng: &mut Rng, has: Has) -> Self {
        match rng.below(14) {
            0..=5 => Self::Attack,
            6..=8 => Self::Attacks,
            9..=10 => Self::Kill,
            11 if has.disk => Self::FullDisk,
            12 if has.kcat => Self::Kcat,
            _ => Self::LogReader,
        }
    }
}

/// Abilities of this machine.
#[derive(Clone, Copy, Debug)]
struct Has {
    /// Whether it can make a disk that can be full.
    disk: bool,
    kcat: bool,
}

impl Has {
    fn look() -> Self {
        let disk = disk::allowed(FileSystem::Xfs);
        if let Err(error) = &disk {
            println!("NOT RUN: full disks: {error:#}");
        }
        let kcat = exec::run_ok(Command::new("kcat").arg("-V"), b"", KCAT_LIMIT);
        if let Err(error) = &kcat {
            println!("NOT RUN: kcat: {error:#}");
        }
        Self { disk: disk.is_ok(), kcat: kcat.is_ok() }
    }
}

/// Outcome of a run.
#[derive(Debug, Default)]
struct Counts {
    rounds: u64,
    attacks: u64,
    kills: u64,
    full: u64,
    kcat: u64,
    /// Number of long waits of the honest client that a control run without an attack showed as well.
    busy: u64,
    /// Number of long waits during which a sync of the disk took as long while little was written.
    disk_stalls: u64,
    slowest: Duration,
    faults: Vec<String>,
}

/// Runs for the time of the plan; fails if anything was not borne.
pub(super) fn run(field: Field<'_>, plan: &Plan) -> anyhow::Result<()> {
    println!("seed {}", plan.seed);
    let has = Has::look();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (begun, mut rng, mut counts) = (Instant::now(), Rng::new(plan.seed), Counts::default());
    while begun.elapsed() < plan.time {
        counts.rounds += 1;
        let until = begun + plan.time.min(begun.elapsed() + ROUND);
        let name = format!("round-{}", counts.rounds);
        let dir = field.place.dir.join(&name);
        std::fs::create_dir(&dir)?;
        let settings: Settings = Guest {
            seed: rng.next(),
            dir: dir.clone(),
            set: SETTINGS.iter().map(|setting| (*setting).to_owned()).collect(),
            binary: Some(field.place.binary.clone()),
        }
        .into();
        let terms = Terms { until, has, attacks: &plan.attacks };
        let round = Round::run(field, &settings, &dir, terms, &mut counts);
        runtime.block_on(round).with_context(|| name)?;
        std::fs::remove_dir_all(&dir)?;
    }
    let Counts { rounds, attacks, kills, full, kcat, busy, disk_stalls, slowest, faults } = counts;
    println!(
        "{rounds} rounds, {attacks} attacks, {kills} kills, {full} full disks, kcat {kcat} times; the honest client's slowest \
         pair {} ms; {busy} times the machine alone held it up as long, {disk_stalls} times the disk",
        ms(slowest)
    );
    ensure!(faults.is_empty(), "{} were not borne:\n  {}", faults.len(), faults.join("\n  "));
    Ok(())
}

/// The probe of a round's disk, if it can be probed.
fn probe(dir: &Path) -> Option<DiskProbe> {
    match DiskProbe::start(dir) {
        Ok(probe) => {
            println!("the disk takes {:.0} MB/s", probe.rate() / 1e6);
            Some(probe)
        }
        Err(error) => {
            println!("NOT RUN: the probe of the disk: {error:#}");
            None
        }
    }
}

/// Limits and inputs of a round.
#[derive(Clone, Copy)]
struct Terms<'a> {
    until: Instant,
    has: Has,
    attacks: &'a [&'static dyn Attack],
}

/// A server under load and attack.
struct Round<'a, 'c> {
    run: Run<'a>,
    server: Server,
    honest: Honest,
    /// Dropped before its disk.
    probe: Option<DiskProbe>,
    disk: Option<Disk>,
    attacks: &'a [&'static dyn Attack],
    unread: bool,
    rng: Rng,
    counts: &'c mut Counts,
}

impl<'a, 'c> Round<'a, 'c> {
    async fn run(
        field: Field<'a>,
        settings: &'a Settings,
        dir: &Path,
        terms: Terms<'a>,
        counts: &'c mut Counts,
    ) -> anyhow::Result<()> {
        let disk = terms.has.disk.then(|| Disk::make(FileSystem::Xfs, dir, DISK_BYTES)).transpose()?;
        let data = disk.as_ref().map_or(dir, Disk::path).join("data");
        let allowed = Allowed { failures: true, ..Allowed::default() };
        let mut run = Run::prepare(settings, field.toolbox, dir, data, allowed)?;
        let server = run.start().await?;
        let shape = load::Shape::usual("crash");
        let topic = NewTopic { partitions: Some(shape.partitions), ..crash::topic_of("crash") };
        run.begin_load(&shape, topic).await?;
        let honest = Honest::start(Shape::Small, server.port())?;
        let rng = run.rng.fork();
        let (probe, attacks) = (probe(disk.as_ref().map_or(dir, Disk::path)), terms.attacks);
        let mut round = Self { run, server, honest, disk, probe, attacks, unread: false, rng, counts };
        round.prepare()?;
        while Instant::now() < terms.until && round.has_room()? {
            let step = Step::draw(&mut round.rng, terms.has);
            round.step(step).await?;
        }
        round.end().await
    }

    /// Prepares all attacks, once for the round.
    fn prepare(&mut self) -> anyhow::Result<()> {
        let dial = Dial::to(self.server.port(), PATIENCE);
        self.attacks.iter().try_for_each(|attack| attack.prepare(&mut Conn::open(dial)?))
    }

    fn has_room(&self) -> anyhow::Result<bool> {
        let free_bytes = self.disk.as_ref().map(Disk::free_bytes).transpose()?;
        Ok(free_bytes.is_none_or(|free| free > FREE_BYTES_MIN))
    }

    async fn step(&mut self, step: Step) -> anyhow::Result<()> {
        match step {
            Step::Attack => self.attack(1)?,
            Step::Attacks => self.attack(2)?,
            Step::Kill => self.kill().await?,
            Step::FullDisk => self.fill()?,
            Step::Kcat => self.kcat()?,
            Step::LogReader => {
                self.unread = !self.unread;
                self.run.launch = self.run.launch.clone().unread(self.unread);
                self.kill().await?;
            }
        }
        self.server.must_run()?;
        self.run.check().await
    }

    /// Makes this many attacks at once.
    fn attack(&mut self, number: usize) -> anyhow::Result<()> {
        let attacks: Vec<&dyn Attack> =
            (0..number).map(|_| self.attacks[self.rng.size_below(self.attacks.len())]).collect();
        let seconds = (Duration::from_secs(1) + self.rng.up_to(ATTACK_MAX)).as_secs_f64();
        let from = [From::Others, From::One, From::Own][self.rng.size_below(3)];
        let ports = [self.server.port(), self.server.admin_port()];
        let arm = |attack: &&dyn Attack| {
            Armed::start(Order { name: attack.name(), ports, seconds, from, steps_back: true })
        };
        let armed = attacks.iter().map(arm).collect::<anyhow::Result<Vec<_>>>()?;
        drop(self.honest.phase()?);
        let _before = self.probe.as_ref().map(DiskProbe::slowest);
        let fired: Vec<_> =
            armed.into_iter().map(|armed| thread::spawn(move || fire(armed, seconds))).collect();
        let (mut tally, mut effort) = (Tally::default(), Effort::default());
        for fired in fired {
            let fired = fired.join().map_err(|_| anyhow::anyhow!("a thread of the suite has panicked"))?;
            let (its_tally, threads) = fired?;
            tally.add(its_tally);
            effort.threads += threads;
        }
        effort.cpu_seconds = tally.cpu_seconds;
        self.counts.attacks += number as u64;
        let names: Vec<_> = attacks.iter().map(|attack| attack.name()).collect();
        let what = format!("{} from {}", names.join(" and "), from.name());
        let waited = self.hold(&what, tally)?;
        let is_slow = waited > Shape::Small.slowest_allowed();
        let is_disk = is_slow && self.is_disk_stall(waited);
        self.calm()?;
        if is_slow && !is_disk {
            self.compare(&what, waited, effort, seconds)?;
        }
        Ok(())
    }

    /// Whether syncs of the disk took as long as the wait, while the disk had little to write.
    fn is_disk_stall(&mut self, waited: Duration) -> bool {
        let Some(probe) = &self.probe else { return false };
        let sync = probe.slowest();
        println!(
            "  a sync of the disk took {} ms, while {:.0} MB/s were written",
            ms(sync.took),
            sync.written_bytes_per_second / 1e6
        );
        let is_stall = waited <= ACK_SYNCS * sync.took && probe.is_own_stall(sync);
        self.counts.disk_stalls += u64::from(is_stall);
        is_stall
    }

    /// Checks the honest client against its bound, except its slowest pair, which is returned.
    fn hold(&mut self, what: &str, tally: Tally) -> anyhow::Result<Duration> {
        let seen = self.honest.phase()?;
        let slowest = slowest_of(&seen);
        self.counts.slowest = self.counts.slowest.max(slowest);
        println!("{what:<60} {:>6} shots, honest {:>6} ms", tally.shots, ms(slowest));
        if seen.failed > 0 {
            self.fault(&format!("{what}: {} failed: {}", seen.failed, seen.errors.join("; ")));
        }
        if tally.let_in > 0 {
            self.fault(&format!("{what}: {} requests were let in", tally.let_in));
        }
        Ok(slowest)
    }

    /// Burns as much processor time as the attack took. If the honest client waits as long then, the attack has only
    /// taken the machine's processors, which attackers on other machines do not.
    fn compare(&mut self, what: &str, waited: Duration, effort: Effort, seconds: f64) -> anyhow::Result<()> {
        drop(self.honest.phase()?);
        burn::burn(effort, seconds, true)?;
        let alone = slowest_of(&self.honest.phase()?);
        let compared = format!(
            "slowest {} ms; {} ms beside {:.1} s of processors burnt in {} threads",
            ms(waited),
            ms(alone),
            effort.cpu_seconds,
            effort.threads
        );
        if waited > alone.mul_f64(TIMES_MAX) {
            self.fault(&format!("{what}: {compared}"));
        } else {
            self.counts.busy += 1;
            println!("  the machine alone held it up: {compared}");
        }
        self.calm()
    }

    fn fault(&mut self, fault: &str) {
        println!("  NOT BORNE: {fault}");
        self.counts.faults.push(format!("round {}: {fault}", self.counts.rounds));
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        self.server.must_run()?;
        self.server.kill()?;
        self.run.crashed().await?;
        self.server = self.run.start().await?;
        self.counts.kills += 1;
        println!("killed, and started again{}", if self.unread { " without a log reader" } else { "" });
        self.calm()
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        let Some(disk) = &self.disk else { return Ok(()) };
        disk.fill()?;
        thread::sleep(self.rng.up_to(FULL_MAX));
        disk.relieve()?;
        self.counts.full += 1;
        println!("the disk was full");
        self.calm()
    }

    /// Writes lines with kcat, and reads them back.
    fn kcat(&mut self) -> anyhow::Result<()> {
        self.counts.kcat += 1;
        let (address, topic) =
            (format!("127.0.0.1:{}", self.server.port()), format!("kcat-{}", self.counts.kcat));
        let kcat = |arguments: &[&str], input: &[u8]| {
            let mut command = Command::new("kcat");
            command.args(["-b", &address, "-t", &topic]).args(arguments);
            exec::run_ok(&mut command, input, KCAT_LIMIT)
        };
        kcat(&["-P", "-X", "acks=all"], "line\n".repeat(KCAT_LINES).as_bytes())?;
        let lines = kcat(&["-C", "-e", "-q", "-o", "beginning"], b"")?.stdout.lines().count();
        println!("kcat wrote {KCAT_LINES} lines, and read {lines}");
        if lines != KCAT_LINES {
            self.fault(&format!("kcat read {lines} of {KCAT_LINES} lines"));
        }
        Ok(())
    }

    /// Waits until the honest client is served as usual, and no request is worked on aside.
    fn calm(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + CALM_MAX;
        let limit = u64::try_from(Shape::Small.slowest_allowed().as_micros())?;
        loop {
            drop(self.honest.phase()?);
            thread::sleep(CALM_LOOK);
            let seen = self.honest.phase()?;
            let is_served =
                seen.failed == 0 && !seen.pairs_us.is_empty() && seen.pairs_us.iter().all(|us| *us < limit);
            let aside = self.requests_aside();
            if is_served && aside == Some(0.0) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let aside = aside.map_or("an unknown number of".to_owned(), |aside| aside.to_string());
                self.fault(&format!(
                    "{} s later the honest client is {}, and {aside} requests are worked on aside",
                    CALM_MAX.as_secs(),
                    if is_served { "served" } else { "held up" }
                ));
                return Ok(());
            }
        }
    }

    /// `None` if the server does not answer now.
    fn requests_aside(&self) -> Option<f64> {
        let metrics = Metrics::of(&self.server).ok()?;
        ASIDE.iter().map(|name| metrics.sum(name)).sum()
    }

    /// Stops the load, looks for the acked records, and stops the server.
    async fn end(mut self) -> anyhow::Result<()> {
        let kept = self.honest.verify()?;
        if kept.missing > 0 {
            self.fault(&format!("{} of {} honest records are gone", kept.missing, kept.acked));
        }
        self.run.must_be_kept().await?;
        let begun = Instant::now();
        self.server.stop()?;
        if begun.elapsed() > STOP_MAX {
            self.fault(&format!("a stop took {:.1} s", begun.elapsed().as_secs_f64()));
        }
        Ok(())
    }
}

/// Lets an attacker attack; returns its tally, and how many of its threads were busy.
fn fire(mut armed: Armed, seconds: f64) -> anyhow::Result<(Tally, u32)> {
    let mut sampler = ThreadSampler::new();
    let tally = armed.fire(|attacker| sampler.look(attacker))?;
    Ok((tally, busy_threads(&sampler, seconds)))
}

fn slowest_of(seen: &Seen) -> Duration {
    Duration::from_micros(seen.pairs_us.iter().copied().max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_drawn_only_if_one_can_be_made() {
        let drawn = |disk| {
            let (mut rng, has) = (Rng::new(7), Has { disk, kcat: false });
            (0..200).map(|_| Step::draw(&mut rng, has)).any(|step| step == Step::FullDisk)
        };
        assert!(drawn(true));
        assert!(!drawn(false));
    }
}
