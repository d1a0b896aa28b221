//! Events of the event loop, handed to the steps that handle them.
//!
//! Sans-IO: a core never touches a socket, a clock or another thread. This file does the work due
//! at the end of each event, of each turn of the loop, and at each tick; the steps do the rest.

use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

use crate::accept;
use crate::client::review::steps as review;
use crate::client::{Stall, announce, census, closing, deadlines, events, eviction, login};
use crate::connection_list::collection as connection_list;
use crate::control::state::CoreMail;
use crate::core::{Core, Peer};
use crate::digests::attribution;
use crate::disaggregate;
use crate::drain;
use crate::fleet::clock::sampling as clock;
use crate::fleet::cores::receive;
use crate::fleet::forwarding::connection as peers;
use crate::fleet::membership::run;
use crate::fleet::statements::answers;
use crate::flush::{self, GATHER_TIMER};
use crate::handover::{Handover, agents, connections, links};
use crate::ids::Ticket;
use crate::intake;
use crate::limits;
use crate::link::{client_certificate, handshake, lateness, open, renewal, ring, waiting, watch};
use crate::locks::effects::perform;
use crate::locks::status::report;
use crate::locks::{self, foreign_rows, keeper as lock_keeper, rows, sweep};
use crate::reply;
use crate::retry::{agreement, hedge, lost_links, timeouts};
use crate::tenants::waiting as tenants;
use crate::transactions::modes::{self, rules};
use crate::transactions::{self, pause, time};
use crate::window::WindowControl;

/// Timer of the periodic tick.
const TICK: u64 = 1;
/// Timer of a turn that reads heavy requests.
const HEAVY_TIMER: u64 = 8;
const _: () = {
    let timers = [
        TICK,
        HEAVY_TIMER,
        GATHER_TIMER,
        census::TIMER,
        announce::TIMER,
        events::TIMER,
        open::TIMER,
        locks::TIMER,
        run::TIMER,
        transactions::TIMER,
        eviction::TIMER,
        connection_list::TIMER,
        drain::TIMER,
        review::TIMER,
        tenants::TIMER,
        lateness::TIMER,
    ];
    let mut one = 0;
    while one < timers.len() {
        let mut other = 0;
        while other < one {
            assert!(timers[one] != timers[other]);
            other += 1;
        }
        one += 1;
    }
};

impl Service for Core {
    type Mail = CoreMail;

    fn started(&mut self, io: &mut Io) {
        self.window.start(io);
        pause::start(self, io);
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        accept::accept(self, io, conn, origin);
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        match self.connections.peer(conn) {
            Peer::Link(link) => handshake::connected(self, io, link),
            Peer::Proxy(key) => peers::connected(self, io, key),
            // An agent speaks first.
            Peer::Client(_) | Peer::Agent(_) | Peer::Nobody => {}
        }
    }

