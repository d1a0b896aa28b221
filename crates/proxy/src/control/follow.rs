//! Following the ring on one control connection: events, requests of cores, periodic reads,
//! heartbeat.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use shunt_topology::{Node, NodeId};
use shunt_transactions::catalogue::modes::InitialModes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::event::{SCHEMA_CHANGE, STATUS_CHANGE, TOPOLOGY_CHANGE};
use shunt_wire::cql::message::{Event, encode};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::agreement::{self, Agreement, Answer, RingView, Spread, Waiter};
use super::error::{ControlError, Step};
use super::handshake::Session;
use super::inventory::{Inventory, Taken};
use super::plane::{ControlPlane, node_port, until};
use super::post::POST_RETRY;
use super::state::{ControlRequest, CoreMail, TableName};
use super::{initial_modes, ring, schema};
use crate::fleet::levels;

/// Wait after the first of several topology or status events, so that they cost one read. Nodes
/// also announce a change before they can answer queries about it.
const TOPOLOGY_DELAY: Duration = Duration::from_millis(1000);
/// Shortest time between two routing tables that differ in which nodes are up. A core that loses
/// its links to a node needs no table to avoid it.
const STATUS_PAUSE: Duration = Duration::from_millis(1000);
/// Wait after the first of several schema events.
const SCHEMA_DELAY: Duration = Duration::from_millis(300);
/// Shortest deadline for an answer on the control connection.
const STEP_MIN: Duration = Duration::from_secs(10);
/// Nodes asked about agreement at a time on separate connections. Clients wait for further changes
/// as long as they may: no other node can tell.
const AGREEMENTS_MAX: usize = 32;
/// New tables that are read one by one; for more, one read of the whole schema takes less time.
const TABLES_MAX: usize = 64;

/// Follows the ring until the connection is lost (an error) or all cores are gone.
pub(super) async fn follow(plane: &mut ControlPlane, session: Session) -> Step {
    let now = Instant::now();
    let mut follower = Follower {
        plane,
        session,
        topology_due: None,
        schema_due: None,
        status_due: None,
        published_at: None,
        refresh_due: now,
        heartbeat_due: now,
        was_away: true,
        agreement: Agreement::default(),
    };
    let outcome = follower.run().await;
    let unanswered = follower.agreement.abandon();
    follower.post(unanswered);
    outcome
}

/// A control connection and the work due on it.
struct Follower<'p> {
    plane: &'p mut ControlPlane,
    session: Session,
    topology_due: Option<Instant>,
    schema_due: Option<Instant>,
    /// Time at which the cores hear which nodes are up, if that changed.
    status_due: Option<Instant>,
    /// Time of the last routing table.
    published_at: Option<Instant>,
    refresh_due: Instant,
    heartbeat_due: Instant,
    /// True if the proxy has missed events, before this connection or in a flood of them, and has
    /// not yet found out what they said.
    was_away: bool,
    agreement: Agreement,
}

