//! Statuses and messages, and the one place where a status becomes a `Result`.

use std::ffi::{CStr, c_char};
use std::fmt;

use crate::names::CALLS;
use crate::{callback, sys};

/// What kind of thing went wrong: a negative `cow_mlx_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// `EINVAL`: an argument is out of range or malformed.
    InvalidArgument,
    /// `EHANDLE`: what it is about has been freed, such as by a last `runtime_stop`.
    InvalidHandle,
    /// `ESTATE`: not valid now.
    InvalidState,
    /// `ENOENT`: no such file or directory.
    NotFound,
    /// `EFORMAT`: a malformed or mismatched file.
    Malformed,
    /// `EUNSUPPORTED`: this model, cache or build cannot do that.
    Unsupported,
    /// `EBUFFER`: a buffer is too small. This crate's buffers grow, so it does not come.
    BufferTooSmall,
    /// `ECONTEXT`: the context window is full.
    ContextFull,
    /// `ECANCELED`: a callback returned `false`, or another thread cancelled.
    Canceled,
    /// `ENOMEM`: out of memory.
    OutOfMemory,
    /// `EIO`: input or output failed.
    Io,
    /// `ETIMEDOUT`: the generation's timeout has passed.
    TimedOut,
    /// `EFORK`: called in a forked child.
    Forked,
    /// `ELOST`: a machine or a device is lost.
    Lost,
    /// `EINTERNAL`: a bug of the library's; the message says where.
    Internal,
    /// A status that this crate does not know.
    Other(sys::cow_mlx_status),
}

impl Status {
    const KNOWN: [(sys::cow_mlx_status, Status); 15] = [
        (sys::COW_MLX_EINVAL, Self::InvalidArgument),
        (sys::COW_MLX_EHANDLE, Self::InvalidHandle),
        (sys::COW_MLX_ESTATE, Self::InvalidState),
        (sys::COW_MLX_ENOENT, Self::NotFound),
        (sys::COW_MLX_EFORMAT, Self::Malformed),
        (sys::COW_MLX_EUNSUPPORTED, Self::Unsupported),
        (sys::COW_MLX_EBUFFER, Self::BufferTooSmall),
        (sys::COW_MLX_ECONTEXT, Self::ContextFull),
        (sys::COW_MLX_ECANCELED, Self::Canceled),
        (sys::COW_MLX_ENOMEM, Self::OutOfMemory),
        (sys::COW_MLX_EIO, Self::Io),
        (sys::COW_MLX_ETIMEDOUT, Self::TimedOut),
        (sys::COW_MLX_EFORK, Self::Forked),
        (sys::COW_MLX_ELOST, Self::Lost),
        (sys::COW_MLX_EINTERNAL, Self::Internal),
    ];

    /// The status with this code.
    pub fn from_code(code: sys::cow_mlx_status) -> Self {
        let known = Self::KNOWN.iter().find(|known| known.0 == code);
        known.map_or(Self::Other(code), |known| known.1)
    }

    /// The code that C hosts see.
    pub fn code(self) -> sys::cow_mlx_status {
        match self {
            Self::Other(code) => code,
            _ => Self::KNOWN.iter().find(|known| known.1 == self).expect("every status").0,
        }
    }

    /// Its name in the header, such as `"EINVAL"`.
    pub fn name(self) -> &'static str {
        let code = self.code();
        if let Some(known) = sys::STATUSES.iter().find(|known| known.0 == code) {
            return known.1;
        }
        if crate::library::ensure().is_err() {
            return "UNKNOWN";
        }
        // SAFETY: takes any value; what it returns is a constant of the library.
        unsafe { static_text(sys::cow_mlx_status_name(code)) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
    reason: String,
    details: String,
}

impl Error {
    /// An error: `message` names the call, by its name in C, and the value.
    pub(crate) fn new(status: Status, reason: &str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        let call = message.split_once(": ").map_or("", |(call, _)| call);
        if let Some((name, own)) = CALLS.iter().find(|(name, _)| *name == call) {
            message.replace_range(..name.len(), own);
        }
        Self { status, message, reason: reason.into(), details: "{}".into() }
    }

    /// What kind of thing went wrong.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The operation, the value, and what would be accepted.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Why, for programs: a name of the header's `COW_MLX_REASONS`, such as `"out_of_range"`.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What is known of it, as a JSON object, such as `{"argument": "top_p", "value": 1.5}`.
    pub fn details(&self) -> &str {
        &self.details
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() { self.status.fmt(to) } else { to.write_str(&self.message) }
    }
}

impl std::error::Error for Error {}

/// What calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of the call that this thread has just made: its message is the thread's last one.
///
/// # Panics
/// Continues the panic of a callback that the call ran.
pub(crate) fn check(status: sys::cow_mlx_status) -> Result<()> {
    callback::resume_panic();
    if status == sys::COW_MLX_OK {
        return Ok(());
    }
    // SAFETY: never NULL, and valid until this thread's next call.
    let message = unsafe { CStr::from_ptr(sys::cow_mlx_error_message()) };
    let message = message.to_string_lossy();
    let mut error = Error::new(Status::from_code(status), "", message);
    if let Some((reason, details)) = parts(&failure()) {
        (error.reason, error.details) = (reason.into(), details.into());
    }
    Err(error)
}

/// The result of a call that cancels. It sets no message, since signal handlers may make it.
pub(crate) fn check_cancel(status: sys::cow_mlx_status, noun: &str) -> Result<()> {
    if status == sys::COW_MLX_OK {
        return Ok(());
    }
    let message = format!("{noun}_cancel: no such {noun} is open");
    Err(Error::new(Status::from_code(status), "unknown_handle", message))
}

/// The failure of the call that this thread has just made, as a JSON object.
fn failure() -> String {
    let mut text = vec![0u8; 512];
    loop {
        let mut length = 0;
        // SAFETY: a buffer of that capacity, and where its size goes.
        let status = unsafe {
            sys::cow_mlx_error_details(text.as_mut_ptr().cast(), text.len(), &mut length)
        };
        text.resize(length, 0);
        if status == sys::COW_MLX_OK {
            return String::from_utf8_lossy(&text).into_owned();
        }
    }
}

/// The reason and the details of a failure: the keys come in this order, and a reason has no quotes.
fn parts(failure: &str) -> Option<(&str, &str)> {
    let (_, rest) = failure.split_once(r#""reason": ""#)?;
    let (reason, rest) = rest.split_once(r#"", "details": "#)?;
    Some((reason, rest.strip_suffix('}')?))
}

/// What the call that this thread has just made has opened: it is freed again if a callback of the
/// call panicked.
pub(crate) fn opened<T>(status: sys::cow_mlx_status, open: impl FnOnce() -> T) -> Result<T> {
    let opened = (status == sys::COW_MLX_OK).then(open);
    check(status)?;
    Ok(opened.expect("a status that is no error is OK"))
}

/// # Safety
/// The text is a constant of the library, which is never unloaded.
pub(crate) unsafe fn static_text(text: *const c_char) -> &'static str {
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("UNKNOWN")
}
