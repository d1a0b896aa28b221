//! Checks of requests against the limits of this fleet and proxy.

use shunt_language::lock_tables::{Asked, Request};
use shunt_locks::{Mode, Namespace};

use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::locks::request::{LockRequest, Operation};

/// Longest wait that the option `lock_wait_max_ms` can allow.
const LONGEST_WAIT_MS: u32 = 600_000;

/// Checks a request, and converts it for the core that keeps the lock. The proxy that forwarded a
/// request has checked its wait: proxies may have different values of `lock_wait_max_ms`.
pub(super) fn question<'a>(
    core: &Core,
    request: &Request<'a>,
    was_forwarded: bool,
) -> Result<LockRequest<'a>, Fault> {
    let mode = |shared: bool| if shared { Mode::Shared } else { Mode::Exclusive };
    let fast = request.table.is_fast();
    let operation = match request.asked {
        Asked::Acquire { shared, ttl_ms, wait_ms } => {
            check_ttl(core, ttl_ms, fast)?;
            let wait_max_ms = match was_forwarded {
                true => LONGEST_WAIT_MS,
                false => core.context.config.lock_wait_max_ms as u32,
            };
            if wait_ms > wait_max_ms {
                // `shunt lock` reads the limit in this text.
                let why = format!(
                    "Shunt: wait_ms is {wait_ms}: {wait_max_ms} (lock_wait_max_ms) is the most, because drivers give up waiting \
                     for an answer; ask again to wait for longer"
                );
                return Err(Fault::invalid(why));
            }
            Operation::Acquire { mode: mode(shared), ttl_ms, wait_ms }
        }
        Asked::Renew { shared, ttl_ms, fence } => {
            check_ttl(core, ttl_ms, fast)?;
            Operation::Renew { mode: shared.map(mode), ttl_ms, fence }
        }
        Asked::Release { fence } => Operation::Release { fence },
        Asked::Look if request.table.is_shared() => Operation::List { fast: Some(fast) },
        Asked::Look => Operation::Look,
        Asked::Queue { fast } => Operation::List { fast },
        // Such a request is about no single lock, and [`super::overview`] answers it.
        Asked::Longest => {
            return Err(Fault::invalid(
                "Shunt: the locks of a proxy are selected by a statement of its own",
            ));
        }
    };
    let fast = match request.asked {
        Asked::Queue { fast } => fast == Some(true),
        _ => fast,
    };
    let namespace = if fast { Namespace::Memory } else { Namespace::Durable };
    Ok(LockRequest {
        table: request.table,
        namespace,
        operation,
        name: request.name,
        owner: request.owner,
    })
}

/// After a take-over, durable locks are loaded with their full TTL, so a very long one blocks for
/// very long.
const DURABLE_TTL_MAX_MS: u32 = 24 * 60 * 60 * 1_000;

fn check_ttl(core: &Core, ttl_ms: u32, fast: bool) -> Result<(), Fault> {
    let max_ms = if fast { core.fleet.locks.max_ttl_ms() } else { DURABLE_TTL_MAX_MS };
    if ttl_ms <= max_ms {
        return Ok(());
    }
    if max_ms == 0 {
        // If its proxy dies, a lock held for longer than the fleet allows could be granted twice.
        // The request may also be repeated once this proxy is a member.
        return Err(Fault::new(
            FaultKind::Unserved,
            "Shunt: this proxy is no member of its fleet yet; ask the next host",
        ));
    }
    let (ttl, max) = (ttl_ms / 1_000, max_ms / 1_000);
    Err(Fault::invalid(match fast {
        true => format!(
            "Shunt: a TTL of {ttl} s: {max} s is the most for fast_locks in this fleet; renew, or use shunt.locks"
        ),
        false => format!("Shunt: a TTL of {ttl} s: {max} s is the most; renew"),
    }))
}

/// Describes the answer to a request, in a buffer that is used again.
pub(super) fn form(
    core: &mut Core,
    kind: AnswerKind,
    name: &[u8],
    owner: &[u8],
    limit: u32,
) -> AnswerForm {
    let mut texts = core.fleet.requests.spare_texts();
    texts.extend_from_slice(name);
    texts.extend_from_slice(owner);
    AnswerForm { kind, texts, name_bytes: name.len(), limit }
}
