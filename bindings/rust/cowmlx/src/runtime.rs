//! Starting and stopping.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Result, check, opened};
use crate::params::params;
use crate::text::{c_path, c_text};
use crate::{buffer, callback, library, sys};

/// Levels of log messages, from the rarest to the most frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum LogLevel {
    /// No messages.
    Off = sys::COW_MLX_LOG_OFF,
    /// Works, but not as one would expect.
    Warning = sys::COW_MLX_LOG_WARNING,
    /// What was started, loaded, chosen.
    Info = sys::COW_MLX_LOG_INFO,
}

impl From<LogLevel> for i32 {
    fn from(level: LogLevel) -> i32 {
        level as i32
    }
}

type Log = dyn Fn(LogLevel, &str) + Send + Sync;

params! {
    /// How the runtime starts.
    RuntimeParams for cow_mlx_runtime_params by cow_mlx_runtime_params_init {
        /// Bytes that mlx may hold before it waits and frees; 0: mlx's default.
        memory_limit: u64,
        /// Bytes of freed buffers that mlx may keep; 0: mlx's default.
        cache_limit: u64,
        /// Messages up to this level are logged; default [`LogLevel::Info`].
        log_level: LogLevel,
        /// Threads that kernels compute with on a CPU; 0: as many as the process may use.
        threads: i64,
    }
    also {
        python_home: Option<PathBuf>,
        device: Option<String>,
        log: Option<Arc<Log>>,
    }
}

impl RuntimeParams {
    /// The Python installation or virtual environment to boot; default: the library's own search.
    pub fn python_home(mut self, folder: impl Into<PathBuf>) -> Self {
        self.python_home = Some(folder.into());
        self
    }

    /// `"gpu"` or `"cpu"`; default: the best there is.
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Receives log messages, on the thread of the call that caused one and as that call ends.
    ///
    /// If it panics, the panic goes on where that call returns; one from within a `drop` is lost.
    pub fn log(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(log));
        self
    }
}

/// The runtime, as long as it lives: it stops when the last `Runtime` of the process is dropped.
///
/// Starts are counted, so parts of a program that do not know each other may each have one.
/// [`Model`](crate::Model)s borrow or share the one they were loaded with.
#[derive(Debug)]
pub struct Runtime {
    log: Option<LogKey>,
}

impl Runtime {
    /// Start the runtime with the defaults; or share it as it runs, if it does.
    ///
    /// # Errors
    /// [`NotFound`](crate::Status::NotFound) if no usable Python was found (the message lists
    /// where it was looked for), and what the manual says of `cow_mlx_runtime_start`.
    pub fn start() -> Result<Self> {
        library::ensure()?;
        library::check_abi()?;
        // SAFETY: NULL stands for the defaults.
        let status = unsafe { sys::cow_mlx_runtime_start(std::ptr::null()) };
        opened(status, || Self { log: None })
    }

    /// Start the runtime with parameters.
    ///
    /// # Errors
    /// As [`start`](Self::start); also [`InvalidState`](crate::Status::InvalidState) if the
    /// runtime runs with other parameters. A log function is never the same as another.
    pub fn start_with(params: &RuntimeParams) -> Result<Self> {
        library::ensure()?;
        library::check_abi()?;
        let folder = params.python_home.as_deref();
        let folder = folder.map(|path| c_path("runtime_start: python_home", path)).transpose()?;
        let device = params.device.as_deref();
        let device = device.map(|text| c_text("runtime_start: device", text)).transpose()?;
        let log = params.log.clone().map(LogKey::new);

        let mut filled = params.filled();
        filled.raw.python_home = folder.as_deref().map_or(std::ptr::null(), CStr::as_ptr);
        filled.raw.device = device.as_deref().map_or(std::ptr::null(), CStr::as_ptr);
        if let Some(key) = &log {
            filled.raw.log = Some(on_log);
            filled.raw.log_user_data = key.as_user_data();
        }
        // SAFETY: the texts live until the call returns, and the log's key is never dangling.
        let status = unsafe { sys::cow_mlx_runtime_start(filled.as_ptr()) };
        opened(status, || Self { log })
    }

    /// Tell about the runtime, as a JSON object: versions, device, memory, open handles.
    ///
    /// # Errors
    /// As the manual says.
    pub fn info(&self) -> Result<String> {
        // SAFETY: the buffer has that capacity.
        buffer::text(|buffer, capacity, length| unsafe {
            sys::cow_mlx_runtime_info(buffer, capacity, length)
        })
    }

    /// Give the buffers that mlx keeps for reuse, and the prompts that models keep for new
    /// contexts, back to the system.
    ///
    /// # Errors
    /// As the manual says.
    pub fn memory_trim(&self) -> Result<()> {
        // SAFETY: takes nothing.
        check(unsafe { sys::cow_mlx_memory_trim() })
    }

    /// Undo this start, as dropping it does, and hear whether that worked.
    ///
    /// # Errors
    /// As the manual says.
    pub fn stop(self) -> Result<()> {
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: undoes this one's start, once.
        let status = unsafe { sys::cow_mlx_runtime_stop() };
        let result = check(status);
        this.log.take();
        result
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // SAFETY: undoes this one's start, once.
        unsafe { sys::cow_mlx_runtime_stop() };
        callback::forget_panic();
    }
}

/// The log functions of runtimes, by the number that C has as user data.
///
/// The C library may go on to log after a `Runtime` is gone, if other parts of the process keep it
/// running. A number cannot dangle, as a pointer to the function would.
static LOGS: Mutex<BTreeMap<usize, Arc<Log>>> = Mutex::new(BTreeMap::new());

fn logs() -> MutexGuard<'static, BTreeMap<usize, Arc<Log>>> {
    LOGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A function's place among the logs.
struct LogKey(usize);

impl LogKey {
    fn new(log: Arc<Log>) -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
        let key = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        logs().insert(key, log);
        Self(key)
    }

    fn as_user_data(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0)
    }
}

impl Drop for LogKey {
    fn drop(&mut self) {
        let log = logs().remove(&self.0);
        drop(log); // without the lock: what it captured may log
    }
}

impl fmt::Debug for LogKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "LogKey({})", self.0)
    }
}

/// # Safety
/// `message` is a text.
unsafe extern "C" fn on_log(level: i32, message: *const c_char, key: *mut c_void) {
    callback::guard(|| {
        let Some(log) = logs().get(&key.addr()).cloned() else { return true };
        let level =
            if level <= sys::COW_MLX_LOG_WARNING { LogLevel::Warning } else { LogLevel::Info };
        // SAFETY: the caller's.
        log(level, &unsafe { CStr::from_ptr(message) }.to_string_lossy());
        true
    });
}
