//! `shunt locks`: lists holders and waiters of locks, and takes a lock from its holder.
//!
//! For one lock, the proxy that owns it returns the queue. For all locks, each proxy of the fleet
//! returns the locks that it owns, up to a limit, the longest queues first. The proxies are asked
//! in parallel; the output names those that do not answer.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use clap::Args;
use shunt_proxy::control::client::{Client, Failed, Table};
use shunt_wire::cql::message::{Consistency, error_code};

use crate::exit::Exit;
use crate::fleet::Access;
use crate::print;

/// Time limit for one proxy to connect, and for each statement.
const LIMIT: Duration = Duration::from_secs(5);
/// Time limit for each other proxy of the fleet: a dead proxy stays in the list until it is
/// declared dead.
const OTHERS_LIMIT: Duration = Duration::from_secs(2);
/// Most holders and waiters that a proxy returns.
const QUEUE_MAX: usize = 1_000;
/// Time for retries of a statement that no proxy can serve, because the lock's owner may be
/// changing.
const AGAIN_FOR: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes shown of a text in a table.
const SHOWN_MAX: usize = 40;

/// `shunt locks`.
#[derive(Args, Debug)]
pub(crate) struct Locks {
    #[command(flatten)]
    access: Access,
    /// Show locks in memory only
    #[arg(long)]
    fast: bool,
    /// Most locks to show
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1_000), conflicts_with = "name")]
    limit: u32,
    /// Take the lock from its holder: the one in memory with --fast, else the durable one. Needs
    /// --force
    #[arg(long, requires = "name")]
    release: bool,
    /// Confirm --release. The holder learns of its loss when it renews the lock; until then only
    /// fences stop its writes
    #[arg(long, requires = "release")]
    force: bool,
    /// The lock to show, with its queue [default: all locks, the longest queues first]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// A holder of a lock.
struct Holder {
    owner: Vec<u8>,
    role: Vec<u8>,
    fence: i64,
}

/// Runs the command.
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

/// A proxy to ask, and the time for retries.
trait Ask {
    /// Executes a statement.
    fn query(&mut self, text: &str, values: &[Option<Vec<u8>>]) -> Result<Table, Failed>;

    /// Waits before the next attempt; `false` if no time is left.
    fn pause(&mut self) -> bool;
}

/// A connected proxy. The time for retries begins with its first statement.
struct Asker {
    client: Client,
    began: Option<Instant>,
}

impl Asker {
    fn new(client: Client) -> Self {
        Self { client, began: None }
    }

    /// Executes a statement, with retries while no proxy can serve it.
    fn insist(&mut self, text: &str, values: &[Option<Vec<u8>>]) -> Result<Table, Failed> {
        self.began = None;
        loop {
            match self.query(text, values) {
                Err(failed) if is_unserved(&failed) && self.pause() => {}
                answered => return answered,
            }
        }
    }
}

impl Ask for Asker {
    fn query(&mut self, text: &str, values: &[Option<Vec<u8>>]) -> Result<Table, Failed> {
        self.began.get_or_insert_with(Instant::now);
        self.client.query(text, values, Consistency::ONE, None)
    }

    fn pause(&mut self) -> bool {
        let is_over = self.began.is_some_and(|began| began.elapsed() >= AGAIN_FOR);
        if !is_over {
            self.client.pause(PAUSE);
        }
        !is_over
    }
}

/// True if no proxy can serve the statement now, but one may soon.
fn is_unserved(failed: &Failed) -> bool {
    failed.code == Some(error_code::IS_BOOTSTRAPPING)
}

/// Builds the statement that reads the queues of a name. `fast` selects one queue: that of the lock
/// in memory if true, that of the durable lock if false.
fn queue_statement(fast: Option<bool>) -> String {
    let columns = "fast, state, owner, role, mode, fence, ttl_ms";
    let which = fast.map_or_else(String::new, |fast| format!(" AND fast = {fast}"));
    format!("SELECT {columns} FROM shunt.lock_queue WHERE name = ?{which}")
}

/// Reads the queues of a name. After a proxy has died, its durable locks are known long before its
/// locks in memory. This returns the known part at once, with the reason why the rest is missing.
fn read_queues(
    asker: &mut impl Ask,
    only_fast: bool,
    name: &[u8],
) -> Result<(Table, Option<Failed>), Failed> {
    let values = [Some(name.to_vec())];
    loop {
        let unserved = match asker.query(&queue_statement(only_fast.then_some(true)), &values) {
            Err(failed) if is_unserved(&failed) => failed,
            answered => return Ok((answered?, None)),
        };
        if !only_fast {
            match asker.query(&queue_statement(Some(false)), &values) {
                Ok(durable) if !durable.rows.is_empty() => return Ok((durable, Some(unserved))),
                Err(failed) if !is_unserved(&failed) => return Err(failed),
                _ => {}
            }
        }
        if !asker.pause() {
            return Err(unserved);
        }
    }
}

