//! Statements of a transaction as separate texts.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use crate::ast::{
    CallValue, Inner, Marker, MarkerSource, Mutation, QualifiedName, SelfAssignment, Statement,
    Term,
};
use crate::error::InvalidRequest;
use crate::functions;

/// A statement from [`Inner::computed`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Computed {
    /// Text of the statement.
    pub text: String,
    /// Values of its markers, in order.
    pub markers: Vec<ComputedMarker>,
}

/// Source of a marker's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ComputedMarker {
    /// The value of a marker of the original statement: index in [`Inner::markers`].
    Same(usize),
    /// A value computed from the current row: index in [`Inner::self_assignments`].
    SelfAssignment(usize),
    /// The result of a function call: index in [`Inner::calls`].
    Call(usize),
}

impl Inner {
    /// The statement's text with a marker for each reference to a row; its markers are
    /// [`Inner::markers`]. `text` is the transaction's.
    #[must_use]
    pub fn standalone<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let refers =
            self.markers.iter().any(|marker| matches!(marker.source, MarkerSource::Reference(_)));
        if refers {
            Cow::Owned(self.spliced(text, self.own_markers()).text)
        } else {
            Cow::Borrowed(text.get(self.range.clone()).unwrap_or_default())
        }
    }

    /// The same with further markers, so that every execution writes the same:
    ///
    /// * for the value of each assignment that `is_computed` selects: `a = a + 1` becomes `a = ?`;
    /// * for each value whose functions differ at each call: `now()` becomes `?`.
    ///
    /// The statement's own `IF ..` is omitted, with its markers.
    ///
    /// # Errors
    /// If a column with a computed value is set a second time.
    pub fn computed(
        &self,
        text: &str,
        is_computed: impl Fn(&SelfAssignment) -> bool,
    ) -> Result<Computed, InvalidRequest> {
        let mut places = self.own_markers();
        let times = self.times_set();
        for (index, assignment) in self.self_assignments.iter().enumerate() {
            if !is_computed(assignment) {
                continue;
            }
            if times.get(assignment.column.as_str()).is_some_and(|times| *times > 1) {
                let message =
                    format!("Multiple incompatible setting of column {}", assignment.column);
                return Err(InvalidRequest::new(message));
            }
            let marker = ComputedMarker::SelfAssignment(index);
            places.push(Place {
                range: assignment.range.clone(),
                with: Some("= ?"),
                marker: Some(marker),
            });
        }
        let calls = self.calls.iter().enumerate().filter(|(_, call)| !call.is_pure());
        places.extend(calls.map(|(index, call)| Place {
            range: call.range.clone(),
            with: Some("?"),
            marker: Some(ComputedMarker::Call(index)),
        }));
        places.extend(self.condition.iter().map(|condition| Place {
            range: condition.clone(),
            with: Some(""),
            marker: None,
        }));
        // An outer place replaces the places inside it.
        places.sort_by_key(|place| (place.range.start, Reverse(place.range.end)));
        Ok(self.spliced(text, places))
    }

    /// Number of times each column is set.
    fn times_set(&self) -> HashMap<&str, usize> {
        let mut times = HashMap::new();
        if let Statement::Mutation(Mutation::Update(update)) = &self.statement {
            for assignment in &update.assignments {
                *times.entry(assignment.column.as_str()).or_default() += 1;
            }
        }
        times
    }

    fn own_markers(&self) -> Vec<Place> {
        let place = |(index, marker): (usize, &Marker)| Place {
            range: marker.range.clone(),
            with: matches!(marker.source, MarkerSource::Reference(_)).then_some("?"),
            marker: Some(ComputedMarker::Same(index)),
        };
        self.markers.iter().enumerate().map(place).collect()
    }

    fn spliced(&self, text: &str, places: Vec<Place>) -> Computed {
        let mut computed =
            Computed { text: String::with_capacity(self.range.len()), markers: Vec::new() };
        // The text is copied up to here.
        let mut at = self.range.start;
        for place in places {
            if place.range.start < at {
                continue;
            }
            if let Some(with) = place.with {
                computed.text.push_str(text.get(at..place.range.start).unwrap_or_default());
                computed.text.push_str(with);
                at = place.range.end;
            }
            computed.markers.extend(place.marker);
        }
        computed.text.push_str(text.get(at..self.range.end).unwrap_or_default());
        computed
    }
}

/// An existing or new place of a marker in a text.
struct Place {
    range: Range<usize>,
    /// Replacement, unless the text stays unchanged.
    with: Option<&'static str>,
    marker: Option<ComputedMarker>,
}

impl CallValue {
    /// True if its functions always give the same result. User-defined functions count as such:
    /// only a node can call them.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        is_pure(&self.term)
    }
}

/// True if the functions in a term always give the same result. User-defined ones count as such.
#[must_use]
pub fn is_pure(term: &Term) -> bool {
    let gives_the_same = !matches!(term, Term::Call { name, .. } if gives_another(name));
    gives_the_same && term.parts().into_iter().all(is_pure)
}

/// True for `now` and similar functions, none of which has arguments.
fn gives_another(name: &QualifiedName) -> bool {
    let native = matches!(name.keyspace.as_deref(), None | Some("system"));
    native
        && functions::resolve(&name.name, &[], None, None).is_ok_and(|function| !function.is_pure())
}
