//! Handshakes: results for each side, and refusals.

use super::*;
use crate::message::{Message, Read};

fn key(byte: u8) -> SharedKey {
    SharedKey::new(&[byte; 20]).unwrap()
}

fn agent(key: &SharedKey, nonce: u8) -> AgentHandshake {
    AgentHandshake::new(key.clone(), Protocol::Http, Instance(7), [nonce; NONCE_BYTES])
}

fn owner(key: &SharedKey, nonce: u8) -> OwnerHandshake {
    OwnerHandshake::new(key.clone(), Protocol::Http, OwnerId(3), Instance(9), [nonce; NONCE_BYTES])
}

/// All bytes of both sides, and both ends of the session.
fn shake(
    agent: &AgentHandshake,
    owner: &mut OwnerHandshake,
) -> Result<(Vec<u8>, Established, Established), Error> {
    let (mut of_agent, mut of_owner) = (Vec::new(), Vec::new());
    agent.hello(&mut of_agent);
    let (read, session) = owner.read(&of_agent, &mut of_owner)?.unwrap();
    assert!(read == of_agent.len() && session.is_none());
    let mut welcome = Vec::new();
    let (read, of_agents) = agent.read(&of_owner, &mut welcome)?.unwrap();
    assert_eq!(read, of_owner.len());
    let (read, of_owners) = owner.read(&welcome, &mut Vec::new())?.unwrap();
    assert_eq!(read, welcome.len());
    Ok((of_owner, of_agents, of_owners.unwrap()))
}

#[test]
fn both_sides_learn_who_the_other_is_and_understand_one_another() {
    let key = key(1);
    let (_, mut agents, mut owners) = shake(&agent(&key, 1), &mut owner(&key, 2)).unwrap();
    assert_eq!((agents.owner, agents.instance), (OwnerId(3), Instance(9)));
    assert_eq!((owners.owner, owners.instance), (OwnerId(3), Instance(7)));
    let mut bytes = Vec::new();
    owners.encoder.message(Ticket(5), &Message::Fetch, &mut bytes).unwrap();
    assert_eq!(
        agents.decoder.next(&bytes),
        Ok(Some((bytes.len(), Read::Message(Ticket(5), Message::Fetch))))
    );
    let mut bytes = Vec::new();
    agents.encoder.message(Ticket(5), &Message::Taken, &mut bytes).unwrap();
    assert_eq!(
        owners.decoder.next(&bytes),
        Ok(Some((bytes.len(), Read::Message(Ticket(5), Message::Taken))))
    );
}

#[test]
fn a_handshake_in_single_bytes_is_the_same() {
    let key = key(1);
    let (agent, mut owner) = (agent(&key, 1), owner(&key, 2));
    let (mut hello, mut answer, mut welcome) = (Vec::new(), Vec::new(), Vec::new());
    agent.hello(&mut hello);
    for end in 0..hello.len() {
        assert!(owner.read(&hello[..end], &mut answer).unwrap().is_none());
    }
    owner.read(&hello, &mut answer).unwrap().unwrap();
    for end in 0..answer.len() {
        assert!(agent.read(&answer[..end], &mut welcome).unwrap().is_none());
    }
    agent.read(&answer, &mut welcome).unwrap().unwrap();
    for end in 0..welcome.len() {
        assert!(owner.read(&welcome[..end], &mut Vec::new()).unwrap().is_none());
    }
    assert!(owner.read(&welcome, &mut Vec::new()).unwrap().unwrap().1.is_some());
}

#[test]
fn a_wrong_key_is_refused_by_the_agent_before_it_shows_that_it_has_one() {
    let mut of_owner = Vec::new();
    let mut of_agent = Vec::new();
    let agent = agent(&key(1), 1);
    agent.hello(&mut of_agent);
    owner(&key(2), 2).read(&of_agent, &mut of_owner).unwrap();
    let mut out = Vec::new();
    assert_eq!(agent.read(&of_owner, &mut out).err(), Some(Error::Mac));
    assert!(out.is_empty());
}

#[test]
fn any_changed_byte_of_a_handshake_is_refused() {
    let key = key(1);
    let agent = agent(&key, 1);
    let (mut hello, mut answer) = (Vec::new(), Vec::new());
    agent.hello(&mut hello);
    owner(&key, 2).read(&hello, &mut answer).unwrap();
    for at in 0..answer.len() {
        let mut changed = answer.clone();
        changed[at] ^= 1;
        assert!(agent.read(&changed, &mut Vec::new()).is_err(), "byte {at} of the owner's hello");
    }
    // The agent notices a changed HELLO of its own: the answer fits other bytes than it sent.
    for at in HEADER_BYTES..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 1;
        let mut answer = Vec::new();
        let refused = match owner(&key, 2).read(&changed, &mut answer) {
            Err(_) => true,
            Ok(_) => agent.read(&answer, &mut Vec::new()).is_err(),
        };
        assert!(refused, "byte {at} of the agent's hello");
    }
    let mut welcome = Vec::new();
    agent.read(&answer, &mut welcome).unwrap();
    for at in 0..welcome.len() {
        let mut welcome = welcome.clone();
        welcome[at] ^= 1;
        let mut owner = owner(&key, 2);
        owner.read(&hello, &mut Vec::new()).unwrap();
        assert!(owner.read(&welcome, &mut Vec::new()).is_err(), "byte {at} of the welcome");
    }
}

#[test]
fn a_recorded_session_cannot_be_replayed_to_either_side() {
    let key = key(1);
    let (recorded, _, mut old) = shake(&agent(&key, 1), &mut owner(&key, 2)).unwrap();
    assert_eq!(agent(&key, 3).read(&recorded, &mut Vec::new()).err(), Some(Error::Mac));
    let mut take = Vec::new();
    old.encoder.message(Ticket(5), &Message::Fetch, &mut take).unwrap();
    let (_, mut agents, _) = shake(&agent(&key, 3), &mut owner(&key, 2)).unwrap();
    assert_eq!(agents.decoder.next(&take), Err(Error::Mac));
}

#[test]
fn a_message_does_not_pass_as_its_own_answer() {
    let key = key(1);
    let (_, mut agents, mut owners) = shake(&agent(&key, 1), &mut owner(&key, 2)).unwrap();
    // Both sides may send `CREDIT`, so only the MAC tells the sender.
    let mut bytes = Vec::new();
    agents.encoder.message(Ticket(5), &Message::Credit { bytes: 1 }, &mut bytes).unwrap();
    assert_eq!(agents.decoder.next(&bytes), Err(Error::Mac));
    assert!(owners.decoder.next(&bytes).is_ok());
}

#[test]
fn another_version_or_protocol_is_refused_by_name() {
    let key = key(1);
    let mut hello = Vec::new();
    agent(&key, 1).hello(&mut hello);
    hello[HEADER_BYTES + 1] = 2;
    assert_eq!(owner(&key, 2).read(&hello, &mut Vec::new()).err(), Some(Error::Version(2)));
    let mut cql =
        OwnerHandshake::new(key.clone(), Protocol::Cql, OwnerId(3), Instance(9), [2; NONCE_BYTES]);
    let mut hello = Vec::new();
    agent(&key, 1).hello(&mut hello);
    assert_eq!(cql.read(&hello, &mut Vec::new()).err(), Some(Error::Protocol(1)));
    assert_eq!(
        owner(&key, 2).read(b"GET / HTTP/1.1\r\n\r\n", &mut Vec::new()).err(),
        Some(Error::Length(0x4745_5420))
    );
}
