//! A shim: its admission of requests, and its answers. The input is a byte for the shim's options,
//! one for the server's answers, and a datagram.

use std::net::SocketAddr;

use shunt_multiget::limits::AMPLIFICATION_MAX;
use shunt_multiget::place;
use shunt_multiget::shim::{Found, Rejected, Shim, ShimOptions};
use shunt_wire::netmc::{DATAGRAM_BYTES_MAX, ReplyReader, Request, Status};

/// Requests that a source may send at once.
const RATE: u32 = 2;
/// Lengths of values, including the longest that fits beside a short key, and one that does not
/// fit.
const LENGTHS: [usize; 7] = [0, 1, 30, 600, 1_430, 1_440, 3_000];

/// Tries one input.
pub fn run(data: &[u8]) {
    let [options, answers, datagram @ ..] = data else { return };
    let (is_vouched_for, others_rate) = (options & 1 == 0, u32::from(options >> 1 & 1) * RATE);
    let allow = if is_vouched_for { "192.0.2.0/24" } else { "198.51.100.0/24" };
    let allow = vec![allow.parse().expect("a prefix")];
    // A shim for several servers, or for its own alone.
    let servers = usize::from(options >> 2 & 3);
    let shims: Vec<SocketAddr> =
        (0..servers as u8).map(|last| ([192, 0, 2, last], 9700).into()).collect();
    let mut shim = Shim::coordinating(&ShimOptions { allow, rate: RATE, others_rate }, &shims, 0);
    let from: SocketAddr = ([192, 0, 2, 1], 4000).into();
    let (mut let_in, mut counted) = (0, 0);
    for _ in 0..=RATE {
        match crate::bounded(8, datagram.len(), || shim.datagram(0, from, datagram)) {
            Ok(asked) => {
                (let_in, counted) = (let_in + 1, counted + 1);
                let request = Request::parse(datagram).expect("what is let in is sound");
                let keys: Vec<&[u8]> = request.own_keys().expect("so are its keys").collect();
                assert_eq!(asked.is_whole(), !request.is_for_one_server());
                if asked.is_whole() {
                    assert!(is_vouched_for && servers > 0);
                    let places = keys.iter().map(|key| place::server(key, servers));
                    assert!(places.eq(request.own_servers().map(usize::from)));
                }
                assert!(
                    asked.is_whole() || servers == 0 || request.server() == 0,
                    "it is another server's"
                );
                assert!(
                    asked.from == from
                        && asked.op == request.op
                        && asked.keys().eq(keys.iter().copied())
                );
                let most =
                    if is_vouched_for { usize::MAX } else { AMPLIFICATION_MAX * datagram.len() };
                answer(&asked, &request, &keys, *answers, most);
            }
            Err(Rejected::Rate) => assert_eq!(counted, RATE, "before its rate was used up"),
            Err(Rejected::Source) => {
                assert!(!is_vouched_for);
                // A stranger's request for several servers counts like its others.
                counted += u32::from(others_rate > 0);
            }
            Err(_) => assert!(
                let_in == 0,
                "the same datagram is not let in at one time and malformed at another"
            ),
        }
    }
    assert!(let_in <= RATE);
}

/// The server's answer for the key at a place; `None` once it has ended.
fn answer_of(answers: u8, place: usize, value: &[u8]) -> Option<Found<'_>> {
    match (usize::from(answers) + 5 * place) % 11 {
        0 => None,
        1 => Some(Found::Nothing),
        2 => Some(Found::Error),
        kind => Some(Found::Value(&value[..LENGTHS[kind % LENGTHS.len()]])),
    }
}

fn answer(
    asked: &shunt_multiget::shim::Asked,
    request: &Request<'_>,
    keys: &[&[u8]],
    answers: u8,
    bytes_max: usize,
) {
    let value = [b'v'; 3_000];
    let found = || (0..keys.len()).map_while(|place| answer_of(answers, place, &value)).fuse();
    let (mut next, mut bytes) = (0, 0);
    asked.answer(found(), &mut Vec::new(), |reply| {
        assert!(reply.len() <= DATAGRAM_BYTES_MAX);
        bytes += reply.len();
        let reader = ReplyReader::parse(reply).expect("a reply is sound");
        let header = reader.header;
        assert_eq!(
            (header.op, header.id, header.oid),
            (request.op.reply(), request.id, request.oid)
        );
        assert_eq!(usize::from(header.startidx), usize::from(request.startidx) + next);
        for item in reader {
            assert_eq!(item.key, keys[next], "each key once, in order");
            match (found().nth(next), item.status) {
                (Some(Found::Value(value)), Status::Hit) => assert_eq!(item.value, value),
                (Some(Found::Value(_)), Status::TooBig) | (Some(Found::Nothing), Status::Miss) => {}
                (Some(Found::Error) | None, Status::AskOverTcp) => {}
                (found, status) => panic!("{status:?} for {found:?}"),
            }
            next += 1;
        }
    });
    assert_eq!(next, keys.len());
    assert!(bytes <= bytes_max, "{bytes} bytes to who may have {bytes_max}");
}
