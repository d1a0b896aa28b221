//! Rules: what the proxy does with certain statements (`[[rule]]` of the configuration).
//!
//! A query passes one comparison while there is no rule. With rules, a core finds the set of rules
//! that match its statement beside the number of the prepared statement, or by a hash of the text
//! ([`statement`] says which match). A second set has the rules that match the client's role and
//! application. Only a rule in both sets, and whose consistency fits, acts ([`judge`]). A new
//! generation, after a reload or a change of the schema, makes the core look again.
//!
//! This must never:
//! - act on a statement of the proxy itself, or on one on a system table;
//! - let a statement pass that a rule refuses, whichever request carries it and whenever it was
//!   prepared;
//! - count a query twice because it waited for a link;
//! - keep more than a bounded number of sets, whatever texts clients send.

pub(crate) mod action;
pub(crate) mod client;
pub(crate) mod judge;
pub(crate) mod keyspaces;
pub(crate) mod kinds;
pub(crate) mod limit;
pub(crate) mod pin;
pub(crate) mod refusal;
pub(crate) mod set;
pub(crate) mod shared;
pub(crate) mod statement;

use std::sync::Arc;

use shunt_topology::RoutingTable;

use crate::config::{Rule, RuleList};
use crate::ids::Tag;
use crate::limits;
use crate::prepared::PreparedCache;
use limit::Limit;
use set::RuleSet;
use statement::{Subject, exceptions, matching};

/// Texts with the same place.
const WAYS: usize = 4;
/// Sets of places; a power of two.
const PLACES: usize = limits::RULE_TEXTS_MAX / WAYS;

/// What the rules know about a statement.
#[derive(Clone, Copy, Default)]
struct Found {
    /// The rules that it matches.
    set: RuleSet,
    /// True if it has a condition: its consistency must stay.
    is_conditional: bool,
}

/// The rules that a prepared statement matches, alone and in a batch.
#[derive(Clone, Copy, Default)]
struct Known {
    number: u32,
    /// 0: nothing is known.
    generation: u32,
    alone: RuleSet,
    in_batch: RuleSet,
    is_conditional: bool,
}

/// The rules that a text matches.
#[derive(Clone, Copy, Default)]
struct KnownText {
    hash: u64,
    /// 0: nothing is known.
    generation: u32,
    found: Found,
}

/// The rules of a core, and what it knows about statements.
struct Active {
    rules: Vec<Rule>,
    /// The limits of the rules that have one.
    limits: Vec<Option<Limit>>,
    /// Those that exempt statements from later ones.
    exceptions: RuleSet,
    /// The marks of the rules.
    tags: Vec<Tag>,
    core: usize,
    cores: usize,
    /// Those that match a statement of which nothing is known.
    of_unknown: RuleSet,
    /// By the number of the statement. Grows up to the number of statements that a core keeps.
    statements: Vec<Known>,
    texts: Box<[[KnownText; WAYS]]>,
    /// Place, among its equals, of the next text to be replaced.
    next: usize,
}

/// The owner of a core's rules.
#[derive(Default)]
pub(crate) struct Rules {
    active: Option<Box<Active>>,
    /// Never 0 while there are rules.
    generation: u32,
    /// Buffer for a request whose consistency a rule changes.
    scratch: Vec<u8>,
    /// All marks that rules have had, so that a query in flight keeps its own over a reload.
    tags: Vec<Arc<str>>,
}

