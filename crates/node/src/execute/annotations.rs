//! Parts of an answer besides its message: trace id and warnings (native protocol v5, section 4).
//!
//! Code that executes a part of a request notes its work here, at no cost unless the client asked
//! for a trace.

use std::cell::RefCell;

use shunt_wire::cql::envelope::flag;
use shunt_wire::cql::message::{QueryParams, put};

use crate::trace::{Origin, Trace, shortened};

/// Parameters in the trace of every request, named as in Cassandra.
pub(super) fn parameters(
    text: Option<&str>,
    params: Option<&QueryParams<'_>>,
) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    found.extend(text.map(|text| ("query", text.to_owned())));
    if let Some(params) = params {
        let page_size = params.page_size.filter(|rows| *rows > 0);
        found.extend(page_size.map(|rows| ("page_size", rows.to_string())));
        found.push(("consistency_level", params.consistency.to_string()));
        found.extend(
            params.serial_consistency.map(|level| ("serial_consistency_level", level.to_string())),
        );
    }
    found
}

/// Most warnings of one answer.
const WARNINGS_MAX: usize = 100;

/// Trace and warnings of the request being executed.
#[derive(Default)]
pub(crate) struct Aside {
    trace: RefCell<Option<Box<Trace>>>,
    warnings: RefCell<Vec<String>>,
}

impl Aside {
    /// State for a request that is to be traced.
    pub(super) fn traced(request: &'static str, origin: Origin) -> Aside {
        Aside {
            trace: RefCell::new(Some(Box::new(Trace::begin(request, origin)))),
            ..Aside::default()
        }
    }

    /// State for a request that is executed again where it may wait, with its earlier trace.
    pub(super) fn resumed(mut trace: Box<Trace>) -> Aside {
        // The second execution adds them again.
        trace.parameters.clear();
        Aside { trace: RefCell::new(Some(trace)), ..Aside::default() }
    }

    /// True if the client asked for a trace.
    pub(super) fn is_traced(&self) -> bool {
        self.trace.borrow().is_some()
    }

    /// Takes the trace, if any, and ends its recording.
    pub(super) fn take_trace(&self) -> Option<Box<Trace>> {
        self.trace.borrow_mut().take()
    }

    /// Notes an activity for the request.
    pub(crate) fn note<T: Into<String>>(&self, activity: impl FnOnce() -> T) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            trace.note(activity().into());
        }
    }

    /// Notes names and values that came with the request.
    pub(super) fn parameters<N: Into<String>, P: IntoIterator<Item = (N, String)>>(
        &self,
        made: impl FnOnce() -> P,
    ) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            made().into_iter().for_each(|(name, value)| trace.parameter(name, value));
        }
    }

    /// Adds a warning for the client of an executed request.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < WARNINGS_MAX {
            warnings.push(shortened(text.into()));
        }
    }

    /// Appends the id of the trace, if any, which precedes all other parts.
    pub(super) fn put_tracing_id(&self, out: &mut Vec<u8>) {
        if let Some(trace) = &*self.trace.borrow() {
            out.extend_from_slice(&trace.origin.session);
        }
    }

    /// Inserts the warnings before the message, which begins at `message`. Returns the flags for
    /// the header, and the trace.
    ///
    /// v3 has no warnings.
    pub(super) fn finish(
        &self,
        version: u8,
        message: usize,
        out: &mut Vec<u8>,
    ) -> (u8, Option<Box<Trace>>) {
        let trace = self.take_trace();
        let mut flags = if trace.is_some() { flag::TRACING } else { 0 };
        let warnings = self.warnings.borrow();
        if version >= 4 && !warnings.is_empty() {
            let mut list = Vec::new();
            put::string_list(&mut list, warnings.iter().map(String::as_str));
            out.splice(message..message, list);
            flags |= flag::WARNING;
        }
        (flags, trace)
    }
}
