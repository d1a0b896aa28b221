//! Tenants: groups of clients with limits of their own (`[[tenant]]` of the configuration).
//!
//! A core chooses a client's tenant when the client is ready, at USE, and after a reload
//! ([`placing`]).
//! [`crate::decode`] asks for admission before it plans a query. A query beyond a limit stays in
//! the socket of its client ([`waiting`]), or gets an error ([`refusal`]). Limits hold for the
//! process: [`budget`] says how cores share them.
//!
//! This must never:
//! - leave a client in line that nothing will wake: a line has a time, a query in flight or both;
//! - limit a query already sent, an answer, or a statement of the proxy itself;
//! - let a tenant's line delay another tenant;
//! - change the order of a client's requests: a client that waits is not read from;
//! - let a later client of the same tenant go first;
//! - have more clients than its limit, but for those that it had when the limit came, or keep the
//!   place of a client that is gone;
//! - count a query down at another tenant than it was counted up at, whatever its client does
//!   meanwhile: the request carries its tenant.

pub(crate) mod budget;
pub(crate) mod line;
pub(crate) mod placing;
pub(crate) mod refusal;
pub(crate) mod shared;
pub(crate) mod waiting;

use std::sync::Arc;

use crate::client::Client;
use crate::config::{OnExcess, TenantLimits, TenantList};
use crate::ids::{ClientRef, TenantKey};
use crate::limits;
use budget::{Rate, Slice};
use line::Line;
use shared::{Counts, SharedTenant};

/// A limit of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Queries(u64),
    Bytes(u64),
    InFlight(u32),
    Clients(u32),
}

/// The decision about a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Passes,
    /// The client is in line, and must be stalled.
    Waits,
    Refused(Limit),
}

/// A budget of a tenant, with the core's slice of it.
#[derive(Debug)]
struct Budget {
    rate: Rate,
    slice: Slice,
}

/// One tenant of a core.
struct Tenant {
    name: Arc<str>,
    limits: TenantLimits,
    shared: Arc<SharedTenant>,
    queries: Option<Budget>,
    bytes: Option<Budget>,
    /// Queries of this core in flight.
    in_flight: u32,
    /// Clients of this core.
    clients: usize,
    line: Line,
    /// True if cores share the count of queries in flight.
    shares_in_flight: bool,
    /// True if the core counts among those that want a part of the queries in flight.
    is_active: bool,
    /// True if the core counts among those with clients in line.
    is_waiting: bool,
    /// True if no section has this name any more.
    is_gone: bool,
}

/// The owner of all state that a core keeps of tenants.
#[derive(Default)]
pub(crate) struct Tenants {
    core: usize,
    cores: usize,
    all: Vec<Option<Tenant>>,
    /// Keys by the order of the sections.
    sections: Vec<TenantKey>,
    /// Tenants whose lines may move now.
    due: Vec<TenantKey>,
    /// Time of the earliest timer; 0: there is none.
    timer_ns: u64,
}

impl Tenant {
    fn counts(&self, core: usize, cores: usize) -> Option<&Counts> {
        self.shared.counts(core, cores)
    }

    /// The limit that a query meets, and the time at which the query may pass.
    fn limit(&mut self, now_ns: u64, is_paid: bool) -> Option<(Limit, u64)> {
        let reserves = self.limits.on_excess == OnExcess::Wait && !self.limits.dry_run;
        let Self { limits, shared, queries, bytes, .. } = self;
        if !is_paid {
            if let Some((budget, limit)) = queries.as_mut().zip(limits.queries_per_s) {
                let found = budget.slice.find(&shared.queries, &budget.rate, now_ns, reserves);
                if let Err(ready_ns) = found {
                    return Some((Limit::Queries(limit), ready_ns));
                }
            }
            if let Some((budget, limit)) = bytes.as_mut().zip(limits.bytes_per_s) {
                let found = budget.slice.find(&shared.bytes, &budget.rate, now_ns, reserves);
                if let Err(ready_ns) = found {
                    return Some((Limit::Bytes(limit), ready_ns));
                }
            }
        }
        let most = limits.in_flight_max?;
        let is_full = shared.in_flight() >= most;
        // A core that has its part leaves what becomes free to those that wait. Of parts that are
        // no whole query, each core takes one when it looks.
        let others_wait = shared.waiting() > u32::from(self.is_waiting);
        let is_left = others_wait && !self.line.looks && self.in_flight >= shared.part(most);
        (is_full || is_left).then_some((Limit::InFlight(most), now_ns + limits::TENANT_LOOK_NS))
    }

    /// The limit that holds a client back; a dry run holds nobody back.
    fn holding_limit(&mut self, now_ns: u64, is_paid: bool) -> Option<(Limit, u64)> {
        if self.limits.dry_run { None } else { self.limit(now_ns, is_paid) }
    }

