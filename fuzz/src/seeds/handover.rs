//! Seeds of handovers: a message of each kind, a stream, a handshake, and connections.

use shunt_handover::message::{
    Encoder, Ending, Framing, HEADER_BYTES, MAC_BYTES, Message, Refusal, Ticket, encode_frozen,
};
use shunt_handover::session::Instance;
use shunt_handover::{Frozen, TcpState, Window};

use super::Add;
use crate::control::{agent, key, owner, part};
use crate::written;

fn connection(local: &str, peer: &str, has_options: bool) -> Frozen {
    let address = |text: &str| text.parse().expect("an address");
    Frozen {
        state: TcpState {
            local: address(local),
            peer: address(peer),
            send_sequence: 0xFFFF_FFF0,
            receive_sequence: 17,
            mss: 1448,
            timestamp: has_options.then_some(99),
            sack: has_options,
            window_scales: has_options.then_some((7, 14)),
            window: Window { send_update: 1, send: 2, largest: 3, receive: 4, receive_update: 5 },
        },
        unacknowledged: b"sent".to_vec(),
        unsent: Vec::new(),
        unread: b"GET /next HTTP/1.1\r\n".to_vec(),
    }
}

fn v4() -> Frozen {
    connection("192.0.2.1:80", "198.51.100.7:40000", true)
}

pub(super) fn moving(add: Add<'_>) {
    let v6 = connection("[2001:db8::1]:80", "[2001:db8::2]:40000", false);
    for (name, frozen) in [("v4", v4()), ("v6", v6)] {
        add("moving", name, written(|out| encode_frozen(&frozen, out).expect("a connection")));
    }
}

pub(super) fn control(add: Add<'_>) {
    let owners = [
        (
            "request",
            Message::Request {
                head: b"GET / HTTP/1.1\r\n\r\n",
                has_body: true,
                is_idempotent: true,
            },
        ),
        ("take", Message::Take { connection: v4(), answer_sent: 0 }),
        ("credit", Message::Credit { bytes: 65_536 }),
        ("fetch", Message::Fetch),
    ];
    let framing = Framing::Length(1 << 20);
    let agents = [
        (
            "response",
            Message::Response { head: b"HTTP/1.1 200 OK\r\n\r\n", framing: Framing::Chunked },
        ),
        ("offer", Message::Offer { head: b"HTTP/1.1 200 OK\r\n\r\n", framing, etag: b"\"a\"" }),
        ("failed", Message::Failed { status: 502, reason: "the server refused the connection" }),
        ("refused", Message::Refused { reason: Refusal::Full }),
        ("return", Message::Return { connection: v4(), answer_sent: 5, is_complete: true }),
        ("closed", Message::Closed { reason: Ending::Reset, answer_sent: 5, is_complete: false }),
        (
            "held",
            Message::Held { local: v4().state.local, peer: v4().state.peer, from: Instance(4) },
        ),
        ("held_end", Message::HeldEnd { is_complete: true }),
    ];
    let mut stream = Encoder::new(key());
    let mut messages = vec![part::STREAM];
    for (which, name, message) in owners
        .iter()
        .map(|(name, message)| (part::OWNERS, name, message))
        .chain(agents.iter().map(|(name, message)| (part::AGENTS, name, message)))
    {
        let whole =
            written(|out| Encoder::new(key()).message(Ticket(1), message, out).expect("a message"));
        let payload = &whole[HEADER_BYTES..whole.len() - MAC_BYTES];
        add("control", name, [&[which, whole[4]], payload].concat());
        if which == part::OWNERS {
            stream.message(Ticket(1), message, &mut messages).expect("a message");
            stream.body(Ticket(1), b"a body", &mut messages);
        }
    }
    add("control", "stream", messages);
    let (mut hello, mut answer, mut welcome) = (Vec::new(), Vec::new(), Vec::new());
    agent().hello(&mut hello);
    owner().read(&hello, &mut answer).expect("a handshake");
    agent().read(&answer, &mut welcome).expect("a handshake");
    add("control", "to_agent", [&[part::TO_AGENT], &answer[..]].concat());
    add("control", "to_owner", [&[part::TO_OWNER], &hello[..], &welcome].concat());
}
