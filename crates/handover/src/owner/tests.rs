//! Cases outside the model: bounds, lying agents, and connections of a former process.

use super::*;
use crate::{Clients, Frozen, NotFrozen, TcpState, Unexpected, Window};

pub(super) const A: AgentId = AgentId(1);
pub(super) const B: AgentId = AgentId(2);

#[derive(Default)]
pub(super) struct Said {
    pub(super) messages: Vec<(AgentId, Ticket, Message<'static>)>,
    pub(super) done: Vec<&'static str>,
    pub(super) outcomes: Vec<(Ticket, Outcome)>,
    pub(super) cannot_steer: bool,
    pub(super) clients: Clients,
    pub(super) seen: Option<Seen>,
    /// Places at which the answer can be resumed.
    pub(super) places: std::ops::Range<u64>,
    pub(super) probes: Vec<Frozen>,
    /// A probe is still in the loop.
    pub(super) is_probing: bool,
    pub(super) restored: Vec<Frozen>,
}

impl OwnerSink for Said {
    fn steer(&mut self, _: Flow, _: AgentId, _: u64) -> bool {
        self.done.push("steer");
        !self.cannot_steer
    }

    fn unsteer(&mut self, _: Flow) {
        self.done.push("unsteer");
    }

    fn freeze(&mut self, _: Flow) {
        self.done.push("freeze");
    }

    fn hold(&mut self, _: Flow, _: u64) -> bool {
        self.done.push("hold");
        !self.cannot_steer
    }

    fn seen(&self, _: Flow) -> Option<Seen> {
        self.seen
    }

    fn probe(&mut self, _: Flow, frozen: Frozen) {
        self.probes.push(frozen);
    }

    fn is_probing(&self, _: Flow) -> bool {
        self.is_probing
    }

    fn could_go_on(&self, _: Flow, answer_sent: Option<u64>) -> bool {
        answer_sent.map_or(!self.places.is_empty(), |sent| self.places.contains(&sent))
    }

    fn restore(&mut self, _: Flow, frozen: Frozen) {
        self.restored.push(frozen);
        self.done.push("restore");
    }

    fn reset(&mut self, _: Flow, _: Option<TcpState>, _: u64) {
        self.done.push("reset");
    }

    fn send(&mut self, agent: AgentId, ticket: Ticket, message: Message<'static>) {
        self.messages.push((agent, ticket, message));
    }

    fn drop_control(&mut self, _: AgentId) {
        self.done.push("drop control");
    }

    fn claim(&mut self, flow: Flow) -> bool {
        self.clients.claim(flow)
    }

    fn unclaim(&mut self, flow: Flow) {
        self.clients.left(flow);
    }

