//! Calls that return at once: what they bring about is asked for later.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::null;
use std::sync::Arc;
use std::time::Duration;

use crate::callback::{Heard, LoadProgress};
use crate::chat::Event;
use crate::context::Context;
use crate::error::{Result, Status, check};
use crate::generation::Generation;
use crate::model::{Model, Token};
use crate::owner::Owner;
use crate::params::{GenerationParams, ModelParams};
use crate::records::Finish;
use crate::runtime::Runtime;
use crate::transfer::{c_path, c_text};
use crate::{callback, sys};

/// Milliseconds as C takes them, rounded up; `None`: as long as it takes.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> u32 {
    timeout.map_or(u32::MAX, |timeout| {
        let rounded_up = timeout.as_nanos().div_ceil(1_000_000);
        u32::try_from(rounded_up).unwrap_or(u32::MAX).min(u32::MAX - 1)
    })
}

/// A closure that outlives the call that was given it, at a place that C knows.
pub(crate) struct Later<F: ?Sized + 'static>(Box<Kept<F>>);

struct Kept<F: ?Sized + 'static> {
    /// What C has a pointer to.
    reference: &'static F,
    _closure: Arc<F>,
}

impl<F: ?Sized> Later<F> {
    fn new(closure: &Arc<F>) -> Self {
        let closure = Arc::clone(closure);
        // SAFETY: the closure lives as long as this, which lends the reference to no other.
        let reference: &'static F = unsafe { &*Arc::as_ptr(&closure) };
        Self(Box::new(Kept { reference, _closure: closure }))
    }

    fn as_ptr(&self) -> *const &'static F {
        &raw const self.0.reference
    }
}

impl<F: ?Sized> fmt::Debug for Later<F> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Later").finish_non_exhaustive()
    }
}

/// The closures of a generation, at a place that C knows.
pub(crate) type LaterHeard = Box<Heard<'static>>;

impl Context<'_> {
    /// As [`begin`](Self::begin), without waiting: the prompt is processed while the host does
    /// other things. [`poll`](Self::poll), or [`wake_fd`](Self::wake_fd), reports when there is a
    /// piece, or an error, which is the first item. `prompt_progress` is called by polls.
    ///
    /// # Errors
    /// [`InvalidState`](Status::InvalidState) if the last call that returned at once has not ended.
    pub fn begin_async(
        &mut self,
        tokens: &[Token],
        params: &GenerationParams<'static>,
    ) -> Result<Generation<'_>> {
        let (raw, data, count) = (self.as_raw(), tokens.as_ptr(), tokens.len());
        self.send("context_begin_async", params, |params| {
            // SAFETY: there are that many tokens, and the struct lives until the call returns.
            unsafe { sys::cow_mlx_context_begin_async(raw, data, count, params) }
        })?;
        Ok(self.resume())
    }

    /// As [`chat`](Self::chat), without waiting: [`next_event`](Self::next_event) takes the
    /// events.
    ///
    /// # Errors
    /// [`InvalidState`](Status::InvalidState) if the last call that returned at once has not ended.
    pub fn chat_async(
        &mut self,
        messages: &str,
        options: Option<&str>,
        params: &GenerationParams<'static>,
    ) -> Result<()> {
        let options =
            options.map(|text| c_text("context_chat_async: options", text)).transpose()?;
        let options = options.as_deref().map_or(null(), CStr::as_ptr);
        let (raw, data, length) = (self.as_raw(), messages.as_ptr().cast(), messages.len());
        self.send("context_chat_async", params, |params| {
            // SAFETY: texts and struct live until the call returns.
            unsafe { sys::cow_mlx_context_chat_async(raw, data, length, params, options) }
        })
    }

    /// Take the next event of a [`chat_async`](Self::chat_async); waits for it if need be. The
    /// last one is [`Event::End`], which comes again if asked for.
    ///
    /// # Errors
    /// What went wrong with the chat, until the next one begins.
    pub fn next_event(&mut self) -> Result<Event<'static>> {
        loop {
            // SAFETY: all zeros is a value of it.
            let mut event: sys::cow_mlx_event = unsafe { std::mem::zeroed() };
            event.struct_size = size_of::<sys::cow_mlx_event>();
            // SAFETY: the struct has the size that it says.
            let status = unsafe { sys::cow_mlx_context_next_event(self.as_raw(), &mut event) };
            let done = status == sys::COW_MLX_DONE;
            check(if done { sys::COW_MLX_OK } else { status })?;
            if done {
                return Ok(Event::End(
                    Finish::from_code(event.finish).unwrap_or(Finish::Other(event.finish)),
                ));
            }
            // SAFETY: the texts live until this thread takes the next event of any context.
            let (text, name) = unsafe {
                let name = CStr::from_ptr(event.name).to_string_lossy();
                (callback::text_of(event.text, event.length), name)
            };
            if let Some(event) = Event::new(event.kind, text, name, event.finish) {
                return Ok(event.into_owned());
            } // others are of a newer library
        }
    }

    /// Make a call that returns at once, and keep what it still uses.
    fn send(
        &mut self,
        operation: &str,
        params: &GenerationParams<'static>,
        call: impl FnOnce(*const sys::cow_mlx_generation_params) -> sys::cow_mlx_status,
    ) -> Result<()> {
        let later = Box::new(params.heard());
        let status = params.with_heard(operation, &raw const *later, call)?;
        if status == sys::COW_MLX_OK {
            self.later = Some(later); // the earlier ones are no longer called
        }
        check(status) // which continues the panic of a log, if there was one
    }
}

