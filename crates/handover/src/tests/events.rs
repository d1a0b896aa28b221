//! Events that can happen next.

use super::world::{Host, OWNER, PACKETS_MAX, Up, World};

/// Number of kinds of events, for drawing among them.
pub(super) const KINDS: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The client sends its next byte, an unacknowledged byte again, or an empty packet.
    ClientSends {
        position: Option<u8>,
    },
    /// A packet of the client reaches the owner's host, and follows its entry.
    Steered {
        packet: usize,
    },
    /// A packet reaches an agent's host, and the guard lets it in, sends it back, or drops it.
    Guarded {
        host: usize,
        packet: usize,
    },
    /// A packet reaches a connection, or finds none.
    Arrives {
        host: usize,
        packet: usize,
    },
    /// A connection sends the byte at this place of its queue, or an empty packet.
    Sends {
        host: usize,
        index: Option<u8>,
    },
    /// The socket left by a killed process sends the byte at this place of its queue, or an empty
    /// packet.
    LeftSends {
        host: usize,
        index: Option<u8>,
    },
    /// The socket sends its FIN, and waits for the client's acknowledgement.
    LeftEnds {
        host: usize,
    },
    /// The socket has waited long enough.
    LeftGoes {
        host: usize,
    },
    /// A packet reaches the client.
    ComesDown {
        packet: usize,
    },
    Lost {
        packet: usize,
    },
    /// The mover reads the connection that it freezes.
    Reads {
        host: usize,
    },
    /// The mover compares the connection with its copy.
    Looks {
        host: usize,
    },
    /// The mover closes the connection without a packet.
    TakesOut {
        host: usize,
    },
    /// The process that ordered the freeze learns of it.
    Hears {
        host: usize,
    },
    /// The freeze fails.
    FreezeFails {
        host: usize,
    },
    Restored {
        host: usize,
        is_in: bool,
    },
    /// An agent's loop sees that all is acknowledged, or that the client has sent something.
    Notices {
        host: usize,
    },
    /// The client is gone, and the host has learned of it.
    Dies {
        host: usize,
    },
    OwnerReads {
        agent: usize,
    },
    AgentReads {
        agent: usize,
        link: usize,
    },
    Breaks {
        agent: usize,
    },
    OwnerLoses {
        agent: usize,
    },
    AgentLoses {
        agent: usize,
        link: usize,
    },
    Connects {
        agent: usize,
    },
    Killed {
        host: usize,
    },
    Starts {
        host: usize,
    },
    /// The next deadline of this process has come.
    Ticks {
        host: usize,
    },
}

impl Event {
    /// True for faults.
    pub(super) fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Breaks { .. }
                | Self::Killed { .. }
                | Self::FreezeFails { .. }
                | Self::Restored { is_in: false, .. }
                | Self::Lost { .. }
        )
    }

    /// Number of the event's kind, below [`KINDS`].
    pub(super) fn kind(self) -> usize {
        match self {
            Self::ClientSends { position: None } => 0,
            Self::ClientSends { .. } => 1,
            Self::Steered { .. } => 2,
            Self::Guarded { .. } => 3,
            Self::Arrives { .. } => 4,
            Self::Sends { index: None, .. } | Self::LeftSends { index: None, .. } => 5,
            Self::Sends { .. } | Self::LeftSends { .. } => 6,
            Self::ComesDown { .. } => 7,
            Self::Reads { .. } => 8,
            Self::Looks { .. } => 9,
            Self::TakesOut { .. } => 10,
            Self::Hears { .. } => 11,
            Self::Restored { .. } => 12,
            Self::Notices { .. } => 13,
            Self::OwnerReads { .. } => 14,
            Self::AgentReads { .. } => 15,
            Self::OwnerLoses { .. } => 16,
            Self::AgentLoses { .. } => 17,
            Self::Connects { .. } => 18,
            Self::Starts { .. } => 19,
            Self::Breaks { .. } => 20,
            Self::Killed { .. } => 21,
            Self::Ticks { .. } => 22,
            Self::Lost { .. }
            | Self::LeftEnds { .. }
            | Self::LeftGoes { .. }
            | Self::FreezeFails { .. }
            | Self::Dies { .. } => 23,
        }
    }

    /// Host of the process that acts; a paused process does nothing.
    pub(super) fn process(self) -> Option<usize> {
        match self {
            Self::Hears { host }
            | Self::Notices { host }
            | Self::Ticks { host }
            | Self::Restored { host, .. } => Some(host),
            Self::OwnerReads { .. } | Self::OwnerLoses { .. } | Self::Connects { .. } => {
                Some(OWNER)
            }
            Self::AgentReads { agent, .. } | Self::AgentLoses { agent, .. } => Some(agent),
            _ => None,
        }
    }
}

