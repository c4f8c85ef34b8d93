//! Batches that were refused for a while, and those sent behind them.

use super::*;

type Answer = tokio::sync::oneshot::Receiver<Outcome>;

/// The outcome of a batch that was appended or refused.
fn outcome(mut answer: Answer) -> Outcome {
    answer.try_recv().expect("answered")
}

fn offset(answer: Answer) -> i64 {
    outcome(answer).expect("appended").base_offset.0
}

fn refusal(answer: Answer) -> ErrorCode {
    outcome(answer).expect_err("refused").code
}

impl MountedQueue {
    fn take(&self, batch: BytesMut) -> Answer {
        self.produce(batch, NOW, soon()).expect("in the line")
    }

    /// Appends the batches in line.
    fn append_waiting(&self) {
        assert!(self.take_in_waiting(self.intake.as_ref().expect("writable")));
    }

    /// Sends a batch to which nothing is in the way.
    fn ask(&self, batch: BytesMut) -> Answer {
        let answer = self.take(batch);
        self.append_waiting();
        answer
    }

    /// That the first batches of a producer are appended once they come again in their order.
    fn assert_begins_with_the_first(&self) {
        assert_eq!(refusal(self.ask(sent(2, b"x"))), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        let end = self.high_watermark().expect("known").0;
        for sequence in 0..3 {
            assert_eq!(offset(self.ask(sent(sequence, b"x"))), end + i64::from(sequence));
        }
    }
}

/// A batch of no producer.
fn plain(value: &[u8]) -> BytesMut {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(NOW, None, Some(value), &[]).expect("room");
    BytesMut::from(builder.build().expect("a batch").as_slice())
}

#[test]
fn batches_behind_a_late_one_wait_until_it_comes_again() {
    let (_dir, mounted) = writable(1 << 16);
    let late = mounted.produce(sent(0, b"x"), NOW, Instant::now()).expect("in the line");
    let behind = mounted.take(sent(1, b"x"));
    let other = mounted.take(plain(b"x"));
    mounted.append_waiting();
    assert_eq!(refusal(late), ErrorCode::REQUEST_TIMED_OUT);
    assert_eq!(refusal(behind), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(offset(other), 0);
    mounted.assert_begins_with_the_first();
}

#[test]
fn batches_are_refused_while_another_appender_holds_the_queue() {
    let (dir, mounted) = writable(1 << 16);
    let queue = Queue::open(dir.path()).expect("whole");
    let mut appender = queue.appender(AppendOptions::default()).expect("attached");
    let held = appender.reserve(10).expect("room");
    let first = mounted.take(sent(0, b"x"));
    let meanwhile = std::thread::scope(|scope| {
        let appending = scope.spawn(|| mounted.append_waiting());
        // By then the first is out of the line, most likely.
        std::thread::sleep(Duration::from_millis(10));
        let meanwhile = [mounted.take(sent(1, b"x")), mounted.take(plain(b"x"))];
        appending.join().expect("ends");
        meanwhile
    });
    drop(held);
    assert_eq!(refusal(first), ErrorCode::KAFKA_STORAGE_ERROR);
    for answer in meanwhile {
        assert_eq!(refusal(answer), ErrorCode::KAFKA_STORAGE_ERROR);
    }
    mounted.assert_begins_with_the_first();
}

#[test]
fn batches_behind_one_without_room_wait_until_it_comes_again() {
    let (_dir, mounted) = writable(8 << 20);
    let value = vec![7; 4 << 20];
    let waiting: Vec<Answer> = (0..15).map(|_| mounted.take(plain(&value))).collect();
    let refused = mounted.produce(sent(0, &value), NOW, soon()).expect_err("no room");
    assert_eq!(refused.code, ErrorCode::KAFKA_STORAGE_ERROR);
    let behind = mounted.take(sent(1, b"x"));
    mounted.append_waiting();
    for (expected, answer) in (0..).zip(waiting) {
        assert_eq!(offset(answer), expected);
    }
    assert_eq!(refusal(behind), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    mounted.assert_begins_with_the_first();
}

#[test]
fn waiting_small_batches_count_with_their_overhead() {
    let (_dir, mounted) = writable(8 << 20);
    let value = vec![7; 4 << 20];
    let _waiting: Vec<Answer> = (0..15).map(|_| mounted.take(plain(&value))).collect();
    let small = plain(b"x");
    let mut taken = Vec::new();
    while let Ok(answer) = mounted.produce(small.clone(), NOW, soon()) {
        taken.push(answer);
    }
    // Less than four megabytes were left.
    assert!((2_000..4_096).contains(&taken.len()), "{}", taken.len());
}
