//! `shunt locks`: who holds locks and who waits for them, and taking a lock from its holder.
//!
//! One lock is shown by its queue, which the proxy that owns the lock tells. All locks are asked of each proxy of the fleet, for each
//! knows its own: so many of each, those with the longest queues first.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use clap::Args;
use shunt_proxy::control::client::{Client, Failed, Table};
use shunt_wire::cql::message::{Consistency, error_code};

use crate::exit::Exit;
use crate::fleet::Access;
use crate::print;

/// How long one proxy may take to connect, and for a statement.
const LIMIT: Duration = Duration::from_secs(5);
/// A proxy tells of so many who hold a lock or wait for it, and of no more.
const QUEUE_MAX: usize = 1_000;
/// What no proxy can serve now is asked again for so long: the owner of a lock may be changing.
const AGAIN_FOR: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of a text that are shown in a table.
const SHOWN_MAX: usize = 40;

/// `shunt locks`.
#[derive(Args, Debug)]
pub(crate) struct Locks {
    #[command(flatten)]
    access: Access,
    /// Locks in memory only
    #[arg(long)]
    fast: bool,
    /// Locks to show at most
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1_000), conflicts_with = "name")]
    limit: u32,
    /// Take the lock from whoever holds it; needs --force. With --fast the one in memory, else the durable one
    #[arg(long, requires = "name")]
    release: bool,
    /// Yes: the holder hears of it only when it renews, and until then only fences keep out what it does
    #[arg(long, requires = "release")]
    force: bool,
    /// The lock to show, with all who wait for it [default: all locks, the longest queues first]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Somebody who holds a lock.
struct Holder {
    owner: Vec<u8>,
    role: Vec<u8>,
    fence: i64,
}

/// Does what is asked.
pub(crate) fn run(locks: &Locks) -> Exit {
    let done = match &locks.name {
        Some(name) if locks.release => release(locks, name),
        Some(name) => queue(locks, name),
        None => longest(locks),
    };
    done.unwrap_or_else(|failed| {
        eprintln!("error: {}", failed.message);
        if failed.code.is_none() { Exit::NoRing } else { Exit::Configuration }
    })
}

/// Carries out a statement, again where no proxy can serve it yet.
fn ask(client: &mut Client, text: &str, values: &[Option<Vec<u8>>]) -> Result<Table, Failed> {
    let began = Instant::now();
    loop {
        match client.query(text, values, Consistency::ONE, None) {
            Err(Failed { code: Some(error_code::IS_BOOTSTRAPPING), .. }) if began.elapsed() < AGAIN_FOR => {
                client.pause(PAUSE);
            }
            answered => return answered,
        }
    }
}

/// `fast`: only locks in memory, or only durable ones.
fn read_queue(client: &mut Client, fast: Option<bool>, name: &str) -> Result<Table, Failed> {
    let columns = "fast, state, owner, role, mode, fence, ttl_ms";
    let which = fast.map_or_else(String::new, |fast| format!(" AND fast = {fast}"));
    let text = format!("SELECT {columns} FROM shunt.lock_queue WHERE name = ?{which}");
    ask(client, &text, &[Some(name.as_bytes().to_vec())])
}

fn queue(locks: &Locks, name: &str) -> Result<Exit, Failed> {
    let mut client = locks.access.connect_to_locks(LIMIT)?;
    let table = match read_queue(&mut client, locks.fast.then_some(true), name) {
        // For a while after a proxy has died nobody knows who has what it had in memory.
        Err(failed) if failed.code == Some(error_code::IS_BOOTSTRAPPING) && !locks.fast => {
            let durable = read_queue(&mut client, Some(false), name)?;
            if durable.rows.is_empty() {
                return Err(failed);
            }
            eprintln!("warning: who holds the lock of this name in memory is not known: {}", failed.message);
            durable
        }
        read => read?,
    };
    if table.rows.is_empty() {
        print(&format!("nobody holds lock {} or waits for it\n", shown(name.as_bytes())));
        return Ok(Exit::Done);
    }
    let mut text = format!(
        "{:<8} {:<8} {:<28} {:<12} {:<4} {:>17} {:>10}\n",
        "kept", "state", "owner", "role", "mode", "fence", "left"
    );
    for row in 0..table.rows.len() {
        let text_of = |column| shown(table.get(row, column).unwrap_or_default());
        let fence = bigint(&table, row, "fence").map_or_else(|| "-".to_owned(), |fence| fence.to_string());
        let left = left(int(&table, row, "ttl_ms"));
        let (owner, role) = (text_of("owner"), text_of("role"));
        let (kept, state, mode) = (kept(&table, row), text_of("state"), text_of("mode"));
        let _ = writeln!(text, "{kept:<8} {state:<8} {owner:<28} {role:<12} {mode:<4} {fence:>17} {left:>10}");
    }
    print(&text);
    if table.rows.len() >= QUEUE_MAX {
        eprintln!("warning: these are the first {QUEUE_MAX}; there may be more");
    }
    Ok(Exit::Done)
}

