//! Cases outside the model: bounds, foreign addresses, and owners that ask for others' connections.

use super::*;
use crate::message::Refusal;
use crate::{TcpState, Window};
use shunt_reactor::moving::NotFrozen;

const HERE: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);

#[derive(Default)]
struct Said {
    messages: Vec<(SessionId, Ticket, Message<'static>)>,
    done: Vec<String>,
}

impl Said {
    fn last(&self) -> Option<&Message<'static>> {
        self.messages.last().map(|(_, _, message)| message)
    }
}

impl AgentSink for Said {
    fn expect(&mut self, _: Flow, _: u64) {
        self.done.push("expect".into());
    }

    fn own(&mut self, _: Flow, _: u64) {
        self.done.push("own".into());
    }

    fn let_end(&mut self, _: Flow, _: u64) {
        self.done.push("let end".into());
    }

    fn end(&mut self, _: Flow) {
        self.done.push("end".into());
    }

    fn disown(&mut self, _: Flow) {
        self.done.push("disown".into());
    }

    fn restore(&mut self, _: Flow, _: Frozen) {
        self.done.push("restore".into());
    }

    fn freeze(&mut self, _: Flow) {
        self.done.push("freeze".into());
    }

    fn start(&mut self, _: Flow, _: SessionId, ticket: Ticket, answer_sent: u64) {
        self.done.push(format!("start {} from {answer_sent}", ticket.0));
    }

    fn relay(&mut self, _: SessionId, ticket: Ticket) {
        self.done.push(format!("relay {}", ticket.0));
    }

    fn drop_answer(&mut self, _: SessionId, ticket: Ticket) {
        self.done.push(format!("drop {}", ticket.0));
    }

    fn close(&mut self, _: Flow, how: Close) {
        self.done.push(format!("close {how:?}"));
    }

    fn send(&mut self, session: SessionId, ticket: Ticket, message: Message<'static>) {
        self.messages.push((session, ticket, message));
    }

    fn settled(&mut self, _flow: Flow) {}

    fn drop_session(&mut self, session: SessionId) {
        self.done.push(format!("drop session {}", session.0));
    }
}

fn connection(local: &str, port: u16) -> Frozen {
    let (local, peer) = (local.parse().unwrap(), SocketAddr::from(([198, 51, 100, 7], port)));
    let (timestamp, window_scales, window) = (None, None, Window::default());
    let (send_sequence, receive_sequence, mss, sack) = (1, 2, 1448, true);
    let state = TcpState {
        local,
        peer,
        send_sequence,
        receive_sequence,
        mss,
        timestamp,
        sack,
        window_scales,
        window,
    };
    Frozen { state, unacknowledged: Vec::new(), unsent: Vec::new(), unread: Vec::new() }
}

fn flow(port: u16) -> Flow {
    let frozen = connection("192.0.2.1:80", port);
    Flow { local: frozen.state.local, peer: frozen.state.peer }
}

fn agent(limits: AgentLimits) -> (Agent, Said) {
    let (mut agent, mut said) =
        (Agent::new(limits, ["192.0.2.1:80".parse().unwrap()]), Said::default());
    agent.session_up(0, HERE, OwnerId(1), Instance(1), &mut said);
    agent.session_up(0, OTHER, OwnerId(2), Instance(2), &mut said);
    said.messages.clear();
    (agent, said)
}

fn take(agent: &mut Agent, said: &mut Said, session: SessionId, ticket: u64, connection: Frozen) {
    let message = Message::Take { connection, answer_sent: 0 };
    agent.heard(0, session, Ticket(ticket), &message, said).unwrap();
}

fn refusal(said: &Said) -> Option<Refusal> {
    match said.last() {
        Some(Message::Refused { reason }) => Some(*reason),
        _ => None,
    }
}