    /// The limit that its clients in line wait for.
    fn any_limit(&self) -> Option<Limit> {
        let TenantLimits { queries_per_s, bytes_per_s, in_flight_max, .. } = self.limits;
        let first = queries_per_s.map(Limit::Queries).or(bytes_per_s.map(Limit::Bytes));
        first.or(in_flight_max.map(Limit::InFlight))
    }

    fn pay(&mut self, bytes: usize) {
        if let Some(budget) = &mut self.queries {
            budget.slice.spend(1);
        }
        if let Some(budget) = &mut self.bytes {
            budget.slice.spend(bytes as u64);
        }
    }

    /// Counts the core among those that want queries in flight, or that wait, as it does now.
    fn announce(&mut self) {
        let has_line = self.shares_in_flight && !self.line.is_empty();
        let is_active = self.shares_in_flight && (has_line || self.in_flight > 0);
        if is_active != std::mem::replace(&mut self.is_active, is_active) {
            self.shared.set_active(is_active);
        }
        if has_line != std::mem::replace(&mut self.is_waiting, has_line) {
            self.shared.set_waiting(has_line);
        }
    }

    /// Takes over new limits, and gives back the tokens of the former ones. Debts stay.
    fn set_limits(&mut self, limits: TenantLimits, cores: usize) {
        let budget = |former: Option<Budget>, shared, per_second: u64, burst: u64| {
            let rate = Rate::new(per_second, burst, cores);
            let slice = former.map(|former| former.slice.renewed(shared, &former.rate, &rate));
            Budget { rate, slice: slice.unwrap_or_default() }
        };
        let shared = &self.shared;
        let (queries, bytes) = (self.queries.take(), self.bytes.take());
        self.queries = limits
            .queries_per_s
            .map(|number| budget(queries, &shared.queries, number, limits.burst()));
        self.bytes = limits.bytes_per_s.map(|number| budget(bytes, &shared.bytes, number, number));
        self.limits = limits;
        let shares = limits.in_flight_max.is_some();
        if shares != std::mem::replace(&mut self.shares_in_flight, shares) {
            if shares {
                self.shared.begin(self.in_flight);
            } else {
                self.shared.end(self.in_flight);
            }
        }
        self.announce();
    }

    fn tick(&mut self, now_ns: u64) {
        if let Some(budget) = &mut self.queries {
            budget.slice.tick(&self.shared.queries, &budget.rate, now_ns);
        }
        if let Some(budget) = &mut self.bytes {
            budget.slice.tick(&self.shared.bytes, &budget.rate, now_ns);
        }
    }

    /// True if nothing refers to it.
    fn is_unused(&self) -> bool {
        self.is_gone && self.clients == 0 && self.in_flight == 0 && self.line.is_empty()
    }
}

impl Tenants {
    pub(crate) fn new(core: usize, cores: usize, sections: &TenantList) -> Tenants {
        let mut tenants = Tenants { core, cores, ..Tenants::default() };
        tenants.set(sections);
        tenants
    }

    fn get_mut(&mut self, key: TenantKey) -> Option<&mut Tenant> {
        self.all.get_mut(key.place())?.as_mut()
    }

    fn counts(&self, key: TenantKey) -> Option<&Counts> {
        self.all.get(key.place())?.as_ref()?.counts(self.core, self.cores)
    }

    /// The tenants with their keys.
    fn iter_mut(&mut self) -> impl Iterator<Item = (TenantKey, &mut Tenant)> {
        let places = self.all.iter_mut().enumerate();
        places.filter_map(|(place, tenant)| Some((TenantKey::of_place(place)?, tenant.as_mut()?)))
    }

    /// Takes over the sections of a configuration. Tenants without a section lose their limits.
    pub(crate) fn set(&mut self, sections: &TenantList) {
        self.iter_mut().for_each(|(_, tenant)| tenant.is_gone = true);
        let keys = sections.0.iter().map(|section| {
            let name = &section.name;
            let known = self.iter_mut().find(|(_, it)| Arc::ptr_eq(&it.shared, &section.shared));
            let key = known.map(|(key, _)| key).or_else(|| self.add(name, &section.shared));
            let cores = self.cores;
            if let Some(tenant) = key.and_then(|key| self.get_mut(key)) {
                tenant.is_gone = false;
                if tenant.limits != section.limits {
                    tenant.set_limits(section.limits, cores);
                }
            }
            key.unwrap_or(TenantKey::NONE)
        });
        self.sections = keys.collect();
        let mut lines = Vec::new();
        let cores = self.cores;
        for (key, tenant) in self.iter_mut() {
            if tenant.is_gone {
                tenant.set_limits(TenantLimits::default(), cores);
            }
            lines.extend((!tenant.line.is_empty()).then_some(key));
        }
        lines.into_iter().for_each(|key| self.reconsider(key));
    }

