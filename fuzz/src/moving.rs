//! State of a migrating connection, including its queues, as received from another host.

use shunt_handover::limits::QUEUE_BYTES_MAX;
use shunt_handover::message::{decode_frozen, encode_frozen};

/// Tries one input. Decoded values fit the kernel's fields, and encode to the same bytes.
pub fn run(data: &[u8]) {
    let Ok(frozen) = crate::bounded(2, data.len(), || decode_frozen(data)) else { return };
    let state = &frozen.state;
    assert_eq!(state.local.is_ipv4(), state.peer.is_ipv4());
    assert!(state.local.port() > 0 && state.peer.port() > 0 && state.local != state.peer);
    assert!(state.window.send <= state.window.largest && state.mss >= 48);
    assert!(state.window_scales.is_none_or(|(send, receive)| send <= 14 && receive <= 14));
    for queue in [&frozen.unacknowledged, &frozen.unsent, &frozen.unread] {
        assert!(queue.len() <= QUEUE_BYTES_MAX);
    }
    let again =
        crate::written(|out| encode_frozen(&frozen, out).expect("a connection that was read"));
    assert_eq!(again, data);
}
