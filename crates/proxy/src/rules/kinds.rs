//! Kinds of statements that a rule may name.

use shunt_wire::cql::statement::Kind;

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindSet(u16);

/// The kinds, as the configuration names them.
const NAMES: [(&str, KindSet); 11] = [
    ("select", KindSet::SELECT),
    ("insert", KindSet::INSERT),
    ("update", KindSet::UPDATE),
    ("delete", KindSet::DELETE),
    ("batch", KindSet::BATCH),
    ("truncate", KindSet::TRUNCATE),
    ("ddl", KindSet::DDL),
    ("use", KindSet::USE),
    ("lwt", KindSet::LWT),
    ("transaction", KindSet::TRANSACTION),
    ("unknown", KindSet::UNKNOWN),
];

impl KindSet {
    pub(crate) const NONE: KindSet = KindSet(0);
    pub(crate) const SELECT: KindSet = KindSet(1);
    pub(crate) const INSERT: KindSet = KindSet(1 << 1);
    pub(crate) const UPDATE: KindSet = KindSet(1 << 2);
    pub(crate) const DELETE: KindSet = KindSet(1 << 3);
    pub(crate) const BATCH: KindSet = KindSet(1 << 4);
    pub(crate) const TRUNCATE: KindSet = KindSet(1 << 5);
    pub(crate) const DDL: KindSet = KindSet(1 << 6);
    pub(crate) const USE: KindSet = KindSet(1 << 7);
    pub(crate) const LWT: KindSet = KindSet(1 << 8);
    pub(crate) const TRANSACTION: KindSet = KindSet(1 << 9);
    pub(crate) const UNKNOWN: KindSet = KindSet(1 << 10);

    /// The kind with this name.
    pub(crate) fn named(name: &str) -> Option<KindSet> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The names of all kinds, with commas between them.
    pub(crate) fn all_names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// The kind of a statement. `has_table`: its table is known.
    pub(crate) fn of(kind: Kind, has_table: bool, is_conditional: bool) -> KindSet {
        let (own, needs_table) = match kind {
            Kind::Select => (KindSet::SELECT, true),
            Kind::Insert => (KindSet::INSERT, true),
            Kind::Update => (KindSet::UPDATE, true),
            Kind::Delete => (KindSet::DELETE, true),
            Kind::Truncate => (KindSet::TRUNCATE, true),
            Kind::Batch => (KindSet::BATCH, true),
            Kind::Ddl => (KindSet::DDL, false),
            Kind::Use => (KindSet::USE, false),
            Kind::Transaction => (KindSet::TRANSACTION, false),
            Kind::Other => (KindSet::UNKNOWN, false),
        };
        let unknown = if needs_table && !has_table { KindSet::UNKNOWN } else { KindSet::NONE };
        let conditional = if is_conditional { KindSet::LWT } else { KindSet::NONE };
        own.with(unknown).with(conditional)
    }

    pub(crate) fn with(self, more: KindSet) -> KindSet {
        KindSet(self.0 | more.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if both have a kind in common.
    pub(crate) fn meets(self, other: KindSet) -> bool {
        self.0 & other.0 != 0
    }
}