fn queue(locks: &Locks, name: &str) -> Result<Exit, Failed> {
    let mut asker = Asker::new(locks.access.connect_to_locks(LIMIT)?);
    let (table, missing) = read_queues(&mut asker, locks.fast, name.as_bytes())?;
    if let Some(failed) = missing {
        eprintln!("warning: the holder of the lock in memory is not known: {}", failed.message);
    }
    if table.rows.is_empty() {
        print(&format!("lock {} has no holder and no queue\n", shown(name.as_bytes())));
        return Ok(Exit::Done);
    }
    let mut text = format!(
        "{:<8} {:<8} {:<28} {:<12} {:<4} {:>17} {:>10}\n",
        "kept", "state", "owner", "role", "mode", "fence", "left"
    );
    for row in 0..table.rows.len() {
        let text_of = |column| shown(table.get(row, column).unwrap_or_default());
        let fence =
            bigint(&table, row, "fence").map_or_else(|| "-".to_owned(), |fence| fence.to_string());
        let left = left(int(&table, row, "ttl_ms"));
        let (owner, role) = (text_of("owner"), text_of("role"));
        let (kept, state, mode) = (kept(&table, row), text_of("state"), text_of("mode"));
        let _ = writeln!(
            text,
            "{kept:<8} {state:<8} {owner:<28} {role:<12} {mode:<4} {fence:>17} {left:>10}"
        );
    }
    print(&text);
    if table.rows.len() >= QUEUE_MAX {
        eprintln!("warning: these are the first {QUEUE_MAX}; there may be more");
    }
    Ok(Exit::Done)
}

