use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::ReadBuf;
use tokio::net::TcpListener;

use super::*;

/// A server so quick that a request is announced and answered between two checks of the reader task.
struct Quick {
    expect: mpsc::Sender<Expected>,
    request: Option<Expected>,
}

impl AsyncRead for Quick {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(request) = self.request.take() {
            buffer.put_slice(&4_i32.to_be_bytes());
            buffer.put_slice(&request.asked.correlation.to_be_bytes());
            self.expect.try_send(request).expect("there is room");
        }
        Poll::Ready(Ok(()))
    }
}

/// Records the bytes of each write.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<Vec<u8>>>>);

impl Written {
    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl AsyncWrite for Written {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.poll_write(context, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn outgoing(byte: u8, reply: bool) -> Outgoing {
    let frame = Frame { bytes: BytesMut::from(&[byte][..]), splices: Vec::new() };
    let asked = reply.then(|| asked(byte.into()).0);
    Outgoing { frame, records: Vec::new(), asked, written: None }
}

fn asked(correlation: i32) -> (Asked, oneshot::Receiver<Bytes>) {
    let (reply, answer) = oneshot::channel();
    (Asked { correlation, reply, patience: Duration::from_mins(1) }, answer)
}

#[tokio::test]
async fn waiting_requests_leave_together_within_the_limit() {
    let (sender, receiver) = mpsc::channel(SEND_QUEUE);
    let (expect, mut expected) = mpsc::channel(2);
    for (byte, reply) in [(1, true), (2, false), (3, true), (4, true), (5, true)] {
        sender.try_send(outgoing(byte, reply)).expect("there is room");
    }
    let written = Written::default();
    let expectation = Expectation { expect, broken: Arc::default() };
    let writing = tokio::spawn(write_requests(
        written.clone(),
        receiver,
        expectation,
        Arc::new(Semaphore::new(2)),
        Arc::default(),
    ));
    let first = expected.recv().await.unwrap();
    let second = expected.recv().await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!((first.asked.correlation, second.asked.correlation), (1, 3));
    assert_eq!(written.take(), [[1, 2, 3]]);
    drop((first, second));
    drop(sender);
    writing.await.unwrap();
    assert_eq!(written.take(), [[4, 5]]);
    let last = [expected.recv().await.unwrap(), expected.recv().await.unwrap()];
    assert_eq!(last.map(|request| request.asked.correlation), [4, 5]);
}

/// A request whose caller has gone, such as a `LeaveGroup`, may still matter to the server.
#[tokio::test]
async fn dropped_connection_writes_sent_requests_unless_broken() {
    for (broken, expected) in [(false, vec![vec![1, 2]]), (true, Vec::new())] {
        let (sender, receiver) = mpsc::channel(SEND_QUEUE);
        let (expect, nobody) = mpsc::channel(2);
        drop(nobody);
        for byte in [1, 2] {
            sender.try_send(outgoing(byte, true)).expect("there is room");
        }
        drop(sender);
        let written = Written::default();
        let expectation = Expectation { expect, broken: Arc::new(AtomicBool::new(broken)) };
        let in_flight = Arc::new(Semaphore::new(2));
        write_requests(written.clone(), receiver, expectation, in_flight, Arc::default()).await;
        assert_eq!(written.take(), expected, "{broken}");
    }
}

/// Records whether a connection counts as broken when a caller is woken.
struct Woken {
    connection: Arc<Connection>,
    broken: mpsc::Sender<bool>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.broken.try_send(self.connection.is_broken()).expect("a receiver");
    }
}

/// A retrying caller would otherwise take the same connection.
#[tokio::test]
async fn connection_is_broken_before_its_callers_are_woken() {
    let listening = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listening.local_addr().expect("an address").to_string();
    let options = ConnectionOptions {
        client_id: "c".to_owned(),
        connect_timeout: Duration::from_mins(1),
        request_timeout: Duration::from_mins(10),
        in_flight_max: 5,
        traffic: Arc::default(),
    };
    let stream = TcpStream::connect(&address).await.expect("a server");
    let connection = Arc::new(Connection::over(stream, &address, &options));
    let (mut server, _) = listening.accept().await.expect("a client");
    let (broken, mut told) = mpsc::channel(2);
    let mut waiting = Vec::new();
    // The reader task waits for the first answer when the connection ends; the other is behind it.
    for _ in 0..2 {
        let request = ApiVersionsRequest::default();
        let answer = connection.hand_over(&request, 3, CallLimits::default()).await.expect("it is taken");
        let mut answer = Box::pin(answer.wait());
        let woken = Woken { connection: Arc::clone(&connection), broken: broken.clone() };
        let waker = Waker::from(Arc::new(woken));
        assert!(answer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let length = server.read_u32().await.expect("a request") as usize;
        server.read_exact(&mut vec![0; length]).await.expect("all of it");
        waiting.push(answer);
    }
    drop(server);
    for _ in &waiting {
        assert_eq!(told.recv().await, Some(true));
    }
    for answer in waiting {
        let error = answer.await.expect_err("there is none");
        assert!(matches!(error, ClientError::Disconnected { .. }), "{error}");
    }
}

#[tokio::test]
async fn answer_right_after_its_announcement_is_expected() {
    let (expect, mut expected) = mpsc::channel(1);
    let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("it stays open");
    let (asked, answer) = asked(7);
    let request = Some(Expected { asked, _permit: permit });
    let silent = OnceLock::new();
    read_answers(Quick { expect, request }, &mut expected, &silent, &Traffic::default()).await;
    assert_eq!(answer.await.expect("an answer"), 7_i32.to_be_bytes().as_slice());
}
