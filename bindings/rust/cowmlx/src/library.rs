//! The library itself, linked or loaded.

use crate::error::{Result, static_text};
use crate::sys;

/// Make the library's functions callable.
#[cfg(not(feature = "dlopen"))]
pub(crate) fn ensure() -> Result<()> {
    Ok(())
}

/// Make the library's functions callable.
#[cfg(feature = "dlopen")]
pub(crate) fn ensure() -> Result<()> {
    // SAFETY: what lies under the library's name is the library.
    unsafe { sys::load_default() }.map_err(error_of)
}

/// Load the library from a path, such as one inside the application's bundle.
///
/// Without it, [`Runtime::start`](crate::Runtime::start) loads it: from the folder in
/// `$COWMLX_LIB_DIR`; or else as the system's loader finds it, or from where it was found when the
/// program was built.
///
/// # Errors
/// If it cannot be opened, is of another version, or one has been loaded before.
///
/// # Safety
/// What is loaded runs its initialisers, and must be libcowmlx.
#[cfg(feature = "dlopen")]
pub unsafe fn load_library(path: impl AsRef<std::path::Path>) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { sys::load(path.as_ref()) }.map_err(error_of)
}

#[cfg(feature = "dlopen")]
fn error_of(error: sys::LoadError) -> crate::Error {
    let (status, reason) = match error {
        sys::LoadError::Open(_) => (crate::Status::NotFound, "file_not_found"),
        sys::LoadError::Loaded => (crate::Status::InvalidState, "conflict"),
        _ => (crate::Status::Unsupported, "library_mismatch"),
    };
    crate::Error::new(status, reason, error.to_string())
}

/// The library's version, such as `"1.0.0"`.
///
/// # Errors
/// Only with the feature `dlopen`: the library cannot be loaded.
pub fn version() -> Result<&'static str> {
    ensure()?;
    // SAFETY: a constant of the library.
    Ok(unsafe { static_text(sys::cow_mlx_version()) })
}

/// Refuse a library of another ABI, which the loader should have done.
pub(crate) fn check_abi() -> Result<()> {
    // SAFETY: takes nothing.
    let found = unsafe { sys::cow_mlx_abi_version() };
    if found == sys::COW_MLX_ABI_VERSION {
        return Ok(());
    }
    let needed = sys::COW_MLX_ABI_VERSION;
    let message = format!("runtime_start: libcowmlx has ABI version {found}, needed is {needed}");
    Err(crate::Error::new(crate::Status::Unsupported, "library_mismatch", message))
}
