//! The verdict on an attack: figures in, faults out.
//!
//! The honest client's pairs during an attack are compared with those of a control run in which as much processor time
//! was burnt. Over several runs all honest pairs count together, except the worst phase of each side, so that one
//! disturbance by the machine decides nothing; the slowest pair of all counts unchanged.

use std::time::Duration;

use super::honest::{Seen, Shape};

/// The honest p99 during an attack may be this many times that of the control run, or
pub(super) const TIMES_MAX: f64 = 1.2;

/// this much above it, whichever is more.
pub(super) const ABOVE_MAX: Duration = Duration::from_millis(5);

/// The same for few runs on a machine that others use, as in the gate.
pub(super) const ABOVE_MAX_SHORT: Duration = Duration::from_millis(30);

/// Fewest pairs in a phase for a p99.
const SAMPLES_MIN: usize = 20;

/// Number of phases of one kind from which on the worst is left out.
const PHASES_MIN: usize = 3;

/// The value that 99 of 100 do not exceed.
fn p99_of(sorted: &[u64]) -> u64 {
    let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// Pairs of one honest client in all phases of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// The microseconds of each pair, by phase, in ascending order.
    phases: Vec<Vec<u64>>,
    failed: u64,
    errors: Vec<String>,
}

impl Samples {
    pub(super) fn add(&mut self, mut seen: Seen) {
        seen.pairs_us.sort_unstable();
        self.phases.push(seen.pairs_us);
        self.failed += seen.failed;
        self.errors.extend(seen.errors);
    }

    /// The p99 over all phases but the worst, if there are enough phases.
    pub(super) fn p99(&self) -> Duration {
        let mut phases: Vec<&[u64]> = self.phases.iter().map(Vec::as_slice).collect();
        phases.sort_by_key(|phase| p99_of(phase));
        if phases.len() >= PHASES_MIN {
            phases.pop();
        }
        let mut pairs_us = phases.concat();
        pairs_us.sort_unstable();
        Duration::from_micros(p99_of(&pairs_us))
    }

    pub(super) fn slowest(&self) -> Duration {
        Duration::from_micros(
            self.phases.iter().filter_map(|sorted| sorted.last()).copied().max().unwrap_or_default(),
        )
    }

    pub(super) fn count(&self) -> usize {
        self.phases.iter().map(Vec::len).sum()
    }
}

/// Pairs of one honest client, by kind of phase.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    pub(super) shape: Shape,
    /// How far the p99 may be above that of the control run.
    above_max: Duration,
    pub(super) attack: Samples,
    /// Pairs after the end of the attack.
    pub(super) after: Samples,
    pub(super) control: Samples,
}

impl Witness {
    pub(super) fn new(shape: Shape, above_max: Duration) -> Self {
        let none = Samples::default;
        Self { shape, above_max, attack: none(), after: none(), control: none() }
    }

    /// Whether the machine itself slowed the honest client, so that the run proves nothing about the server.
    pub(super) fn is_disturbed(&self) -> bool {
        self.control.slowest() > self.shape.slowest_allowed() || self.control.failed > 0
    }

    /// The highest p99 that is borne.
    pub(super) fn p99_allowed(&self) -> Duration {
        let control = self.control.p99();
        control.mul_f64(TIMES_MAX).max(control + self.above_max)
    }

    /// Faults, in words.
    pub(super) fn faults(&self) -> Vec<String> {
        let name = self.shape.name();
        let mut faults = Vec::new();
        for (phase, samples) in [("during", &self.attack), ("after", &self.after)] {
            if samples.failed > 0 {
                faults.push(format!(
                    "{name}, {phase} it: {} failed: {}",
                    samples.failed,
                    samples.errors.first().map_or("", String::as_str)
                ));
            }
            if samples.slowest() > self.shape.slowest_allowed() {
                let allowed = ms(self.shape.slowest_allowed());
                faults.push(format!("{name}, {phase} it: slowest {} ms > {allowed}", ms(samples.slowest())));
            }
        }
        if self.attack.count() < SAMPLES_MIN || self.control.count() < SAMPLES_MIN {
            let (attack, control) = (self.attack.count(), self.control.count());
            faults.push(format!("{name}: {attack} and {control} pairs say nothing"));
        } else if self.attack.p99() > self.p99_allowed() {
            let (p99, allowed) = (ms(self.attack.p99()), ms(self.p99_allowed()));
            faults.push(format!("{name}: p99 {p99} ms > {allowed} (control {})", ms(self.control.p99())));
        }
        faults
    }
}