/// A model that is being loaded: [`Model::load_async`]. Dropping it cancels.
#[derive(Debug)]
#[must_use]
pub struct Loading<'r> {
    model: Model<'r>,
    _progress: Option<Later<LoadProgress<'static>>>,
}

impl<'r> Model<'r> {
    /// As [`load_with`](Self::load_with), without waiting. `progress` is called by the polls.
    ///
    /// # Errors
    /// [`OutOfMemory`](Status::OutOfMemory), and a path that has a NUL byte; the polls
    /// return all other errors.
    pub fn load_async(
        runtime: impl Into<Owner<'r, Runtime>>,
        path: impl AsRef<Path>,
        params: &ModelParams<'static>,
    ) -> Result<Loading<'r>> {
        let path = c_path("model_load_async: path", path.as_ref())?;
        let later = params.closure().map(Later::new);
        let mut raw = 0;
        let status =
            params.with_raw("model_load_async", later.as_ref().map(Later::as_ptr), |params| {
                // SAFETY: the texts live until the call returns, and the closure as long as the load.
                unsafe { sys::cow_mlx_model_load_async(path.as_ptr(), params, &mut raw) }
            })?;
        let model = Model::opened(status, raw, runtime.into())?;
        Ok(Loading { model, _progress: later })
    }
}

impl<'r> Loading<'r> {
    /// Whether the model is there, after so long a time at most; `None`: as long as it takes.
    ///
    /// # Errors
    /// Why it cannot be loaded: as of [`Model::load`].
    pub fn poll(&self, timeout: Option<Duration>) -> Result<bool> {
        let raw = self.model.as_raw();
        // SAFETY: takes a handle.
        match check(unsafe { sys::cow_mlx_model_poll(raw, milliseconds(timeout)) }) {
            Ok(()) => Ok(true),
            Err(error) if error.status() == Status::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A file descriptor that is readable once [`poll`](Self::poll) has news. Only
    /// wait for it.
    ///
    /// # Errors
    /// [`Io`](Status::Io) if the process has too many open files.
    pub fn wake_fd(&self) -> Result<BorrowedFd<'_>> {
        let mut descriptor = -1;
        // SAFETY: writes a number.
        check(unsafe { sys::cow_mlx_model_wake_fd(self.model.as_raw(), &mut descriptor) })?;
        // SAFETY: it stays open until the model is freed, which the borrow precludes.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// The model; waits for it if need be.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn model(self) -> Result<Model<'r>> {
        self.poll(None)?;
        Ok(self.model)
    }
}
