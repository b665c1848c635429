//! LoRA and DoRA adapters over shared weights.

use std::path::Path;

use crate::error::{Result, opened};
use crate::model::Model;
use crate::owner::Owner;
use crate::transfer::c_path;
use crate::{callback, sys};

/// A LoRA or DoRA adapter of one model, whose weights it shares.
///
/// It may be used by any number of contexts and threads. A context that uses it keeps it: the
/// `Adapter` may be dropped before.
#[derive(Debug)]
pub struct Adapter<'m> {
    raw: sys::cow_mlx_adapter,
    _model: Owner<'m, Model<'m>>,
}

impl<'m> Adapter<'m> {
    /// Load an adapter's folder. `scale` is how strongly it applies: 1 as it was trained.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_adapter_load`.
    pub fn load(
        model: impl Into<Owner<'m, Model<'m>>>,
        path: impl AsRef<Path>,
        scale: f32,
    ) -> Result<Self> {
        let model = model.into();
        let path = c_path("adapter_load: path", path.as_ref())?;
        let mut raw = 0;
        // SAFETY: the path lives until the call returns.
        let status =
            unsafe { sys::cow_mlx_adapter_load(model.as_raw(), path.as_ptr(), scale, &mut raw) };
        opened(status, || Self { raw, _model: model })
    }

    /// Take over a handle.
    pub(crate) fn open(raw: sys::cow_mlx_adapter, model: Owner<'m, Model<'m>>) -> Self {
        Self { raw, _model: model }
    }

    /// The handle, for calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_adapter {
        self.raw
    }
}

impl Drop for Adapter<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's, and is freed once.
        unsafe { sys::cow_mlx_adapter_free(self.raw) };
        callback::forget_panic();
    }
}