#[test]
fn only_offered_answers_on_allowed_addresses_are_taken() {
    let (mut agent, mut said) = agent(AgentLimits::default());
    take(&mut agent, &mut said, HERE, 5, connection("192.0.2.1:80", 1));
    assert_eq!(refusal(&said), Some(Refusal::UnknownTicket));
    agent.offer(0, HERE, Ticket(5)).unwrap();
    take(&mut agent, &mut said, OTHER, 5, connection("192.0.2.1:80", 1));
    assert_eq!(refusal(&said), Some(Refusal::UnknownTicket), "the offer was another owner's");
    for foreign in ["192.0.2.1:22", "192.0.2.2:80"] {
        take(&mut agent, &mut said, HERE, 5, connection(foreign, 1));
        assert_eq!(refusal(&said), Some(Refusal::ForeignAddress), "{foreign}");
    }
    assert!(said.done.is_empty() && agent.flows() == 0, "{:?}", said.done);
    // The refused answer is still offered.
    agent.heard(0, HERE, Ticket(5), &Message::Fetch, &mut said).unwrap();
    assert_eq!(said.done, ["relay 5"]);
}

#[test]
fn a_connection_is_expected_then_restored_then_owned_and_only_then_taken() {
    let (mut agent, mut said) = agent(AgentLimits::default());
    agent.offer(0, HERE, Ticket(5)).unwrap();
    take(&mut agent, &mut said, HERE, 5, connection("192.0.2.1:80", 1));
    assert!(said.messages.is_empty());
    agent.restored(1, flow(1), true, &mut said);
    assert_eq!(said.done, ["expect", "restore", "own", "start 5 from 0"]);
    assert_eq!(said.last(), Some(&Message::Taken));
    // Its addresses are occupied now, for every owner.
    agent.offer(0, OTHER, Ticket(5)).unwrap();
    take(&mut agent, &mut said, OTHER, 5, connection("192.0.2.1:80", 1));
    assert_eq!(refusal(&said), Some(Refusal::Occupied));
    agent.delivered(2, flow(1), 100, &mut said);
    assert!(!said.done.contains(&"freeze".to_owned()), "nobody waits for it");
    agent.client_waits(flow(1), &mut said);
    assert_eq!(said.done[4..], ["expect", "freeze"]);
    agent.frozen(3, flow(1), Ok(connection("192.0.2.1:80", 1)), &mut said);
    assert!(matches!(
        said.last(),
        Some(Message::Return { answer_sent: 100, is_complete: true, .. })
    ));
    agent.heard(3, HERE, Ticket(5), &Message::Settled, &mut said).unwrap();
    assert_eq!(agent.flows(), 0);
}

#[test]
fn a_message_about_another_owners_connection_does_nothing() {
    let (mut agent, mut said) = agent(AgentLimits::default());
    agent.offer(0, HERE, Ticket(5)).unwrap();
    take(&mut agent, &mut said, HERE, 5, connection("192.0.2.1:80", 1));
    agent.restored(1, flow(1), true, &mut said);
    let before = (said.done.len(), said.messages.len());
    for message in [Message::Recall, Message::Release, Message::Settled, Message::HeldAck] {
        agent.heard(1, OTHER, Ticket(5), &message, &mut said).unwrap();
    }
    assert_eq!((said.done.len(), said.messages.len()), before);
    assert!(agent.heard(1, OTHER, Ticket(5), &Message::Taken, &mut said).is_err());
    agent.session_lost(1, OTHER, &mut said);
    assert_eq!(agent.flows(), 1);
}

