//! Connections whose agents are lost: when they go on, and when they end.

use super::tests::{A, B, Said, connection, flow, handed_over, owner};
use super::*;

/// Another process of the agent, without connections.
const NEXT: Instance = Instance(99);

/// A connection whose agent is lost, with an answer that can be resumed at these places.
fn lost(places: std::ops::Range<u64>) -> (Owner, Said) {
    let (mut owner, mut said) = owner(OwnerLimits::default());
    (said.places, said.seen) = (places, Some(Seen::default()));
    handed_over(&mut owner, &mut said, 1, 1);
    owner.control_lost(5_000, A, &mut said);
    said.done.clear();
    (owner, said)
}

/// The client acknowledges this many more bytes, and sends none.
fn says(said: &mut Said, acknowledged: u64) {
    let packets = said.seen.map_or(0, |seen| seen.packets) + 1;
    said.seen = Some(Seen {
        packets,
        acknowledged: Some((connection(1).state.send_sequence, acknowledged)),
        sequence_end: Some(connection(1).state.receive_sequence),
        has_ended: false,
    });
}

fn gone(why: NotSalvaged) -> Vec<(Ticket, Outcome)> {
    vec![(Ticket(1), Outcome::Gone(Gone::NotSalvaged(why)))]
}

#[test]
fn salvage_continues_behind_the_place_that_the_client_acknowledged_twice() {
    let (mut owner, mut said) = lost(1..1_000);
    owner.control_up(6_000, A, NEXT, &mut said);
    assert_eq!((&said.done[..], said.probes.len()), (&["hold"][..], 1));
    // The acknowledgement changes once more, and then stays.
    for (look, acknowledged) in [(1, 10), (2, 500), (3, 500)] {
        says(&mut said, acknowledged);
        owner.tick(6_000 + look * limits::LOOK_MS, &mut said);
    }
    assert_eq!(said.done, ["hold", "restore"]);
    let after = &said.restored[0];
    assert_eq!((after.state.send_sequence, after.state.receive_sequence), (501, 2));
    assert!(after.unacknowledged.is_empty() && after.unsent.is_empty());
    owner.restored(flow(1), true, &mut said);
    assert_eq!(said.done[2..], ["unsteer"]);
    assert_eq!(said.outcomes, [(Ticket(1), Outcome::Salvaged { answer_sent: 500 })]);
    assert!(owner.is_empty());
}

#[test]
fn a_client_without_news_is_asked_again_and_finally_given_up() {
    let (mut owner, mut said) = lost(1..1_000);
    says(&mut said, 500);
    owner.tick(5_000 + limits::LOST_MS - 1, &mut said);
    said.done.clear();
    owner.tick(5_000 + limits::LOST_MS, &mut said);
    for look in 1..=100 {
        owner.tick(5_000 + limits::LOST_MS + look * limits::LOOK_MS, &mut said);
    }
    assert_eq!(
        (said.probes.len(), &said.outcomes),
        (usize::from(limits::LOOKS_MAX), &gone(NotSalvaged::NotFound))
    );
    // The packets are held all the while.
    assert!(said.done.len() >= 3 && said.done.ends_with(&["unsteer", "reset"]));
    assert!(said.done.iter().all(|done| *done != "steer" && *done != "restore"), "{:?}", said.done);
    assert!(owner.is_empty());
}

#[test]
fn a_first_acknowledgement_outside_the_window_is_not_believed() {
    for (distance, is_believed) in [(limits::WINDOW_MAX, true), (limits::WINDOW_MAX + 1, false)] {
        let (mut owner, mut said) = lost(1..1_000);
        let first = connection(1).state.send_sequence.wrapping_sub(distance);
        said.seen = Some(Seen {
            packets: 1,
            acknowledged: Some((first, u64::from(distance) + 500)),
            ..Seen::default()
        });
        owner.control_up(6_000, A, NEXT, &mut said);
        let expected = if is_believed { vec![] } else { gone(NotSalvaged::NotFound) };
        assert_eq!((said.probes.len(), said.outcomes), (usize::from(is_believed), expected));
    }
}

#[test]
fn a_sequence_number_outside_the_window_is_not_what_the_client_sent() {
    for (distance, expected) in
        [(1, NotSalvaged::ClientSentMore), (limits::WINDOW_MAX + 1, NotSalvaged::NotFound)]
    {
        let (mut owner, mut said) = lost(1..1_000);
        says(&mut said, 500);
        let seen = said.seen.as_mut().unwrap();
        seen.sequence_end = seen.sequence_end.map(|end| end.wrapping_add(distance));
        owner.control_up(6_000, A, NEXT, &mut said);
        assert_eq!(said.outcomes, gone(expected), "{distance}");
    }
}