/// Takes a lock from its holders. The statement names each holder with its fence, so that a later
/// holder keeps the lock.
fn release(locks: &Locks, name: &str) -> Result<Exit, Failed> {
    let mut asker = Asker::new(locks.access.connect_to_locks(LIMIT)?);
    let queue =
        asker.insist(&queue_statement(Some(locks.fast)), &[Some(name.as_bytes().to_vec())])?;
    let holders = holders(&queue, locks.fast);
    let lock = shown(name.as_bytes());
    if holders.is_empty() {
        print(&format!("lock {lock} has no holder\n"));
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
                "lock {lock} is held by {who}: --force takes it from its holder. The holder \
                learns of the loss only when it renews the lock, and may continue until then; \
                only a store that refuses smaller fences is safe from its writes"
            );
            return Err(Failed { code: Some(0), message });
        }
        let values =
            [name.as_bytes().to_vec(), owner.clone(), fence.to_be_bytes().to_vec()].map(Some);
        let said = match asker.insist(&text, &values) {
            Ok(table) if table.get(0, "[applied]") == Some(&[1]) => {
                format!("lock {lock} was taken from {who}\n")
            }
            Ok(_) => format!("{who} no longer holds lock {lock}\n"),
            Err(failed) if failed.code == Some(error_code::UNAUTHORIZED) => {
                let message = format!(
                    "{who} holds lock {lock}, and this role may not release it: log in \
                    (--username) as the holder's role, or as the proxies' own role"
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
        Some(Holder {
            owner: text("owner"),
            role: text("role"),
            fence: bigint(table, row, "fence")?,
        })
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
    let first = (client.address().to_string(), Some(client));
    let proxies =
        others.into_iter().map(|address| (address.to_string(), None)).chain([first]).collect();
    let told = side_by_side(proxies, |(address, client)| {
        let connected = match client {
            Some(client) => Ok(client),
            None => locks.access.connect_to(std::slice::from_ref(&address), OTHERS_LIMIT),
        };
        let told = connected.and_then(|client| lines_of(&mut Asker::new(client), locks, &address));
        (address, told)
    });
    let (mut lines, mut missing) = (Vec::new(), 0);
    for (address, told) in told {
        match told {
            Ok(told) => lines.extend(told),
            Err(failed) => {
                missing += 1;
                eprintln!("warning: the locks of {address} are missing: {}", failed.message);
            }
        }
    }
    lines.sort_by_key(|line| (std::cmp::Reverse(line.waiters), line.fence));
    let more = lines.len().saturating_sub(locks.limit as usize);
    lines.truncate(locks.limit as usize);
    let mut text = format!(
        "{:<8} {:<40} {:<28} {:>17} {:>10} {:>7}  proxy\n",
        "kept", "lock", "owner", "fence", "left", "waiting"
    );
    lines.iter().for_each(|line| text.push_str(&line.text));
    if lines.is_empty() && missing == 0 {
        text = "no lock is held or waited for\n".to_owned();
    }
    print(&text);
    if more > 0 {
        eprintln!("at least {more} more: see --limit");
    }
    Ok(if missing == 0 { Exit::Done } else { Exit::NoRing })
}

/// Works on all items in parallel, so that a slow one does not delay the others; returns the
/// outcomes in the same order. A fleet has at most 64 members.
fn side_by_side<T: Send, R: Send>(each: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = each.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// The locks that one proxy knows.
fn lines_of(asker: &mut Asker, locks: &Locks, proxy: &str) -> Result<Vec<Line>, Failed> {
    let tables: &[(&str, &str)] = match locks.fast {
        true => &[("fast_locks", "memory")],
        false => &[("locks", "durable"), ("fast_locks", "memory")],
    };
    let mut lines = Vec::new();
    for (from, kept) in tables {
        let text = format!(
            "SELECT name, owner, fence, ttl_ms, waiters FROM shunt.{from} LIMIT {}",
            locks.limit
        );
        let table = asker.insist(&text, &[])?;
        for row in 0..table.rows.len() {
            let name = shown(table.get(row, "name").unwrap_or_default());
            let owner = table.get(row, "owner").map_or_else(|| "-".to_owned(), shown);
            let waiters = int(&table, row, "waiters").unwrap_or(0);
            let fence = bigint(&table, row, "fence");
            let fence_text = fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string());
            let left = left(int(&table, row, "ttl_ms"));
            let text = format!(
                "{kept:<8} {name:<40} {owner:<28} {fence_text:>17} {left:>10} {waiters:>7}  {proxy}\n"
            );
            lines.push(Line { waiters, fence, text });
        }
    }
    Ok(lines)
}

/// Returns the other proxies of the fleet, as the proxy shows them to drivers.
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
    ttl_ms.map_or_else(
        || "-".to_owned(),
        |ttl_ms| format!("{}.{} s", ttl_ms / 1_000, ttl_ms % 1_000 / 100),
    )
}

/// Makes a foreign text printable: escapes what a terminal would act upon, and cuts its length.
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
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;

    /// A proxy that answers what `serves` returns and records its statements; time for three
    /// attempts.
    struct Script {
        serves: fn(&str) -> Result<Table, Failed>,
        asked: Vec<String>,
    }

    impl Ask for Script {
        fn query(&mut self, text: &str, _: &[Option<Vec<u8>>]) -> Result<Table, Failed> {
            self.asked.push(text.split("name = ?").nth(1).unwrap_or_default().to_owned());
            (self.serves)(text)
        }

        fn pause(&mut self) -> bool {
            self.asked.push("pause".to_owned());
            self.asked.iter().filter(|text| *text == "pause").count() < 3
        }
    }

    fn unserved() -> Result<Table, Failed> {
        Err(Failed { code: Some(error_code::IS_BOOTSTRAPPING), message: "not yet".to_owned() })
    }

    fn one_row() -> Table {
        Table { columns: vec!["owner".to_owned()], rows: vec![vec![Some(b"ann".to_vec())]] }
    }

    #[test]
    fn a_durable_lock_is_shown_at_once_while_locks_in_memory_are_not_known() {
        let serves: fn(&str) -> _ =
            |text| if text.contains("fast = false") { Ok(one_row()) } else { unserved() };
        let mut script = Script { serves, asked: Vec::new() };
        let (table, missing) = read_queues(&mut script, false, b"n").unwrap();
        assert_eq!(
            (table, missing.map(|failed| failed.message)),
            (one_row(), Some("not yet".to_owned()))
        );
        assert_eq!(script.asked, ["", " AND fast = false"], "no time passed");
    }

    #[test]
    fn a_name_of_which_nothing_is_known_is_asked_for_again_to_the_end() {
        for serves in [
            |_: &str| unserved(),
            |text: &str| match text.contains("fast = false") {
                true => Ok(Table::default()),
                false => unserved(),
            },
        ] {
            let mut script = Script { serves, asked: Vec::new() };
            assert_eq!(read_queues(&mut script, false, b"n").unwrap_err().message, "not yet");
            assert_eq!(script.asked.concat(), " AND fast = falsepause".repeat(3));
        }
        let mut script = Script { serves: |_| unserved(), asked: Vec::new() };
        assert!(read_queues(&mut script, true, b"n").is_err());
        assert_eq!(script.asked.concat(), " AND fast = truepause".repeat(3));
    }

    #[test]
    fn one_proxy_that_takes_long_keeps_no_other() {
        let here = Arc::new((Mutex::new(0), Condvar::new()));
        let meet = |number: usize| {
            let (count, changed) = &*here;
            let mut count = count.lock().unwrap();
            *count += 1;
            changed.notify_all();
            let limit = Duration::from_secs(600);
            let (count, _) = changed.wait_timeout_while(count, limit, |count| *count < 64).unwrap();
            (number, *count)
        };
        let met = side_by_side((0..64).collect(), meet);
        assert_eq!(met, (0..64).map(|number| (number, 64)).collect::<Vec<_>>());
    }

    #[test]
    fn texts_are_shown_without_what_a_terminal_acts_upon() {
        assert_eq!(shown("é \u{1b}[2J".as_bytes()), "é \\u{1b}[2J");
        assert_eq!(shown(&[0xff]), "\u{fffd}");
        assert_eq!(shown("n".repeat(1_024).as_bytes()).chars().count(), SHOWN_MAX + 1);
    }
}
