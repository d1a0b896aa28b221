//! Periodic upkeep of the stores on a separate thread: sweeps of tables with old deletions of
//! partitions and ranges, reclaiming of schemas, and leftovers of dropped tables.
//!
//! A sweep reads its whole table, so it pays only once deletions are older than the table's grace:
//! a table is swept at most once per tenth of its grace, and never if it had no deletions.
//! Reclaiming compacts everything, so it waits until there are many more schemas than it last left.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_storage::row::TableId;

use crate::limits;
use crate::shared::Shared;
use crate::stop_outcome::{self, Stopped};

/// The upkeep thread.
pub(crate) struct Upkeep {
    /// No message is ever sent: the thread stops when this is dropped.
    go_on: Sender<()>,
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Upkeep {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Upkeep> {
        let shared = Arc::downgrade(shared);
        Self::start_with(move |stopped| run(&shared, stopped))
    }

    fn start_with(work: impl FnOnce(&Receiver<()>) + Send + 'static) -> std::io::Result<Upkeep> {
        let (go_on, stopped) = channel();
        let (alive, ended) = channel::<()>();
        let body = move || {
            work(&stopped);
            drop(alive);
        };
        let thread = std::thread::Builder::new().name("upkeep".to_owned()).spawn(body)?;
        Ok(Upkeep { go_on, ended, thread })
    }

    /// Name of the thread if it has ended without being told to.
    pub(crate) fn dead_threads(&self) -> Vec<String> {
        stop_outcome::ended([&self.thread])
    }

    /// Ends the thread; returns whether it ended in time and without panic. A sweep ends soon after
    /// its store is told to; a compaction runs to completion.
    pub(crate) fn stop(self, limit: Duration) -> Stopped {
        drop(self.go_on);
        Stopped::of(self.ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout), [self.thread])
    }
}