impl World {
    pub(super) fn events(&self, events: &mut Vec<Event>) {
        events.clear();
        self.of_network(events);
        for host in 0..3 {
            self.of_host(host, events);
            self.of_process(host, events);
        }
        for agent in 1..3 {
            self.of_links(agent, events);
        }
    }

    fn of_network(&self, events: &mut Vec<Event>) {
        let client = &self.client;
        if !client.is_closed && self.up.len() < self.packets_max() {
            let has_news = |host: &Host| {
                let socket = host.socket.as_ref();
                socket
                    .is_none_or(|socket| usize::from(socket.unacknowledged) < client.received.len())
            };
            let mut positions = Vec::new();
            if !self.bounds.is_sparse || self.hosts.iter().all(has_news) {
                positions.push(None);
            }
            positions
                .extend((client.acknowledged < client.sent).then_some(Some(client.acknowledged)));
            let has_answers =
                client.received.len() >= usize::from(client.sent) * usize::from(self.bounds.answer);
            let is_away = self.owner.as_ref().is_none_or(|owner| owner.0.flows() > 0);
            let waits = self.bounds.asks_late
                && client.sent > 0
                && is_away
                && self.hosts[OWNER].restoring.is_none();
            if client.sent < self.bounds.requests
                && (self.bounds.pipelined || has_answers)
                && !waits
            {
                positions.push(Some(client.sent));
            }
            for position in positions {
                let packet =
                    Up { position, acknowledged: client.received.len() as u8, bounced: false };
                if !self.up.contains(&packet) {
                    events.push(Event::ClientSends { position });
                }
            }
        }
        events.extend((0..self.up.len()).map(|packet| Event::Steered { packet }));
        events.extend((0..self.down.len()).map(|packet| Event::ComesDown { packet }));
        if self.losses > 0 {
            events.extend((0..self.up.len()).map(|packet| Event::Lost { packet }));
        }
    }

