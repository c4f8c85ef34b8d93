//! One attack against one server, alternating with control runs, and judged at the end.

use std::collections::BTreeSet;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use riverrun_measure::threads::ThreadSampler;

use super::attacker::{Armed, From, Order, Tally, busy_threads};
use super::burn::{self, Effort};
use super::honest::{Honest, Seen, Shape};
use super::judge::{Witness, ms};
use super::rig::{Expected, Place, Rig};
use super::rows::{Attack, Ground};
use crate::clients::install::Toolbox;

/// Time before the first attack, in which the honest clients' own cost is measured.
const QUIET: Duration = Duration::from_millis(800);

/// Time after each attack, before the control run.
const AFTER: Duration = Duration::from_secs(1);

/// Time for the honest clients to recover from an attack, without which a control run would prove nothing.
const CALM_MAX: Duration = Duration::from_secs(20);

/// Length of one look at whether they have recovered.
const CALM_LOOK: Duration = Duration::from_millis(400);

/// How long a planted freeze of the server lasts, and when it begins.
const FREEZE: Duration = Duration::from_millis(300);
const FREEZE_AFTER: Duration = Duration::from_millis(500);

/// Longest stop of a server, with however many unsettled records, and longest start.
const STOP_MAX: Duration = Duration::from_secs(5);
const START_MAX: Duration = Duration::from_secs(5);

/// A longer wait is one that `/health` has to have reported.
const STALL: Duration = Duration::from_secs(1);

/// A control run that burnt less would prove nothing.
const CPU_SECONDS_MIN: f64 = 0.01;

/// Parameters of an attack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) pairs: u32,
    pub(super) seconds: f64,
    pub(super) from: From,
    /// Plants a fault: the server is frozen for a while.
    pub(super) freeze: bool,
}

/// Outcome of an attack.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) witnesses: Vec<Witness>,
    pub(super) tally: Tally,
    pub(super) effort: Effort,
    pub(super) peak_bytes: u64,
    pub(super) budget_bytes: u64,
    pub(super) stop: Duration,
    /// Troubles and notes that `/health` has shown.
    pub(super) told: BTreeSet<String>,
    pub(super) faults: Vec<String>,
}

impl Outcome {
    /// Whether the machine itself slowed an honest client in a control run.
    pub(super) fn is_disturbed(&self) -> bool {
        self.witnesses.iter().any(Witness::is_disturbed)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { shots, answered, failed, .. } = self.tally;
        write!(
            f,
            "{shots} shots, {answered} answered, {failed} failed; {:.1} s of processors in {} threads; ",
            self.effort.cpu_seconds, self.effort.threads
        )?;
        for witness in &self.witnesses {
            let Witness { attack, after, control, .. } = witness;
            write!(
                f,
                "{} p99 {} of {} allowed, slowest {}, after {}, control {}/{}; ",
                witness.shape.name(),
                ms(attack.p99()),
                ms(witness.p99_allowed()),
                ms(attack.slowest()),
                ms(after.slowest()),
                ms(control.p99()),
                ms(control.slowest()),
            )?;
        }
        let (peak, budget) = (self.peak_bytes >> 20, self.budget_bytes >> 20);
        write!(f, "{peak} of {budget} MiB; stop {} ms", ms(self.stop))
    }
}

/// Outcome of one storm of an attacker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fired {
    pub(super) tally: Tally,
    /// Processor use of the attacker, and of the server on its behalf.
    pub(super) effort: Effort,
    pub(super) elapsed_s: f64,
    /// The largest growth of the server's resident memory.
    pub(super) grown_bytes: u64,
}

/// Place and limits of an attack.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) place: &'a Place,
    pub(super) toolbox: &'a Toolbox,
    /// How far an honest client's p99 may be above that of its control run.
    pub(super) above_max: Duration,
}

/// Runs a hand-written attack.
pub(super) fn attack(field: Field<'_>, attack: &dyn Attack, plan: Plan) -> anyhow::Result<Outcome> {
    let mut bout = Bout::begin(field, attack.ground(), attack.beside())?;
    attack.prepare(&mut bout.rig.connect()?).context("what the attack needs cannot be made")?;
    bout.rest()?;
    for _ in 0..plan.pairs {
        bout.pair(attack, plan)?;
    }
    let expected = Expected {
        takes_admin_port: attack.takes_admin_port(),
        log: attack.log_words(),
        health: attack.health_words(),
    };
    let mut faults = bout.faults(expected)?;
    if let Err(error) = bout.rig.connect().and_then(|mut conn| attack.check(&mut conn)) {
        faults.push(format!("{error:#}"));
    }
    bout.end(faults, attack.leaves_records_in_the_journal())
}