#[test]
fn offers_bytes_and_connections_have_bounds() {
    let limits = AgentLimits {
        offers: 3,
        budget_bytes: 250,
        budget_bytes_each: 100,
        flows: 1,
        ..AgentLimits::default()
    };
    let (mut agent, mut said) = agent(limits);
    assert_eq!(agent.offer(0, HERE, Ticket(1)), Some(100));
    assert_eq!(agent.offer(0, HERE, Ticket(1)), None, "twice");
    assert_eq!(agent.offer(0, HERE, Ticket(2)), Some(100));
    assert_eq!(agent.offer(0, HERE, Ticket(3)), None, "no bytes are left");
    assert_eq!(agent.offer(0, SessionId(9), Ticket(3)), None, "a session that is not there");
    agent.heard(0, HERE, Ticket(1), &Message::Cancel, &mut said).unwrap();
    assert_eq!(agent.offer(0, HERE, Ticket(3)), Some(100));
    take(&mut agent, &mut said, HERE, 2, connection("192.0.2.1:80", 1));
    take(&mut agent, &mut said, HERE, 3, connection("192.0.2.1:80", 2));
    assert_eq!(refusal(&said), Some(Refusal::Full));
    agent.restored(0, flow(1), true, &mut said);
    agent.client_gone(1, flow(1), Ending::Reset, 0, &mut said);
    agent.heard(1, HERE, Ticket(2), &Message::Settled, &mut said).unwrap();
    agent.heard(1, HERE, Ticket(3), &Message::Cancel, &mut said).unwrap();
    assert!(agent.is_empty(), "{agent:?}");
}

#[test]
fn endings_that_were_forgotten_for_want_of_room_are_owned_up_to() {
    let (mut agent, mut said) = agent(AgentLimits { ended: 1, ..AgentLimits::default() });
    for ticket in [1, 2] {
        agent.offer(0, HERE, Ticket(ticket)).unwrap();
        take(&mut agent, &mut said, HERE, ticket, connection("192.0.2.1:80", ticket as u16));
        agent.restored(0, flow(ticket as u16), true, &mut said);
        agent.client_gone(0, flow(ticket as u16), Ending::Reset, 0, &mut said);
    }
    agent.session_lost(0, HERE, &mut said);
    said.messages.clear();
    agent.session_up(0, SessionId(3), OwnerId(1), Instance(1), &mut said);
    assert_eq!(said.last(), Some(&Message::HeldEnd { is_complete: false }));
    assert!(matches!(said.messages[0], (_, Ticket(1), Message::Closed { .. })));
    // The owner's next process has no connections to ask about.
    agent.session_up(0, SessionId(4), OwnerId(1), Instance(7), &mut said);
    assert_eq!(said.last(), Some(&Message::HeldEnd { is_complete: true }));
    assert_eq!(said.done.last().map(String::as_str), Some("drop session 3"));
}

#[test]
fn a_source_that_fails_gives_the_connection_back_with_what_was_sent() {
    for sent in [0, 7] {
        let (mut agent, mut said) = agent(AgentLimits::default());
        agent.offer(0, HERE, Ticket(5)).unwrap();
        take(&mut agent, &mut said, HERE, 5, connection("192.0.2.1:80", 1));
        agent.restored(0, flow(1), true, &mut said);
        agent.answer_failed(0, flow(1), sent, &mut said);
        assert_eq!(said.done[4..], ["expect", "freeze"]);
        agent.frozen(1, flow(1), Ok(connection("192.0.2.1:80", 1)), &mut said);
        let last = said.last();
        assert!(
            matches!(last, Some(Message::Return { answer_sent, is_complete: false, .. }) if *answer_sent == sent)
        );
    }
}

#[test]
fn clients_that_take_nothing_and_offers_that_nobody_takes_have_an_end() {
    let limits = AgentLimits::default();
    let (mut agent, mut said) = agent(limits);
    agent.offer(0, HERE, Ticket(5)).unwrap();
    agent.offer(0, HERE, Ticket(6)).unwrap();
    take(&mut agent, &mut said, HERE, 5, connection("192.0.2.1:80", 1));
    agent.restored(0, flow(1), true, &mut said);
    agent.tick(limits.offer_ms, &mut said);
    assert!(matches!(said.last(), Some(Message::Failed { status: 504, .. })));
    agent.progress(limits.offer_ms, flow(1));
    agent.tick(limits.stall_ms, &mut said);
    assert_eq!(agent.flows(), 1, "it has taken something since");
    agent.tick(limits.stall_ms + limits.offer_ms, &mut said);
    assert!(matches!(
        said.last(),
        Some(Message::Closed { reason: Ending::TimedOut, is_complete: false, .. })
    ));
    assert_eq!(said.done.last().map(String::as_str), Some("close Reset"));
}

