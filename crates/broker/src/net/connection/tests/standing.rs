//! A connection's [`Standing`](crate::net::admission::Standing): what it notes while a request is in work.

use super::*;

/// Answers each frame after a while with whether its connection counts as in work then.
#[derive(Default)]
struct InWork(Arc<OnceLock<Arc<Standing>>>);

impl Dispatch for InWork {
    fn stage(
        &self,
        context: &mut Context<'_>,
        _: &Arc<ConnectionInfo>,
        _frame: BytesMut,
        _charge: Charge,
    ) -> Staged {
        let standing = Arc::clone(self.0.get().expect("told"));
        let response = Box::pin(async move {
            // The first may be over before the connection waits, and the others are not.
            for _ in 0..5 {
                sleep(Duration::from_millis(1)).await;
            }
            size_of_frame(if standing.is_in_work() { b"yes" } else { b"no" })
        });
        Staged::handled(response, context)
    }
}

#[test]
fn a_connection_is_in_work_until_its_client_has_its_answer() {
    let dispatch = InWork::default();
    let standing = Arc::clone(&dispatch.0);
    let client = move |client: &mut Client| {
        standing.set(Arc::clone(&client.standing)).expect("told once");
        for _ in 0..3 {
            client.send(40);
            assert_eq!(client.receive(), b"yes".len());
            wait_until("it is at rest", || !client.standing.is_in_work());
        }
    };
    serve_with(limits(), &dispatch, |_| {}, client).expect("the client closes");
}