#[test]
fn a_connection_is_not_restored_while_its_probe_is_in_the_loop() {
    let (mut owner, mut said) = lost(1..1_000);
    owner.control_up(6_000, A, NEXT, &mut said);
    says(&mut said, 500);
    owner.tick(6_000 + limits::LOOK_MS, &mut said);
    assert_eq!(said.probes.len(), 2);
    says(&mut said, 500);
    said.is_probing = true;
    for look in 2..100 {
        owner.tick(6_000 + look * limits::LOOK_MS, &mut said);
    }
    assert_eq!((said.probes.len(), said.restored.len(), said.outcomes.len()), (2, 0, 0));
    said.is_probing = false;
    owner.tick(6_000 + 100 * limits::LOOK_MS, &mut said);
    owner.restored(flow(1), true, &mut said);
    assert_eq!(said.outcomes, [(Ticket(1), Outcome::Salvaged { answer_sent: 500 })]);
    assert!(owner.is_empty());
}

#[test]
fn bytes_that_only_the_lost_agent_had_end_the_salvage() {
    for (more, has_ended) in [(1, false), (0, true)] {
        let (mut owner, mut said) = lost(1..1_000);
        says(&mut said, 500);
        let seen = said.seen.as_mut().unwrap();
        seen.sequence_end = seen.sequence_end.map(|end| end + more);
        seen.has_ended = has_ended;
        owner.control_up(6_000, A, NEXT, &mut said);
        assert_eq!(said.outcomes, gone(NotSalvaged::ClientSentMore));
        assert_eq!(said.done, ["hold", "unsteer", "reset"]);
    }
}

#[test]
fn salvage_continues_neither_in_the_head_nor_behind_the_end() {
    for acknowledged in [0, 99, 1_000] {
        let (mut owner, mut said) = lost(100..1_000);
        owner.control_up(6_000, A, NEXT, &mut said);
        for look in 1..4 {
            says(&mut said, acknowledged);
            owner.tick(6_000 + look * limits::LOOK_MS, &mut said);
        }
        assert_eq!((said.outcomes, said.restored.len()), (gone(NotSalvaged::NoPlace), 0));
    }
}

#[test]
fn an_answer_that_could_not_go_on_and_a_connection_that_cannot_be_held_end_at_once() {
    for (places, cannot_steer) in [(0..0, false), (1..1_000, true)] {
        let (mut owner, mut said) = lost(places);
        said.cannot_steer = cannot_steer;
        owner.control_up(6_000, A, NEXT, &mut said);
        assert_eq!(said.outcomes, [(Ticket(1), Outcome::Gone(Gone::AgentLost))]);
        assert!(said.probes.is_empty() && owner.is_empty());
    }
}

#[test]
fn an_agent_that_comes_to_again_lets_go_and_changes_nothing() {
    let (mut owner, mut said) = lost(1..1_000);
    owner.tick(5_000 + limits::LOST_MS, &mut said);
    owner.control_up(30_000, A, Instance(11), &mut said);
    let flow = flow(1);
    let late = [
        Message::Held { local: flow.local, peer: flow.peer, from: Instance(1) },
        Message::Refused { reason: crate::message::Refusal::NotRestored },
        Message::Return { connection: connection(1), answer_sent: 1_000, is_complete: true },
        Message::Closed { reason: Ending::Reset, answer_sent: 1_000, is_complete: false },
    ];
    for message in &late {
        owner.heard(30_000, A, Ticket(1), message, &mut said).unwrap();
    }
    let answers: Vec<_> =
        said.messages[1..].iter().map(|(_, _, message)| message.clone()).collect();
    assert_eq!(answers, [Message::Release, Message::Settled, Message::Settled]);
    assert!(said.outcomes.is_empty() && said.restored.is_empty());
    // From another agent the message is an error.
    assert!(owner.heard(30_000, B, Ticket(1), &late[0], &mut said).is_err());
}

#[test]
fn acknowledgements_are_counted_beyond_32_bits_and_from_before_the_freeze() {
    let (mut owner, mut said) = lost(1..u64::MAX);
    owner.control_up(6_000, A, NEXT, &mut said);
    for look in 1..4 {
        says(&mut said, 5 << 32);
        // The first acknowledgement seen was ten bytes older than the freeze.
        said.seen.as_mut().unwrap().acknowledged = Some((1_u32.wrapping_sub(10), (5 << 32) + 10));
        owner.tick(6_000 + look * limits::LOOK_MS, &mut said);
    }
    owner.restored(flow(1), true, &mut said);
    assert_eq!(said.outcomes, [(Ticket(1), Outcome::Salvaged { answer_sent: 5 << 32 })]);
}
