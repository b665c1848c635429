//! Texts and paths on their way to C.

use std::ffi::CString;
use std::path::Path;

use crate::error::{Error, Result, Status};

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
