//! Gathering: a client that sends in full flow is not woken up for with each of its frames.
//!
//! Frames that are read together share one write to the log and one answer, so a few of them together cost less than
//! each alone. Where a connection's reads follow each other closely, [`Gather`] says how many bytes are worth a
//! wake-up (the socket's receive mark, `SO_RCVLOWAT`), and learns from what arrives how much that client has in flight at
//! once: a mark above that would only wait for the time-out. It costs a lone request nothing, because a connection that
//! is not in full flow has no mark. Pure: times and sizes in, marks out.

use std::time::Duration;

use tokio::time::Instant;

/// How long arrived bytes may lie below the mark.
pub(super) const GATHER_TIME_MAX: Duration = Duration::from_millis(1);
/// The mark of a socket that wakes its reader with each byte.
const MARK_NONE: usize = 1;
/// The largest mark: more in one go saves nothing more.
const MARK_MAX: usize = 128 * 1024;
/// Reads after which the flow is judged, or the mark raised.
const WINDOW_READS: u32 = 16;
/// So many reads take no longer in a full flow.
const WINDOW_TIME_MAX: Duration = Duration::from_millis(4);
/// Bytes of a mean read that make a flow worth gathering; above the end reads are large as they are.
const READ_BYTES: std::ops::Range<usize> = 8 * 1024..64 * 1024;
/// Reads after which a mark that was too high once is raised again.
const CALM_READS: u32 = 1024;
/// Reads that pay for one time-out.
const TIME_OUT_READS: u32 = 32;
/// Unpaid reads at which gathering does not suit this client.
const DEBT_MAX: u32 = 4 * TIME_OUT_READS;
/// Reads after which gathering is known to suit this client.
const SUITS_READS: u32 = 4096;
/// A read that follows a time-out so closely took what had arrived before it.
const LEFT_OVER_TIME_MAX: Duration = Duration::from_micros(500);
/// How long gathering is left alone after it did not suit; doubled each time.
const REST: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(64);

/// The flow of one connection.
///
/// Invariants: the mark is [`MARK_NONE`] except while `Marked`.
#[derive(Debug)]
pub(super) struct Gather {
    state: State,
    /// Gathering is left alone until then.
    rests_until: Option<Instant>,
    rest: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The socket takes no mark.
    None,
    /// Reads are counted.
    Watching {
        since: Option<Instant>,
        reads: u32,
        bytes: usize,
    },
    Marked(Marked),
    /// The mark was taken away because too little came; the next read shows how much.
    TimedOut {
        at: Instant,
        marked: Marked,
    },
}

#[derive(Clone, Copy, Debug)]
struct Marked {
    mark: usize,
    /// Bytes of a read before there was a mark.
    read_bytes: usize,
    /// Reads since there is a mark.
    reads: u32,
    /// The read at which the mark is raised, and how many reads later the next time.
    raise_at: u32,
    raise_after: u32,
    /// Reads that are still to pay for time-outs.
    debt: u32,
}

impl Gather {
    pub(super) fn new() -> Self {
        Self { state: WATCHING, rests_until: None, rest: *REST.start() }
    }

    /// For a socket that takes no mark.
    pub(super) fn none() -> Self {
        Self { state: State::None, ..Self::new() }
    }

    /// Whether the socket has a mark, so that what has arrived may have to be asked for.
    pub(super) fn is_marked(&self) -> bool {
        matches!(self.state, State::Marked(_))
    }

    /// Bytes have been read; answers the socket's new mark if it changes.
    pub(super) fn read(&mut self, now: Instant, bytes: usize) -> Option<usize> {
        match self.state {
            State::None => None,
            State::Watching { since, reads, bytes: before } => {
                self.watch(now, since.unwrap_or(now), reads + 1, before + bytes)
            }
            State::Marked(marked) => self.go_on(Marked {
                reads: marked.reads.saturating_add(1),
                debt: marked.debt.saturating_sub(1),
                ..marked
            }),
            State::TimedOut { at, marked } => self.learn(now, now.duration_since(at), bytes, marked),
        }
    }

    /// Less than the mark came within [`GATHER_TIME_MAX`]; answers the socket's new mark.
    pub(super) fn timed_out(&mut self, now: Instant) -> Option<usize> {
        let State::Marked(marked) = self.state else { return None };
        self.state = State::TimedOut { at: now, marked };
        Some(MARK_NONE)
    }

    fn watch(&mut self, now: Instant, since: Instant, reads: u32, bytes: usize) -> Option<usize> {
        if reads < WINDOW_READS {
            self.state = State::Watching { since: Some(since), reads, bytes };
            return None;
        }
        self.state = WATCHING;
        let read_bytes = bytes / WINDOW_READS as usize;
        let rested = self.rests_until.is_none_or(|until| now >= until);
        let flows = now.duration_since(since) <= WINDOW_TIME_MAX && READ_BYTES.contains(&read_bytes);
        let (raise_at, raise_after) = (WINDOW_READS, WINDOW_READS);
        let marked = Marked { mark: 2 * read_bytes, read_bytes, reads: 0, raise_at, raise_after, debt: 0 };
        (rested && flows).then(|| self.set(marked))
    }

    fn go_on(&mut self, marked: Marked) -> Option<usize> {
        let mark = (marked.mark + marked.read_bytes).min(MARK_MAX);
        if marked.reads < marked.raise_at || mark == marked.mark {
            self.state = State::Marked(marked);
            return None;
        }
        let raise_at = marked.reads.saturating_add(marked.raise_after);
        Some(self.set(Marked { mark, raise_at, ..marked }))
    }

