//! What a handle needs to stay alive: borrowed, or shared.

use std::ops::Deref;
use std::sync::Arc;

/// What a [`Model`](crate::Model), [`Context`](crate::Context) or [`Adapter`](crate::Adapter) was
/// made from, and keeps alive.
///
/// Borrowed (`&model`), it cannot be dropped first: the compiler refuses that. Shared
/// (`Arc<Model>`, or the model itself), it lives as long as whatever needs it, and what was made
/// from it has no lifetime to look after: it can be stored in a struct or sent to a thread.
#[derive(Debug)]
pub enum Owner<'a, T> {
    /// Alive as long as the borrow is.
    Borrowed(&'a T),
    /// Alive as long as anyone holds it.
    Shared(Arc<T>),
}

impl<T> Deref for Owner<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T> Clone for Owner<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(value) => Self::Borrowed(value),
            Self::Shared(value) => Self::Shared(Arc::clone(value)),
        }
    }
}

impl<'a, T> From<&'a T> for Owner<'a, T> {
    fn from(value: &'a T) -> Self {
        Self::Borrowed(value)
    }
}

impl<'a, T> From<&'a Arc<T>> for Owner<'a, T> {
    fn from(value: &'a Arc<T>) -> Self {
        Self::Borrowed(value)
    }
}

impl<T> From<Arc<T>> for Owner<'_, T> {
    fn from(value: Arc<T>) -> Self {
        Self::Shared(value)
    }
}

impl<T> From<T> for Owner<'_, T> {
    fn from(value: T) -> Self {
        Self::Shared(Arc::new(value))
    }
}
