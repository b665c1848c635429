//! Texts and paths to C, and results of variable size from it.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::ptr::null_mut;

use crate::error::{Error, Result, Status, check};
use crate::sys;

/// A text that C ends at its first NUL, so that it must have none. `what` names operation and
/// parameter.
pub(crate) fn c_text(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        let place = error.nul_position();
        Error::new(
            Status::InvalidArgument,
            "out_of_range",
            format!("{what} has a NUL byte at {place}"),
        )
    })
}

/// A path, which the library takes as UTF-8.
pub(crate) fn c_path(what: &str, path: &Path) -> Result<CString> {
    match path.to_str() {
        Some(text) => c_text(what, text),
        None => {
            let message = format!("{what} is not UTF-8: {}", path.display());
            Err(Error::new(Status::InvalidArgument, "invalid_utf8", message))
        }
    }
}

/// Call with a buffer of `size` elements, and again with the needed size if that is larger. A size
/// of 0 asks first.
pub(crate) fn vector<T: Copy + Default>(
    size: usize,
    mut call: impl FnMut(*mut T, usize, &mut usize) -> sys::cow_mlx_status,
) -> Result<Vec<T>> {
    let mut buffer = vec![T::default(); size];
    loop {
        let start = if buffer.is_empty() { null_mut() } else { buffer.as_mut_ptr() };
        let mut length = 0;
        let status = call(start, buffer.len(), &mut length);
        let fits = length <= buffer.len();
        if fits || status != sys::COW_MLX_EBUFFER {
            check(status)?;
        }
        buffer.resize(length, T::default());
        if fits {
            return Ok(buffer);
        }
    }
}

/// The same for text.
pub(crate) fn text(
    mut call: impl FnMut(*mut c_char, usize, &mut usize) -> sys::cow_mlx_status,
) -> Result<String> {
    let bytes =
        vector::<u8>(1024, |buffer, capacity, length| call(buffer.cast(), capacity, length))?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