    /// The first read after a time-out. It took the bytes that the client sends before it waits for answers. The mark goes
    /// below those, so that the client goes on sending while it is served.
    fn learn(&mut self, now: Instant, waited: Duration, bytes: usize, marked: Marked) -> Option<usize> {
        if waited > LEFT_OVER_TIME_MAX {
            // Nothing had come: the client paused, which no mark has caused.
            self.state = WATCHING;
            return None;
        }
        let debt = marked.debt + TIME_OUT_READS;
        if debt > DEBT_MAX {
            self.rest(now, marked.reads >= SUITS_READS);
            return None;
        }
        let below = bytes * 2 / 3;
        let mark = if 2 * below > 3 * marked.read_bytes { below.min(marked.mark) } else { marked.mark };
        let raise_at = marked.reads.saturating_add(CALM_READS);
        Some(self.set(Marked { mark, raise_at, raise_after: CALM_READS, debt, ..marked }))
    }

    fn rest(&mut self, now: Instant, has_suited: bool) {
        self.state = WATCHING;
        if has_suited {
            self.rest = *REST.start();
        }
        self.rests_until = Some(now + self.rest);
        self.rest = (2 * self.rest).min(*REST.end());
    }

    fn set(&mut self, marked: Marked) -> usize {
        self.state = State::Marked(marked);
        marked.mark
    }
}

const WATCHING: State = State::Watching { since: None, reads: 0, bytes: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES: usize = 16 * 1024;

    /// A client that has so many frames in flight at once and makes one in 20 us, and a server that answers at once all
    /// that it has read.
    struct Flow {
        gather: Gather,
        now: Instant,
        frames_max: usize,
        frame_bytes: usize,
        mark: usize,
        time_outs: usize,
        reads: usize,
    }

    impl Flow {
        fn new(frames_max: usize, frame_bytes: usize) -> Self {
            let (gather, now) = (Gather::new(), Instant::now());
            Self { gather, now, frames_max, frame_bytes, mark: MARK_NONE, time_outs: 0, reads: 0 }
        }

        fn note(&mut self, mark: Option<usize>) {
            self.mark = mark.unwrap_or(self.mark);
            assert_eq!(self.gather.is_marked(), self.mark > MARK_NONE);
        }

        /// One read, and what comes before it.
        fn step(&mut self) {
            let wanted = self.mark.div_ceil(self.frame_bytes);
            let frames = wanted.min(self.frames_max);
            self.now += Duration::from_micros(20) * u32::try_from(frames).unwrap();
            if wanted > frames {
                self.now += GATHER_TIME_MAX;
                self.time_outs += 1;
                let mark = self.gather.timed_out(self.now);
                self.note(mark);
            }
            self.reads += 1;
            let mark = self.gather.read(self.now, frames * self.frame_bytes);
            self.note(mark);
        }
    }

    #[test]
    fn client_in_full_flow_is_read_nearly_a_flight_at_once() {
        for frames_max in 3..=8 {
            let mut flow = Flow::new(frames_max, FRAME_BYTES);
            (0..10_000).for_each(|_| flow.step());
            let frames = flow.mark.div_ceil(FRAME_BYTES);
            assert!((2..=frames_max).contains(&frames), "{frames} of {frames_max}");
            assert!(flow.time_outs <= 10, "{} with {frames_max}", flow.time_outs);
        }
    }

    #[test]
    fn client_that_waits_for_each_answer_is_delayed_rarely() {
        let mut flow = Flow::new(1, FRAME_BYTES);
        (0..100_000).for_each(|_| flow.step());
        assert!((1..=15).contains(&flow.time_outs), "{}", flow.time_outs);
        assert_eq!(flow.mark, MARK_NONE);
    }

    #[test]
    fn small_and_large_frames_are_left_alone() {
        for frame_bytes in [200, 4096, 64 * 1024, 1024 * 1024] {
            let mut flow = Flow::new(5, frame_bytes);
            (0..1000).for_each(|_| flow.step());
            assert_eq!((flow.mark, flow.time_outs), (MARK_NONE, 0), "{frame_bytes}");
        }
    }

    #[test]
    fn a_slow_client_is_left_alone() {
        let mut flow = Flow::new(5, FRAME_BYTES);
        for _ in 0..1000 {
            flow.now += Duration::from_millis(1);
            flow.step();
        }
        assert_eq!((flow.mark, flow.time_outs), (MARK_NONE, 0));
    }

    #[test]
    fn a_pause_ends_the_mark_and_costs_the_next_flow_nothing() {
        let mut flow = Flow::new(5, FRAME_BYTES);
        (0..1000).for_each(|_| flow.step());
        let mark = flow.mark;
        for _ in 0..20 {
            flow.now += GATHER_TIME_MAX;
            let mark = flow.gather.timed_out(flow.now);
            assert_eq!(mark, Some(MARK_NONE));
            flow.note(mark);
            flow.now += Duration::from_secs(1);
            (0..1000).for_each(|_| flow.step());
            assert!(flow.gather.rests_until.is_none());
        }
        assert_eq!(flow.mark, mark);
    }

    #[test]
    fn client_with_a_broken_flow_is_left_alone_longer_and_longer() {
        let mut flow = Flow::new(5, FRAME_BYTES);
        for round in 0..100_000 {
            flow.frames_max = if round % 20 < 10 { 5 } else { 1 };
            flow.step();
        }
        assert!(flow.time_outs < 30, "{}", flow.time_outs);
    }

    #[test]
    fn a_time_out_now_and_then_does_not_end_the_gathering() {
        let mut flow = Flow::new(5, FRAME_BYTES);
        for round in 0..100_000 {
            flow.frames_max = if round % 100 == 7 { 1 } else { 5 };
            flow.step();
            assert!(flow.gather.rests_until.is_none());
        }
        assert_eq!(flow.mark.div_ceil(FRAME_BYTES), 4);
    }
}
