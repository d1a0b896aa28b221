//! The rows of a core's digests, and who gets one.
//!
//! A row belongs to the role that sent its statement first. While the table has room, every new
//! statement gets a row. When the table is full, a role with fewer rows than the role with the most
//! takes over the row of that role that has rested longest. So each of n roles keeps an nth of the
//! table, whatever the others send. A role that has its share takes over only its own rows that
//! rest. A row rests once it has had no query for a second for each query that it has counted, or
//! for a minute. A flood of texts that are sent once therefore displaces only itself, and a
//! statement in use stays. A row without a query for an hour makes room for any role. When a row
//! goes, its counts are added to those of its kind of request, so that the sums stay right.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::mem::offset_of;
use std::sync::Arc;

use shunt_admin::Label as _;
use shunt_reactor::ClientAddress;
use tokio::sync::mpsc;

use super::Digest;
use super::totals::Totals;
use crate::client::account::Account;
use crate::host_quota::HostQuota;
use crate::limits;
use crate::metrics::QueryKind;
use crate::query_end::End;

/// The statement of a digest; all texts are printable and of bounded length.
#[derive(Debug, PartialEq, Eq)]
pub struct DigestName {
    /// Kind of the request.
    pub kind: QueryKind,
    /// Keyspace of the session in which it was sent or prepared.
    pub keyspace: Option<Box<str>>,
    /// The statement without its values, in a batch the first one.
    pub text: Box<str>,
}

impl Hash for DigestName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind.index(), &self.keyspace, &self.text).hash(state);
    }
}

/// Table and role of a digest.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The table with its keyspace, where the text names them.
    pub table: Option<Arc<str>>,
    /// Role that sent it first; `None`: the ring asks for no login.
    pub role: Option<Arc<str>>,
}

/// A digest of one core. A query reads and writes two cache lines of it: the first, which has its
/// number and its sums, and that of the bucket of its time; with rows, that of their sum. A sampled
/// one writes two more, those of the buckets of the two parts.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct DigestRow {
    digest: Digest,
    /// Time of its last query's end.
    pub ended_ns: u64,
    /// Sums over its queries.
    pub totals: Totals,
    /// The statement.
    pub name: Arc<DigestName>,
    /// More about it.
    pub origin: Origin,
    /// Time since which it has a row, on the clock of the core.
    pub since_ns: u64,
    account: Account,
}

/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;
/// Place of the fields of `Totals` that come after the sums that each query changes.
const SUMS_END: usize =
    offset_of!(DigestRow, totals) + offset_of!(Totals, times) + size_of::<u32>();
const _: () = assert!(SUMS_END <= CACHE_LINE_BYTES && align_of::<DigestRow>() == CACHE_LINE_BYTES);
const _: () = assert!(size_of::<DigestRow>() <= 1_792);

impl DigestRow {
    /// Time from which the row rests, unless another query ends before.
    fn rests_ns(&self) -> u64 {
        let kept_ns = self.totals.count.max(1).saturating_mul(limits::SECOND_NS);
        self.ended_ns + kept_ns.min(limits::DIGEST_REST_NS)
    }
}

/// The digests of one core, for the admin pages.
#[derive(Debug)]
pub struct CoreDigests {
    /// Number of the core.
    pub core: usize,
    /// Time of the answer, on the clock of the core.
    pub now_ns: u64,
    /// The rows, in no order.
    pub rows: Vec<DigestRow>,
    /// Queries without a row, by kind of request.
    pub others: Vec<Totals>,
}

/// The owner of a core's digests.
pub(crate) struct DigestTable {
    /// False: the core counts nothing, and rows stay as they are.
    is_on: bool,
    rows: Vec<DigestRow>,
    places: HashMap<Arc<DigestName>, usize>,
    of_accounts: HashMap<Account, Share>,
    others: Box<[Totals; QueryKind::COUNT]>,
    attempts: HostQuota,
    /// Attempts for prepared statements: no flood of texts takes them.
    prepared_attempts: HostQuota,
    /// No row rests before this time.
    next_rest_ns: u64,
    /// No row has been without a query for an hour before this time.
    next_stale_ns: u64,
}

/// The rows of one account.
#[derive(Default)]
struct Share {
    rows: usize,
    /// No row of the account rests before this time.
    next_rest_ns: u64,
}

impl Default for DigestTable {
    fn default() -> Self {
        Self {
            is_on: true,
            rows: Vec::new(),
            places: HashMap::new(),
            of_accounts: HashMap::new(),
            others: Box::new(std::array::from_fn(|_| Totals::default())),
            attempts: HostQuota::default(),
            prepared_attempts: HostQuota::default(),
            next_rest_ns: 0,
            next_stale_ns: 0,
        }
    }
}