/// A server with honest clients.
pub(super) struct Bout<'a> {
    pub(super) rig: Rig<'a>,
    honest: Vec<(Honest, Witness)>,
    /// Processor time per second that the server needs for the honest clients alone.
    quiet_cpu_share: f64,
    /// Faults beside those of the witnesses.
    pub(super) faults: Vec<String>,
    pub(super) tally: Tally,
    pub(super) effort: Effort,
    /// Pairs of runs that were begun.
    pairs: u32,
}

impl<'a> Bout<'a> {
    pub(super) fn begin(field: Field<'a>, ground: Ground, beside: &[Shape]) -> anyhow::Result<Self> {
        let rig = Rig::start(field.place, field.toolbox, ground)?;
        let start =
            |shape: &Shape| Ok((Honest::start(*shape, rig.port())?, Witness::new(*shape, field.above_max)));
        let honest = beside.iter().map(start).collect::<anyhow::Result<_>>()?;
        let (tally, effort) = <_>::default();
        Ok(Self { rig, honest, quiet_cpu_share: 0.0, faults: Vec::new(), tally, effort, pairs: 0 })
    }

    /// Measures the server while nobody attacks it.
    pub(super) fn rest(&mut self) -> anyhow::Result<()> {
        let (begun, cpu_seconds) = (Instant::now(), self.rig.cpu_seconds()?);
        thread::sleep(QUIET);
        self.quiet_cpu_share = (self.rig.cpu_seconds()? - cpu_seconds) / begun.elapsed().as_secs_f64();
        self.rig.rest()
    }

    /// The attack, a pause after it, and the control run.
    pub(super) fn pair(&mut self, attack: &dyn Attack, plan: Plan) -> anyhow::Result<()> {
        let order = Order {
            name: attack.name(),
            ports: self.rig.ports(),
            seconds: plan.seconds,
            from: plan.from,
            steps_back: false,
        };
        let mut armed = Armed::start(order)?;
        self.forget()?;
        attack.harm(self.rig.data(), self.pairs)?;
        self.pairs += 1;
        let Fired { effort, tally, .. } = self.fire(&mut armed, plan)?;
        self.tally.add(tally);
        self.note(|witness| &mut witness.attack)?;
        thread::sleep(AFTER);
        self.note(|witness| &mut witness.after)?;
        self.calm(CALM_LOOK)?;
        burn::burn(effort, plan.seconds, false)?;
        self.note(|witness| &mut witness.control)?;
        self.effort.add(effort);
        Ok(())
    }

    /// Waits until the honest clients have recovered, too: until they were served as usual for `look`.
    pub(super) fn calm(&mut self, look: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + CALM_MAX;
        loop {
            thread::sleep(look);
            let mut calm = true;
            for (honest, witness) in &mut self.honest {
                let seen = honest.phase()?;
                let limit_us = witness.shape.slowest_allowed().as_micros();
                let is_slow = seen.pairs_us.iter().any(|pair| u128::from(*pair) > limit_us);
                calm &= seen.failed == 0 && !seen.pairs_us.is_empty() && !is_slow;
            }
            if calm {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.faults.push(format!("honest clients are held up {} s after it", CALM_MAX.as_secs()));
                return Ok(());
            }
        }
    }

