//! The parts that an answer carries besides its message: the id of its trace, and warnings (native
//! protocol v5, section 4).
//!
//! Whoever executes a part of a request notes here what it does. That costs nothing unless the
//! client asked for a trace.

use std::cell::RefCell;

use shunt_wire::cql::envelope::flag;
use shunt_wire::cql::message::{QueryParams, put};

use crate::trace::{Origin, Trace, shortened};

/// The parameters of a trace that every request has, named as in Cassandra.
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

/// Warnings of one answer.
const WARNINGS_MAX: usize = 100;

/// Collected while a request is executed.
#[derive(Default)]
pub(crate) struct Aside {
    trace: RefCell<Option<Box<Trace>>>,
    warnings: RefCell<Vec<String>>,
}

impl Aside {
    /// Begins the additions to the answer of a request that is to be traced.
    pub(super) fn traced(request: &'static str, origin: Origin) -> Aside {
        Aside {
            trace: RefCell::new(Some(Box::new(Trace::begin(request, origin)))),
            ..Aside::default()
        }
    }

    /// Goes on with the additions to the answer of a request that is executed once more, by
    /// somebody who may wait.
    pub(super) fn resumed(mut trace: Box<Trace>) -> Aside {
        // They come again.
        trace.parameters.clear();
        Aside { trace: RefCell::new(Some(trace)), ..Aside::default() }
    }

    /// True if the client asked for a trace.
    pub(super) fn is_traced(&self) -> bool {
        self.trace.borrow().is_some()
    }

    /// The trace, if there is one. Nothing more is noted.
    pub(super) fn take_trace(&self) -> Option<Box<Trace>> {
        self.trace.borrow_mut().take()
    }

    /// Something was done for the request.
    pub(crate) fn note<T: Into<String>>(&self, activity: impl FnOnce() -> T) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            trace.note(activity().into());
        }
    }

    /// Notes what came with the request: names and values.
    pub(super) fn parameters<N: Into<String>, P: IntoIterator<Item = (N, String)>>(
        &self,
        made: impl FnOnce() -> P,
    ) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            made().into_iter().for_each(|(name, value)| trace.parameter(name, value));
        }
    }

    /// Something the client should know, although its request is carried out.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < WARNINGS_MAX {
            warnings.push(shortened(text.into()));
        }
    }

    /// Appends the id of the trace, which comes before all else, if there is one.
    pub(super) fn put_tracing_id(&self, out: &mut Vec<u8>) {
        if let Some(trace) = &*self.trace.borrow() {
            out.extend_from_slice(&trace.origin.session);
        }
    }

    /// Puts the warnings in front of the message, which begins at `message`. The flags for the
    /// header, and the trace.
    ///
    /// v3 knows no warnings.
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
