//! Requests of cores while the control plane has no control connection.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::post::{POST_RETRY, Post};
use super::state::{ControlRequest, CoreMail};

/// Interval of the checks whether all cores are gone, while a request of theirs waits.
const GONE_EVERY: Duration = Duration::from_millis(50);

/// Forwards the requests of cores until all cores are gone; the receiver may be busy with a node.
pub(super) async fn hand_on(
    mut requests: mpsc::Receiver<ControlRequest>,
    hand: mpsc::Sender<ControlRequest>,
) {
    while let Some(request) = requests.recv().await {
        let permit = loop {
            tokio::select! {
                permit = hand.reserve() => break permit,
                () = sleep(GONE_EVERY), if !requests.is_closed() => {}
                () = std::future::ready(()), if requests.is_closed() => return,
            }
        };
        let Ok(permit) = permit else { return };
        permit.send(request);
    }
}

/// Runs `work`, and meanwhile answers requests that need a control connection as far as possible
/// without one. `None` when all cores are gone.
pub(super) async fn refuse_meanwhile<T>(
    requests: &mut mpsc::Receiver<ControlRequest>,
    post: &mut Post,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Some(done),
            request = requests.recv() => match request? {
                ControlRequest::AwaitSchemaAgreement { core, ticket, .. } => {
                    post.send(core, CoreMail::SchemaAgreed { ticket, agreed: false });
                }
                ControlRequest::NodeUnreachable(_)
                | ControlRequest::Refresh
                | ControlRequest::DrainNode { .. } => {}
            },
            () = sleep(POST_RETRY), if post.is_waiting() => post.retry(),
        }
    }
}
