//! Tests alone: see `tests/oracle`.