fn run(shared: &Weak<Shared>, stopped: &Receiver<()>) {
    let mut rounds = Rounds::default();
    loop {
        let Some(jitter) = shared.upgrade().map(|shared| shared.random() as u64) else { return };
        match stopped.recv_timeout(interval(jitter)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        let Some(shared) = shared.upgrade() else { return };
        rounds.round(&shared, Instant::now(), || {
            stopped.try_recv() == Err(TryRecvError::Disconnected)
        });
    }
}

/// Three quarters to five quarters of the interval, so that nodes started together do not work
/// together.
fn interval(jitter: u64) -> Duration {
    let whole = limits::UPKEEP_INTERVAL;
    whole * 3 / 4 + whole / 2 * (jitter % 1024) as u32 / 1024
}

/// Times of completed work.
#[derive(Default)]
struct Rounds {
    swept: HashMap<(usize, TableId), Instant>,
    /// By node, the number of remaining schemas, and the time.
    reclaimed: HashMap<usize, (usize, Instant)>,
}

impl Rounds {
    /// Does due work until told to stop.
    fn round(&mut self, shared: &Shared, now: Instant, mut stop: impl FnMut() -> bool) {
        if stop() {
            return;
        }
        match shared.drop_leftovers() {
            Ok(0) => {}
            Ok(tables) => tracing::info!(tables, "deleted what was left of dropped tables"),
            Err(error) => {
                tracing::warn!(%error, "what is left of dropped tables could not be deleted")
            }
        }
        let schema = shared.schema();
        let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let tables: Vec<_> = tables
            .filter_map(|table| Some((table.number?, table.options.gc_grace_seconds, &table.name)))
            .collect();
        for (node, store) in shared.stores().iter().enumerate() {
            for (number, grace_s, name) in &tables {
                if stop() {
                    return;
                }
                let pause = pause_between_sweeps(Duration::from_secs(u64::from(*grace_s)));
                let last = self.swept.get(&(node, *number));
                if !store.has_deletions(*number)
                    || last.is_some_and(|last| now.duration_since(*last) < pause)
                {
                    continue;
                }
                self.swept.insert((node, *number), now);
                match store.sweep(*number) {
                    Ok(swept) => tracing::info!(node, table = name, ?swept, "swept"),
                    Err(error) => tracing::warn!(node, table = name, %error, "a sweep failed"),
                }
            }
            let left = self.reclaimed.get(&node);
            let (before, recent) = left.map_or((0, false), |(left, at)| {
                (*left, now.duration_since(*at) < limits::RECLAIM_INTERVAL)
            });
            let schemas = store.catalogue().counts().schemas;
            if stop() || recent || schemas < before + limits::RECLAIM_SCHEMAS {
                continue;
            }
            match store.reclaim_schemas() {
                Ok(reclaimed) => tracing::info!(node, reclaimed, "reclaimed schemas"),
                Err(error) => tracing::warn!(node, %error, "schemas could not be reclaimed"),
            }
            self.reclaimed.insert(node, (store.catalogue().counts().schemas, now));
        }
    }
}

/// A tenth of the grace: deleted data stays at most that much longer.
fn pause_between_sweeps(grace: Duration) -> Duration {
    (grace / 10).clamp(limits::UPKEEP_INTERVAL, limits::SWEEP_INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterInfo;
    use crate::execute::{ClientState, Executor, Request};
    use shunt_storage::row::{Fragment, Liveness, PartitionKey, Row};
    use shunt_storage::store::{Durability, Mutation, Swept};
    use shunt_storage::{StoreOptions, Target};
    use shunt_wire::cql::envelope::opcode;
    use shunt_wire::cql::message::{Consistency, encode};
    use std::net::SocketAddr;

    fn run(executor: &mut Executor, text: &str) {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        encode::query_simple(&mut body, 4, text, Consistency::ONE);
        let request = Request { version: 4, flags: 0, opcode: opcode::QUERY, body: &body };
        let done = executor.execute(&mut ClientState::default(), &request, &mut out);
        assert_eq!(done.opcode, opcode::RESULT, "{text}: {out:?}");
    }

    #[test]
    fn due_work_runs_once() {
        let directory = tempfile::tempdir().unwrap();
        let info = ClusterInfo::new("test", &[SocketAddr::from(([127, 0, 0, 1], 9042))]);
        // A deletion of this second does not exceed a grace of 0, so the store's clock is a minute
        // ahead.
        let real = StoreOptions::default().clock;
        let options =
            StoreOptions { clock: Arc::new(move || real() + 60), ..StoreOptions::default() };
        let shared = Arc::new(Shared::open(directory.path(), info, &options).unwrap());
        let mut executor = Executor::new(Arc::clone(&shared), 0);
        let keyspace = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        run(&mut executor, keyspace);
        for table in ["t", "u"] {
            let columns = "(p int, c int, PRIMARY KEY (p, c)) WITH gc_grace_seconds = 0";
            run(&mut executor, &format!("CREATE TABLE k.{table} {columns}"));
        }
        (0..9).for_each(|row| {
            run(&mut executor, &format!("INSERT INTO k.t (p, c) VALUES (1, {row})"))
        });
        run(&mut executor, "DELETE FROM k.t WHERE p = 1");
        let schema = shared.schema();
        let number = |name: &str| schema.keyspace("k").unwrap().tables[name].number.unwrap();
        let store = &shared.stores()[0];
        assert!(store.has_deletions(number("t")) && !store.has_deletions(number("u")));
        let mut rounds = Rounds::default();
        let now = Instant::now();
        rounds.round(&shared, now, || true);
        assert!(rounds.swept.is_empty(), "told to stop");
        rounds.round(&shared, now, || false);
        assert_eq!(rounds.swept.keys().collect::<Vec<_>>(), [&(0, number("t"))]);
        assert_eq!(store.sweep(number("t")).unwrap(), Swept::default(), "nothing is left to sweep");
        run(&mut executor, "INSERT INTO k.t (p, c) VALUES (1, 1)");
        rounds.round(&shared, now + limits::UPKEEP_INTERVAL / 2, || false);
        assert_eq!(rounds.swept[&(0, number("t"))], now, "too early");
        rounds.round(&shared, now + limits::UPKEEP_INTERVAL * 2, || false);
        assert_ne!(rounds.swept[&(0, number("t"))], now);
        assert!(
            rounds.reclaimed.is_empty(),
            "a handful of schemas is no reason to compact everything"
        );
    }

    #[test]
    fn data_of_a_dropped_table_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let info = ClusterInfo::new("test", &[SocketAddr::from(([127, 0, 0, 1], 9042))]);
        let shared =
            Arc::new(Shared::open(directory.path(), info, &StoreOptions::default()).unwrap());
        let mut executor = Executor::new(Arc::clone(&shared), 0);
        run(
            &mut executor,
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        );
        for table in ["gone", "kept"] {
            run(&mut executor, &format!("CREATE TABLE k.{table} (p int PRIMARY KEY)"));
            run(&mut executor, &format!("INSERT INTO k.{table} (p) VALUES (1)"));
        }
        let number =
            |name: &str| shared.schema().keyspace("k").unwrap().tables[name].number.unwrap();
        let (gone, kept) = (number("gone"), number("kept"));
        let store = &shared.stores()[0];
        assert_eq!(store.tables().unwrap(), [gone, kept]);
        run(&mut executor, "DROP TABLE k.gone");
        assert_eq!(store.tables().unwrap(), [kept]);
        // The state after a process died between the schema's file and the deletion.
        let liveness = Some(Liveness { timestamp: 1, expiry: None });
        let left = Mutation {
            table: gone,
            partition: PartitionKey(&[0; 12]),
            target: Target::Row(&[]),
            fragment: Fragment::Row(Row { liveness, ..Row::default() }),
        };
        store.apply(&[left], Durability::Batch).unwrap();
        assert_eq!(store.tables().unwrap(), [gone, kept]);
        Rounds::default().round(&shared, Instant::now(), || false);
        assert_eq!(store.tables().unwrap(), [kept]);
        // The node's own tables have separate numbers, and no schema file names them.
        assert_eq!(shared.drop_leftovers().unwrap(), 0);
    }

    #[test]
    fn a_thread_that_panics_is_named() {
        let well = Upkeep::start_with(|stopped| assert!(stopped.recv().is_err())).unwrap();
        assert!(well.dead_threads().is_empty());
        assert_eq!(well.stop(Duration::from_secs(60)), Stopped::InTime);
        let upkeep = Upkeep::start_with(|_| panic!("as the test wants it")).unwrap();
        while upkeep.dead_threads().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(upkeep.dead_threads(), ["upkeep"]);
        assert_eq!(upkeep.stop(Duration::from_secs(60)), Stopped::Died);
    }

    #[test]
    fn intervals_vary_around_theirs() {
        let (least, most) = (interval(0), interval(1023));
        assert!(
            least == limits::UPKEEP_INTERVAL * 3 / 4
                && most < limits::UPKEEP_INTERVAL * 5 / 4
                && most > least
        );
        assert_eq!(pause_between_sweeps(Duration::ZERO), limits::UPKEEP_INTERVAL);
        assert_eq!(pause_between_sweeps(Duration::from_secs(864_000)), limits::SWEEP_INTERVAL_MAX);
    }
}
