//! Nodes of a cluster whose slots keep moving: every command is answered in its turn, as if there
//! were one server.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;

use shunt_multiget::limits;
use shunt_multiget::mode::Mode;
use shunt_multiget::place::{SLOTS, slot};
use shunt_multiget::{Login, Sidecar, SidecarOptions};
use shunt_reactor::sim::{HostId, MILLISECOND, Random, SECOND, World, for_seeds};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::resp::{
    Command, Version, put_array, put_bulk, put_error, put_integer, put_map, put_nil, put_simple,
    read_command,
};

use crate::app::App;
use crate::script::Script;
use crate::{listen_address, server_address, whole};

const NODES: u8 = 4;

/// State that all nodes know at once: their agreement is not simulated.
struct Shared {
    /// Ordered, so that a random key is the same in every run of a seed.
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    owners: Vec<u8>,
    /// Targets of moving slots, and their keys that have moved.
    moving: HashMap<usize, (u8, HashSet<Vec<u8>>)>,
    /// Slots that changed owner, or whose commands reached a node that is not their owner, since
    /// their application last waited for nothing. They keep their owner until it does: a command
    /// redirected twice, or to a node that becomes the owner before earlier commands arrive, can be
    /// overtaken.
    unsettled: BTreeSet<usize>,
    sent_elsewhere: usize,
}

impl Shared {
    fn step(&mut self, random: &mut Random) {
        let keys: Vec<Vec<u8>> = self.values.keys().cloned().collect();
        let Some(key) = keys.get(random.index(keys.len().max(1))).cloned() else { return };
        let slot = usize::from(slot(&key));
        let to = random.below(u64::from(NODES)) as u8;
        if let Some((_, moved)) = self.moving.get_mut(&slot) {
            moved.insert(key);
            if random.chance(0.3)
                && !self.unsettled.contains(&slot)
                && let Some((to, _)) = self.moving.remove(&slot)
            {
                self.owners[slot] = to;
                self.unsettled.insert(slot);
            }
        } else if to != self.owners[slot] {
            self.moving.insert(slot, (to, HashSet::new()));
        }
    }
}

struct Node {
    index: u8,
    shared: Rc<RefCell<Shared>>,
    versions: HashMap<ConnId, Version>,
    asking: HashSet<ConnId>,
}

impl Node {
    fn carry_out(&mut self, conn: ConnId, arguments: &[&[u8]], out: &mut Vec<u8>) {
        let (shared, version) =
            (&mut *self.shared.borrow_mut(), self.versions.get(&conn).copied().unwrap_or_default());
        let may_ask = self.asking.remove(&conn);
        match arguments {
            [b"HELLO", b"3"] => {
                self.versions.insert(conn, Version::Three);
                return put_map(out, Version::Three, 0);
            }
            [b"ASKING"] => {
                self.asking.insert(conn);
                return put_simple(out, "OK");
            }
            [b"CLUSTER", b"SLOTS"] => return put_slots(&shared.owners, out),
            _ => {}
        }
        let key = arguments[1].to_vec();
        let keys = arguments[1..].iter().step_by(if arguments[0] == b"MSET" { 2 } else { 1 });
        let slot = usize::from(slot(&key));
        let (owner, moving) = (shared.owners[slot], shared.moving.get_mut(&slot));
        let elsewhere = match moving {
            Some((to, _)) if owner != self.index && may_ask && *to == self.index => None,
            _ if owner != self.index => Some(("MOVED", owner)),
            // A key that is absent or has moved.
            Some((to, moved)) if moved.contains(&key) || !shared.values.contains_key(&key) => {
                moved.insert(key.clone());
                Some(("ASK", *to))
            }
            _ => None,
        };
        if let Some((what, to)) = elsewhere {
            shared.sent_elsewhere += 1;
            if what == "MOVED" {
                shared.unsettled.insert(slot);
            }
            return put_error(out, &format!("{what} {slot} {}", server_address(to)));
        }
        match arguments {
            [b"SET", _, value] => {
                shared.values.insert(key, value.to_vec());
                put_simple(out, "OK");
            }
            [b"INCR", _] => {
                let value = shared.values.entry(key).or_insert(b"0".to_vec());
                let number = String::from_utf8_lossy(value).parse::<i64>().expect("a number") + 1;
                *value = number.to_string().into_bytes();
                put_integer(out, number);
            }
            [b"GET", _] => match shared.values.get(&key) {
                Some(value) => put_bulk(out, value),
                None => put_nil(out, version),
            },
            // Some of several keys may have moved.
            [b"DEL" | b"UNLINK" | b"EXISTS" | b"TOUCH" | b"MSET", ..]
                if keys.clone().any(|other| *other != key) =>
            {
                panic!("it is asked for several keys")
            }
            [b"DEL" | b"UNLINK", ..] => {
                put_integer(out, i64::from(shared.values.remove(&key).is_some()))
            }
            [b"EXISTS" | b"TOUCH", ..] => {
                put_integer(
                    out,
                    if shared.values.contains_key(&key) { keys.count() as i64 } else { 0 },
                );
            }
            [b"MSET", .., value] => {
                shared.values.insert(key, value.to_vec());
                put_simple(out, "OK");
            }
            other => panic!("a cluster is not asked {} arguments", other.len()),
        }
    }
}

