//! Keys of the entries in a core's tables.

use shunt_reactor::ConnId;

/// A reference to a client for its whole life: its slot, and its number, which must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientRef {
    pub(crate) slot: u32,
    pub(crate) id: u32,
}

impl ClientRef {
    /// Stands for the proxy itself, which sends nodes its own requests.
    pub(crate) const PROXY: ClientRef = ClientRef { slot: u32::MAX, id: u32::MAX };

    /// Stands for a part of a client's request, whose answers the proxy merges.
    pub(crate) const PART: ClientRef = ClientRef { slot: u32::MAX, id: u32::MAX - 1 };

    /// True for a client, false for the proxy itself and for a part of a client's request.
    #[inline]
    pub(crate) fn is_client(self) -> bool {
        self.slot != u32::MAX
    }
}

/// A slot in the core's table of links. Another link may occupy the slot later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkKey(pub(crate) u32);

/// A reference to a link for its whole life: its slot and its connection, which must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRef {
    pub(crate) key: LinkKey,
    pub(crate) conn: ConnId,
}

/// A slot in the core's table of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PoolId(pub(crate) u32);

impl PoolId {
    /// The pool of the proxy's own requests, which belong to no client.
    pub(crate) const NONE: PoolId = PoolId(u32::MAX);
}

/// A request that waits for a statement to be prepared again, or for schema agreement. A number is
/// not reused while the answer to an earlier request could still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u32);

/// A mark of queries by rules, in the table of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag(u16);

impl Tag {
    /// No rule marks the query.
    pub(crate) const NONE: Tag = Tag(0);

    /// Place in the table; `None`: no mark.
    pub(crate) fn place(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    pub(crate) fn of_place(place: usize) -> Option<Tag> {
        u16::try_from(place + 1).ok().map(Tag)
    }
}

/// A tenant in the table of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TenantKey(u16);

impl TenantKey {
    /// No tenant: no section matches, or there is none.
    pub(crate) const NONE: TenantKey = TenantKey(0);

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// Place in the table.
    pub(crate) fn place(self) -> usize {
        usize::from(self.0).wrapping_sub(1)
    }

    pub(crate) fn of_place(place: usize) -> Option<TenantKey> {
        u16::try_from(place + 1).ok().map(TenantKey)
    }
}
