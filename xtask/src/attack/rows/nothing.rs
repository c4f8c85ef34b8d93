//! An attack that does no harm: one client that asks for versions now and then.

use std::time::Duration;

use riverrun_protocol::ApiVersionsRequest;

use super::Attack;
use crate::attack::attacker::{Shot, Tally, Target};
use crate::wire::frame;

/// Time between two requests.
const PAUSE: Duration = Duration::from_millis(100);

/// No attack.
pub(in crate::attack) struct Nothing;

impl Attack for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn about(&self) -> &'static str {
        "1 client asks for versions ten times a second"
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let request = frame(&ApiVersionsRequest::default(), 0)?;
        target.storm(1, |worker, (): &mut ()| {
            let mut conn = worker.connect()?;
            conn.send(&request)?;
            conn.skip_answer()?;
            worker.pause(PAUSE);
            Ok(Shot::Answered)
        })
    }
}