    /// Adds a tenant. `None`: the table is full of tenants that former configurations had.
    fn add(&mut self, name: &Arc<str>, shared: &Arc<SharedTenant>) -> Option<TenantKey> {
        let free = self.all.iter().position(Option::is_none);
        let place = free.unwrap_or(self.all.len());
        let key = TenantKey::of_place(place)?;
        if free.is_none() {
            self.all.push(None);
        }
        *self.all.get_mut(place)? = Some(Tenant {
            name: Arc::clone(name),
            limits: TenantLimits::default(),
            shared: Arc::clone(shared),
            queries: None,
            bytes: None,
            in_flight: 0,
            clients: 0,
            line: Line::default(),
            shares_in_flight: false,
            is_active: false,
            is_waiting: false,
            is_gone: false,
        });
        Some(key)
    }

    /// The tenant of the section with this number.
    fn of_section(&self, section: Option<usize>) -> TenantKey {
        section.and_then(|section| self.sections.get(section)).copied().unwrap_or_default()
    }

    /// Counts a client that joins or leaves a tenant.
    fn count_client(&mut self, key: TenantKey, joins: bool) {
        if let Some(counts) = self.counts(key) {
            if joins { counts.clients.add(1) } else { counts.clients.sub(1) }
        }
        if let Some(tenant) = self.get_mut(key) {
            tenant.clients =
                if joins { tenant.clients + 1 } else { tenant.clients.saturating_sub(1) };
        }
    }

    /// Notes that a client is gone.
    pub(crate) fn forget(&mut self, client: &Client) {
        if !client.tenant.is_some() {
            return;
        }
        if let Some(tenant) = self.get_mut(client.tenant) {
            tenant.shared.leave();
        }
        self.count_client(client.tenant, false);
        self.leave_line(client.tenant, client.is_in_tenant_line);
    }

    /// Decides about the next query of a client. The body has this many bytes.
    pub(crate) fn admit(
        &mut self,
        client: &mut Client,
        reference: ClientRef,
        bytes: usize,
        now_ns: u64,
    ) -> Admission {
        let (key, is_paid) = (client.tenant, client.is_tenant_paid);
        let Some(tenant) = self.get_mut(key) else { return Admission::Passes };
        if !tenant.limits.any() {
            client.is_tenant_paid = true;
            self.count_passed(key, is_paid);
            return Admission::Passes;
        }
        let found = match !is_paid && tenant.line.puts_behind(reference) {
            true => tenant.any_limit().map(|limit| (limit, None)),
            false => {
                let found = tenant.limit(now_ns, is_paid);
                tenant.line.looks = false;
                found.map(|(limit, ready_ns)| (limit, Some(ready_ns)))
            }
        };
        let Some((limit, ready_ns)) = found else {
            if !is_paid {
                tenant.pay(bytes);
            }
            client.is_tenant_paid = true;
            self.count_passed(key, is_paid);
            return Admission::Passes;
        };
        if tenant.limits.dry_run {
            client.is_tenant_paid = true;
            if let Some(counts) = self.counts(key).filter(|_| !is_paid) {
                counts.would_limit.add(1);
            }
            self.count_passed(key, is_paid);
            return Admission::Passes;
        }
        let refuses = tenant.limits.on_excess == OnExcess::Overloaded || client.refuse_next;
        if let Some(counts) = self.counts(key) {
            counts.limited.add(1);
        }
        if refuses {
            (client.refuse_next, client.is_tenant_paid) = (false, false);
            return Admission::Refused(limit);
        }
        self.line_up(client, reference, ready_ns, now_ns);
        Admission::Waits
    }

    fn count_passed(&self, key: TenantKey, is_paid: bool) {
        if let Some(counts) = self.counts(key).filter(|_| !is_paid) {
            counts.queries.add(1);
        }
    }

    /// Puts a client in line; without `ready_ns`, behind others.
    fn line_up(
        &mut self,
        client: &mut Client,
        reference: ClientRef,
        ready_ns: Option<u64>,
        now_ns: u64,
    ) {
        let key = client.tenant;
        let Some(tenant) = self.get_mut(key) else { return };
        if !std::mem::replace(&mut client.is_in_tenant_line, true) {
            tenant.line.join(reference);
            if let Some(counts) = self.counts(key) {
                counts.waiting.add(1);
            }
        }
        if let Some(tenant) = self.get_mut(key) {
            match ready_ns {
                Some(ready_ns) => tenant.line.wake_at(ready_ns),
                None => tenant.line.wake_behind(now_ns),
            }
            tenant.announce();
        }
    }

