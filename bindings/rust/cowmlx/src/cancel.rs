//! Cancelling from elsewhere.

use crate::error::{Error, Result, Status};
use crate::sys;

/// Ends what a context is doing, from any thread and at any time.
///
/// It borrows nothing: once the context is gone, it says
/// [`InvalidHandle`](crate::Status::InvalidHandle), and never means another context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CancelHandle {
    raw: sys::cow_mlx_context,
}

impl CancelHandle {
    pub(crate) fn new(raw: sys::cow_mlx_context) -> Self {
        Self { raw }
    }

    /// End what the context is doing, within one step or prompt chunk. Never blocks.
    ///
    /// What runs returns [`Canceled`](crate::Status::Canceled); a
    /// [`Generation`](crate::Generation) ends with
    /// [`Finish::Canceled`](crate::Finish::Canceled). A context that does nothing is left as it
    /// is. The context stays usable.
    ///
    /// # Errors
    /// [`InvalidHandle`](crate::Status::InvalidHandle) if the context has been dropped.
    pub fn cancel(&self) -> Result<()> {
        // SAFETY: takes any value, from any thread.
        let status = unsafe { sys::cow_mlx_context_cancel(self.raw) };
        if status == sys::COW_MLX_OK {
            return Ok(());
        }
        // The call sets no message.
        Err(Error::new(
            Status::from_code(status),
            "unknown_handle",
            "context_cancel: no such context is open",
        ))
    }
}