/// Takes a lock from its holders. Each is named with its fence, so that nobody who comes after them loses it.
fn release(locks: &Locks, name: &str) -> Result<Exit, Failed> {
    let mut client = locks.access.connect_to_locks(LIMIT)?;
    let holders = holders(&read_queue(&mut client, Some(locks.fast), name)?, locks.fast);
    let lock = shown(name.as_bytes());
    if holders.is_empty() {
        print(&format!("nobody holds lock {lock}\n"));
        return Ok(Exit::Done);
    }
    let table = if locks.fast { "fast_rwlocks" } else { "rwlocks" };
    let text = format!("DELETE FROM shunt.{table} WHERE name = ? AND owner = ? IF fence = ?");
    for holder in holders {
        let Holder { owner, role, fence } = &holder;
        let who = match role.is_empty() {
            true => format!("{} (fence {fence})", shown(owner)),
            false => format!("{} (role {}, fence {fence})", shown(owner), shown(role)),
        };
        if !locks.force {
            let message = format!(
                "lock {lock} is held by {who}: --force takes it from its holder, who hears of it only when it renews and may go on until then; only what \
                 refuses smaller fences is safe from that"
            );
            return Err(Failed { code: Some(0), message });
        }
        let values = [name.as_bytes().to_vec(), owner.clone(), fence.to_be_bytes().to_vec()].map(Some);
        let said = match ask(&mut client, &text, &values) {
            Ok(table) if table.get(0, "[applied]") == Some(&[1]) => format!("lock {lock} was taken from {who}\n"),
            Ok(_) => format!("{who} does not hold lock {lock} any more\n"),
            Err(failed) if failed.code == Some(error_code::UNAUTHORIZED) => {
                let message = format!(
                    "{who} holds lock {lock}, and this role may not release it: log in (--username) as the holder's role, or as the \
                     role by which the proxies log in themselves"
                );
                return Err(Failed { message, ..failed });
            }
            Err(failed) => return Err(failed),
        };
        print(&said);
    }
    Ok(Exit::Done)
}

fn holders(table: &Table, fast: bool) -> Vec<Holder> {
    let rows = (0..table.rows.len()).filter(|row| table.get(*row, "state") == Some(b"held"));
    let rows = rows.filter(|row| (table.get(*row, "fast") == Some(&[1])) == fast);
    let holder = |row| {
        let text = |column| table.get(row, column).unwrap_or_default().to_vec();
        Some(Holder { owner: text("owner"), role: text("role"), fence: bigint(table, row, "fence")? })
    };
    rows.filter_map(holder).collect()
}

/// One line of the list of all locks.
struct Line {
    waiters: u32,
    fence: Option<i64>,
    text: String,
}

