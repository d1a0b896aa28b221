//! The client against a stub node: every version, framing and step of the handshake; on a socket
//! and simulated.

use std::net::SocketAddr;

use clap::Parser;
use shunt_bench::stub::serve::Running;
use shunt_bench::stub::{Ring, Stub, StubArgs, StubMail, StubOptions};
use shunt_reactor::sim::{HostId, Options, SECOND, World};
use shunt_testing::{Answer, Handshake, blocking, bytes, number, simulated};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::error_code::{BAD_CREDENTIALS, PROTOCOL_ERROR};
use shunt_wire::cql::message::{Event, Supported, encode};

/// Versions with their compressions.
const LAYOUTS: [(u8, Option<Algorithm>); 7] = [
    (3, None),
    (3, Some(Algorithm::Snappy)),
    (4, None),
    (4, Some(Algorithm::Lz4)),
    (4, Some(Algorithm::Snappy)),
    (5, None),
    (5, Some(Algorithm::Lz4)),
];

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    stub: StubArgs,
}

fn listening() -> Running {
    let arguments = ["stub", "--listen", "127.0.0.1:0", "--one-address", "--remember"];
    Running::start(&Command::parse_from(arguments).stub).expect("loopback")
}

#[test]
fn a_blocking_client_finds_what_it_wrote_in_every_layout() {
    let stub = listening();
    for (version, compression) in LAYOUTS {
        let handshake = Handshake {
            keyspace: Some("bench".into()),
            events: vec!["STATUS_CHANGE"],
            statements: vec![
                "INSERT INTO kv (k, v) VALUES (?, ?)".into(),
                "SELECT v FROM kv WHERE k = ?".into(),
            ],
            ..Handshake::new(version).compressed(compression)
        };
        let mut client = blocking::Client::open(stub.addresses()[0], handshake);
        let [insert, select] = client.statements() else { panic!("two statements") };
        assert_eq!(insert.key_places, if version == 3 { vec![] } else { vec![0] });
        assert_eq!((insert.metadata_id.is_some(), insert.id == select.id), (version == 5, false));
        client.run("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)");
        assert_eq!(client.column("SELECT v FROM kv WHERE k = 0x01"), [[2]]);
        assert_eq!(
            client.rows("SELECT k, v FROM kv WHERE k = 0x01"),
            [[Some(vec![1]), Some(vec![2])]]
        );
        assert_eq!(client.prepare("SELECT v FROM kv WHERE k = ?"), client.statements()[1]);
    }
}

