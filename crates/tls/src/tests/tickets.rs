//! Tickets as bytes: their time, and damage.

use super::authority::Files;
use crate::files::File;
use crate::tickets::TicketKeys;

const LIFETIME_S: u64 = 12 * 60 * 60;

/// Keys of a file with one line for each byte.
fn keys(bytes: &[u8], binding: u8) -> TicketKeys {
    let lines = bytes.iter().map(|byte| data_encoding::BASE64.encode(&[*byte; 48]) + "\n");
    let path = Files::new();
    let path = path.write("tickets", lines.collect::<String>());
    let file = File::read("tls_ticket_keys", &path);
    TicketKeys::parse(&file.expect("a file"), &[binding; 32]).expect("keys")
}

#[test]
fn a_ticket_has_its_time() {
    let keys = keys(&[1], 0);
    let now_s = 1_000_000;
    let ticket = keys.seal(b"session", now_s).expect("a ticket");
    let opened = |time_s| keys.open(&ticket, time_s).is_some();
    assert_eq!(keys.open(&ticket, now_s), Some(b"session".to_vec()));
    assert!(opened(now_s + LIFETIME_S) && !opened(now_s + LIFETIME_S + 1));
    // The clock of the member that issued it may be ahead, a little.
    assert!(opened(now_s - 300) && !opened(now_s - 301));
}

#[test]
fn a_damaged_ticket_is_none() {
    let keys = keys(&[1, 2, 3], 0);
    let ticket = keys.seal(b"session", 1_000_000).expect("a ticket");
    for position in 0..ticket.len() {
        assert_eq!(keys.open(&ticket[..position], 1_000_000), None);
        let mut damaged = ticket.clone();
        damaged[position] ^= 1;
        assert_eq!(keys.open(&damaged, 1_000_000), None);
    }
}

#[test]
fn tickets_are_never_the_same() {
    let keys = keys(&[1], 0);
    let mut tickets: Vec<_> = (0..100).map(|_| keys.seal(b"session", 0)).collect();
    tickets.sort();
    tickets.dedup();
    assert_eq!(tickets.len(), 100);
}

#[test]
fn another_binding_opens_nothing() {
    let ticket = keys(&[1], 0).seal(b"session", 0).expect("a ticket");
    assert!(keys(&[1], 0).open(&ticket, 0).is_some());
    assert!(keys(&[1], 1).open(&ticket, 0).is_none());
}

#[test]
fn debugging_shows_no_keys() {
    assert_eq!(format!("{:?}", keys(&[1, 2], 0)), "TicketKeys { keys: 2, .. }");
}