    fn of_host(&self, host: usize, events: &mut Vec<Event>) {
        let here = &self.hosts[host];
        events.extend((0..here.lane.len()).map(|packet| Event::Guarded { host, packet }));
        events.extend((0..here.stack.len()).map(|packet| Event::Arrives { host, packet }));
        if here.restoring.is_some() {
            // The kernel still has a connection of the same addresses.
            let is_free = here.left.is_none();
            if is_free {
                events.push(Event::Restored { host, is_in: true });
            }
            if self.failures > 0 || !is_free {
                events.push(Event::Restored { host, is_in: false });
            }
        }
        if here.taken_out.is_some() {
            events.push(Event::Hears { host });
        }
        if let Some(left) = &here.left {
            // The socket outlasts any owner's wait.
            if !left.is_stale {
                events.push(Event::LeftEnds { host });
            } else if self.steering.is_none() || here.restoring.is_some() {
                events.push(Event::LeftGoes { host });
            }
            if self.down.len() < self.packets_max() {
                let indices =
                    [None].into_iter().chain((0..left.bytes.len() as u8).take(2).map(Some));
                let is_new = |index: &Option<u8>| {
                    !self.down.contains(&super::happen::packet_of(left, *index))
                };
                events.extend(indices.filter(is_new).map(|index| Event::LeftSends { host, index }));
            }
        }
        let Some(socket) = &here.socket else { return };
        if self.client.is_closed {
            return events.push(Event::Dies { host });
        }
        let mut indices = Vec::new();
        if !self.bounds.is_sparse || socket.next > self.client.acknowledged {
            indices.push(None);
        }
        let bare = indices.len();
        if !socket.bytes.is_empty() {
            indices.push(Some(0));
            if usize::from(socket.sent) < socket.bytes.len() && socket.sent > 0 {
                indices.push(Some(socket.sent));
            }
        }
        if socket.dump.is_some() {
            // A connection under repair sends acknowledgements, and no data.
            indices.truncate(bare);
        }
        if self.down.len() < self.packets_max() {
            let is_new =
                |index: &Option<u8>| !self.down.contains(&super::happen::packet_of(socket, *index));
            events.extend(
                indices.into_iter().filter(is_new).map(|index| Event::Sends { host, index }),
            );
        }
        match (socket.is_freezing, &socket.dump) {
            (true, None) => {
                events.push(Event::Reads { host });
                if self.failures > 0 {
                    events.push(Event::FreezeFails { host });
                }
            }
            (true, Some(_)) if socket.is_same || self.bounds.looks_once => {
                events.push(Event::TakesOut { host })
            }
            // Packets that passed the entry before it changed have arrived.
            (true, Some(_)) if here.stack.is_empty() => events.push(Event::Looks { host }),
            _ => {}
        }
        if host != OWNER && self.can_notice(host) {
            events.push(Event::Notices { host });
        }
    }

    fn of_process(&self, host: usize, events: &mut Vec<Event>) {
        let (is_there, next) = match host {
            OWNER => (
                self.owner.is_some(),
                self.owner.as_ref().and_then(|owner| owner.0.next_deadline_ms()),
            ),
            _ => (
                self.agents[host].is_some(),
                self.agents[host].as_ref().and_then(|agent| agent.0.next_deadline_ms()),
            ),
        };
        if !is_there {
            events.push(Event::Starts { host });
        } else if self.kills > 0 {
            events.push(Event::Killed { host });
        }
        // Time passes for all: no deadline comes long before another process's earlier one.
        if next.is_some_and(|next| {
            self.ticks > 0 && self.earliest().is_some_and(|first| next <= first + 1_000)
        }) {
            events.push(Event::Ticks { host });
        }
    }

    fn of_links(&self, agent: usize, events: &mut Vec<Event>) {
        let links = &self.links[agent];
        match links.iter().find(|link| link.at_owner) {
            Some(link) => {
                if !link.to_owner.is_empty() {
                    events.push(Event::OwnerReads { agent });
                }
                if link.is_broken {
                    events.push(Event::OwnerLoses { agent });
                } else if self.breaks > 0 {
                    events.push(Event::Breaks { agent });
                }
            }
            None if self.owner.is_some() && self.agents[agent].is_some() => {
                events.push(Event::Connects { agent })
            }
            None => {}
        }
        for (number, link) in links.iter().enumerate().filter(|(_, link)| link.at_agent) {
            if !link.to_agent.is_empty() {
                events.push(Event::AgentReads { agent, link: number });
            }
            if link.is_broken {
                events.push(Event::AgentLoses { agent, link: number });
            }
        }
    }

    fn packets_max(&self) -> usize {
        if self.bounds.is_sparse { 1 } else { PACKETS_MAX }
    }

    fn earliest(&self) -> Option<u64> {
        let owner = self.owner.as_ref().and_then(|owner| owner.0.next_deadline_ms());
        let agents = self.agents.iter().flatten().filter_map(|agent| agent.0.next_deadline_ms());
        agents.chain(owner).min()
    }
}
