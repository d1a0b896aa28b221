//! Counters and gauges with one writer, and small families of them indexed by a label.

use crate::sync::{AtomicU64, Ordering};
use std::marker::PhantomData;

/// A number that only grows. One thread writes, any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. A load and a store, not an atomic addition: only the owning thread may call it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets the value, for counters kept elsewhere (such as the reactor's) and copied over once per
    /// turn.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The present value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down, never below 0. One thread writes, any thread reads.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n`; stops at 0.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(n), Ordering::Relaxed);
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The present value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A label with a fixed set of values; made by the `labels!` macro.
pub trait Label: Copy + 'static {
    /// The label's name in the exposition.
    const NAME: &'static str;
    /// Every value, in the order of the indexes.
    const ALL: &'static [Self];
    /// Position in [`Label::ALL`].
    fn index(self) -> usize;
    /// The value as exposed.
    fn text(self) -> &'static str;
}

/// One counter per value of a label.
#[derive(Debug)]
pub struct Family<L, const N: usize> {
    counters: [Counter; N],
    label: PhantomData<fn(L)>,
}

impl<L: Label, const N: usize> Family<L, N> {
    /// The counter of one label value.
    #[inline]
    pub fn of(&self, label: L) -> &Counter {
        &self.counters[label.index()]
    }

    /// Sum over all values.
    pub fn total(&self) -> u64 {
        self.counters.iter().map(Counter::get).sum()
    }
}

/// One gauge per value of a label.
#[derive(Debug)]
pub struct Gauges<L, const N: usize> {
    gauges: [Gauge; N],
    label: PhantomData<fn(L)>,
}

impl<L: Label, const N: usize> Gauges<L, N> {
    /// The gauge of one label value.
    #[inline]
    pub fn of(&self, label: L) -> &Gauge {
        &self.gauges[label.index()]
    }
}

impl<L, const N: usize> Default for Gauges<L, N> {
    fn default() -> Self {
        Self { gauges: std::array::from_fn(|_| Gauge::default()), label: PhantomData }
    }
}

impl<L, const N: usize> Default for Family<L, N> {
    fn default() -> Self {
        Self { counters: std::array::from_fn(|_| Counter::default()), label: PhantomData }
    }
}

/// Declares an enum that is a [`Label`], with `COUNT`.
#[macro_export]
macro_rules! labels {
    (
        $(#[$meta:meta])*
        pub enum $name:ident = $label:literal {
            $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// Number of values.
            pub const COUNT: usize = <Self as $crate::Label>::ALL.len();
        }

        impl $crate::Label for $name {
            const NAME: &'static str = $label;
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            #[inline]
            fn index(self) -> usize {
                self as usize
            }

            fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}
