//! Memory held for an incomplete Redis command.

use allocation_counter::measure;
use shunt_wire::resp::{Command, read_command};

#[test]
fn an_incomplete_command_keeps_only_its_place() {
    let mut bytes = b"*100000\r\n".to_vec();
    (0..99_999).for_each(|_| bytes.extend_from_slice(b"$0\r\n\r\n"));
    let mut command = Command::default();
    let kept = measure(|| {
        for arrived in (10_000..=bytes.len()).step_by(10_000) {
            assert_eq!(read_command(&bytes[..arrived], 1 << 20, &mut command), Ok(false));
        }
    });
    // An empty argument takes 6 bytes on the wire; its list entry takes several times that.
    assert_eq!(kept.bytes_current, 0, "of {} bytes", bytes.len());
    bytes.extend_from_slice(b"$1\r\nx\r\n");
    assert_eq!(read_command(&bytes, 1 << 20, &mut command), Ok(true));
    assert_eq!((command.count(), command.argument(&bytes, 99_999)), (100_000, Some(&b"x"[..])));
}
