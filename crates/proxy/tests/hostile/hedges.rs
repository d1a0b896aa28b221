//! Reads that are late go to a second node. Whatever the two nodes then do, the client gets one
//! answer, the right one, and nothing but a short read of one key goes out twice.

use std::sync::{Arc, Mutex};

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_proxy::config::{Hedge, Written};
use shunt_proxy::metrics::{GivenUp, HedgeEvent};
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::error_code::{OVERLOADED, SERVER_ERROR};

use super::rules::rules;
use super::support::scene::SceneOptions;
use super::testbed::Testbed;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Part of the text of all reads of this module.
const READ: &str = "SELECT v FROM bench.kv WHERE k = ";

struct Hedged {
    testbed: Testbed,
    client: HostId<simulated::Client>,
    /// Nodes that got a request of interest, in order.
    came: Arc<Mutex<Vec<usize>>>,
}

impl Hedged {
    /// Each read is late after 20 ms, and may be hedged. Each key has a value of another length.
    fn new(change: impl FnOnce(&mut SceneOptions)) -> Hedged {
        let mut testbed = Testbed::bare(|options| {
            options.config.hedge = Hedge::After { ms: 20 };
            options.config.hedge_share_max = 100;
            options.aggregate = vec![false; 3];
            change(options);
        });
        let client = testbed.started_offender(4);
        for (key, length) in KEYS.into_iter().zip(1..) {
            testbed.send(client, &bytes::insert(4, length as i16, key, length));
        }
        testbed.answered(client, KEYS.len());
        testbed.take_answers(client);
        Hedged { testbed, client, came: Arc::default() }
    }

    /// Has nodes do the first action on the first request with this text, and so on.
    fn act(&mut self, text: &'static str, actions: &[Action]) {
        self.came.lock().unwrap().clear();
        let actions = actions.to_vec();
        self.testbed.hook_all(|| {
            let (came, actions) = (Arc::clone(&self.came), actions.clone());
            Box::new(move |request: &Request<'_>| {
                if !request.body.windows(text.len()).any(|found| found == text.as_bytes()) {
                    return Action::Answer;
                }
                let mut came = came.lock().unwrap();
                came.push(request.node);
                actions.get(came.len() - 1).cloned().unwrap_or(Action::Answer)
            })
        });
    }

    fn came(&self) -> Vec<usize> {
        self.came.lock().unwrap().clone()
    }

    fn send(&mut self, request: &[u8]) {
        self.testbed.send(self.client, request);
    }

    /// The code (0: none) of the only answer to the only request; a value must be that of the key.
    fn only_code(&mut self, key: usize) -> i32 {
        self.testbed.answered(self.client, 1);
        self.testbed.run_for(3 * SECOND);
        let answers = self.testbed.take_answers(self.client);
        assert_eq!(answers.len(), 1, "answers to one request");
        if answers[0].opcode() == opcode::ERROR {
            return answers[0].error().0;
        }
        assert_eq!(answers[0].first_column(), [vec![7; key + 1]], "the row of another key");
        0
    }

    fn events(&self) -> [u64; 3] {
        let hedges = &self.testbed.scene.metrics[0].hedges;
        [HedgeEvent::Sent, HedgeEvent::Won, HedgeEvent::Abandoned].map(|it| hedges.of(it).get())
    }

    /// The outcome of a read of the first key when the two nodes act like this.
    fn outcome(actions: &[Action]) -> (i32, [u64; 3]) {
        let mut hedged = Hedged::new(|_| {});
        hedged.act(READ, actions);
        hedged.send(&read(1, 0));
        let code = hedged.only_code(0);
        assert_eq!(hedged.came().len(), 2, "nodes that got it");
        assert_ne!(hedged.came()[0], hedged.came()[1], "the same node twice");
        hedged.testbed.scene.check_at_rest();
        (code, hedged.events())
    }

    /// Checks that this request reaches only one node, although that node is late.
    fn check_alone(mut self, text: &'static str, request: &[u8]) {
        self.act(text, &[Action::Delay(300 * MILLISECOND)]);
        self.send(request);
        self.testbed.answered(self.client, 1);
        assert_eq!((self.came().len(), self.events()), (1, [0; 3]), "{text}");
        self.testbed.scene.check_at_rest();
    }
}

