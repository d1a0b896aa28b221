//! ERROR: code, text and the fields that some codes add (v5, sections 4.2.1 and 8; v3 and v4,
//! section 9).

use std::net::IpAddr;

use super::collections::StringList;
use super::consistency::Consistency;
use super::error_code;
use super::primitive::Reader;
use super::put;
use crate::error::DecodeError;

/// A view of an ERROR body; also the input of its encoder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorMessage<'a> {
    /// One of [`error_code`], or an unknown code.
    pub code: i32,
    /// Text for humans.
    pub message: &'a str,
    /// The fields that the code adds.
    pub details: ErrorDetails<'a>,
}

/// The fields that follow the text of an error, by code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErrorDetails<'a> {
    /// A code without details, or an unknown code.
    None,
    /// Details of `UNAVAILABLE`.
    Unavailable {
        /// Level of the query.
        consistency: Consistency,
        /// Replicas needed.
        required: i32,
        /// Replicas known to be alive.
        alive: i32,
    },
    /// Details of `WRITE_TIMEOUT`.
    WriteTimeout {
        /// Acknowledgements.
        counts: ReplicaCounts,
        /// `SIMPLE`, `BATCH`, `UNLOGGED_BATCH`, `COUNTER`, `BATCH_LOG`, `CAS`, `VIEW` or `CDC`.
        write_type: &'a str,
        /// Number of conflicts that a conditional write met (v5, `CAS` only).
        contentions: Option<u16>,
    },
    /// Details of `READ_TIMEOUT`.
    ReadTimeout {
        /// Answers.
        counts: ReplicaCounts,
        /// True if the replica that was asked for the full data answered.
        data_present: bool,
    },
    /// Details of `READ_FAILURE`.
    ReadFailure {
        /// Answers.
        counts: ReplicaCounts,
        /// Replicas that failed.
        failures: Failures<'a>,
        /// True if the replica that was asked for the full data answered.
        data_present: bool,
    },
    /// Details of `WRITE_FAILURE`.
    WriteFailure {
        /// Acknowledgements.
        counts: ReplicaCounts,
        /// Replicas that failed.
        failures: Failures<'a>,
        /// The same values as in `WriteTimeout`.
        write_type: &'a str,
    },
    /// Details of `FUNCTION_FAILURE`.
    FunctionFailure {
        /// Keyspace of the function.
        keyspace: &'a str,
        /// Name of the function.
        function: &'a str,
        /// CQL types of its arguments.
        arguments: StringList<'a>,
    },
    /// Details of `CAS_WRITE_UNKNOWN`.
    CasWriteUnknown {
        /// Acknowledgements.
        counts: ReplicaCounts,
    },
    /// Details of `ALREADY_EXISTS`.
    AlreadyExists {
        /// The keyspace.
        keyspace: &'a str,
        /// The table; empty if the statement was to create a keyspace.
        table: &'a str,
    },
    /// Details of `UNPREPARED`.
    Unprepared {
        /// The id that the node does not know.
        id: &'a [u8],
    },
}

/// Number of replicas that answered, and number needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplicaCounts {
    /// Level of the query.
    pub consistency: Consistency,
    /// Replicas that answered or acknowledged.
    pub received: i32,
    /// Replicas needed for the level.
    pub block_for: i32,
}

/// The replicas that failed: a number in v4, addresses with reasons in v5.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failures<'a> {
    /// v4: number of failed replicas.
    Count(i32),
    /// v5: a reason code for each address.
    Reasons(FailureReasons<'a>),
}

/// A view of v5's "map of endpoint to failure reason codes".
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FailureReasons<'a> {
    count: usize,
    items: &'a [u8],
}

impl<'a> FailureReasons<'a> {
    /// The addresses and reason codes in order.
    pub fn iter(self) -> impl Iterator<Item = (IpAddr, u16)> + use<'a> {
        let mut reader = Reader::new(self.items);
        (0..self.count).map_while(move |_| {
            Some((
                reader.inet_address("failed replica").ok()?,
                reader.short("failure reason").ok()?,
            ))
        })
    }
}

impl<'a> ErrorMessage<'a> {
    /// An error whose code has no extra fields.
    pub fn plain(code: i32, message: &'a str) -> ErrorMessage<'a> {
        ErrorMessage { code, message, details: ErrorDetails::None }
    }

    /// Reads an ERROR body.
    ///
    /// # Errors
    /// If the text or the details of a known code are missing or invalid.
    pub fn decode(version: u8, body: &'a [u8]) -> Result<ErrorMessage<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        let code = reader.int("error code")?;
        let message = reader.string("error text")?;
        Ok(ErrorMessage { code, message, details: read_details(code, version, &mut reader)? })
    }

    /// The id of an UNPREPARED error.
    pub fn unprepared_id(&self) -> Option<&'a [u8]> {
        match self.details {
            ErrorDetails::Unprepared { id } => Some(id),
            _ => None,
        }
    }

    /// Appends the body of the error in the layout of `version`. The details must match the code.
    pub fn put(&self, out: &mut Vec<u8>, version: u8) {
        put::int(out, self.code);
        put::string(out, self.message);
        put_details(&self.details, out, version);
    }
}

