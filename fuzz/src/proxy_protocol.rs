//! Headers of the PROXY protocol.

use shunt_wire::proxy_protocol::{HEADER_BYTES_MAX, read_header};

/// Tries one input.
pub fn run(data: &[u8]) {
    let whole = read_header(data);
    match whole {
        Ok(Some(header)) => {
            assert!(header.bytes > 0 && header.bytes <= data.len().min(HEADER_BYTES_MAX));
            // No byte behind the header matters, and every part of it is incomplete.
            assert_eq!(read_header(&data[..header.bytes]), whole);
            for length in 0..header.bytes {
                assert_eq!(read_header(&data[..length]), Ok(None), "{length} bytes");
            }
        }
        Ok(None) => assert!(data.len() < HEADER_BYTES_MAX),
        Err(_) => {
            // What is malformed stays so.
            let longer = [data, &[0; HEADER_BYTES_MAX][..]].concat();
            assert_eq!(read_header(&longer), whole);
        }
    }
}
