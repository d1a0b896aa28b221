//! The ring as the control plane last read it, for readers outside the cores: the admin interface
//! and the metrics.

use std::sync::Arc;

use tokio::sync::watch;

use super::state::ClusterState;

/// A reader of the last [`ClusterState`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClusterView(watch::Receiver<Option<Arc<ClusterState>>>);

impl ClusterView {
    /// Makes a view and the end that feeds it. The view is empty at first.
    pub fn new() -> (watch::Sender<Option<Arc<ClusterState>>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// The last state; `None` until the ring is first read.
    pub fn get(&self) -> Option<Arc<ClusterState>> {
        self.0.borrow().clone()
    }

    /// Waits for a state that meets the condition. `false`: the control plane ended before.
    pub(crate) async fn reached(&mut self, is_met: impl Fn(&ClusterState) -> bool) -> bool {
        self.0.wait_for(|state| state.as_deref().is_some_and(&is_met)).await.is_ok()
    }

    /// Waits until the ring is known. `false`: the control plane ended before.
    pub async fn known(&mut self) -> bool {
        self.0.wait_for(Option::is_some).await.is_ok()
    }
}