fn read_details<'a>(
    code: i32,
    version: u8,
    reader: &mut Reader<'a>,
) -> Result<ErrorDetails<'a>, DecodeError> {
    Ok(match code {
        error_code::UNAVAILABLE => ErrorDetails::Unavailable {
            consistency: reader.consistency("consistency")?,
            required: reader.int("replicas required")?,
            alive: reader.int("replicas alive")?,
        },
        error_code::WRITE_TIMEOUT => {
            let counts = read_counts(reader)?;
            let write_type = reader.string("write type")?;
            // Early v5 servers do not send the field, so its absence is no error.
            let has_contentions = version >= 5 && write_type == "CAS" && reader.rest().len() >= 2;
            let contentions =
                if has_contentions { Some(reader.short("contentions")?) } else { None };
            ErrorDetails::WriteTimeout { counts, write_type, contentions }
        }
        error_code::READ_TIMEOUT => ErrorDetails::ReadTimeout {
            counts: read_counts(reader)?,
            data_present: reader.byte("data present")? != 0,
        },
        error_code::READ_FAILURE => ErrorDetails::ReadFailure {
            counts: read_counts(reader)?,
            failures: read_failures(version, reader)?,
            data_present: reader.byte("data present")? != 0,
        },
        error_code::WRITE_FAILURE => ErrorDetails::WriteFailure {
            counts: read_counts(reader)?,
            failures: read_failures(version, reader)?,
            write_type: reader.string("write type")?,
        },
        error_code::FUNCTION_FAILURE => ErrorDetails::FunctionFailure {
            keyspace: reader.string("keyspace")?,
            function: reader.string("function")?,
            arguments: reader.string_list("argument types")?,
        },
        error_code::CAS_WRITE_UNKNOWN => {
            ErrorDetails::CasWriteUnknown { counts: read_counts(reader)? }
        }
        error_code::ALREADY_EXISTS => ErrorDetails::AlreadyExists {
            keyspace: reader.string("keyspace")?,
            table: reader.string("table")?,
        },
        error_code::UNPREPARED => {
            ErrorDetails::Unprepared { id: reader.short_bytes("prepared id")? }
        }
        _ => ErrorDetails::None,
    })
}

fn read_counts(reader: &mut Reader<'_>) -> Result<ReplicaCounts, DecodeError> {
    Ok(ReplicaCounts {
        consistency: reader.consistency("consistency")?,
        received: reader.int("replicas received")?,
        block_for: reader.int("replicas needed")?,
    })
}

fn read_failures<'a>(version: u8, reader: &mut Reader<'a>) -> Result<Failures<'a>, DecodeError> {
    if version < 5 {
        return reader.int("failure count").map(Failures::Count);
    }
    let count = reader.count("failure count")?;
    let start = reader.position();
    // Each iteration reads at least 7 bytes or fails, so a false count costs no more than the
    // body's length.
    for _ in 0..count {
        reader.inet_address("failed replica")?;
        reader.short("failure reason")?;
    }
    Ok(Failures::Reasons(FailureReasons { count, items: reader.since(start) }))
}

fn put_details(details: &ErrorDetails<'_>, out: &mut Vec<u8>, version: u8) {
    match *details {
        ErrorDetails::None => {}
        ErrorDetails::Unavailable { consistency, required, alive } => {
            put::consistency(out, consistency);
            put::int(out, required);
            put::int(out, alive);
        }
        ErrorDetails::WriteTimeout { counts, write_type, contentions } => {
            put_counts(out, counts);
            put::string(out, write_type);
            if let Some(contentions) = contentions.filter(|_| version >= 5 && write_type == "CAS") {
                put::short(out, contentions);
            }
        }
        ErrorDetails::ReadTimeout { counts, data_present } => {
            put_counts(out, counts);
            out.push(u8::from(data_present));
        }
        ErrorDetails::ReadFailure { counts, failures, data_present } => {
            put_counts(out, counts);
            put_failures(out, failures, version);
            out.push(u8::from(data_present));
        }
        ErrorDetails::WriteFailure { counts, failures, write_type } => {
            put_counts(out, counts);
            put_failures(out, failures, version);
            put::string(out, write_type);
        }
        ErrorDetails::FunctionFailure { keyspace, function, arguments } => {
            put::string(out, keyspace);
            put::string(out, function);
            put::string_list(out, arguments.iter());
        }
        ErrorDetails::CasWriteUnknown { counts } => put_counts(out, counts),
        ErrorDetails::AlreadyExists { keyspace, table } => {
            put::string(out, keyspace);
            put::string(out, table);
        }
        ErrorDetails::Unprepared { id } => put::short_bytes(out, id),
    }
}

fn put_counts(out: &mut Vec<u8>, counts: ReplicaCounts) {
    put::consistency(out, counts.consistency);
    put::int(out, counts.received);
    put::int(out, counts.block_for);
}

/// A number is written to v5 as a map without entries, a map to v4 as its number of entries.
fn put_failures(out: &mut Vec<u8>, failures: Failures<'_>, version: u8) {
    match failures {
        Failures::Count(_) if version >= 5 => put::int(out, 0),
        Failures::Count(count) => put::int(out, count),
        Failures::Reasons(reasons) => {
            put::int(out, i32::try_from(reasons.count).unwrap_or(i32::MAX));
            if version >= 5 {
                out.extend_from_slice(reasons.items);
            }
        }
    }
}
