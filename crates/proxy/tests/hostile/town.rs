//! A healthy proxy in front of three nodes, well-behaved clients at work, and room for somebody who is not.

use shunt_bench::stub::{Action, StubMail};
use shunt_proxy::config::Config;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND};
use shunt_wire::cql::compression::Algorithm;

use super::bytes;
use super::offender::Offender;
use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

pub struct Town {
    pub scene: Scene,
    refused: u64,
    losses: u64,
}

/// Rights that the bystanders and the offender have when a login is asked for.
pub const ANN: (&str, &str) = ("ann", "secret");

impl Town {
    pub fn new() -> Town {
        Town::with(|_| {})
    }

    /// Without bystanders.
    pub fn bare(change: impl FnOnce(&mut SceneOptions)) -> Town {
        let mut options = SceneOptions::new(1, Options::calm());
        options.config.frame_bytes_max = Config::default().frame_bytes_max;
        change(&mut options);
        Town { scene: Scene::new(options), refused: 0, losses: 0 }
    }

    /// With other settings than [`SceneOptions::new`].
    pub fn with(change: impl FnOnce(&mut SceneOptions)) -> Town {
        let mut town = Town::bare(change);
        let scene = &mut town.scene;
        let (with_login, max) = (!scene.options.credentials.is_empty(), scene.options.protocol_max);
        for (version, compression) in [(4, None), (5, Some(Algorithm::Lz4)), (3, Some(Algorithm::Snappy))] {
            scene.add_client(|client| {
                client.version = version.min(max);
                client.compression = compression;
                client.login = with_login.then_some(ANN);
                client.think_ns = 20 * MILLISECOND;
            });
        }
        scene.work(10, 10 * SECOND);
        town.forgive();
        assert_eq!((town.refused, town.losses), (0, 0));
        town
    }

    /// Somebody new.
    pub fn offender(&mut self) -> HostId<Offender> {
        self.scene.world.add("offender", Offender::new(self.scene.proxy))
    }

    /// Somebody who has sent STARTUP and got READY.
    pub fn started_offender(&mut self, version: u8) -> HostId<Offender> {
        let offender = self.offender();
        self.send(offender, &bytes::startup(version, None));
        self.answered(offender, 1);
        self.take_answers(offender);
        offender
    }

    pub fn send(&mut self, offender: HostId<Offender>, bytes: &[u8]) {
        self.scene.world.with(offender, |offender, io| offender.send(io, bytes));
    }

    /// Waits until there are so many answers.
    pub fn answered(&mut self, offender: HostId<Offender>, count: usize) {
        let done = self.scene.world.run_until(30 * SECOND, |world| world.host(offender).answers.len() >= count);
        let found = self.scene.world.host(offender);
        assert!(done, "{count} answers, found {:?} {:?}", found.state, found.answers);
    }

    /// Waits until the proxy has closed its connection.
    pub fn closed(&mut self, offender: HostId<Offender>) {
        let done = self.scene.world.run_until(120 * SECOND, |world| world.host(offender).is_closed());
        assert!(done, "still open: {:?}", self.scene.world.host(offender).answers);
    }

    pub fn take_answers(&mut self, offender: HostId<Offender>) -> Vec<super::offender::Answer> {
        self.scene.world.with(offender, |offender, _| std::mem::take(&mut offender.answers))
    }

    /// Sends something that must be answered with this error and end the connection.
    pub fn refused(&mut self, offender: HostId<Offender>, bytes: &[u8], code: i32, says: &str) {
        self.begin_work();
        self.send(offender, bytes);
        self.closed(offender);
        let (found, text) = self.scene.world.host(offender).last().error();
        assert!(found == code && text.contains(says), "expected {code:#x} {says}, found {found:#x} {text}");
        self.at_peace();
    }

    /// What all nodes do with queries from now on.
    pub fn hook_all(
        &mut self,
        hook: impl Fn() -> Box<dyn FnMut(&shunt_bench::stub::hook::Request<'_>) -> Action + Send>,
    ) {
        for node in self.scene.nodes.clone() {
            self.scene.world.post(node, StubMail::Hook(Some(hook())));
        }
    }

    /// Gives the bystanders work to do meanwhile.
    pub fn begin_work(&mut self) {
        self.scene.mail_clients(ClientMail::More(20));
    }

    pub fn pass(&mut self, duration_ns: u64) {
        self.scene.world.run_for(duration_ns);
    }

    /// What the offender has written is not the bystanders' business.
    pub fn forget(&mut self, key: &str) {
        self.scene.memory.lock().unwrap().forget(key.as_bytes());
    }

    /// What was refused to the bystanders up to now is not held against the proxy.
    pub fn forgive(&mut self) {
        self.refused = self.scene.sum(|client| client.tally.refused);
        self.losses = self.scene.sum(|client| client.tally.losses);
    }

    /// The bystanders' requests are all answered, and rightly (every answer is checked as it comes).
    pub fn at_work(&mut self) {
        self.scene.wait_idle(60 * SECOND);
        self.scene.check_memory();
        let (refused, losses) = (self.refused, self.losses);
        self.forgive();
        if (refused, losses) != (self.refused, self.losses) {
            self.scene.show_clients();
            panic!("refused {} and lost {} connections", self.refused - refused, self.losses - losses);
        }
    }

    /// As [`at_work`](Town::at_work), also for new requests; and nothing is left of the offence.
    pub fn at_peace(&mut self) {
        self.at_work();
        self.scene.work(20, 60 * SECOND);
        self.at_work();
        self.scene.check_at_rest();
    }
}
