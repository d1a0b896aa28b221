//! A whole sidecar between an application and servers controlled by the input: pieces, each with a
//! byte for its sender, its length in one byte, and bytes. Shims are silent, so multigets end over
//! TCP.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_multiget::mode::Mode;
use shunt_multiget::{Login, Sidecar, SidecarOptions};
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::resp::{Command, Scanner, read_command};

const SERVERS: u8 = 2;
const TIMEOUT_NS: u64 = 200 * MILLISECOND;
const BYTES_MAX: usize = 1 << 20;

/// Tries one input. Each command gets exactly one valid RESP answer.
pub fn run(data: &[u8]) {
    let Some((seed, mut pieces)) = data.split_first() else { return };
    let (mut sent, mut answers) = (Vec::new(), vec![VecDeque::new(); usize::from(SERVERS)]);
    while let [whose, length, rest @ ..] = pieces {
        let (piece, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        match whose % (SERVERS + 1) {
            SERVERS => sent.extend_from_slice(piece),
            server => answers[usize::from(server)].push_back(piece.to_vec()),
        }
        pieces = behind;
    }
    let options = if seed % 2 == 0 { Options::calm() } else { Options::crumbs() };
    let mut world = World::new(u64::from(*seed), options);
    let address = |index: u8, port: u16| SocketAddr::from(([192, 0, 2, index], port));
    for (index, answers) in (10..).zip(answers) {
        let server = world.add("server", Server { answers });
        world.listen(server, address(index, 6379));
    }
    let sidecar = Sidecar::new(SidecarOptions {
        servers: (10..10 + SERVERS)
            .map(|index| (address(index, 6379), address(index, 9700)))
            .collect(),
        mode: Mode::Cli,
        cluster: None,
        login: Login::default(),
        server_tls: None,
        timeout_ns: TIMEOUT_NS,
        resend_ns: 5 * MILLISECOND,
        seed: 7,
    });
    let sidecar = world.add("sidecar", sidecar);
    world.listen(sidecar, address(1, 6380));
    let (expected, quits) = expected(&sent);
    let app = world.add(
        "app",
        App { to: address(1, 6380), conn: None, sent, received: Vec::new(), is_closed: false },
    );
    // Commands that wait for one another do so for at most a timeout each.
    let limit_ns = 10 * SECOND + 2 * TIMEOUT_NS * expected as u64;
    world.run_until(limit_ns, |world| {
        world.host(app).answers() >= expected || world.host(app).is_closed
    });
    let found = world.host(app).answers();
    assert!(
        found == expected || (quits && found < expected),
        "{found} answers to {expected} commands"
    );
    is_at_rest(&mut world, sidecar, app);
}

/// Number of expected answers, and whether fewer are valid because the application has announced
/// its end.
fn expected(mut sent: &[u8]) -> (usize, bool) {
    let (mut command, mut count, mut quits) = (Command::default(), 0, false);
    loop {
        match read_command(sent, BYTES_MAX, &mut command) {
            Ok(true) => {
                count += usize::from(!command.is_empty());
                quits |= command
                    .argument(sent, 0)
                    .is_some_and(|name| name.eq_ignore_ascii_case(b"QUIT"));
                sent = &sent[command.len()..];
            }
            Ok(false) => return (count, quits),
            Err(_) => return (count + 1, quits),
        }
    }
}

/// Once the application has left, nothing of it remains.
fn is_at_rest(world: &mut World, sidecar: HostId<Sidecar>, app: HostId<App>) {
    world.with(app, |app, io| app.conn.take().into_iter().for_each(|conn| io.close(conn)));
    world.run_for(3 * SECOND);
    let metrics = world.host(sidecar).metrics();
    assert_eq!((metrics.clients.get(), metrics.under_way.get(), metrics.groups.get()), (0, 0, 0));
    assert_eq!(metrics.splits.get(), 0);
    let held = world.held(sidecar);
    assert_eq!(held.backlog, 0, "{held:?}");
}

/// Answers each command with the next piece, of any content; then with nothing.
struct Server {
    answers: VecDeque<Vec<u8>>,
}

impl Service for Server {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let (mut command, mut at) = (Command::default(), 0);
        while read_command(&data[at..], BYTES_MAX, &mut command).expect("the sidecar speaks RESP") {
            at += command.len();
            if let Some(answer) = self.answers.pop_front() {
                io.output(conn).extend_from_slice(&answer);
            }
        }
        at
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

struct App {
    to: SocketAddr,
    conn: Option<ConnId>,
    sent: Vec<u8>,
    received: Vec<u8>,
    is_closed: bool,
}

impl App {
    /// Number of answers left.
    fn answers(&self) -> usize {
        let (mut scanner, mut at, mut count) = (Scanner::new(BYTES_MAX), 0, 0);
        while at < self.received.len() {
            let Some(length) = scanner.find(&self.received[at..]).expect("answers are RESP") else {
                break;
            };
            (at, count) = (at + length, count + 1);
        }
        count
    }
}

impl Service for App {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.conn = Some(io.connect(self.to, SECOND));
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        io.output(conn).append(&mut self.sent);
    }

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        self.received.extend_from_slice(data);
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        (self.conn, self.is_closed) = (None, true);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}