/// Milliseconds for people.
pub(super) fn ms(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(pairs_ms: &[u64]) -> Samples {
        let mut samples = Samples::default();
        let in_us = |ms: &u64| ms * 1000;
        samples.add(Seen { pairs_us: pairs_ms.iter().map(in_us).collect(), ..Seen::default() });
        samples
    }

    fn witness(attack: &[u64], after: &[u64], control: &[u64]) -> Witness {
        let [attack, after, control] = [attack, after, control].map(samples);
        Witness { attack, after, control, ..Witness::new(Shape::Small, ABOVE_MAX) }
    }

    #[test]
    fn p99_of_5_ms_above_a_fast_control_is_borne() {
        assert_eq!(witness(&[6; 100], &[1], &[1; 100]).faults(), [""; 0]);
        let faults = witness(&[7; 100], &[1], &[1; 100]).faults();
        assert_eq!(faults, ["small: p99 7.0 ms > 6.0 (control 1.0)"]);
    }

    #[test]
    fn p99_of_a_fifth_above_a_slow_control_is_borne() {
        assert_eq!(witness(&[120; 100], &[1], &[100; 100]).faults(), [""; 0]);
        assert_eq!(witness(&[121; 100], &[1], &[100; 100]).faults().len(), 1);
    }

    #[test]
    fn one_pair_of_a_quarter_second_is_a_fault_during_and_after() {
        let long = [&[1; 200][..], &[251]].concat();
        assert_eq!(witness(&long, &[1], &[1; 100]).faults(), ["small, during it: slowest 251 ms > 250"]);
        assert_eq!(witness(&[1; 99], &[251], &[1; 100]).faults(), ["small, after it: slowest 251 ms > 250"]);
        assert_eq!(witness(&[1; 99], &[250], &[1; 100]).faults(), [""; 0]);
    }

    #[test]
    fn a_failed_pair_is_a_fault() {
        let mut witness = witness(&[1; 100], &[1], &[1; 100]);
        witness.attack.failed = 1;
        witness.attack.errors.push("closed".to_owned());
        assert_eq!(witness.faults(), ["small, during it: 1 failed: closed"]);
    }

    #[test]
    fn a_phase_without_pairs_proves_nothing() {
        assert_eq!(witness(&[1; 19], &[1], &[1; 100]).faults(), ["small: 19 and 100 pairs say nothing"]);
        assert_eq!(witness(&[1; 100], &[1], &[]).faults().len(), 1);
    }

    #[test]
    fn slow_control_run_shows_a_busy_machine() {
        assert!(witness(&[1], &[1], &[300]).is_disturbed());
        assert!(!witness(&[300], &[300], &[250]).is_disturbed());
    }

    #[test]
    fn one_slow_phase_of_three_decides_nothing() {
        let mut witness = witness(&[1; 100], &[1], &[1; 100]);
        let held_up = || Seen { pairs_us: vec![100_000; 100], ..Seen::default() };
        witness.attack.add(held_up());
        witness.attack.add(Seen { pairs_us: vec![1000; 100], ..Seen::default() });
        assert_eq!(witness.faults(), [""; 0]);
        witness.attack.add(held_up());
        assert_eq!(witness.faults(), ["small: p99 100 ms > 6.0 (control 1.0)"]);
    }

    #[test]
    fn slow_tenth_of_ten_phases_counts_in_their_common_p99() {
        let mut witness = witness(&[1; 100], &[1], &[1; 100]);
        let phase = |pairs_us: &[u64]| Seen { pairs_us: pairs_us.to_vec(), ..Seen::default() };
        for _ in 0..7 {
            witness.attack.add(phase(&[1000; 100]));
        }
        witness.attack.add(phase(&[100_000; 100]));
        assert_eq!(witness.faults(), [""; 0]);
        // Ten pairs of 900: few enough to be hidden in each phase's own p99, and more than one in a hundred.
        witness.attack.add(phase(&[&[1000; 90][..], &[90_000; 10]].concat()));
        assert_eq!(witness.faults(), ["small: p99 90 ms > 6.0 (control 1.0)"]);
    }

    #[test]
    fn p99_of_a_hundred_is_the_second_largest() {
        let mut pairs = vec![1; 98];
        pairs.extend([7, 9]);
        assert_eq!(samples(&pairs).p99(), Duration::from_millis(7));
    }
}
