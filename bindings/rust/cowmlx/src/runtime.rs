//! Starting and stopping.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Result, check, opened};
use crate::params::RuntimeParams;
use crate::records::LogLevel;
use crate::{callback, library, sys, transfer};

pub(crate) type Log = dyn Fn(LogLevel, &str) + Send + Sync;

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
        let log = params.logger().map(LogKey::new);
        let own = |raw: &mut sys::cow_mlx_runtime_params| {
            if let Some(key) = &log {
                raw.log = Some(on_log);
                raw.log_user_data = key.as_user_data();
            }
        };
        let status = params.lowered("runtime_start", own, |params| {
            // SAFETY: the texts live until the call returns, and the log's key is never dangling.
            unsafe { sys::cow_mlx_runtime_start(params) }
        })?;
        opened(status, || Self { log })
    }

    /// Describe the runtime as a JSON object: versions, device, memory, open handles.
    ///
    /// # Errors
    /// As the manual says.
    pub fn info(&self) -> Result<String> {
        // SAFETY: the buffer has that capacity.
        transfer::text(|buffer, capacity, length| unsafe {
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
/// The C library may log after a `Runtime` is gone, if other parts of the process keep it
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
