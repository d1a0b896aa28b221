//! Admin pages, which statements on `shunt_admin` read, and the change that closes clients, while a
//! core is away: they answer all the same, and name the core.

use std::collections::VecDeque;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use shunt_admin::Part as _;
use shunt_proxy::admin::Admin;
use shunt_proxy::config::Config;
use shunt_proxy::control::{ClusterState, ClusterView, CoreMail, Mailbox};
use shunt_proxy::metrics::exposition::Sources;
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::bytes;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::testbed::Testbed;

/// Longest wait for an answer: half a minute longer than a core has for its own.
const ANSWER_MAX: Duration = Duration::from_secs(60);
pub const CORES: usize = 2;
/// The core that is away.
pub const AWAY: usize = 1;

/// Mail on its way to the cores.
pub type Post = Arc<Mutex<VecDeque<(usize, CoreMail)>>>;

/// The pages, and the ends that feed their configuration and their ring.
type Fed = (Arc<Admin>, watch::Sender<Arc<Config>>, watch::Sender<Option<Arc<ClusterState>>>);

/// Sends mail to all cores.
pub fn post_to_all(post: &Post, mail: &CoreMail) {
    let mail = (0..CORES).map(|core| (core, mail.clone()));
    post.lock().unwrap().extend(mail);
}

/// Makes the pages of a proxy that does not know the ring yet.
pub fn admin_with(testbed: &Testbed, post: &Post) -> Fed {
    let mailbox = |core: usize| -> Mailbox {
        let post = Arc::clone(post);
        Box::new(move |mail| {
            post.lock().unwrap().push_back((core, mail));
            Ok(())
        })
    };
    let (ring, cluster) = ClusterView::new();
    let sources = Sources {
        cores: testbed.scene.metrics.clone().into(),
        control: Arc::default(),
        cluster,
        prepared: Arc::default(),
        tls: Arc::default(),
        traces: Arc::default(),
    };
    let scene = &testbed.scene;
    let (cores, listen) = (CORES, vec![scene.proxy].into());
    let config = Config { cores, listen, ..scene.options.config.clone() };
    let (sender, config) = watch::channel(Arc::new(config));
    let mailboxes = (0..CORES).map(mailbox).collect();
    (Admin::new(sources, config, Vec::new(), mailboxes), sender, ring)
}

/// Delivers the mail to the cores, but for the one that is away.
pub fn deliver(testbed: &mut Testbed, post: &Post, is_away: bool) {
    let mut waiting = post.lock().unwrap();
    let (here, kept) = waiting.drain(..).partition(|(core, _)| !is_away || *core != AWAY);
    *waiting = kept;
    let here: VecDeque<(usize, CoreMail)> = here;
    for (core, mail) in here {
        testbed.scene.world.post(testbed.scene.cores[core], mail);
    }
}

/// Runs the cores, but for the one that is away, until there is an answer.
pub async fn answer<T>(
    testbed: &mut Testbed,
    post: &Post,
    is_away: bool,
    asked: impl Future<Output = T>,
) -> T {
    let mut asked = pin!(timeout(ANSWER_MAX, asked));
    loop {
        tokio::select! {
            biased;
            answer = &mut asked => return answer.expect("an answer in time"),
            () = sleep(Duration::from_millis(1)) => {}
        }
        deliver(testbed, post, is_away);
        testbed.run_for(10 * MILLISECOND);
    }
}

pub fn clients(testbed: &Testbed, core: usize) -> u64 {
    testbed.scene.metrics[core].clients.get()
}

/// The cores that each page names as missing.
async fn missing(admin: &Admin) -> Vec<Value> {
    let page = |name| admin.page(name).expect("the page");
    let (clients, links, digests, hot_keys, logins, status) = tokio::join!(
        page("clients"),
        page("links"),
        page("digests"),
        page("hot_keys"),
        page("failed_logins"),
        admin.status()
    );
    let pages = [clients, links, digests, hot_keys, logins, status["client_groups"].clone()];
    let mut missing: Vec<Value> = pages.iter().map(|page| page["cores_missing"].clone()).collect();
    let alerts = status["alerts"].as_array().expect("a list");
    let of_cores = alerts.iter().filter(|alert| alert["name"] == "ShuntLoopStandsStill");
    missing.push(of_cores.map(|alert| alert["text"].clone()).collect());
    missing
}

#[test]
fn pages_and_kicks_name_a_core_that_is_away_and_need_none_that_is() {
    let mut testbed = Testbed::bare(|options| options.cores = CORES);
    for number in 0..12 {
        let client = testbed.started_offender(4);
        testbed.send(client, &bytes::insert(4, 1, &format!("key {number}"), 9));
        testbed.answered(client, 1);
    }
    assert!((0..CORES).all(|core| clients(&testbed, core) > 0), "both cores have clients");
    let post = Post::default();
    let (admin, ..) = admin_with(&testbed, &post);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let told = answer(&mut testbed, &post, true, missing(&admin)).await;
        let (alert, pages) = told.split_last().expect("answers");
        assert!(pages.iter().all(|missing| *missing == json!([AWAY])), "{told:?}");
        assert_eq!(*alert, json!(["core 1 did not answer in time"]));

        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (of_here, of_away) = (clients(&testbed, 0), clients(&testbed, AWAY));
        let kick = || admin.change("kick", &json!({ "all": true }), here).expect("a change");
        let outcome = answer(&mut testbed, &post, true, kick()).await;
        assert_eq!(outcome, Ok(json!({ "closed": of_here, "cores_missing": [AWAY] })));
        testbed.run_for(SECOND);
        assert_eq!((clients(&testbed, 0), clients(&testbed, AWAY)), (0, of_away));

        // The core comes back to all the mail of its absence. Kicks that nobody waits for close
        // nothing.
        let outcome = answer(&mut testbed, &post, false, kick()).await;
        assert_eq!(outcome, Ok(json!({ "closed": of_away, "cores_missing": [] })));
        testbed.run_for(SECOND);
        assert_eq!((clients(&testbed, 0), clients(&testbed, AWAY)), (0, 0));
        let mut told = Vec::new();
        for _ in 0..60 {
            told = answer(&mut testbed, &post, false, missing(&admin)).await;
            if told.iter().all(|missing| *missing == json!([])) {
                return;
            }
            // A page shows its last answer for a second.
            sleep(Duration::from_millis(500)).await;
        }
        panic!("the core is back, and still missing: {told:?}");
    });
}