#[test]
fn a_pipeline_has_an_answer_for_each_text() {
    let stub = listening();
    for (version, compression) in LAYOUTS {
        let handshake = Handshake::new(version).compressed(compression);
        let mut client = blocking::Client::open(stub.addresses()[0], handshake);
        let texts = [
            "INSERT INTO bench.kv (k, v) VALUES (0x07, 0x08)",
            "SELECT v FROM bench.kv WHERE k = 0x07",
            "WHAT",
        ];
        let answers = client.pipeline(&texts.map(str::to_owned));
        let [Some(insert), Some(select), Some(_)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((insert.rows().len(), select.first_column()), (0, vec![vec![8]]));
    }
}

#[test]
fn nobody_there_is_an_error_and_no_panic() {
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    assert!(blocking::Client::try_open(closed, Handshake::new(4)).is_err());
}

/// A stub, and a client of it that has sent nothing yet.
fn simulation(
    change: impl FnOnce(&mut StubOptions),
) -> (World, HostId<Stub>, HostId<simulated::Client>) {
    let mut world = World::new(1, Options::crumbs());
    let address: SocketAddr = "10.1.0.1:9042".parse().expect("an address");
    let mut options = StubOptions::new(Ring::even(&[address], 1));
    change(&mut options);
    let stub = world.add("stub", Stub::new(options));
    world.listen(stub, address);
    let client = world.add("client", simulated::Client::new(address));
    (world, stub, client)
}

fn exchange(
    world: &mut World,
    client: HostId<simulated::Client>,
    sent: &[u8],
) -> Vec<shunt_testing::Answer> {
    world.with(client, |client, io| client.send(io, sent));
    world.run_for(20 * SECOND);
    world.with(client, |client, _| std::mem::take(&mut client.answers))
}

#[test]
fn a_simulated_client_frames_as_agreed_and_sends_what_it_is_told() {
    for (version, compression) in LAYOUTS {
        let (mut world, _, client) = simulation(|_| {});
        world.with(client, |client, _| client.expect_compression(compression));
        let startup = bytes::startup(version, compression.map(Algorithm::name));
        assert_eq!(exchange(&mut world, client, &startup)[0].opcode(), opcode::READY);
        world.with(client, |client, io| {
            client.push(io, Header::request(version, 3, opcode::OPTIONS), &[])
        });
        let answer = exchange(&mut world, client, &[]).remove(0);
        assert_eq!((answer.stream(), answer.opcode()), (3, opcode::SUPPORTED));
        assert!(Supported::decode(answer.message()).is_ok());
        let traced = Header { flags: flag::TRACING, ..Header::request(version, 4, opcode::QUERY) };
        let body = bytes::query(version, 4, "SELECT key FROM system.local").split_off(9);
        world.with(client, |client, io| client.push(io, traced, &body));
        let answer = exchange(&mut world, client, &[]).remove(0);
        assert!(answer.prefix().tracing_id.is_some());
        assert_eq!(answer.first_column(), [b"local"]);
        assert!(!world.host(client).is_closed());
        exchange(&mut world, client, &[0xff; 20]);
        assert!(world.host(client).is_closed(), "nonsense goes out as it is");
    }
}

#[test]
fn a_segment_made_by_hand_is_one_and_a_damaged_one_is_not() {
    let (mut world, _, client) = simulation(|_| {});
    exchange(&mut world, client, &bytes::startup(5, None));
    let query = bytes::query(5, 1, "SELECT key FROM system.local");
    let (head, tail) = query.split_at(20);
    let parts =
        [bytes::segment(head, false), bytes::segment(tail, false), bytes::framed(5, query.clone())]
            .concat();
    let answers = exchange(&mut world, client, &parts);
    assert_eq!(
        answers.iter().map(|answer| answer.first_column()).collect::<Vec<_>>(),
        [[b"local"], [b"local"]]
    );
    let mut damaged = bytes::segment(&query, true);
    *damaged.last_mut().expect("bytes") ^= 1;
    assert_eq!(exchange(&mut world, client, &damaged)[0].error().0, PROTOCOL_ERROR);
}

/// The client without I/O against a stub in memory, with its bytes passed a few at a time.
#[test]
fn a_login_and_events() {
    for (version, password) in
        [(3, "right"), (4, "right"), (5, "right"), (4, "wrong"), (5, "wrong")]
    {
        let (mut world, stub, client) =
            simulation(|options| options.credentials = vec![("ann".into(), "right".into())]);
        let mut cql = shunt_testing::Client::new(Handshake {
            login: Some(("ann".into(), password.into())),
            events: vec!["STATUS_CHANGE"],
            ..Handshake::new(version)
        });
        let mut out = Vec::new();
        cql.start(&mut out);
        for _ in 0..3 {
            // The simulated client carries the bytes; the server's answers are re-encoded in its
            // framing.
            for answer in exchange(&mut world, client, &std::mem::take(&mut out)) {
                let first = matches!(answer.opcode(), opcode::READY | opcode::AUTHENTICATE)
                    && answer.stream() == 0;
                let envelope = bytes::envelope(answer.header, &answer.body);
                let startup = cql.step() == shunt_testing::Step::Startup && first;
                let framed = if startup { envelope } else { bytes::framed(version, envelope) };
                let mut given = 0;
                for end in 1..=framed.len() {
                    given += cql.receive(&framed[given..end], &mut out).expect("CQL");
                }
                assert_eq!(given, framed.len());
            }
            cql.finish(&mut out);
        }
        if password == "wrong" {
            assert_eq!(cql.refusal().expect("a refusal").error().0, BAD_CREDENTIALS);
            continue;
        }
        assert!(cql.is_ready());
        let address = ([10, 1, 0, 9], 9042).into();
        world.post(stub, StubMail::Status("DOWN", address));
        let event = exchange(&mut world, client, &[]).remove(0);
        assert_eq!(
            Event::decode(event.message()),
            Ok(Event::StatusChange { change: "DOWN", address })
        );
        cql.receive(&bytes::framed(version, bytes::envelope(event.header, &event.body)), &mut out)
            .expect("CQL");
        assert_eq!(cql.next_answer(), Some(event));
    }
}

#[test]
fn pages_say_where_the_next_one_begins() {
    for (state, rest) in [(Some(&b"next"[..]), 2), (None, 0)] {
        let body = bytes::body(|out| {
            use shunt_wire::cql::message::{put, result_kind};
            put::int(out, result_kind::ROWS);
            put::int(out, 4 | rest);
            put::int(out, 1);
            if let Some(state) = state {
                put::bytes(out, Some(state));
            }
            put::int(out, 1);
            put::bytes(out, None);
        });
        let answer = Answer { header: Header::response(4, 0, opcode::RESULT), body };
        assert_eq!((answer.paging_state().as_deref(), answer.rows()), (state, vec![vec![None]]));
    }
}

#[test]
#[should_panic(expected = "a RESULT was expected")]
fn an_error_is_no_result() {
    let body = bytes::body(|out| encode::error(out, PROTOCOL_ERROR, "wrong"));
    let answer = Answer { header: Header::response(4, 0, opcode::ERROR), body };
    answer.rows();
}

#[test]
fn an_outcome_is_rows_or_the_text_of_the_error() {
    let body = bytes::body(|out| encode::error(out, PROTOCOL_ERROR, "wrong"));
    let answer = Answer { header: Header::response(4, 0, opcode::ERROR), body };
    assert_eq!(answer.outcome(), Err("wrong".to_owned()));
    let body = bytes::body(encode::void);
    let answer = Answer { header: Header::response(4, 0, opcode::RESULT), body };
    assert_eq!(answer.outcome(), Ok(Vec::new()));
}

#[test]
fn a_value_of_four_or_eight_bytes_is_a_number() {
    let value = |bytes: &[u8]| number(Some(&bytes.to_vec()));
    assert_eq!(
        (value(&(-2_i32).to_be_bytes()), value(&(-3_i64).to_be_bytes())),
        (Some(-2), Some(-3))
    );
    assert_eq!((value(&[1]), number(None)), (None, None));
}
