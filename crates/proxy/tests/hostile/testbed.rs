//! A healthy proxy in front of three nodes, well-behaved clients at work, and room for an offender.

use shunt_bench::stub::{Action, StubMail};
use shunt_proxy::config::Config;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::opcode;

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

pub struct Testbed {
    pub scene: Scene,
    refused: u64,
    losses: u64,
}

/// Login of the bystanders and the offender where one is needed.
pub const ANN: (&str, &str) = ("ann", "secret");

impl Testbed {
    pub fn new() -> Testbed {
        Testbed::with(|_| {})
    }

    /// A testbed without bystanders.
    pub fn bare(change: impl FnOnce(&mut SceneOptions)) -> Testbed {
        let mut options = SceneOptions::new(1, Options::calm());
        options.config.frame_bytes_max = Config::default().frame_bytes_max;
        change(&mut options);
        Testbed { scene: Scene::new(options), refused: 0, losses: 0 }
    }

    /// A testbed with other settings than those of [`SceneOptions::new`].
    pub fn with(change: impl FnOnce(&mut SceneOptions)) -> Testbed {
        let mut testbed = Testbed::bare(change);
        let scene = &mut testbed.scene;
        let (with_login, max) = (!scene.options.credentials.is_empty(), scene.options.protocol_max);
        for (version, compression) in
            [(4, None), (5, Some(Algorithm::Lz4)), (3, Some(Algorithm::Snappy))]
        {
            scene.add_client(|client| {
                client.version = version.min(max);
                client.compression = compression;
                client.login = with_login.then_some(ANN);
                client.think_ns = 20 * MILLISECOND;
            });
        }
        scene.work(10, 10 * SECOND);
        testbed.accept_errors();
        assert_eq!((testbed.refused, testbed.losses), (0, 0));
        testbed
    }

    /// Connects an offender.
    pub fn offender(&mut self) -> HostId<simulated::Client> {
        self.scene.world.add("offender", simulated::Client::new(self.scene.proxy))
    }

    /// Connects an offender that has sent STARTUP and got READY.
    pub fn started_offender(&mut self, version: u8) -> HostId<simulated::Client> {
        let offender = self.offender();
        self.send(offender, &bytes::startup(version, None));
        self.answered(offender, 1);
        self.take_answers(offender);
        offender
    }

    /// A client whose pool has links: to open one, the proxy asks the node.
    pub fn client_with_open_links(&mut self) -> HostId<simulated::Client> {
        let client = self.started_offender(4);
        self.send(client, &bytes::insert(4, 1, "quick", 9));
        self.answered(client, 1);
        self.take_answers(client);
        client
    }

    /// Has all nodes act this way on queries, and answer everything else.
    pub fn answer_queries_with(&mut self, action: fn() -> Action) {
        self.hook_all(|| {
            Box::new(move |request| match request.opcode {
                opcode::QUERY | opcode::EXECUTE | opcode::BATCH => action(),
                _ => Action::Answer,
            })
        });
    }

    pub fn send(&mut self, offender: HostId<simulated::Client>, bytes: &[u8]) {
        self.scene.world.with(offender, |offender, io| offender.send(io, bytes));
    }

    /// Resets the connection of an offender.
    pub fn reset(&mut self, offender: HostId<simulated::Client>) {
        self.scene.world.with(offender, |offender, io| offender.reset(io));
    }

    pub fn stop_reading(&mut self, offender: HostId<simulated::Client>) {
        self.scene.world.with(offender, |offender, io| offender.stop_reading(io));
    }

    pub fn resume_reading(&mut self, offender: HostId<simulated::Client>) {
        self.scene.world.with(offender, |offender, io| offender.resume_reading(io));
    }

    /// Waits for this many answers.
    pub fn answered(&mut self, offender: HostId<simulated::Client>, count: usize) {
        let done = self
            .scene
            .world
            .run_until(30 * SECOND, |world| world.host(offender).answers.len() >= count);
        let found = self.scene.world.host(offender);
        assert!(done, "{count} answers, found {:?} {:?}", found.state, found.answers);
    }

    /// Waits until the proxy has closed its connection.
    pub fn closed(&mut self, offender: HostId<simulated::Client>) {
        let done =
            self.scene.world.run_until(120 * SECOND, |world| world.host(offender).is_closed());
        assert!(done, "still open: {:?}", self.scene.world.host(offender).answers);
    }

    pub fn take_answers(&mut self, offender: HostId<simulated::Client>) -> Vec<Answer> {
        self.scene.world.with(offender, |offender, _| std::mem::take(&mut offender.answers))
    }

    /// Sends something that must be answered with this error and end the connection.
    pub fn refused(
        &mut self,
        offender: HostId<simulated::Client>,
        bytes: &[u8],
        code: i32,
        says: &str,
    ) {
        self.start_work();
        self.send(offender, bytes);
        self.closed(offender);
        let (found, text) = self.scene.world.host(offender).last().error();
        assert!(
            found == code && text.contains(says),
            "expected {code:#x} {says}, found {found:#x} {text}"
        );
        self.check_recovered();
    }

    /// Sets the behaviour of all nodes for queries from now on.
    pub fn hook_all(
        &mut self,
        hook: impl Fn() -> Box<dyn FnMut(&shunt_bench::stub::hook::Request<'_>) -> Action + Send>,
    ) {
        for node in self.scene.nodes.clone() {
            self.scene.world.post(node, StubMail::Hook(Some(hook())));
        }
    }

    /// Gives the bystanders work to do meanwhile.
    pub fn start_work(&mut self) {
        self.scene.mail_clients(ClientMail::More(20));
    }

    pub fn run_for(&mut self, duration_ns: u64) {
        self.scene.world.run_for(duration_ns);
    }

    /// Forgets a key that the offender has written, which no bystander accounts for.
    pub fn forget_key(&mut self, key: &str) {
        self.scene.memory.lock().unwrap().forget(key.as_bytes());
    }

    /// Accepts the errors that bystanders got up to now.
    pub fn accept_errors(&mut self) {
        self.refused = self.scene.sum(|client| client.tally.refused);
        self.losses = self.scene.sum(|client| client.tally.losses);
    }

    /// Checks that the bystanders' requests are all answered, and rightly (each answer is checked
    /// on arrival).
    pub fn check_bystanders(&mut self) {
        self.scene.wait_idle(60 * SECOND);
        self.scene.check_memory();
        let (refused, losses) = (self.refused, self.losses);
        self.accept_errors();
        if (refused, losses) != (self.refused, self.losses) {
            self.scene.show_clients();
            panic!(
                "refused {} and lost {} connections",
                self.refused - refused,
                self.losses - losses
            );
        }
    }

    /// Checks the same as [`check_bystanders`](Testbed::check_bystanders), also for new requests,
    /// and that nothing is left of the offence.
    pub fn check_recovered(&mut self) {
        self.check_bystanders();
        self.scene.work(20, 60 * SECOND);
        self.check_bystanders();
        self.scene.check_at_rest();
    }
}