fn longest(locks: &Locks) -> Result<Exit, Failed> {
    let mut client = locks.access.connect_to_locks(LIMIT)?;
    let others = others(&mut client)?;
    let (mut lines, mut missing) = (Vec::new(), 0);
    let mut take = |place: &str, client: Result<Client, Failed>| {
        let told = client.and_then(|mut client| lines_of(&mut client, locks, place));
        match told {
            Ok(told) => lines.extend(told),
            Err(failed) => {
                missing += 1;
                eprintln!("warning: the locks of {place} are missing: {}", failed.message);
            }
        }
    };
    for address in others {
        let address = address.to_string();
        take(&address, locks.access.connect_to(std::slice::from_ref(&address), LIMIT));
    }
    let first = client.address().to_string();
    take(&first, Ok(client));
    lines.sort_by_key(|line| (std::cmp::Reverse(line.waiters), line.fence));
    let more = lines.len().saturating_sub(locks.limit as usize);
    lines.truncate(locks.limit as usize);
    let mut text = format!(
        "{:<8} {:<40} {:<28} {:>17} {:>10} {:>7}  proxy\n",
        "kept", "lock", "owner", "fence", "left", "waiting"
    );
    lines.iter().for_each(|line| text.push_str(&line.text));
    if lines.is_empty() && missing == 0 {
        text = "nobody holds a lock or waits for one\n".to_owned();
    }
    print(&text);
    if more > 0 {
        eprintln!("there are {more} more at least: see --limit");
    }
    Ok(if missing == 0 { Exit::Done } else { Exit::NoRing })
}

/// The locks that one proxy knows.
fn lines_of(client: &mut Client, locks: &Locks, proxy: &str) -> Result<Vec<Line>, Failed> {
    let tables: &[(&str, &str)] = match locks.fast {
        true => &[("fast_locks", "memory")],
        false => &[("locks", "durable"), ("fast_locks", "memory")],
    };
    let mut lines = Vec::new();
    for (from, kept) in tables {
        let text = format!("SELECT name, owner, fence, ttl_ms, waiters FROM shunt.{from} LIMIT {}", locks.limit);
        let table = ask(client, &text, &[])?;
        for row in 0..table.rows.len() {
            let name = shown(table.get(row, "name").unwrap_or_default());
            let owner = table.get(row, "owner").map_or_else(|| "-".to_owned(), shown);
            let waiters = int(&table, row, "waiters").unwrap_or(0);
            let fence = bigint(&table, row, "fence");
            let fence_text = fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string());
            let left = left(int(&table, row, "ttl_ms"));
            let text = format!("{kept:<8} {name:<40} {owner:<28} {fence_text:>17} {left:>10} {waiters:>7}  {proxy}\n");
            lines.push(Line { waiters, fence, text });
        }
    }
    Ok(lines)
}

/// The other proxies of the fleet, as they are shown to drivers.
fn others(client: &mut Client) -> Result<Vec<SocketAddr>, Failed> {
    let text = "SELECT native_address, native_port FROM system.peers_v2";
    let table = client.query(text, &[], Consistency::ONE, None)?;
    let address = |row| {
        let ip: IpAddr = match table.get(row, "native_address")? {
            bytes if bytes.len() == 4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
            bytes => <[u8; 16]>::try_from(bytes).ok()?.into(),
        };
        Some(SocketAddr::new(ip, u16::try_from(int(&table, row, "native_port")?).ok()?))
    };
    Ok((0..table.rows.len()).filter_map(address).collect())
}

fn int(table: &Table, row: usize, column: &str) -> Option<u32> {
    Some(i32::from_be_bytes(table.get(row, column)?.try_into().ok()?).max(0).cast_unsigned())
}

fn bigint(table: &Table, row: usize, column: &str) -> Option<i64> {
    Some(i64::from_be_bytes(table.get(row, column)?.try_into().ok()?))
}

fn kept(table: &Table, row: usize) -> &'static str {
    if table.get(row, "fast") == Some(&[1]) { "memory" } else { "durable" }
}

fn left(ttl_ms: Option<u32>) -> String {
    ttl_ms.map_or_else(|| "-".to_owned(), |ttl_ms| format!("{}.{} s", ttl_ms / 1_000, ttl_ms % 1_000 / 100))
}

/// A text of somebody else's, without what a terminal would act upon, and not too long.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= SHOWN_MAX {
            out.push('…');
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shown_without_what_a_terminal_acts_upon() {
        assert_eq!(shown("é \u{1b}[2J".as_bytes()), "é \\u{1b}[2J");
        assert_eq!(shown(&[0xff]), "\u{fffd}");
        assert_eq!(shown("n".repeat(1_024).as_bytes()).chars().count(), SHOWN_MAX + 1);
    }
}
