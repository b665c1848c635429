//! Images.

use std::marker::PhantomData;

use crate::error::{Error, Result, Status, opened};
use crate::runtime::Runtime;
use crate::{callback, sys, transfer};

/// An image: a value, which nothing changes.
#[derive(Debug)]
pub struct Media<'r> {
    raw: sys::cow_mlx_media,
    _runtime: PhantomData<&'r Runtime>,
}

impl<'r> Media<'r> {
    /// An image has at most as many pixels.
    pub const MAX_PIXELS: u32 = sys::COW_MLX_MAX_PIXELS;

    /// Make an image of pixels, row by row: 1 (grey), 3 (RGB) or 4 (RGBA) bytes each. They are
    /// copied.
    ///
    /// # Errors
    /// There are too few bytes, or as the manual says of `cow_mlx_media_from_pixels`.
    pub fn from_pixels(
        _runtime: &'r Runtime,
        pixels: &[u8],
        width: i32,
        height: i32,
        channels: i32,
    ) -> Result<Self> {
        let size = |number: i32| usize::try_from(number).unwrap_or(0);
        let row = size(width).saturating_mul(size(channels));
        let needed = row.saturating_mul(size(height));
        if pixels.len() < needed {
            let message =
                format!("media_from_pixels: pixels has {} bytes, must have {needed}", pixels.len());
            return Err(Error::new(Status::InvalidArgument, "shape_mismatch", message));
        }
        let mut raw = 0;
        // SAFETY: there are that many bytes; other sizes are refused.
        let status = unsafe {
            sys::cow_mlx_media_from_pixels(
                pixels.as_ptr().cast(),
                width,
                height,
                channels,
                row,
                &mut raw,
            )
        };
        opened(status, || Self { raw, _runtime: PhantomData })
    }

    /// Make an image of a file: PNG, JPEG, WebP, BMP or GIF.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_media_from_file`.
    pub fn from_file(_runtime: &'r Runtime, bytes: &[u8]) -> Result<Self> {
        let mut raw = 0;
        let data = bytes.as_ptr().cast();
        // SAFETY: there are that many bytes.
        let status = unsafe { sys::cow_mlx_media_from_file(data, bytes.len(), &mut raw) };
        opened(status, || Self { raw, _runtime: PhantomData })
    }

    /// Describe the image: a JSON object of its width, height, channels and hash.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_media_info`.
    pub fn info(&self) -> Result<String> {
        // SAFETY: the buffer has that capacity.
        transfer::text(|buffer, capacity, length| unsafe {
            sys::cow_mlx_media_info(self.raw, buffer, capacity, length)
        })
    }

    /// The handle, for content parts of messages and calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_media {
        self.raw
    }
}

impl Drop for Media<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's, and is freed once.
        unsafe { sys::cow_mlx_media_free(self.raw) };
        callback::forget_panic();
    }
}
