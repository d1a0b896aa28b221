//! Memory that a connection has at rest, and allocations for each record.

use allocation_counter::measure;

use super::authority::{Authority, client, server};
use super::link::pair;
use crate::ClientAuth;

/// Most bytes of a connection at rest.
const REST_BYTES_MAX: u64 = 12 << 10;

#[test]
fn a_connection_at_rest_is_small() {
    let ca = Authority::new("CA");
    let (client, server) = (client(&ca, Some(&ca.client())), server(&ca, ClientAuth::Required));
    let shake_hands = || pair(client.session("localhost"), server.session());
    drop(shake_hands());
    let mut ends = None;
    let both = measure(|| ends = Some(shake_hands())).bytes_current.unsigned_abs();
    let Some((mut near, mut far)) = ends else { panic!("two ends") };
    let claimed = (near.session.bytes() + far.session.bytes()) as u64;
    println!("{both} bytes for both sides, {claimed} claimed");
    assert!(both < 2 * REST_BYTES_MAX, "{both} bytes for both sides");
    assert!((both / 2..=both * 2).contains(&claimed), "{claimed} bytes claimed, {both} taken");

    let mut out = Vec::with_capacity(1 << 20);
    let mut plain = Vec::with_capacity(1 << 20);
    let mut carry = || {
        out.clear();
        plain.clear();
        near.session.seal(&[7; 100_000], &mut out).expect("records");
        far.session.open(&mut out, &mut plain).expect("content");
    };
    carry();
    let grown = measure(|| (0..100).for_each(|_| carry()));
    assert_eq!(plain.len(), 100_000);
    assert_eq!(grown.bytes_current, 0);
    assert!(!near.session.has_pending() && !far.session.has_pending());
}