impl DigestTable {
    /// Switches counting on or off. Rows keep their numbers, which queries in flight and prepared
    /// statements have.
    pub(crate) fn switch(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds a query to its digest's row; `false` if it has none.
    #[inline]
    pub(crate) fn count(&mut self, digest: Digest, end: &End) -> bool {
        match self.rows.get_mut(digest.place()) {
            Some(row) if row.digest == digest => {
                row.ended_ns = end.now_ns;
                row.totals.add(end);
                true
            }
            _ => false,
        }
    }

    /// Adds a query that has no row.
    pub(crate) fn count_other(&mut self, kind: QueryKind, end: &End) {
        self.others[kind.index()].add(end);
    }

    /// True if a digest has a row.
    pub(super) fn has(&self, digest: Digest) -> bool {
        self.rows.get(digest.place()).is_some_and(|row| row.digest == digest)
    }

    /// The statement of a digest and its table; `None` if it has no row.
    pub(crate) fn names_of(&self, digest: Digest) -> Option<(Arc<DigestName>, Option<Arc<str>>)> {
        let row = self.rows.get(digest.place()).filter(|row| row.digest == digest)?;
        Some((Arc::clone(&row.name), row.origin.table.clone()))
    }

    /// Claims the right to read a text for its digest.
    pub(super) fn take_attempt(
        &mut self,
        now_ns: u64,
        client: Option<ClientAddress>,
        is_prepared: bool,
    ) -> bool {
        let attempts = if is_prepared { &mut self.prepared_attempts } else { &mut self.attempts };
        let (most, most_of_host) =
            (limits::DIGEST_ATTEMPTS_PER_SECOND, limits::DIGEST_ATTEMPTS_OF_HOST_PER_SECOND);
        attempts.take(now_ns, client, most, most_of_host)
    }

    /// The row of a statement: its own, or a new one for this account if there is room for one.
    pub(crate) fn admit(
        &mut self,
        now_ns: u64,
        account: Account,
        name: DigestName,
        origin: Origin,
    ) -> Option<Digest> {
        if let Some(place) = self.places.get(&name) {
            return self.rows.get(*place).map(|row| row.digest);
        }
        let place = self.rows.len();
        let mut row = DigestRow {
            name: Arc::new(name),
            origin,
            since_ns: now_ns,
            ended_ns: now_ns,
            totals: Totals::default(),
            digest: Digest::new(place, 0),
            account,
        };
        let has_room = place < limits::DIGESTS_MAX;
        let place = if has_room { place } else { self.victim(now_ns, account)? };
        if let Some(old) = self.rows.get(place) {
            row.digest = old.digest.successor();
            self.forget(place);
        }
        self.places.insert(Arc::clone(&row.name), place);
        let share = self.of_accounts.entry(account).or_default();
        share.rows += 1;
        let rests_ns = now_ns + limits::SECOND_NS;
        share.next_rest_ns = share.next_rest_ns.min(rests_ns);
        self.next_rest_ns = self.next_rest_ns.min(rests_ns);
        let digest = row.digest;
        match self.rows.get_mut(place) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        Some(digest)
    }

    /// The place of the row that this account may take over, if there is one.
    fn victim(&mut self, now_ns: u64, account: Account) -> Option<usize> {
        if let Some(stale) = self.stale(now_ns) {
            return Some(stale);
        }
        let own = self.of_accounts.get(&account).map_or(0, |share| share.rows);
        let (most_of, most) = self.of_accounts.iter().max_by_key(|(_, share)| share.rows)?;
        if own + 1 < most.rows {
            let rows = self.rows.iter().enumerate().filter(|(_, row)| row.account == *most_of);
            return rows.min_by_key(|(_, row)| row.ended_ns).map(|(place, _)| place);
        }
        // An account with rows takes over one of its own, and waits for those alone.
        let next_rest_ns = match self.of_accounts.get_mut(&account) {
            Some(share) => &mut share.next_rest_ns,
            None => &mut self.next_rest_ns,
        };
        if now_ns < *next_rest_ns {
            return None;
        }
        let rows = self.rows.iter().enumerate();
        let rows = rows.filter(|(_, row)| own == 0 || row.account == account);
        let (rests_ns, place) = rows.map(|(place, row)| (row.rests_ns(), place)).min()?;
        *next_rest_ns = rests_ns;
        (rests_ns <= now_ns).then_some(place)
    }

    /// The place of the row that has been without a query for longest, if that is an hour. A scan
    /// of all rows finds the next time at which a row can be that old; no scan is made before.
    fn stale(&mut self, now_ns: u64) -> Option<usize> {
        if now_ns < self.next_stale_ns {
            return None;
        }
        let rows = self.rows.iter().enumerate();
        let (ended_ns, place) = rows.map(|(place, row)| (row.ended_ns, place)).min()?;
        self.next_stale_ns = ended_ns + limits::DIGEST_STALE_NS;
        (self.next_stale_ns <= now_ns).then_some(place)
    }

    /// Empties a place and adds its sums to those without a row.
    fn forget(&mut self, place: usize) {
        let Some(row) = self.rows.get_mut(place) else { return };
        let totals = std::mem::take(&mut row.totals);
        self.others[row.name.kind.index()].merge(&totals);
        self.places.remove(&row.name);
        if let Some(share) = self.of_accounts.get_mut(&row.account) {
            share.rows -= 1;
            if share.rows == 0 {
                self.of_accounts.remove(&row.account);
            }
        }
    }

    /// Answers the admin pages.
    pub(crate) fn report(&self, core: usize, now_ns: u64, answer: &mpsc::Sender<CoreDigests>) {
        let (rows, others) = (self.rows.clone(), self.others.to_vec());
        // The requester has gone, or has room for the answer of each core.
        let _ = answer.try_send(CoreDigests { core, now_ns, rows, others });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    const MILLISECOND: u64 = limits::SECOND_NS / 1_000;

    fn admit(table: &mut DigestTable, now_ns: u64, role: &str, text: String) -> Option<Digest> {
        let account = Account::of_identity(role);
        let name = DigestName { kind: QueryKind::Query, keyspace: None, text: text.into() };
        table.admit(now_ns, account, name, Origin { table: None, role: None })
    }

    fn end(now_ns: u64) -> End {
        End {
            now_ns,
            wait_ns: 1,
            node_ns: 2_000,
            bytes_in: 3,
            bytes_out: 4,
            rows: None,
            error: None,
        }
    }

    /// Sends a query; returns whether its digest has a row.
    fn send(table: &mut DigestTable, now_ns: u64, role: &str, text: String) -> bool {
        let digest = admit(table, now_ns, role, text).unwrap_or(Digest::UNKNOWN);
        let is_known = table.count(digest, &end(now_ns));
        if !is_known {
            table.count_other(QueryKind::Query, &end(now_ns));
        }
        is_known
    }

    fn count(table: &DigestTable) -> u64 {
        let rows = table.rows.iter().map(|row| &row.totals);
        rows.chain(table.others.iter()).map(|totals| totals.count).sum()
    }

    #[test]
    fn a_flood_of_texts_pushes_out_no_digest_in_use_and_no_count_is_lost() {
        let mut table = DigestTable::default();
        let used = ["SELECT a", "SELECT b", "SELECT c"];
        // The flood comes under the same role.
        for number in 0..200_000u64 {
            let now_ns = number * MILLISECOND;
            send(&mut table, now_ns, "shop", format!("flood {number}"));
            if number % 500 == 0 {
                let known = used.map(|text| send(&mut table, now_ns, "shop", text.to_owned()));
                assert!(number < 100_000 || known == [true; 3], "{number}: {known:?}");
            }
            assert!(table.rows.len() <= limits::DIGESTS_MAX);
        }
        let places = (table.places.len(), table.of_accounts.len());
        assert_eq!(places, (limits::DIGESTS_MAX, 1));
        assert_eq!(count(&table), 200_000 + 3 * 400);
        let of_used = table.rows.iter().filter(|row| used.contains(&&*row.name.text));
        assert!(of_used.map(|row| row.totals.count).sum::<u64>() > 600);
    }

    #[test]
    fn a_thousand_roles_with_many_texts_leave_a_role_its_share() {
        let mut table = DigestTable::default();
        (0..12).for_each(|number| {
            send(&mut table, 0, "shop", format!("shop {number}"));
        });
        for number in 0..100_000u64 {
            send(&mut table, number * MILLISECOND, "flood", format!("flood {number}"));
        }
        let of_shop = table.rows.iter().filter(|row| row.name.text.starts_with("shop"));
        assert_eq!(of_shop.count(), 12, "one role takes nothing from another");
        let mut known = 0;
        for number in 0..200_000u64 {
            let now_ns = (100_000 + number) * MILLISECOND;
            let role = format!("role {}", number % 1_000);
            send(&mut table, now_ns, &role, format!("{role} {number}"));
            if number % 100 == 0 {
                known += u32::from(send(&mut table, now_ns, "shop", "shop 0".to_owned()));
            }
        }
        assert_eq!(known, 2_000);
        assert_eq!((table.rows.len(), table.places.len()), (limits::DIGESTS_MAX, 512));
        assert!(table.of_accounts.len() <= limits::DIGESTS_MAX);
        let of_accounts = table.of_accounts.values().map(|share| share.rows);
        assert_eq!(of_accounts.sum::<usize>(), limits::DIGESTS_MAX);
        assert_eq!(count(&table), 12 + 100_000 + 200_000 + 2_000);
    }

    #[test]
    fn rows_of_roles_that_are_gone_make_room_for_the_role_that_is_there() {
        let mut table = DigestTable::default();
        for role in 0..100u64 {
            let now_ns = role * 2 * limits::DIGEST_STALE_NS;
            for text in 0..20 {
                send(&mut table, now_ns, &role.to_string(), format!("{role} {text}"));
            }
        }
        assert_eq!(table.rows.len(), limits::DIGESTS_MAX);
        let of_last = table.rows.iter().filter(|row| row.name.text.starts_with("99 "));
        assert_eq!(of_last.count(), 20);
        assert_eq!(count(&table), 100 * 20);
    }

    #[test]
    fn a_row_with_a_query_in_the_last_hour_is_not_stale() {
        let mut table = DigestTable::default();
        (0..limits::DIGESTS_MAX).for_each(|number| {
            send(&mut table, 0, "shop", format!("shop {number}"));
        });
        let (used_ns, now_ns) = (limits::SECOND_NS, limits::DIGEST_STALE_NS);
        assert!(send(&mut table, used_ns, "shop", "shop 0".to_owned()));
        for number in 1..limits::DIGESTS_MAX {
            assert!(send(&mut table, now_ns, "cron", format!("cron {number}")), "{number}");
        }
        let of_shop: Vec<_> =
            table.rows.iter().filter(|row| row.name.text.starts_with("shop")).collect();
        assert!(of_shop.len() == 1 && &*of_shop[0].name.text == "shop 0", "{of_shop:?}");
    }

    /// Rows of others that rest are no reason to look through all rows again at each attempt.
    #[test]
    fn a_role_with_its_share_waits_for_its_own_rows() {
        let mut table = DigestTable::default();
        for role in ["gone", "shop"] {
            (0..limits::DIGESTS_MAX / 2).for_each(|number| {
                assert!(send(&mut table, 0, role, format!("{role} {number}")));
            });
        }
        for number in 0..limits::DIGESTS_MAX / 2 {
            (0..100).for_each(|_| {
                send(&mut table, 0, "shop", format!("shop {number}"));
            });
        }
        let now_ns = 2 * limits::SECOND_NS;
        assert_eq!(admit(&mut table, now_ns, "shop", "new".to_owned()), None);
        let share = &table.of_accounts[&Account::of_identity("shop")];
        assert_eq!(share.next_rest_ns, limits::DIGEST_REST_NS);
        assert!(send(&mut table, limits::DIGEST_REST_NS, "shop", "new".to_owned()));
        assert_eq!(table.rows.iter().filter(|row| row.name.text.starts_with("gone")).count(), 256);
    }

    #[test]
    fn a_query_in_flight_does_not_count_to_the_next_digest_in_its_place() {
        let mut table = DigestTable::default();
        let first = admit(&mut table, 0, "shop", "first".to_owned()).expect("room");
        (1..limits::DIGESTS_MAX).for_each(|number| {
            admit(&mut table, 1, "shop", number.to_string()).expect("room");
        });
        let next = admit(&mut table, 2, "other", "next".to_owned()).expect("its share");
        assert_eq!((next.place(), table.has(first)), (first.place(), false));
        assert!(!table.count(first, &end(3)) && table.count(next, &end(3)));
        assert_eq!(admit(&mut table, 4, "shop", "next".to_owned()), Some(next), "the same digest");
    }

    #[test]
    fn one_host_leaves_others_attempts_in_each_second() {
        let mut table = DigestTable::default();
        let host =
            |number: u32| Some(SocketAddr::from((Ipv4Addr::from_bits(number), 9_042)).into());
        let mut of_one = 0;
        for second in 0..3 {
            let now_ns = second * limits::SECOND_NS;
            of_one += (0..10_000).filter(|_| table.take_attempt(now_ns, host(1), false)).count();
            assert!(table.take_attempt(now_ns, host(2), false));
        }
        assert_eq!(of_one, 3 * limits::DIGEST_ATTEMPTS_OF_HOST_PER_SECOND);
        let of_all = (0..100_000)
            .filter(|number| table.take_attempt(u64::MAX, host(*number), false))
            .count();
        assert_eq!(of_all, limits::DIGEST_ATTEMPTS_PER_SECOND);
        assert!(table.attempts.hosts() <= limits::DIGEST_ATTEMPTS_PER_SECOND + 1);
    }
}
