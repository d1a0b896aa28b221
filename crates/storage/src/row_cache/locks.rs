//! Lock helpers. A poisoned lock means that a thread panicked while holding it. It guards a cache
//! whose parts are checked on every use, so continuing is correct and failing queries would not be.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