impl Rules {
    /// True if there is a rule.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.active.is_some()
    }

    /// Takes over the rules of a configuration.
    pub(crate) fn set(&mut self, list: &RuleList, core: usize, cores: usize) {
        self.forget();
        let former = self.active.as_ref().map(|active| &active.rules);
        if former.map_or(&[][..], Vec::as_slice) == list.0 {
            return;
        }
        let tags = list.0.iter().map(|rule| self.tag_of(rule.actions.tag.as_ref())).collect();
        self.active = (!list.0.is_empty()).then(|| {
            Box::new(Active {
                limits: list.0.iter().map(|rule| Limit::of(rule, cores)).collect(),
                rules: list.0.clone(),
                exceptions: exceptions(&list.0),
                tags,
                core,
                cores,
                of_unknown: matching(&list.0, &Subject::unknown(), None),
                statements: Vec::new(),
                texts: vec![[KnownText::default(); WAYS]; PLACES].into(),
                next: 0,
            })
        });
    }

    /// Gives back what the core does not use of the rules' limits.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let Some(active) = self.active.as_deref_mut() else { return };
        for (rule, limit) in active.rules.iter().zip(&mut active.limits) {
            if let Some(limit) = limit {
                limit.tick(&rule.shared, now_ns);
            }
        }
    }

    /// The place of a mark. Beyond the bound, a new mark is left out until a restart.
    fn tag_of(&mut self, tag: Option<&Arc<str>>) -> Tag {
        let Some(tag) = tag else { return Tag::NONE };
        let known = self.tags.iter().position(|known| known == tag);
        let place = known.unwrap_or(self.tags.len());
        if place >= limits::RULE_TAGS_MAX {
            return Tag::NONE;
        }
        if known.is_none() {
            self.tags.push(Arc::clone(tag));
        }
        Tag::of_place(place).unwrap_or_default()
    }

    /// The text of a query's mark.
    pub(crate) fn tag(&self, tag: Tag) -> Option<Arc<str>> {
        self.tags.get(tag.place()?).cloned()
    }

    /// Takes the buffer for a request.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    /// Gives the buffer back; that of a large request is freed.
    pub(crate) fn return_scratch(&mut self, scratch: Vec<u8>) {
        if scratch.capacity() <= limits::HEAVY_BYTES_MIN {
            self.scratch = scratch;
        }
    }

    /// Forgets what it knows about statements and clients.
    pub(crate) fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1).max(1);
    }
}

impl Active {
    /// The rules that a prepared statement matches.
    #[inline]
    fn of_statement(
        &mut self,
        generation: u32,
        prepared: &PreparedCache,
        routing: Option<&RoutingTable>,
        (number, is_in_batch): (u32, bool),
    ) -> Found {
        let place = number as usize % limits::PREPARED_STATEMENTS_MAX;
        let known = self.statements.get(place);
        let known = known.filter(|it| it.generation == generation && it.number == number);
        let known = match known {
            Some(known) => known,
            None => self.read_statement(generation, prepared, routing, number),
        };
        let set = if is_in_batch { known.in_batch } else { known.alone };
        Found { set, is_conditional: known.is_conditional }
    }

    #[cold]
    fn read_statement(
        &mut self,
        generation: u32,
        prepared: &PreparedCache,
        routing: Option<&RoutingTable>,
        number: u32,
    ) -> &Known {
        let learned = prepared.get(number);
        let subject = || match learned {
            Some(learned) => Subject::of_prepared(learned.statement),
            None => Subject::unknown(),
        };
        let is_conditional = subject().is_conditional();
        let alone = matching(&self.rules, &subject(), routing);
        let in_batch = matching(&self.rules, &subject().in_batch(), routing);
        let place = number as usize % limits::PREPARED_STATEMENTS_MAX;
        if place >= self.statements.len() {
            self.statements.resize((place + 1).next_power_of_two(), Known::default());
        }
        let known = &mut self.statements[place];
        *known = Known { number, generation, alone, in_batch, is_conditional };
        known
    }

    /// The rules that a text matches. `hash` is that of the text, its session and its request.
    fn of_text(
        &mut self,
        generation: u32,
        routing: Option<&RoutingTable>,
        hash: u64,
        (text, session, is_in_batch): (&str, Option<&str>, bool),
    ) -> Found {
        let places = &mut self.texts[hash as usize & (PLACES - 1)];
        let is_known = |it: &&KnownText| it.generation == generation && it.hash == hash;
        if let Some(known) = places.iter().find(is_known) {
            return known.found;
        }
        let subject = Subject::of_text(text, session);
        let subject = if is_in_batch { subject.in_batch() } else { subject };
        let is_conditional = subject.is_conditional();
        let found = Found { set: matching(&self.rules, &subject, routing), is_conditional };
        let free = places.iter().position(|it| it.generation != generation);
        self.next = (self.next + 1) % WAYS;
        places[free.unwrap_or(self.next)] = KnownText { hash, generation, found };
        found
    }
}
