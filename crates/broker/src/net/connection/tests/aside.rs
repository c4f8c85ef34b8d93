//! Requests that are worked on aside: nothing that came after them is started, and they end when their client leaves.

use std::future::pending;
use std::sync::atomic::AtomicBool;

use super::*;

/// Works on the first frame aside for ever, and answers the others at once.
struct Endless {
    begun: AtomicUsize,
    has_ended: Arc<AtomicBool>,
}

struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Dispatch for Endless {
    fn stage(
        &self,
        context: &mut Context<'_>,
        info: &Arc<ConnectionInfo>,
        frame: BytesMut,
        charge: Charge,
    ) -> Staged {
        if self.begun.fetch_add(1, Ordering::SeqCst) > 0 {
            return SizeOf.stage(context, info, frame, charge);
        }
        let (alone, ends) = (info.begin_aside(), Ends(Arc::clone(&self.has_ended)));
        let response = Box::pin(async move {
            let _held = (alone, ends);
            pending().await
        });
        Staged::handled(response, context)
    }
}

#[test]
fn request_aside_is_the_last_started_and_ends_with_its_client() {
    let has_ended = Arc::new(AtomicBool::new(false));
    let dispatch = Endless { begun: AtomicUsize::new(0), has_ended: Arc::clone(&has_ended) };
    let served = serve_with(
        limits(),
        &dispatch,
        |_| {},
        |client| {
            client.send_together(&[40, 40]);
            // More than is read with them.
            client.send(40);
        },
    );
    assert!(served.is_ok(), "{served:?}");
    assert!(has_ended.load(Ordering::SeqCst));
    assert_eq!(dispatch.begun.load(Ordering::SeqCst), 1, "another one was started");
}