fn text(key: usize) -> String {
    format!("{READ}0x{:02x}", KEYS[key].as_bytes()[0])
}

fn read(stream: i16, key: usize) -> Vec<u8> {
    bytes::query(4, stream, &text(key))
}

fn delay(ms: u64) -> Action {
    Action::Delay(ms * MILLISECOND)
}

#[test]
fn the_first_answer_goes_to_the_client_and_the_other_to_nobody() {
    assert_eq!(Hedged::outcome(&[delay(200), Action::Answer]), (0, [1, 1, 0]));
    assert_eq!(Hedged::outcome(&[delay(50), delay(200)]), (0, [1, 0, 1]));
    assert_eq!(Hedged::outcome(&[delay(200), delay(200)]).0, 0);
}

#[test]
fn the_failure_of_one_node_leaves_the_read_to_the_other() {
    let error = || Action::Error(SERVER_ERROR);
    assert_eq!(Hedged::outcome(&[delay(200), error()]), (0, [1, 0, 1]));
    assert_eq!(Hedged::outcome(&[delay(200), Action::Error(OVERLOADED)]), (0, [1, 0, 1]));
    assert_eq!(Hedged::outcome(&[delay(200), Action::Close]), (0, [1, 0, 1]));
    assert_eq!(Hedged::outcome(&[delay(200), Action::Garbage(vec![9; 30])]), (0, [1, 0, 1]));
    assert_eq!(Hedged::outcome(&[delay(200), Action::Silence]).0, 0);
}

#[test]
fn the_loss_of_the_first_node_leaves_the_read_to_the_second() {
    let mut hedged = Hedged::new(|_| {});
    hedged.act(READ, &[Action::Silence, delay(100)]);
    hedged.send(&read(1, 2));
    let came = Arc::clone(&hedged.came);
    let both = |_: &mut _| came.lock().unwrap().len() == 2;
    assert!(hedged.testbed.scene.world.run_until(SECOND, both), "no second node got the read");
    let first = hedged.testbed.scene.nodes[hedged.came()[0]];
    hedged.testbed.scene.world.kill(first);
    assert_eq!((hedged.only_code(2), hedged.events()), (0, [1, 1, 0]));
    assert_eq!(hedged.came().len(), 2, "it went to no third node");
    hedged.testbed.scene.check_at_rest();
}

#[test]
fn a_read_that_no_node_answers_gets_one_error() {
    let (code, [sent, won, abandoned]) = Hedged::outcome(&[Action::Silence, Action::Silence]);
    assert!(code != 0 && (sent, won + abandoned) == (1, 1), "{code:#x} {won} {abandoned}");
}

/// The stream ids of overtaken requests stay taken until their answers come, and no longer. Late
/// answers with other keys come while new reads are in flight under other ids.
#[test]
fn late_answers_reach_no_other_read_and_free_their_stream_ids() {
    let mut hedged = Hedged::new(|options| options.config.in_flight_max = 64);
    let counts = Arc::new(Mutex::new([0; 4]));
    hedged.testbed.hook_all(|| {
        let counts = Arc::clone(&counts);
        Box::new(move |request: &Request<'_>| {
            let is_of = |key: &usize| {
                let text = text(*key);
                request.body.windows(text.len()).any(|found| found == text.as_bytes())
            };
            let Some(key) = (0..4).find(is_of) else { return Action::Answer };
            let mut counts = counts.lock().unwrap();
            counts[key] += 1;
            // One read in four is late, and its second node answers at once.
            if counts[key] % 5 == 1 { delay(70) } else { Action::Answer }
        })
    });
    for round in 0..400 {
        let keys = [round % 4, (round + 1) % 4];
        for (stream, key) in keys.into_iter().enumerate() {
            hedged.send(&read(stream as i16, key));
        }
        hedged.testbed.answered(hedged.client, 2);
        let answers = hedged.testbed.take_answers(hedged.client);
        assert_eq!(answers.len(), 2);
        for answer in answers {
            let key = keys[answer.stream() as usize];
            assert_eq!(answer.first_column(), [vec![7; key + 1]], "the row of another key");
        }
    }
    let [sent, won, _] = hedged.events();
    assert!(sent > 100 && won > 100, "{:?}", hedged.events());
    hedged.testbed.scene.check_at_rest();
    assert_eq!(hedged.events()[0], hedged.events()[1] + hedged.events()[2]);
}

