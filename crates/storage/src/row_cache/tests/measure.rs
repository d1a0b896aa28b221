//! Figures, printed on demand.