    #[inline]
    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let used = match self.connections.peer(conn) {
            Peer::Client(slot) => {
                pause::check_for_pause(self, io);
                intake::received(self, io, slot, data)
            }
            Peer::Link(link) => disaggregate::received(self, io, link, data),
            Peer::Proxy(key) => peers::received(self, io, key, data),
            Peer::Agent(index) => agents::received(self, io, index, data),
            Peer::Nobody => return data.len(),
        };
        settle(self, io);
        used
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        match self.connections.peer(conn) {
            Peer::Client(slot) => {
                connections::not_restored(self, io, slot, reason);
                closing::lost(self, io, slot, reason);
            }
            Peer::Link(link) => client_certificate::lost(self, io, link, reason),
            Peer::Proxy(key) => peers::lost(self, io, key, reason),
            Peer::Agent(index) => agents::closed(self, io, index, reason),
            Peer::Nobody => {}
        }
        settle(self, io);
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        match self.connections.peer(conn) {
            Peer::Client(slot) => self.clients.unstall(&self.context.metrics, slot, Stall::REPLIES),
            Peer::Link(link) => waiting::reconsider(self, io, link),
            Peer::Proxy(_) | Peer::Agent(_) | Peer::Nobody => {}
        }
    }

    fn frozen(&mut self, io: &mut Io, conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        connections::frozen(self, io, conn, outcome);
        settle(self, io);
    }

    fn restored(&mut self, io: &mut Io, conn: ConnId) {
        connections::restored(self, io, conn);
        settle(self, io);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        match key {
            TICK => tick(self, io),
            locks::TIMER => perform::due(self, io),
            run::TIMER => run::tick(self, io),
            transactions::TIMER => time::due(self, io),
            census::TIMER => count_clients(self, io),
            eviction::TIMER => eviction::go_on(self, io),
            connection_list::TIMER => connection_list::resume(self, io),
            drain::TIMER => drain::close_next(self, io),
            review::TIMER => review::go_on(self, io),
            tenants::TIMER => tenants::look(self, io),
            lateness::TIMER => hedge::due(self, io),
            announce::TIMER => announce::go_on(self, io),
            events::TIMER => events::go_on(self, io),
            // The end of the turn finds the waiting clients.
            HEAVY_TIMER => {}
            // The end of the turn finds the waiting pools.
            open::TIMER => self.links.allowance.is_timed = false,
            // The end of the turn finds the due frames.
            _ => self.links.gather_timer_ns = u64::MAX,
        }
        settle(self, io);
    }

    fn mail(&mut self, io: &mut Io, mail: CoreMail) {
        if mail.is_abandoned() {
            return;
        }
        match mail {
            CoreMail::Cluster(cluster) => ring::changed(self, io, cluster),
            CoreMail::Fleet(fleet) => announce::changed(self, io, fleet),
            CoreMail::SchemaEvent(body) => events::schema_changed(self, io, body),
            CoreMail::SchemaAgreed { ticket, .. } => {
                if let Ok(ticket) = u32::try_from(ticket) {
                    agreement::agreed(self, io, Ticket(ticket));
                }
            }
            CoreMail::FromCore(batch) => {
                pause::check_for_pause(self, io);
                receive::take_batch(self, io, &batch);
            }
            CoreMail::CloseIdle(true) => drain::close_evenly(self, io),
            CoreMail::CloseIdle(false) => drain::stay(self),
            CoreMail::Drain => drain::start(self, io),
            CoreMail::LeaveSilently => run::leave_untold(self, io),
            CoreMail::CloseAll => drain::close_all(self, io),
            CoreMail::Census(answer) => {
                let index = self.context.index;
                if census::start(&mut self.reports.census, index, answer) {
                    count_clients(self, io);
                }
            }
            CoreMail::Connections(answer) => connection_list::start(self, io, answer),
            CoreMail::Kick(selection, answer) => eviction::start(self, io, selection, answer),
            CoreMail::Locks(answer) => report::send(self, io, &answer),
            CoreMail::LockList(answer) => report::send_list(self, io, &answer),
            CoreMail::RefusedLogins(answer) => {
                self.reports.refused_logins.report(self.context.index, io.now_ns(), &answer);
            }
            CoreMail::SlowQueries(answer) => {
                self.reports.slow_queries.report(self.context.index, io.now_ns(), &answer);
            }
            CoreMail::Digests(answer) => {
                self.reports.digests.report(self.context.index, io.now_ns(), &answer);
            }
            CoreMail::Spans(answer) => {
                self.reports.traces.report(self.context.index, io.now_ns(), &answer);
            }
            CoreMail::HotKeys(answer) => {
                self.router.hot_keys.report(self.context.index, io.now_ns(), &answer);
            }
            CoreMail::Reload(config) => {
                self.window = WindowControl::new(config.window_us);
                self.router.hot_keys.set_sample(config.hot_keys_sample, io.now_ns());
                attribution::switch(&mut self.reports.digests, &mut self.router, &config);
                self.reports.traces.switch(config.otlp_endpoint.is_some());
                let former = self.context.set_config(config);
                self.clients.tenants.set(&self.context.config.tenant);
                let cores = self.context.config.cores;
                self.router.rules.set(&self.context.config.rule, self.context.index, cores);
                self.links.lateness.set(&self.context.config);
                if former.identity != self.context.config.identity {
                    client_certificate::reloaded(self);
                }
                review::reloaded(self, io, &former);
                self.window.start(io);
            }
        }
        settle(self, io);
    }

    #[inline]
    fn turn_ended(&mut self, io: &mut Io) {
        self.clients.end_heavy_turn(&self.context.metrics);
        while self.clients.has_woken() || !self.links.reopening.is_empty() {
            pause::check_for_pause(self, io);
            intake::read_on(self, io);
            settle(self, io);
        }
        if self.clients.heavy.is_waited_for() {
            // Force another turn even if nothing else happens.
            io.set_timer(io.now_ns(), HEAVY_TIMER);
        }
        if self.handover.as_deref().is_some_and(Handover::has_left) {
            connections::settle(self, io);
            settle(self, io);
        }
        open::go_on(self, io);
        self.fleet.lanes.flush();
        let queries = flush::links(&mut self.links, &self.context, io);
        self.window.turn(queries);
        reply::finish(&mut self.clients, io);
        self.context.metrics.turns.add(1);
    }
}

/// Handles the follow-up work that an event noted, and whatever results from it.
#[inline]
fn settle(core: &mut Core, io: &mut Io) {
    lost_links::settle(core, io);
    while !core.clients.inbox.is_empty()
        || core.fleet.locks.has_work()
        || core.fleet.transactions.has_work()
    {
        answers::settle(core, io);
        perform::perform(core, io);
        transactions::effects::perform::perform(core, io);
        lost_links::settle(core, io);
    }
}

fn count_clients(core: &mut Core, io: &mut Io) {
    let Core { reports, clients, router, .. } = core;
    census::go_on(&mut reports.census, &mut reports.departed, clients, &router.pools, io);
}

fn tick(core: &mut Core, io: &mut Io) {
    core.context.ticks += 1;
    core.router.hot_keys.tick(io.now_ns());
    timeouts::tick(core, io);
    watch::tick_links(core, io);
    waiting::tick(core, io);
    core.clients.tenants.tick(io.now_ns());
    core.router.rules.tick(io.now_ns());
    renewal::tick(core, io);
    if core.links.openings.tick() {
        login::resume(core, io);
    }
    watch::tick_pools(core, io);
    login::expire_switches(core, io);
    deadlines::tick(core, io, core.context.ticks.is_multiple_of(8));
    closing::tell_suppressed(core, io);
    core.reports.slow_queries.tell_suppressed(core.context.index, io.now_ns());
    run::tick(core, io);
    rows::tick(core, io);
    lock_keeper::tick(core);
    foreign_rows::tick(core, io);
    sweep::tick(core, io);
    time::tick(core, io);
    clock::tick(core, io);
    modes::tick(core, io);
    rules::tick(core, io);
    peers::tick(core, io);
    if core.handover.is_some() {
        agents::tick(core, io);
        connections::tick(core, io);
        links::tick(core, io);
    }
    core.window.tick(io, &core.context.metrics);
    core.context.metrics.idle_buffer_bytes.set(io.idle_buffer_bytes() as u64);
    if core.context.draining {
        drain::step(core, io);
    }
    io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
}