/// A node that answers late, but answers, keeps its link: its reads were overtaken and did not time
/// out. More than half of the link's stream ids are held by such reads.
#[test]
fn overtaken_reads_do_not_count_as_timed_out() {
    const STREAMS: u32 = 8;
    let mut hedged = Hedged::new(|options| {
        options.config.in_flight_max = STREAMS;
        options.config.query_timeout_ms = 20_000;
    });
    // So many reads in time that the late ones may be hedged.
    for round in 0..100 {
        hedged.send(&read(0, round % 4));
        hedged.testbed.answered(hedged.client, 1);
        hedged.testbed.take_answers(hedged.client);
    }
    hedged.testbed.hook_all(|| {
        Box::new(|request: &Request<'_>| {
            let is_read = request.body.windows(READ.len()).any(|found| found == READ.as_bytes());
            if is_read && request.node == 0 { delay(4_000) } else { Action::Answer }
        })
    });
    // About a third of them for each node.
    let reads = 3 * (STREAMS as i16 - 1);
    (0..reads).for_each(|stream| hedged.send(&read(stream, stream as usize % 4)));
    hedged.testbed.answered(hedged.client, reads as usize);
    let metrics = Arc::clone(&hedged.testbed.scene.metrics[0]);
    let node = metrics.nodes.node(NodeId(0));
    assert!(hedged.events()[1] > u64::from(STREAMS / 2), "{:?}", hedged.events());
    // The proxy looks at its links several times meanwhile.
    hedged.testbed.run_for(3 * SECOND);
    assert_eq!(node.links_given_up.of(GivenUp::TimedOutQueries).get(), 0);
    hedged.testbed.run_for(4 * SECOND);
    hedged.testbed.scene.check_at_rest();
}

#[test]
fn nothing_but_a_short_read_of_one_key_goes_to_two_nodes() {
    let new = || Hedged::new(|_| {});
    let insert = "INSERT INTO bench.kv (k, v) VALUES (?, ?)";
    new().check_alone(insert, &bytes::insert(4, 1, "late", 9));
    let long = format!("{} /* {} */", text(0), "x".repeat(16 << 10));
    new().check_alone(READ, &bytes::query(4, 1, &long));
    new().check_alone("SELECT v FROM bench.kv", &bytes::query(4, 1, "SELECT v FROM bench.kv"));
    let traced = bytes::with_header(read(1, 0), |header| header.flags |= flag::TRACING);
    new().check_alone(READ, &traced);
    Hedged::new(|options| options.nodes = 1).check_alone(READ, &read(1, 0));
    Hedged::new(|options| options.config.hedge = Hedge::Off).check_alone(READ, &read(1, 0));
}

#[test]
fn no_more_reads_are_hedged_than_their_share() {
    let mut hedged = Hedged::new(|options| options.config.hedge_share_max = 5);
    for number in 0..100 {
        let is_late = number % 5 == 4;
        hedged.act(READ, if is_late { &[Action::Delay(60 * MILLISECOND)] } else { &[] });
        hedged.send(&read(1, 0));
        hedged.testbed.answered(hedged.client, 1);
        hedged.testbed.take_answers(hedged.client);
    }
    assert_eq!(hedged.events()[0], 5);
    let withheld = hedged.testbed.scene.metrics[0].hedges.of(HedgeEvent::Withheld).get();
    assert_eq!(withheld, 15);
}

#[test]
fn a_rule_keeps_its_reads_at_one_node() {
    let off = [("hedge", Written::Text("off".to_owned()))];
    let table = |name: &str| [("table", Written::Text(name.to_owned()))];
    let ruled = Hedged::new(|options| options.config.rule = rules(&[&table("kv")], &off));
    ruled.check_alone(READ, &read(1, 0));
    let mut other = Hedged::new(|options| options.config.rule = rules(&[&table("other")], &off));
    other.act(READ, &[Action::Delay(300 * MILLISECOND)]);
    other.send(&read(1, 0));
    assert_eq!((other.only_code(0), other.came().len()), (0, 2), "a read of another table");
}