    /// Lets the attacker attack.
    pub(super) fn fire(&self, armed: &mut Armed, plan: Plan) -> anyhow::Result<Fired> {
        let mut freeze = plan.freeze;
        let seconds = plan.seconds;
        let (mut attacker, mut server) = (ThreadSampler::new(), ThreadSampler::new());
        let (begun, cpu_seconds) = (Instant::now(), self.rig.cpu_seconds()?);
        let server_id = self.rig.process_id();
        let before_bytes = self.rig.resident_bytes()?;
        let mut most_bytes = before_bytes;
        let tally = armed.fire(|attacker_id| {
            attacker.look(attacker_id);
            server.look(server_id);
            most_bytes = most_bytes.max(self.rig.resident_bytes().unwrap_or_default());
            if freeze && begun.elapsed() > FREEZE_AFTER {
                freeze = false;
                self.rig.freeze(FREEZE);
            }
        })?;
        let elapsed_s = begun.elapsed().as_secs_f64();
        let taken = self.rig.cpu_seconds()? - cpu_seconds - self.quiet_cpu_share * elapsed_s;
        let effort = Effort {
            cpu_seconds: (taken + tally.cpu_seconds).max(CPU_SECONDS_MIN),
            threads: busy_threads(&attacker, seconds) + busy_threads(&server, seconds),
        };
        Ok(Fired { tally, effort, elapsed_s, grown_bytes: most_bytes - before_bytes })
    }

    /// Pairs of the first honest client since the last call.
    pub(super) fn seen(&mut self) -> anyhow::Result<Seen> {
        let (honest, _) = self.honest.first_mut().context("there is no honest client")?;
        honest.phase()
    }

    /// Drops the pairs since the last call, which belong to no phase.
    fn forget(&mut self) -> anyhow::Result<()> {
        self.honest.iter_mut().try_for_each(|(honest, _)| honest.phase().map(drop))
    }

    fn note(&mut self, phase: impl Fn(&mut Witness) -> &mut super::judge::Samples) -> anyhow::Result<()> {
        for (honest, witness) in &mut self.honest {
            phase(witness).add(honest.phase()?);
        }
        Ok(())
    }

    /// Faults while the server runs.
    pub(super) fn faults(&mut self, expected: Expected<'_>) -> anyhow::Result<Vec<String>> {
        let mut faults: Vec<_> = self.honest.iter().flat_map(|(_, witness)| witness.faults()).collect();
        faults.append(&mut self.faults);
        faults.extend(self.rig.faults(expected)?);
        let stalled = self.honest.iter().any(|(_, witness)| witness.attack.slowest() > STALL);
        if stalled && self.rig.told().is_empty() {
            faults.push("/health said all the time that all is well".to_owned());
        }
        if self.tally.shots == 0 {
            faults.push("the attacker did nothing, which proves nothing".to_owned());
        }
        if self.tally.let_in > 0 {
            faults.push(format!("{} requests were let in that are to be refused", self.tally.let_in));
        }
        Ok(faults)
    }

    /// Stops the server, cleanly or not as is expected, starts it again and looks for the acked records.
    pub(super) fn end(mut self, mut faults: Vec<String>, is_unclean: bool) -> anyhow::Result<Outcome> {
        let (peak_bytes, budget_bytes) = (self.rig.peak_bytes()?, self.rig.budget_bytes());
        let begun = Instant::now();
        let stopped = self.rig.stop();
        let stop = begun.elapsed();
        match stopped {
            Ok(()) if is_unclean => faults.push("a stop says that all was settled".to_owned()),
            Err(error) if !is_unclean => faults.push(format!("{error:#}")),
            _ => {}
        }
        if stop > STOP_MAX {
            faults.push(format!("a stop took {:.1} s", stop.as_secs_f64()));
        } else {
            self.look_again(&mut faults)?;
        }
        let told = self.rig.told();
        let witnesses = self.honest.into_iter().map(|(_, witness)| witness).collect();
        let (tally, effort) = (self.tally, self.effort);
        Ok(Outcome { witnesses, tally, effort, peak_bytes, budget_bytes, stop, told, faults })
    }

    /// Checks the server after its restart.
    fn look_again(&mut self, faults: &mut Vec<String>) -> anyhow::Result<()> {
        let start = self.rig.restart()?;
        if start > START_MAX {
            faults.push(format!("a start took {:.1} s", start.as_secs_f64()));
        }
        for (honest, witness) in &mut self.honest {
            let kept = honest.verify()?;
            if kept.missing > 0 || kept.acked == 0 {
                let name = witness.shape.name();
                faults.push(format!("{name}: {} of {} acked records are gone", kept.missing, kept.acked));
            }
        }
        let after = self.rig.faults(Expected { takes_admin_port: true, ..Expected::default() })?.into_iter();
        faults.extend(after.map(|fault| format!("after a restart: {fault}")));
        Ok(())
    }
}
