//! The control plane against a ring of fake nodes over real sockets.

mod agreement;
mod encrypted;
mod fake;
mod following;
mod limits;
mod places;
mod reading;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{
    ClusterState, ClusterView, ControlOptions, ControlPlane, ControlRequest, CoreMail, Mailbox,
    TableName, Unfit,
};
use crate::config::Config;
use crate::metrics::ControlMetrics;
use crate::tls::OutgoingTls;

/// Longest wait for anything; only a broken test reaches it.
const GUARD: Duration = Duration::from_secs(180);

/// A control plane under test, with one core whose mail can be read.
struct Bench {
    mail: mpsc::UnboundedReceiver<CoreMail>,
    requests: mpsc::Sender<ControlRequest>,
    config: watch::Sender<Arc<Config>>,
    view: ClusterView,
    metrics: Arc<ControlMetrics>,
    plane: JoinHandle<Result<(), Unfit>>,
}

impl Bench {
    /// Starts the plane with these contact points.
    fn start(contact_points: &[SocketAddr], change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with(contact_points, None, change)
    }

    /// Same as [`Bench::start`], with TLS to nodes.
    fn start_with(
        contact_points: &[SocketAddr],
        tls: Option<Arc<OutgoingTls>>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        Self::start_prepared(contact_points, tls, change, |_| {})
    }

    /// Same as [`Bench::start_with`], with a plane that `prepare` has changed.
    fn start_prepared(
        contact_points: &[SocketAddr],
        tls: Option<Arc<OutgoingTls>>,
        change: impl FnOnce(&mut Config),
        prepare: impl FnOnce(&mut ControlPlane),
    ) -> Self {
        let contact_points = contact_points.iter().map(ToString::to_string).collect();
        // A paused machine is no reason to give a node up.
        let patience_ms = GUARD.as_millis() as u64;
        let mut config = Config {
            contact_points,
            refresh_interval_ms: 3_600_000,
            heartbeat_interval_ms: 3_600_000,
            connect_timeout_ms: patience_ms,
            query_timeout_ms: patience_ms,
            ..Config::default()
        };
        change(&mut config);
        let (config, settings) = watch::channel(Arc::new(config));
        let (sender, view) = ClusterView::new();
        let (post, mail) = mpsc::unbounded_channel();
        let (requests, receiver) = mpsc::channel(16);
        let metrics = Arc::<ControlMetrics>::default();
        let mailbox: Mailbox = Box::new(move |mail| post.send(mail).map_err(|error| error.0));
        let options = ControlOptions {
            config: settings,
            mailboxes: vec![mailbox],
            requests: receiver,
            view: sender,
            metrics: Arc::clone(&metrics),
            tls,
            seed: 7,
        };
        let mut plane = ControlPlane::new(options);
        prepare(&mut plane);
        let plane = tokio::spawn(plane.run());
        Self { mail, requests, config, view, metrics, plane }
    }

    /// The reason why the plane gave up without publishing a ring.
    async fn unfit(self) -> String {
        let Unfit(why) = timeout(GUARD, self.plane)
            .await
            .expect("it goes on")
            .expect("panicked")
            .expect_err("it goes on");
        assert!(self.view.get().is_none(), "a ring was published");
        why
    }

    async fn next_mail(&mut self) -> CoreMail {
        let mail = timeout(GUARD, self.mail.recv()).await.expect("no mail came");
        match mail {
            Some(mail) => mail,
            None => panic!("the plane has ended: {:?}", (&mut self.plane).await),
        }
    }

    /// The next cluster state that fulfils a condition; drops other mail before it.
    async fn cluster_where(&mut self, wanted: impl Fn(&ClusterState) -> bool) -> Arc<ClusterState> {
        loop {
            if let CoreMail::Cluster(state) = self.next_mail().await
                && wanted(&state)
            {
                return state;
            }
        }
    }

    async fn ask(&self, request: ControlRequest) {
        self.requests.send(request).await.expect("the plane has ended");
    }
}

/// Waits for an event that no mail announces.
async fn eventually(mut happened: impl FnMut() -> bool) {
    let poll = async {
        while !happened() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(GUARD, poll).await.expect("it never happened");
}

/// True if the node with this host id is up; panics if it is not in the ring.
fn is_up(state: &ClusterState, host_id: u128) -> bool {
    state.routing.nodes().iter().find(|node| node.host_id == host_id).expect("node").up
}