impl Follower<'_> {
    async fn run(&mut self) -> Step {
        self.register().await?;
        self.refresh_all().await?;
        while self.turn().await? {}
        Ok(())
    }

    /// Waits for one event and handles it. `false`: all cores are gone.
    async fn turn(&mut self) -> Result<bool, ControlError> {
        if self.agreement.due().is_none() && self.plane.may_leave() {
            return Err(ControlError::Drained);
        }
        let next_due = self.plane.next_due();
        let plane = &mut *self.plane;
        tokio::select! {
            event = self.session.connection.next_event() => {
                let event = event?;
                self.event(&event)?;
                self.note_lost_events();
            }
            request = plane.requests.recv() => match request {
                Some(request) => self.request(request),
                None => return Ok(false),
            },
            Some(probed) = plane.probes.tasks.join_next() => {
                if let Ok((host_id, answers)) = probed {
                    self.mark(host_id, answers, "its answer to a probe");
                }
            }
            Some(answer) = plane.agreements.join_next() => {
                // Take all that have arrived: each publication costs as much as the schema is
                // large.
                let others = std::iter::from_fn(|| plane.agreements.try_join_next());
                let answers: Vec<Answer> = std::iter::once(answer).chain(others).flatten().collect();
                self.answer(answers).await?;
            }
            changed = plane.config.changed() => {
                // The sender lives as long as the process; without it nothing is left to follow.
                if changed.is_err() {
                    return Ok(false);
                }
                if self.plane.apply() {
                    self.publish().await;
                    self.refresh_due = Instant::now();
                }
            }
            Some(resolved) = plane.lookups.join_next() => {
                // A newer configuration has aborted the look-up otherwise.
                if let Ok(resolved) = resolved {
                    self.plane.settle_by(&resolved);
                    self.publish().await;
                }
            }
            Some(found) = plane.moves.join_next() => {
                // Without one the next refresh looks again.
                if let Ok(Some(found)) = found {
                    self.plane.keep_next(found);
                }
            }
            () = until(next_due) => self.plane.renew_next(),
            () = until(self.status_due) => self.publish_status().await,
            () = until(self.topology_due) => self.refresh_ring().await?,
            () = until(self.schema_due) => self.refresh_all().await?,
            () = until(Some(self.refresh_due)) => {
                self.refresh_all().await?;
                self.probe_down();
            }
            () = until(Some(self.heartbeat_due)) => self.heartbeat().await?,
            () = until(self.agreement.due()) => self.check_agreement().await?,
            () = sleep(POST_RETRY), if plane.post.is_waiting() => plane.post.retry(),
        }
        Ok(true)
    }

    async fn register(&mut self) -> Step {
        let mut body = Vec::new();
        encode::register(&mut body, [TOPOLOGY_CHANGE, STATUS_CHANGE, SCHEMA_CHANGE]);
        let limit = self.limit();
        let answer =
            self.session.connection.request(opcode::REGISTER, &body, "REGISTER", limit).await?;
        if answer.opcode == opcode::READY { Ok(()) } else { Err(answer.refusal("REGISTER")) }
    }

    /// Deadline of one step. The deadline of queries is for those of clients, and may be shorter
    /// than a cold node needs to send the schema.
    fn limit(&self) -> Duration {
        Duration::from_millis(self.plane.settings().query_timeout_ms).max(STEP_MIN)
    }

    /// Reads topology and schema; publishes if they changed or were unknown.
    async fn refresh_all(&mut self) -> Step {
        let ring_changed = self.read_ring().await?;
        let schema_changed = self.read_schema().await?;
        self.refresh_due =
            Instant::now() + Duration::from_millis(self.plane.settings().refresh_interval_ms);
        let is_first = self.plane.is_starting();
        if is_first {
            self.plane.settle(self.session.connection.address).await?;
        }
        let has_changed = ring_changed || schema_changed || self.plane.down.has_news();
        if is_first {
            self.publish_first().await?;
        } else if has_changed || self.plane.is_news(&self.session) {
            self.publish().await;
        }
        if self.was_away {
            self.probe_others();
        }
        self.take_inventory().await?;
        self.plane.count_refresh();
        self.plane.move_away();
        Ok(())
    }

    /// Takes an inventory of a schema of another version, and sends clients the changes that no
    /// event announced. A node that has not heard of a change yet announces it later itself.
    /// Changes just before the last connection was lost, or just after this one registered, may be
    /// announced twice; drivers read the schema again, and find it the same.
    async fn take_inventory(&mut self) -> Step {
        let version = self.plane.ring.as_ref().map(|ring| ring.schema_version).unwrap_or_default();
        let mut inventory = None;
        if self.plane.inventories.version != Some(version) {
            let (limit, bytes_max) = (self.limit(), self.plane.inventories.bytes_max);
            let taken = Inventory::take(&mut self.session.connection, bytes_max, limit).await;
            match self.counted(taken)? {
                Taken::All(taken) => inventory = Some(taken),
                Taken::TooLarge => self.note_too_large(),
                Taken::Refused => return Ok(()),
            }
            self.plane.inventories.version = Some(version);
            self.still_alive();
        }
        let was_away = std::mem::take(&mut self.was_away);
        // These lists may have the change of an event that was lost meanwhile; the next ones do.
        let has_lost_some = self.note_lost_events();
        let Some(inventory) = inventory else { return Ok(()) };
        if (was_away || has_lost_some)
            && let Some(before) = &self.plane.inventories.last
        {
            let (events, count) = inventory.events_since(before);
            if count > 0
                && let Some(suppressed) = self.plane.lines.admit(Instant::now())
            {
                info!(
                    changes = count,
                    told = events.len(),
                    suppressed,
                    "the schema has changed while no node could announce it"
                );
            }
            events.into_iter().for_each(|body| self.await_event(body));
        }
        self.plane.inventories.last = Some(inventory);
        Ok(())
    }

    fn note_too_large(&mut self) {
        let Some(suppressed) = self.plane.lines.admit(Instant::now()) else { return };
        warn!(
            suppressed,
            "the schema is too large to be compared with the one that clients know: they do not \
            hear of changes that were made while there was no control connection"
        );
    }

    async fn refresh_ring(&mut self) -> Step {
        if self.read_ring().await? || self.plane.down.has_news() {
            self.publish().await;
        }
        Ok(())
    }

    /// Reads the ring; returns whether it changed.
    async fn read_ring(&mut self) -> Result<bool, ControlError> {
        self.topology_due = None;
        let (limit, access) = (self.limit(), self.plane.access());
        let connection = &mut self.session.connection;
        let port = node_port(&self.plane.settings(), connection.address);
        let read = ring::read(connection, &mut self.plane.known, port, limit, &access).await;
        let ring = self.counted(read)?;
        self.still_alive();
        let members: HashSet<u128> = ring.nodes.iter().map(|node| node.host_id).collect();
        self.plane.down.mark(ring.control_host_id, true, "the control connection");
        self.plane.down.retain(|host_id| members.contains(&host_id));
        let changed = self.plane.ring.as_ref() != Some(&ring);
        if changed {
            self.tell_changes(&ring);
            self.plane.ring = Some(ring);
            self.plane.members = members;
        }
        Ok(changed)
    }

    /// Reads the schema; returns whether it changed.
    async fn read_schema(&mut self) -> Result<bool, ControlError> {
        self.schema_due = None;
        let limit = self.limit();
        let read = schema::read(&mut self.session.connection, limit).await;
        let schema = self.counted(read)?;
        self.still_alive();
        for why in schema.excess.iter().filter(|why| !self.plane.schema.excess.contains(why)) {
            let Some(suppressed) = self.plane.lines.admit(Instant::now()) else { continue };
            warn!(why, suppressed, "the schema is too large");
        }
        let changed = schema != self.plane.schema;
        self.plane.schema = schema;
        Ok(changed)
    }

    /// Reads the modes of a fleet's tables, last before the cores hear of the ring: the older the
    /// modes are, the more likely a table has got another one. Later the cores read them
    /// themselves.
    async fn read_modes(&mut self) -> Result<Option<InitialModes>, ControlError> {
        if self.plane.settings().fleet.is_none() {
            return Ok(None);
        }
        let limit = self.limit();
        let nodes = self.plane.ring.as_ref().map_or(&[][..], |ring| &ring.nodes);
        let quorum = levels::unknown_quorum(nodes);
        let read = initial_modes::read(&mut self.session.connection, quorum, limit).await;
        let modes = self.counted(read)?;
        self.still_alive();
        Ok(Some(modes))
    }

    fn counted<T>(&self, outcome: Result<T, ControlError>) -> Result<T, ControlError> {
        if outcome.is_err() {
            self.plane.metrics.refresh_failures.add(1);
        }
        outcome
    }

    fn tell_changes(&mut self, ring: &ring::Ring) {
        let plane = &mut *self.plane;
        let before = plane.ring.as_ref().map(|ring| ring.nodes.as_slice()).unwrap_or_default();
        let known: HashSet<u128> = before.iter().map(|node| node.host_id).collect();
        let members: HashSet<u128> = ring.nodes.iter().map(|node| node.host_id).collect();
        for node in ring.nodes.iter().filter(|node| !known.contains(&node.host_id)) {
            let Some(suppressed) = plane.lines.admit(Instant::now()) else { continue };
            let (address, datacentre, tokens) = (node.address, &node.datacentre, node.tokens.len());
            info!(%address, %datacentre, tokens, suppressed, "node found");
        }
        for node in before.iter().filter(|node| !members.contains(&node.host_id)) {
            let Some(suppressed) = plane.lines.admit(Instant::now()) else { continue };
            info!(address = %node.address, suppressed, "node has left the ring");
        }
        let known = plane.ring.as_ref().map(|ring| ring.excess.as_slice()).unwrap_or_default();
        for why in ring.excess.iter().filter(|why| !known.contains(why)) {
            let Some(suppressed) = plane.lines.admit(Instant::now()) else { continue };
            warn!(why, suppressed, "the ring is too large");
        }
    }

    fn event(&mut self, body: &[u8]) -> Step {
        self.plane.metrics.events.add(1);
        self.still_alive();
        let topology_due = Instant::now() + TOPOLOGY_DELAY;
        let event = Event::decode(body)?;
        let mut own = Vec::new();
        encode::event(&mut own, &event);
        if own != body {
            let bytes = body.len().saturating_sub(own.len());
            return Err(ControlError::Garbage(format!(
                "an event with {bytes} bytes behind its end"
            )));
        }
        match event {
            Event::SchemaChange(_) => {
                self.await_event(Arc::from(own));
                self.schema_due.get_or_insert(Instant::now() + SCHEMA_DELAY);
            }
            Event::StatusChange { change, address } => {
                debug!(change, %address, "status event");
                let nodes =
                    self.plane.ring.as_ref().map(|ring| ring.nodes.as_slice()).unwrap_or_default();
                let known = self.plane.known.find(nodes, address);
                self.topology_due.get_or_insert(topology_due);
                if let Some(host_id) = known {
                    self.mark(host_id, change == "UP", "an event");
                }
            }
            Event::TopologyChange { change, address } => {
                debug!(change, %address, "topology event");
                self.topology_due.get_or_insert(topology_due);
            }
            Event::Other { kind, .. } => debug!(kind, "an event of an unknown kind"),
        }
        Ok(())
    }

    /// Sends an event to the clients once the nodes agree.
    fn await_event(&mut self, body: Arc<[u8]>) {
        let answers = self.agreement.ask(Waiter::Event(body), None, Instant::now());
        self.post(answers);
    }

    /// Looks whether events were lost, because too many waited. The inventory of the next refresh
    /// then tells clients what they missed. Returns whether there were any.
    fn note_lost_events(&mut self) -> bool {
        let has_lost_some = self.session.connection.has_lost_events();
        if has_lost_some {
            if let Some(suppressed) = self.plane.lines.admit(Instant::now()) {
                let address = self.session.connection.address;
                warn!(%address, suppressed, "too many different events wait, so the proxy reads \
                ring and schema instead");
            }
            self.was_away = true;
            self.schema_due.get_or_insert(Instant::now() + SCHEMA_DELAY);
        }
        has_lost_some
    }

    fn request(&mut self, request: ControlRequest) {
        match request {
            ControlRequest::AwaitSchemaAgreement { node, core, ticket, table } => {
                self.await_agreement(node, Waiter::Core { core, ticket, table });
            }
            ControlRequest::NodeUnreachable(id) => self.unreachable(id),
            ControlRequest::Refresh => {
                let due = Instant::now() + TOPOLOGY_DELAY;
                self.topology_due.get_or_insert(due);
                self.schema_due.get_or_insert(due);
            }
            ControlRequest::DrainNode { host_id, drained } => {
                self.plane.drain_node(host_id, drained);
                self.plane.move_away();
            }
        }
    }

    /// Waits for agreement from the node that changed the schema.
    fn await_agreement(&mut self, id: NodeId, waiter: Waiter) {
        let plane = &mut *self.plane;
        let ring = plane.ring.as_ref();
        let maker = ring.and_then(|ring| Some((ring.node(id)?, ring.control_host_id)));
        let is_here = maker.is_some_and(|(node, control)| node.host_id == control);
        let maker = maker.map(|(node, _)| (node.host_id, node.address));
        let elsewhere = maker.filter(|_| !is_here && plane.agreements.len() < AGREEMENTS_MAX);
        let Some((maker, address)) = elsewhere else {
            let spread = maker.map(|(host_id, _)| Spread::of(host_id));
            let answers = self.agreement.ask(waiter, spread, Instant::now());
            self.post(answers);
            return;
        };
        let access = plane.access();
        let (members, down) = (plane.members.clone(), plane.down.now().clone());
        plane.agreements.spawn(async move {
            let view = RingView { members: &members, down: &down };
            let agreed = agreement::seen_by(maker, address, &access, view).await;
            Answer { waiter, agreed }
        });
    }

    /// Handles a core's report that it cannot reach a node: schedules a read of the ring, and
    /// probes the node.
    fn unreachable(&mut self, id: NodeId) {
        let now = Instant::now();
        self.topology_due.get_or_insert(now + TOPOLOGY_DELAY);
        let plane = &mut *self.plane;
        let access = plane.access();
        let Some(ring) = &plane.ring else { return };
        let Some(node) = ring.node(id) else { return };
        if node.host_id == ring.control_host_id {
            self.heartbeat_due = now;
        } else if plane.probes.tasks.len() < 4 * ring.nodes.len() {
            plane.probes.start(node, &access);
        }
    }

    /// Notes that a node is up or down. The cores hear of a change at once, unless they have just
    /// heard of another: a node that goes up and down again and again costs one routing table for
    /// each pause.
    fn mark(&mut self, host_id: u128, is_up: bool, by: &'static str) {
        if self.plane.members.contains(&host_id) && self.plane.down.mark(host_id, is_up, by) {
            let now = Instant::now();
            let due = self.published_at.map_or(now, |last| now.max(last + STATUS_PAUSE));
            self.status_due.get_or_insert(due);
        }
    }

    async fn publish_status(&mut self) {
        self.status_due = None;
        if self.plane.down.has_news() {
            self.publish().await;
        }
    }

    async fn publish(&mut self) {
        self.status_due = None;
        let Some(mut draft) = self.plane.draft() else { return };
        let Some(routing) = draft.built().await else { return };
        self.plane.publish(&self.session, draft, routing, None);
        self.published_at = Some(Instant::now());
    }

    /// Publishes the first state of the ring, with modes that were read after all the rest.
    async fn publish_first(&mut self) -> Step {
        let Some(mut draft) = self.plane.draft() else { return Ok(()) };
        let Some(routing) = draft.built().await else { return Ok(()) };
        // Every connection may be lost in the same way, and the proxy would never start: without
        // modes the cores read them before they serve a table.
        let (modes, outcome) = match self.read_modes().await {
            Ok(modes) => (modes, Ok(())),
            Err(lost) => (None, Err(lost)),
        };
        self.plane.publish(&self.session, draft, routing, modes);
        self.published_at = Some(Instant::now());
        outcome
    }

    /// Probes all other nodes after a (re)connect, because some may have gone down or come up
    /// meanwhile.
    fn probe_others(&mut self) {
        self.probe_nodes(|_, _| true);
    }

    /// Probes the nodes believed down, which may be back without an event.
    fn probe_down(&mut self) {
        self.probe_nodes(|node, down| down.contains(&node.host_id));
    }

    fn probe_nodes(&mut self, wanted: impl Fn(&Node, &HashSet<u128>) -> bool) {
        let access = self.plane.access();
        let plane = &mut *self.plane;
        let Some(ring) = &plane.ring else { return };
        // A few rounds of probes may overlap, but they must not pile up.
        let room = (4 * ring.nodes.len()).saturating_sub(plane.probes.tasks.len());
        let others = ring.nodes.iter().filter(|node| node.host_id != ring.control_host_id);
        for node in others.filter(|node| wanted(node, plane.down.now())).take(room) {
            plane.probes.start(node, &access);
        }
    }

    /// Notes that the connection just worked.
    fn still_alive(&mut self) {
        let interval = Duration::from_millis(self.plane.settings().heartbeat_interval_ms);
        self.heartbeat_due = Instant::now() + interval;
    }

    async fn heartbeat(&mut self) -> Step {
        let limit = Duration::from_millis(self.plane.settings().connect_timeout_ms);
        self.session.connection.request(opcode::OPTIONS, &[], "a heartbeat", limit).await?;
        self.still_alive();
        Ok(())
    }

    async fn check_agreement(&mut self) -> Step {
        let limit = self.limit();
        let asked_until = self.agreement.start_check();
        let told = ring::schema_versions(&mut self.session.connection, limit).await?;
        self.still_alive();
        let view = RingView { members: &self.plane.members, down: self.plane.down.now() };
        let answers = self.agreement.finish_check(asked_until, &told, view, Instant::now());
        self.answer(answers).await
    }

    /// Answers the waiters. Reads new tables first, so that the routing of a client's next
    /// statement knows their keys; a read of the whole schema follows the event shortly.
    async fn answer(&mut self, answers: Vec<Answer>) -> Step {
        let agreed = answers.iter().filter(|answer| answer.agreed);
        let made = agreed.filter_map(|answer| match &answer.waiter {
            Waiter::Core { table, .. } => table.as_deref().cloned(),
            Waiter::Event(_) => None,
        });
        let read = self.read_tables(made.collect()).await;
        self.post(answers);
        read
    }

    async fn read_tables(&mut self, names: HashSet<TableName>) -> Step {
        if names.len() > TABLES_MAX {
            if self.read_schema().await? {
                self.publish().await;
            }
            return Ok(());
        }
        let limit = self.limit();
        let (mut is_new, mut outcome) = (false, Ok(()));
        for name in &names {
            let read = schema::read_table(
                &mut self.session.connection,
                limit,
                &mut self.plane.schema,
                name,
            )
            .await;
            match self.counted(read) {
                Ok(changed) => is_new |= changed,
                // The node answers, but not about this table: a read of the whole schema follows
                // soon.
                Err(ControlError::Node { .. }) => {
                    self.schema_due.get_or_insert(Instant::now() + SCHEMA_DELAY);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            self.still_alive();
        }
        // Publish even before an error: the next full read would find nothing new.
        if is_new {
            self.publish().await;
        }
        outcome
    }

    fn post(&mut self, answers: Vec<Answer>) {
        for Answer { waiter, agreed } in answers {
            match waiter {
                Waiter::Core { core, ticket, .. } => {
                    self.plane.post.send(core, CoreMail::SchemaAgreed { ticket, agreed });
                }
                Waiter::Event(body) => self.plane.post.send_all(&CoreMail::SchemaEvent(body)),
            }
        }
    }
}