    /// Counts a query of a client that is in flight from now.
    #[inline]
    pub(crate) fn begin(&mut self, key: TenantKey) {
        if key.is_some() {
            self.count_in_flight(key, true);
        }
    }

    /// Counts the end of a query, with the bytes of its answer.
    #[inline]
    pub(crate) fn end(&mut self, key: TenantKey, bytes: u64) {
        if key.is_some() {
            self.count_end(key, bytes);
        }
    }

    fn count_end(&mut self, key: TenantKey, bytes: u64) {
        self.count_in_flight(key, false);
        let Some(tenant) = self.get_mut(key) else { return };
        if let Some(budget) = &mut tenant.bytes
            && (!tenant.limits.dry_run || budget.slice.has_token())
        {
            budget.slice.spend(bytes);
        }
        if tenant.shares_in_flight && !tenant.line.is_empty() {
            self.reconsider(key);
        }
    }

    fn count_in_flight(&mut self, key: TenantKey, begins: bool) {
        if let Some(counts) = self.counts(key) {
            if begins { counts.in_flight.add(1) } else { counts.in_flight.sub(1) }
        }
        let Some(tenant) = self.get_mut(key) else { return };
        let after =
            if begins { Some(tenant.in_flight + 1) } else { tenant.in_flight.checked_sub(1) };
        debug_assert!(after.is_some(), "the end of a query that has not begun");
        let Some(after) = after else { return };
        tenant.in_flight = after;
        if tenant.shares_in_flight {
            if begins {
                tenant.shared.begin(1)
            } else {
                tenant.shared.end(1)
            }
            tenant.announce();
        }
    }

    /// Has the core look at a tenant's line at the end of this turn.
    fn reconsider(&mut self, key: TenantKey) {
        let Some(tenant) = self.get_mut(key) else { return };
        if !std::mem::replace(&mut tenant.line.is_due, true) {
            self.due.push(key);
        }
    }

    fn name(&self, key: TenantKey) -> &str {
        let tenant = self.all.get(key.place()).and_then(Option::as_ref);
        tenant.map_or("", |tenant| &tenant.name)
    }

    fn leave_line(&self, key: TenantKey, was_in_line: bool) {
        if let Some(counts) = self.counts(key).filter(|_| was_in_line) {
            counts.waiting.sub(1);
        }
    }

    /// Moves a client to another tenant, if that has room for it. It leaves the line of its former
    /// one.
    ///
    /// # Errors
    /// The limit of a tenant without room; the client has not moved.
    pub(crate) fn admit_client(
        &mut self,
        client: &mut Client,
        key: TenantKey,
    ) -> Result<(), Limit> {
        let Some(tenant) = self.get_mut(key) else {
            self.enter(client, key);
            return Ok(());
        };
        let TenantLimits { clients_max, dry_run, .. } = tenant.limits;
        let most = clients_max.unwrap_or(u32::MAX);
        if tenant.shared.try_join(most) {
            self.enter(client, key);
            return Ok(());
        }
        if let Some(counts) = self.counts(key) {
            if dry_run { counts.would_limit.add(1) } else { counts.limited.add(1) }
        }
        if !dry_run {
            return Err(Limit::Clients(most));
        }
        self.move_client(client, key);
        Ok(())
    }

    /// Moves a client to another tenant, whether or not that has room. It leaves the line of its
    /// former one.
    pub(crate) fn move_client(&mut self, client: &mut Client, key: TenantKey) {
        if let Some(tenant) = self.get_mut(key) {
            tenant.shared.join();
        }
        self.enter(client, key);
    }

    /// Counts a client at a tenant that has counted it as one of the process.
    fn enter(&mut self, client: &mut Client, key: TenantKey) {
        self.forget(client);
        client.tenant = key;
        (client.is_in_tenant_line, client.is_tenant_paid) = (false, false);
        if key.is_some() {
            self.count_client(key, true);
        }
    }

    /// Gives back the tokens that the core does not use, and removes tenants that are gone.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.iter_mut().for_each(|(_, tenant)| tenant.tick(now_ns));
        for place in &mut self.all {
            place.take_if(|tenant| tenant.is_unused());
        }
    }

    /// Keeps in line only the clients for which `waits` is true.
    pub(crate) fn retain(&mut self, waits: impl Fn(&ClientRef, TenantKey) -> bool) {
        for (key, tenant) in self.iter_mut().filter(|(_, tenant)| !tenant.line.is_empty()) {
            tenant.line.retain(|client| waits(client, key));
            tenant.announce();
        }
    }

    /// True if lines may move.
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }
}
