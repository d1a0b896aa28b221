//! Message bodies as views that borrow from the received bytes, and their encoders.
//!
//! Each view has `decode(version, body)` if the version matters, else `decode(body)`. A body is the
//! part behind the header, decompressed and without its prefix ([`prefix`]). Bytes after the end of
//! a message are ignored: "the body may contain more data than what is described in this document"
//! (v5, section 2.4). Section numbers are those of the v5 specification, whose sections 4 and 8
//! correspond to sections 4 and 9 of v3 and v4.
//!
//! OPTIONS and READY have empty bodies and therefore no view or encoder.

pub mod collections;
pub mod consistency;
pub mod encode;
pub mod encode_result;
pub mod error_code;
pub mod errors;
pub mod event;
pub mod metadata;
pub mod prefix;
pub mod primitive;
pub mod put;
pub mod query_params;
pub mod request;
pub mod response;
pub mod result;
#[cfg(test)]
mod tests;
pub mod values;

pub use collections::{BytesMap, StringList, StringMap, StringMultimap};
pub use consistency::Consistency;
pub use errors::{ErrorDetails, ErrorMessage, Failures, ReplicaCounts};
pub use event::{Event, SchemaChange};
pub use metadata::{ColumnSpec, Metadata, metadata_flag};
pub use prefix::{ResponsePrefix, split_request_prefix, split_response_prefix};
pub use primitive::Reader;
pub use query_params::{QueryParams, query_flag};
pub use request::{
    AuthResponse, Batch, BatchChild, BatchKind, BatchStatement, Execute, ExecuteRouting, Prepare,
    Query, Register, Startup,
};
pub use response::{AuthToken, Authenticate, Supported};
pub use result::{Prepared, ResultMessage, Row, Rows, result_kind};
pub use values::{Value, ValueList, Values};
