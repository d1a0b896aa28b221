//! Outcomes of requests, as the rows and errors that clients get.

use shunt_language::lock_tables::reply::{self, Row};
use shunt_locks::{Mode, NotServed, Quota};
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::errors::ReplicaCounts;
use shunt_wire::cql::message::{Consistency, ErrorDetails, ErrorMessage, error_code, put};

use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::locks::listing;
use crate::locks::reply::{Held, Reply, Verdict};

/// Error text for a lock that another role holds; another proxy recognises the case by this text.
pub(crate) const OTHER_ROLE: &str =
    "Shunt: another role holds this lock under the same owner's name";

/// Error text for a lock that its owner holds in the other mode; another proxy recognises the case
/// by this text.
pub(crate) const OTHER_MODE: &str = "Shunt: this owner holds the lock in the other mode, and no \
    statement changes the mode: renew the lock in its mode, or release it first";

/// Why another proxy that owns a lock does not serve it, told on to the client; it is known by its
/// text.
const REASONS: [(NotServed, &str); 3] = [
    (
        NotServed::Grace,
        "Shunt: this proxy grants no locks in memory yet, because locks that a former proxy granted may still be held; ask again soon",
    ),
    (
        NotServed::Loading,
        "Shunt: the rows of this lock could not be read in time; ask again. If this goes on, see the log of the proxy that owns the lock",
    ),
    (NotServed::Store, "Shunt: the row of this lock could not be sent to a node; ask again"),
];

/// The reason why another proxy did not serve a request, from its message.
pub(crate) fn reason(message: &str) -> NotServed {
    let known = REASONS.iter().find(|(_, text)| *text == message);
    known.map_or(NotServed::Elsewhere, |(why, _)| *why)
}

/// Writes the answer's body; returns its opcode and flags. `has_peers`: other proxies of the fleet
/// keep locks too.
pub(super) fn encode(
    out: &mut Vec<u8>,
    version: u8,
    form: &AnswerForm,
    outcome: &Reply<'_>,
    has_peers: bool,
) -> (u8, u8) {
    if let Some(error) = error(&outcome.verdict) {
        error.put(out, version);
        return (opcode::ERROR, 0);
    }
    let is_part = has_peers && outcome.verdict == Verdict::Locks;
    let warnings = [
        is_part.then_some(listing::PART),
        listing::may_be_cut(outcome, form.limit).then_some(listing::CUT),
    ];
    // v3 knows no warnings.
    let is_warned = version >= 4 && warnings.iter().any(Option::is_some);
    let flags = if is_warned { flag::WARNING } else { 0 };
    if is_warned {
        put::string_list(out, warnings.into_iter().flatten());
    }
    match &form.kind {
        AnswerKind::Conditional(table) => {
            let applied = matches!(outcome.verdict, Verdict::Granted | Verdict::Released);
            let row = row(form.name(), outcome.holder.as_ref(), outcome.waiters);
            reply::conditional(out, *table, std::iter::once((applied, row)));
        }
        AnswerKind::Selected { statement, skip_metadata } => {
            let (table, columns) = (statement.table(), statement.selected().unwrap_or_default());
            let limit = (form.limit as usize).min(listing::ROWS_MAX);
            if outcome.verdict == Verdict::Listed {
                let rows =
                    listing::rows(outcome.list, form.name(), table, form.owner(), outcome.waiters);
                let count = rows.clone().count().min(limit);
                let mut rows = rows.take(limit);
                let rows = (0..count).map(|_| rows.next().unwrap_or_default());
                reply::selected(out, table, columns, *skip_metadata, rows);
            } else if outcome.verdict == Verdict::Locks {
                let rows = listing::longest(outcome.list, limit);
                reply::selected(out, table, columns, *skip_metadata, rows.into_iter());
            } else {
                let held = outcome.holder.as_ref();
                let row = held.map(|held| row(form.name(), Some(held), outcome.waiters));
                reply::selected(out, table, columns, *skip_metadata, row.into_iter());
            }
        }
        AnswerKind::Batch(_)
        | AnswerKind::Part { .. }
        | AnswerKind::Back(_)
        | AnswerKind::Share(_) => {}
        AnswerKind::Message | AnswerKind::Fence(_) | AnswerKind::Unwanted | AnswerKind::Nobody => {}
    }
    (opcode::RESULT, flags)
}

/// A lock as a row shows it.
pub(super) fn row<'a>(name: &'a [u8], holder: Option<&Held<'a>>, waiters: u32) -> Row<'a> {
    Row {
        name: Some(name),
        owner: holder.map(|holder| holder.owner),
        shared: holder.map(|holder| holder.mode == Mode::Shared),
        fence: holder.map(|holder| holder.fence),
        ttl_ms: holder.map(|holder| holder.ttl_ms),
        waiters: Some(waiters),
        ..Row::default()
    }
}

/// The error that a verdict is told by. Codes are those after which drivers do what is right: go to
/// the next host where the request was certainly not executed, and not ask again by themselves
/// where it may have been.
pub(crate) fn error(verdict: &Verdict) -> Option<ErrorMessage<'static>> {
    let not_served = |why| ErrorMessage::plain(error_code::IS_BOOTSTRAPPING, why);
    Some(match verdict {
        Verdict::Granted | Verdict::Released | Verdict::Refused => return None,
        Verdict::Seen | Verdict::Listed | Verdict::Locks => return None,
        Verdict::NotServed(why) => not_served(match why {
            NotServed::Elsewhere => {
                "Shunt: another proxy owns this lock, or none does yet; ask the next host"
            }
            NotServed::LeaseOver => {
                "Shunt: this proxy cannot grant locks now: it has not reached a quorum of the ring in time"
            }
            NotServed::Grace => REASONS[0].1,
            NotServed::Loading => REASONS[1].1,
            NotServed::Store => REASONS[2].1,
        }),
        Verdict::InDoubt => ErrorMessage {
            code: error_code::WRITE_TIMEOUT,
            message: "Shunt: it is not known yet whether the lock was granted; ask again with the same owner",
            details: ErrorDetails::WriteTimeout {
                counts: ReplicaCounts {
                    consistency: Consistency::QUORUM,
                    received: 0,
                    block_for: 1,
                },
                write_type: "CAS",
                contentions: Some(0),
            },
        },
        Verdict::Unauthorized => ErrorMessage::plain(error_code::UNAUTHORIZED, OTHER_ROLE),
        Verdict::NotAllowed => ErrorMessage::plain(
            error_code::UNAUTHORIZED,
            "Shunt: the proxy that owns this lock was told that the role has no SELECT permission on the table",
        ),
        Verdict::OtherMode => ErrorMessage::plain(error_code::INVALID, OTHER_MODE),
        Verdict::NotAccepted => ErrorMessage::plain(
            error_code::INVALID,
            "Shunt: the proxy that owns this lock does not accept the request: its options, such as lock_wait_max_ms, or its \
             version differ from those of this proxy",
        ),
        Verdict::Quota(quota) => ErrorMessage::plain(
            error_code::OVERLOADED,
            match quota {
                Quota::HoldsOfRole => {
                    "Shunt: this role holds the most locks that one role may hold"
                }
                Quota::Holds => "Shunt: this proxy holds the most locks that it can keep",
                Quota::RequestsOfRole => {
                    "Shunt: too many requests of this role wait for locks; ask again"
                }
                Quota::Requests => "Shunt: too many requests wait for locks; ask again",
            },
        ),
    })
}