fn put_slots(owners: &[u8], out: &mut Vec<u8>) {
    let ranges: Vec<&[u8]> = owners.chunk_by(|a, b| a == b).collect();
    let mut first = 0;
    put_array(out, ranges.len());
    for range in ranges {
        put_array(out, 3);
        put_integer(out, first);
        put_integer(out, first + range.len() as i64 - 1);
        put_array(out, 2);
        put_bulk(out, server_address(range[0]).ip().to_string().as_bytes());
        put_integer(out, 6379);
        first += range.len() as i64;
    }
}

impl Service for Node {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.versions.remove(&conn);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let (mut command, mut at) = (Command::default(), 0);
        while read_command(&data[at..], 1 << 20, &mut command).expect("the sidecar speaks RESP") {
            let mut out = Vec::new();
            let arguments: Vec<&[u8]> = command.arguments(&data[at..], 0).collect();
            self.carry_out(conn, &arguments, &mut out);
            io.output(conn).extend_from_slice(&out);
            at += command.len();
        }
        at
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

struct Tier {
    world: World,
    shared: Rc<RefCell<Shared>>,
    sidecar: HostId<Sidecar>,
    nodes: Vec<HostId<Node>>,
}

/// Nodes, and a sidecar that is given one of them.
fn scene(seed: u64) -> Tier {
    let mut world = World::new(seed, whole(seed));
    let owners = (0..SLOTS).map(|slot| (slot * usize::from(NODES) / SLOTS) as u8).collect();
    let shared = Shared {
        values: BTreeMap::new(),
        owners,
        moving: HashMap::new(),
        unsettled: BTreeSet::new(),
        sent_elsewhere: 0,
    };
    let shared = Rc::new(RefCell::new(shared));
    let add = |index| {
        let (versions, asking) = (HashMap::new(), HashSet::new());
        let node = world.add("node", Node { index, shared: shared.clone(), versions, asking });
        world.listen(node, server_address(index));
        node
    };
    let nodes = (0..NODES).map(add).collect();
    let shim = SocketAddr::from(([192, 0, 2, 10], 9700));
    let sidecar = Sidecar::new(SidecarOptions {
        servers: vec![(server_address(0), shim)],
        mode: if seed.is_multiple_of(3) { Mode::Cli } else { Mode::Tcp },
        cluster: Some(9700),
        login: Login::default(),
        server_tls: None,
        timeout_ns: 5 * SECOND,
        resend_ns: 20 * MILLISECOND,
        seed,
    });
    let sidecar = world.add("sidecar", sidecar);
    world.listen(sidecar, listen_address());
    Tier { world, shared, sidecar, nodes }
}

fn count(answers: &[u8]) -> usize {
    answers.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn commands_that_are_sent_ahead_do_not_overtake_those_that_are_sent_elsewhere() {
    const COMMANDS: usize = 400;
    for_seeds(30, |seed| {
        let Tier { mut world, shared, .. } = scene(seed);
        let app = world.add("app", Script::new(listen_address()));
        let mut random = Random::new(seed ^ 9);
        let (mut settled, mut sent_elsewhere) = (0, 0);
        for number in 0..COMMANDS {
            world.with(app, |app, io| app.send(io, &[b"INCR", b"hot"]));
            world.run_for(random.below(MILLISECOND));
            // A slot that moves again while its redirected commands are on their way breaks the
            // order; no sidecar can prevent that.
            if shared.borrow().sent_elsewhere > sent_elsewhere {
                (settled, sent_elsewhere) = (number + 1, shared.borrow().sent_elsewhere);
            } else if count(&world.host(app).received) > settled {
                settled = number + 1;
                shared.borrow_mut().owners[usize::from(slot(b"hot"))] =
                    random.below(u64::from(NODES)) as u8;
            }
        }
        let expected: String = (1..=COMMANDS).map(|number| format!(":{number}\r\n")).collect();
        world.run_until(600 * SECOND, |world| world.host(app).received.len() >= expected.len());
        assert_eq!(String::from_utf8_lossy(&world.host(app).received), expected);
    });
}

#[test]
fn while_slots_move_answers_are_in_order_and_say_what_was_true_at_their_turn() {
    let mut sent_elsewhere = 0;
    for_seeds(60, |seed| {
        let Tier { mut world, shared, sidecar, .. } = scene(seed);
        let mut random = Random::new(seed ^ 7);
        let apps: Vec<_> = (0..3)
            .map(|index| world.add("app", App::new(listen_address(), index, &mut random)))
            .collect();
        let limit_ns = 600 * SECOND;
        while !apps.iter().all(|app| world.host(*app).is_done()) {
            world.run_for(random.range(&(MILLISECOND..30 * MILLISECOND)));
            for app in &apps {
                if world.host(*app).waits_for_nothing() {
                    let slots: Vec<usize> = world
                        .host(*app)
                        .keys()
                        .map(|key| usize::from(slot(key.as_bytes())))
                        .collect();
                    shared.borrow_mut().unsettled.retain(|slot| !slots.contains(slot));
                }
            }
            shared.borrow_mut().step(&mut random);
            assert!(world.io(sidecar).now_ns() < limit_ns, "not in time");
        }
        apps.iter().for_each(|app| world.host(*app).check_exactly());
        sent_elsewhere += shared.borrow().sent_elsewhere;
    });
    assert!(sent_elsewhere > 1_000, "{sent_elsewhere} commands were sent elsewhere");
}

#[test]
fn many_keys_of_one_node_cost_others_time_and_no_error() {
    // The seed is no multiple of three, so that no shims are used.
    let Tier { mut world, sidecar, nodes, .. } = scene(4);
    let many: Vec<_> = (0..8).map(|_| world.add("many", Script::new(listen_address()))).collect();
    let [other, writer] = [(); 2].map(|()| world.add("other", Script::new(listen_address())));
    world.run_for(SECOND);
    nodes.iter().for_each(|node| world.freeze(*node));
    let keys: Vec<Vec<u8>> =
        (0..limits::KEYS_MAX).map(|key| format!("{{tag}}{key}").into_bytes()).collect();
    let words: Vec<&[u8]> =
        std::iter::once(&b"MGET"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
    for script in &many {
        (0..2).for_each(|_| world.with(*script, |script, io| script.send(io, &words)));
    }
    world.run_for(SECOND);
    world.with(other, |other, io| other.send(io, &[b"GET", b"{tag}"]));
    world.with(writer, |writer, io| writer.send(io, &[b"INCR", b"{tag}counter"]));
    world.run_for(SECOND);
    nodes.iter().for_each(|node| world.thaw(*node));
    world.run_for(60 * SECOND);
    let metrics = world.host(sidecar).metrics();
    assert_eq!(metrics.errors.get(), 0);
    assert_eq!(String::from_utf8_lossy(&world.host(other).received), "$-1\r\n");
    assert_eq!(String::from_utf8_lossy(&world.host(writer).received), ":1\r\n");
    let answer = format!("*{}\r\n{}", keys.len(), "$-1\r\n".repeat(keys.len()));
    assert!(many.iter().all(|script| world.host(*script).received == answer.repeat(2).as_bytes()));
}

#[test]
fn a_node_that_was_silent_is_tried_with_the_command_that_is_sent_there_and_not_with_its_asking_alone()
 {
    // The seed is no multiple of three, so that no shims are used.
    let Tier { mut world, shared, nodes, sidecar } = scene(4);
    let app = world.add("app", Script::new(listen_address()));
    world.run_for(SECOND);
    let slot = usize::from(slot(b"hot"));
    let to = (shared.borrow().owners[slot] + 1) % NODES;
    shared.borrow_mut().moving.insert(slot, (to, HashSet::new()));
    for words in
        [&[&b"GET"[..], b"hot"][..], &[b"EXISTS", b"hot", b"hot"], &[b"TOUCH", b"hot", b"cold"]]
    {
        world.freeze(nodes[usize::from(to)]);
        world.with(app, |app, io| app.send(io, words));
        world.run_for(20 * SECOND);
        let answer = String::from_utf8_lossy(&world.host(app).received).into_owned();
        assert!(answer.contains("has not answered within 5000 ms"), "{answer}");
        world.thaw(nodes[usize::from(to)]);
        world.run_for(20 * SECOND);
        world.with(app, |app, io| {
            app.received.clear();
            app.send(io, words);
        });
        world.run_for(SECOND);
        let answer = String::from_utf8_lossy(&world.host(app).received).into_owned();
        assert!(["$-1\r\n", ":0\r\n"].contains(&answer.as_str()), "{answer}");
        world.with(app, |app, _| app.received.clear());
    }
    assert_eq!(world.host(sidecar).metrics().links_lost.get(), 3);
}

#[test]
fn a_node_that_was_silent_is_tried_with_one_part_of_a_split_command() {
    let Tier { mut world, shared, nodes, sidecar } = scene(5);
    let app = world.add("app", Script::new(listen_address()));
    world.run_for(SECOND);
    let owner = |key: &[u8]| shared.borrow().owners[usize::from(slot(key))];
    let silent = owner(b"0");
    let keys = (0..).map(|key: u32| key.to_string().into_bytes());
    let mut keys: Vec<Vec<u8>> = keys.filter(|key| owner(key) == silent).take(20).collect();
    keys.extend(
        (0..).map(|key: u32| key.to_string().into_bytes()).find(|key| owner(key) != silent),
    );
    let words: Vec<&[u8]> =
        std::iter::once(&b"DEL"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
    let ask = |world: &mut World, time_ns| {
        world.with(app, |app, io| {
            app.received.clear();
            app.send(io, &words);
        });
        world.run_for(time_ns);
        String::from_utf8_lossy(&world.host(app).received).into_owned()
    };
    world.freeze(nodes[usize::from(silent)]);
    let first = ask(&mut world, 20 * SECOND);
    assert!(first.contains("carried out for 1 of 21 keys"), "{first}");
    assert!(first.contains("perhaps for 20:"), "{first}");
    let second = ask(&mut world, 20 * SECOND);
    assert!(
        second.contains("carried out for 0 of 21 keys, not for 20, perhaps for 1: the server"),
        "{second}"
    );
    world.thaw(nodes[usize::from(silent)]);
    world.run_for(60 * SECOND);
    let third = ask(&mut world, SECOND);
    assert!(
        third.contains("for 1 of 21 keys (0 of them existed), not for 20: the server"),
        "{third}"
    );
    assert!(third.ends_with("one command at a time is sent to it\r\n"), "{third}");
    assert_eq!(ask(&mut world, SECOND), ":0\r\n");
    assert_eq!(world.host(sidecar).metrics().splits.get(), 0);
}
