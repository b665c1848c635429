//! The library, loaded at run time and never unloaded.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

pub(crate) use libloading::os::unix::Library;
use libloading::os::unix::{RTLD_LOCAL, RTLD_NOW};

use crate::{COW_MLX_ABI_VERSION, Functions};

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// What hosts ask the system's loader for.
const SONAME: &str = if cfg!(target_os = "macos") { "libcowmlx.1.dylib" } else { "libcowmlx.so.1" };

/// Why the library could not be loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// There is none there, or it cannot be opened.
    Open(libloading::Error),
    /// It lacks a function: it is older than this crate, or another library.
    Symbol(libloading::Error),
    /// It has another ABI: this is its version.
    Version(u32),
    /// Another copy has been loaded before.
    Loaded,
}

impl fmt::Display for LoadError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(to, "libcowmlx cannot be opened: {error}"),
            Self::Symbol(error) => write!(to, "not a libcowmlx of this version: {error}"),
            Self::Version(version) => {
                write!(to, "libcowmlx has ABI version {version}, needed is {COW_MLX_ABI_VERSION}")
            }
            Self::Loaded => write!(to, "libcowmlx has been loaded already; load comes first"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Load the library from a path, or by a name that the system's loader knows. Once per process.
///
/// # Errors
/// If it cannot be opened, is of another version, or one has been loaded before.
///
/// # Safety
/// What is loaded runs its initialisers, and must be libcowmlx.
pub unsafe fn load(library: impl AsRef<OsStr>) -> Result<(), LoadError> {
    let _one_at_a_time = lock();
    if is_loaded() {
        return Err(LoadError::Loaded);
    }
    // SAFETY: the caller's.
    unsafe { open(library.as_ref()) }
}

/// Load the library unless it is: from the folder in `$COWMLX_LIB_DIR`; or else as the system's
/// loader finds it, or from where the build script has found it.
///
/// # Errors
/// If it cannot be opened, or is of another version.
///
/// # Safety
/// What lies there under the library's name must be libcowmlx.
pub unsafe fn load_default() -> Result<(), LoadError> {
    if is_loaded() {
        return Ok(());
    }
    let _one_at_a_time = lock();
    if is_loaded() {
        return Ok(());
    }
    if let Some(folder) = env::var_os("COWMLX_LIB_DIR").filter(|folder| !folder.is_empty()) {
        // SAFETY: the caller's.
        return unsafe { open(Path::new(&folder).join(SONAME).as_ref()) };
    }
    // SAFETY: the caller's.
    match (unsafe { open(SONAME.as_ref()) }, option_env!("COWMLX_FOUND_LIB_DIR")) {
        // SAFETY: the caller's.
        (Err(LoadError::Open(_)), Some(folder)) => unsafe {
            open(Path::new(folder).join(SONAME).as_ref())
        },
        (found, _) => found,
    }
}

/// Whether the library is loaded.
pub fn is_loaded() -> bool {
    FUNCTIONS.get().is_some()
}

fn lock() -> impl Drop {
    static LOADING: Mutex<()> = Mutex::new(());
    LOADING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// As [`load`].
unsafe fn open(name: &OsStr) -> Result<(), LoadError> {
    // SAFETY: the caller's.
    let functions = unsafe {
        let library = Library::open(Some(name), RTLD_NOW | RTLD_LOCAL).map_err(LoadError::Open)?;
        let version: unsafe extern "C" fn() -> u32 = symbol(&library, "cow_mlx_abi_version")?;
        if version() != COW_MLX_ABI_VERSION {
            return Err(LoadError::Version(version()));
        }
        let functions = Functions::resolve(&library)?;
        std::mem::forget(library);
        functions
    };
    let _ = FUNCTIONS.set(functions);
    Ok(())
}

/// # Safety
/// The symbol is a `T`.
pub(crate) unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, LoadError> {
    // SAFETY: the caller's.
    unsafe { library.get::<T>(name.as_bytes()).map(|symbol| *symbol).map_err(LoadError::Symbol) }
}

pub(crate) fn functions() -> &'static Functions {
    FUNCTIONS.get().expect("cowmlx_sys::load or load_default comes before all calls")
}