#[test]
fn a_client_that_has_no_more_to_say_is_closed_in_order_only_if_it_has_the_whole_answer() {
    for (is_whole, how, reason) in
        [(true, "close InOrder", Ending::Client), (false, "close Reset", Ending::NotFrozen)]
    {
        let (mut agent, mut said) = agent(AgentLimits::default());
        agent.offer(0, HERE, Ticket(5)).unwrap();
        take(&mut agent, &mut said, HERE, 5, connection("192.0.2.1:80", 1));
        agent.restored(0, flow(1), true, &mut said);
        // Within the answer the client has a right to the rest.
        agent.client_waits(flow(1), &mut said);
        assert_ne!(said.done.last().map(String::as_str), Some("freeze"));
        match is_whole {
            true => agent.delivered(0, flow(1), 4_000_000, &mut said),
            false => agent.answer_failed(0, flow(1), 3_000_000, &mut said),
        }
        assert_eq!(said.done.last().map(String::as_str), Some("freeze"));
        agent.frozen(0, flow(1), Err(NotFrozen::NotEstablished), &mut said);
        if is_whole {
            // The client's packets come here until it has acknowledged the end.
            assert_eq!(said.done[said.done.len() - 2..], ["let end", "end"]);
            agent.tick(AgentLimits::default().lease_ms / 3, &mut said);
            assert_eq!(said.done.last().map(String::as_str), Some("let end"));
            assert!(!matches!(said.last(), Some(Message::Closed { .. })), "it is not over");
            agent.end_acknowledged(1, flow(1), &mut said);
        }
        assert_eq!(said.done.last().map(String::as_str), Some(how));
        assert!(
            matches!(said.last(), Some(Message::Closed { reason: told, is_complete, .. }) if *told == reason && *is_complete == is_whole)
        );
    }
}

#[test]
fn an_agent_waits_for_the_kernel_while_the_client_reads() {
    let limits = AgentLimits::default();
    let (mut agent, mut said) = agent(limits);
    agent.offer(0, HERE, Ticket(5)).unwrap();
    take(&mut agent, &mut said, HERE, 5, connection("192.0.2.1:80", 1));
    agent.restored(0, flow(1), true, &mut said);
    agent.delivered(0, flow(1), 4_000_000, &mut said);
    agent.client_waits(flow(1), &mut said);
    let mut now_ms = 0;
    let mut tries = |agent: &mut Agent, said: &mut Said, bytes: &dyn Fn(usize) -> usize| {
        (0..1_000).find(|turn| {
            agent.frozen(now_ms, flow(1), Err(NotFrozen::TooLong(bytes(*turn))), said);
            // Leases are renewed meanwhile.
            while agent.flows() > 0 && said.done.last().is_none_or(|last| last != "freeze") {
                now_ms = agent.next_deadline_ms().unwrap_or(now_ms).max(now_ms);
                agent.tick(now_ms, said);
            }
            agent.flows() == 0
        })
    };
    assert_eq!(
        tries(&mut agent, &mut said, &|turn| 4_000_000 - turn),
        None,
        "some was taken each time"
    );
    assert!(
        tries(&mut agent, &mut said, &|_| 3_000_000).is_some_and(|turns| turns > 100),
        "nothing was"
    );
    assert_eq!(said.done.last().map(String::as_str), Some("close Reset"));
    assert!(matches!(
        said.last(),
        Some(Message::Closed { reason: Ending::NotFrozen, is_complete: true, .. })
    ));
}