    fn outcome(&mut self, _: Flow, ticket: Ticket, outcome: Outcome) {
        self.outcomes.push((ticket, outcome));
    }
}

pub(super) fn connection(port: u16) -> Frozen {
    let state = TcpState {
        local: ([192, 0, 2, 1], 80).into(),
        peer: ([198, 51, 100, 7], port).into(),
        send_sequence: 1,
        receive_sequence: 2,
        mss: 1448,
        timestamp: None,
        sack: true,
        window_scales: None,
        window: Window::default(),
    };
    Frozen { state, unacknowledged: Vec::new(), unsent: Vec::new(), unread: Vec::new() }
}

pub(super) fn flow(port: u16) -> Flow {
    Flow { local: connection(port).state.local, peer: connection(port).state.peer }
}

pub(super) fn owner(limits: OwnerLimits) -> (Owner, Said) {
    let (mut owner, mut said) = (Owner::new(limits, Instance(1)), Said::default());
    for agent in [A, B] {
        owner.control_up(0, agent, Instance(u64::from(agent.0) + 10), &mut said);
    }
    (owner, said)
}

pub(super) fn handed_over(owner: &mut Owner, said: &mut Said, ticket: u64, port: u16) {
    owner.offer(0, A, Ticket(ticket), flow(port), 0, said);
    owner.frozen(0, flow(port), Ok(connection(port)), said);
    owner.heard(0, A, Ticket(ticket), &Message::Taken, said).unwrap();
}

#[test]
fn the_order_is_steer_freeze_take_and_restore_unsteer() {
    let (mut owner, mut said) = owner(OwnerLimits::default());
    handed_over(&mut owner, &mut said, 1, 1);
    assert_eq!(said.done, ["steer", "freeze"]);
    let back = Message::Return { connection: connection(1), answer_sent: 9, is_complete: true };
    owner.heard(0, A, Ticket(1), &back, &mut said).unwrap();
    assert_eq!(said.done[2..], ["restore"]);
    assert_eq!(said.messages.last(), Some(&(A, Ticket(1), Message::Settled)));
    owner.restored(flow(1), true, &mut said);
    assert_eq!(said.done[3..], ["unsteer"]);
    assert_eq!(said.outcomes, [(Ticket(1), Outcome::Back { answer_sent: 9, is_complete: true })]);
    assert!(owner.is_empty());
}

#[test]
fn full_is_relayed() {
    let (mut owner, mut said) = owner(OwnerLimits { flows: 2, moves: 1, ..OwnerLimits::default() });
    owner.offer(0, A, Ticket(1), flow(1), 0, &mut said);
    owner.offer(0, A, Ticket(2), flow(2), 0, &mut said);
    assert_eq!(said.outcomes, [(Ticket(2), Outcome::Relay(Relayed::Full))], "one is on its way");
    assert_eq!(said.messages, [(A, Ticket(2), Message::Fetch)]);
    owner.frozen(0, flow(1), Ok(connection(1)), &mut said);
    owner.heard(0, A, Ticket(1), &Message::Taken, &mut said).unwrap();
    handed_over(&mut owner, &mut said, 3, 3);
    owner.offer(0, A, Ticket(4), flow(4), 0, &mut said);
    assert_eq!(
        said.outcomes[1..],
        [(Ticket(4), Outcome::Relay(Relayed::Full))],
        "two are elsewhere"
    );
    assert_eq!(owner.flows(), 2);
}

#[test]
fn connections_that_cannot_be_steered_frozen_or_sent_are_relayed() {
    let (mut owner, mut said) = owner(OwnerLimits::default());
    said.cannot_steer = true;
    owner.offer(0, A, Ticket(1), flow(1), 0, &mut said);
    said.cannot_steer = false;
    owner.offer(0, A, Ticket(2), flow(1), 0, &mut said);
    owner.frozen(0, flow(1), Err(NotFrozen::TooLong(100_000)), &mut said);
    assert_eq!(said.done, ["steer", "steer", "freeze", "unsteer"]);
    owner.offer(0, A, Ticket(3), flow(1), 0, &mut said);
    let mut large = connection(1);
    large.unsent = vec![0; limits::QUEUE_BYTES_MAX + 1];
    owner.frozen(0, flow(1), Ok(large), &mut said);
    owner.restored(flow(1), true, &mut said);
    let relayed =
        [Relayed::NotSteered, Relayed::NotFrozen, Relayed::NotSendable].map(Outcome::Relay);
    assert_eq!(said.outcomes.iter().map(|(_, outcome)| *outcome).collect::<Vec<_>>(), relayed);
    assert!(
        said.messages.iter().all(|(_, _, message)| *message == Message::Fetch) && owner.is_empty()
    );
}

#[test]
fn an_agent_that_lies_is_found_out_and_moves_nothing() {
    let (mut owner, mut said) = owner(OwnerLimits::default());
    handed_over(&mut owner, &mut said, 1, 1);
    let back =
        |port| Message::Return { connection: connection(port), answer_sent: 9, is_complete: true };
    for (agent, message) in
        [(B, back(1)), (B, Message::Taken), (A, back(2)), (A, Message::Taken), (A, Message::Fetch)]
    {
        let Err(Unexpected(_)) = owner.heard(0, agent, Ticket(1), &message, &mut said) else {
            panic!("{agent:?} may say {message:?}")
        };
    }
    let refused = Message::Refused { reason: Refusal::Full };
    assert!(
        owner.heard(0, A, Ticket(1), &refused, &mut said).is_err(),
        "it has said that it took it"
    );
    assert_eq!(said.done, ["steer", "freeze"]);
    assert!(said.outcomes.is_empty());
}

#[test]
fn connections_of_a_former_process_are_taken_over_if_their_addresses_are_free() {
    let held =
        |port: u16, from| Message::Held { local: flow(port).local, peer: flow(port).peer, from };
    let (mut owner, mut said) = owner(OwnerLimits { flows: 2, ..OwnerLimits::default() });
    owner.found_pinned(0, flow(1));
    owner.found_pinned(0, flow(9));
    said.clients.came(flow(2));
    for (ticket, port, from) in
        [(101, 1, Instance(99)), (102, 2, Instance(99)), (103, 3, Instance(1))]
    {
        owner.heard(0, A, Ticket(ticket), &held(port, from), &mut said).unwrap();
    }
    let answers: Vec<_> =
        said.messages.iter().map(|(_, ticket, message)| (ticket.0, message.clone())).collect();
    // The second one's addresses belong to a present client; this process gave the third one up.
    let expected = [(101, Message::HeldAck), (102, Message::Release), (103, Message::Release)];
    assert_eq!(answers, expected);
    assert_eq!(owner.flows(), 1);
    // No agent has claimed the other entry.
    said.done.clear();
    owner.tick(limits::PINNED_MS, &mut said);
    assert_eq!(
        said.done,
        ["steer", "unsteer", "reset"],
        "the renewal of one, the end of the other"
    );
}

#[test]
fn a_taken_over_connection_is_claimed_before_all_loops_until_it_ends() {
    let held = |from| Message::Held { local: flow(1).local, peer: flow(1).peer, from };
    let [(mut one, mut said), (mut other, mut heard)] =
        [owner(OwnerLimits::default()), owner(OwnerLimits::default())];
    heard.clients = said.clients.clone();
    one.heard(0, A, Ticket(101), &held(Instance(99)), &mut said).unwrap();
    assert_eq!(said.messages, [(A, Ticket(101), Message::HeldAck)]);
    other.heard(0, B, Ticket(102), &held(Instance(99)), &mut heard).unwrap();
    assert_eq!(
        (&heard.messages[..], heard.done.len()),
        (&[(B, Ticket(102), Message::Release)][..], 0)
    );
    let closed = Message::Closed { reason: Ending::Client, answer_sent: 9, is_complete: true };
    one.heard(0, A, Ticket(101), &closed, &mut said).unwrap();
    assert!(said.clients.is_empty(), "it is over");
    // A connection that cannot be steered is not kept.
    heard.cannot_steer = true;
    other.heard(0, B, Ticket(103), &held(Instance(99)), &mut heard).unwrap();
    assert!(
        heard.messages.last() == Some(&(B, Ticket(103), Message::Release))
            && heard.clients.is_empty()
    );
}

#[test]
fn a_steering_entry_is_renewed_while_there_is_a_connection_behind_it() {
    let (mut owner, mut said) = owner(OwnerLimits::default());
    handed_over(&mut owner, &mut said, 1, 1);
    for turn in 1..5 {
        let now_ms = owner.next_deadline_ms().unwrap();
        assert!(now_ms <= turn * limits::LEASE_MS / 3, "renewed with two thirds of the lease left");
        said.done.clear();
        owner.tick(now_ms, &mut said);
        assert_eq!(said.done, ["steer"]);
    }
    let closed = Message::Closed { reason: Ending::Client, answer_sent: 9, is_complete: true };
    owner.heard(0, A, Ticket(1), &closed, &mut said).unwrap();
    assert!(owner.is_empty() && said.done.last() == Some(&"unsteer"));
}

#[test]
fn a_client_that_leaves_before_the_freeze_is_nobodys() {
    let (mut owner, mut said) = owner(OwnerLimits::default());
    owner.offer(0, A, Ticket(1), flow(1), 0, &mut said);
    owner.client_gone(flow(1), &mut said);
    assert_eq!(said.messages, [(A, Ticket(1), Message::Cancel)]);
    assert_eq!(said.outcomes, [(Ticket(1), Outcome::Gone(Gone::Client))]);
    assert!(owner.is_empty() && said.done.last() == Some(&"unsteer"));
}

#[test]
fn a_recall_before_the_take_is_sent_after_it_and_once() {
    let (mut owner, mut said) = owner(OwnerLimits::default());
    owner.offer(0, A, Ticket(1), flow(1), 0, &mut said);
    owner.recall(flow(1), &mut said);
    owner.frozen(0, flow(1), Ok(connection(1)), &mut said);
    owner.heard(0, A, Ticket(1), &Message::Taken, &mut said).unwrap();
    owner.recall(flow(1), &mut said);
    let recalls =
        said.messages.iter().filter(|(_, _, message)| *message == Message::Recall).count();
    assert_eq!(recalls, 1);
}
