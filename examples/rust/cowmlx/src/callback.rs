//! Closures as C callbacks. They run on the thread of the call, while it waits.
//!
//! A panic must not unwind through C: it is caught here, the callback returns `false`, which
//! cancels the call, and [`crate::error::check`] goes on with the panic once the call has returned.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;

use crate::chat::Event;
use crate::sys;

thread_local! {
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) };
}

/// Run a callback's body; `false` if it panics.
pub(crate) fn guard(body: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        PANIC.with_borrow_mut(|panic| _ = panic.get_or_insert(payload));
        false
    })
}

/// Go on with the panic of a callback, if there was one.
pub(crate) fn resume_panic() {
    if let Some(payload) = forget_panic() {
        resume_unwind(payload);
    }
}

/// Take the panic of a callback, where a call is made that must not panic.
pub(crate) fn forget_panic() -> Option<Box<dyn Any + Send>> {
    PANIC.try_with(|panic| panic.borrow_mut().take()).ok().flatten()
}

/// Text of the library: whole UTF-8 characters.
///
/// # Safety
/// `text` points to `length` bytes.
unsafe fn text_of<'a>(text: *const c_char, length: usize) -> std::borrow::Cow<'a, str> {
    // SAFETY: the caller's.
    String::from_utf8_lossy(unsafe { slice::from_raw_parts(text.cast(), length) })
}

/// # Safety
/// `closure` is a `*mut F`, and nothing else uses it.
pub(crate) unsafe extern "C" fn on_text<F: FnMut(&str) -> bool>(
    text: *const c_char,
    length: usize,
    closure: *mut c_void,
) -> bool {
    // SAFETY: the caller's, and the header's.
    guard(|| unsafe { (*closure.cast::<F>())(&text_of(text, length)) })
}

/// # Safety
/// `closure` is a `*mut F`, and nothing else uses it.
pub(crate) unsafe extern "C" fn on_event<F: FnMut(Event<'_>) -> bool>(
    event: *const sys::cow_mlx_event,
    closure: *mut c_void,
) -> bool {
    // SAFETY: the caller's, and the header's.
    guard(|| unsafe {
        let event = &*event;
        let name = CStr::from_ptr(event.name).to_string_lossy();
        match Event::new(event.kind, text_of(event.text, event.length), name, event.finish) {
            Some(event) => (*closure.cast::<F>())(event),
            None => true, // of a newer library
        }
    })
}

/// What `prompt_progress` is: tokens processed, and all of them.
pub(crate) type PromptProgress<'a> = dyn Fn(usize, usize) -> bool + Send + Sync + 'a;

/// # Safety
/// `closure` is a `*const &PromptProgress`.
pub(crate) unsafe extern "C" fn on_prompt(
    processed: usize,
    total: usize,
    closure: *mut c_void,
) -> bool {
    // SAFETY: the caller's.
    guard(|| unsafe { (*closure.cast_const().cast::<&PromptProgress<'_>>())(processed, total) })
}

/// What a model's `progress` is: a fraction from 0 to 1, and what is being done.
pub(crate) type LoadProgress<'a> = dyn Fn(f32, &str) -> bool + Send + Sync + 'a;

/// # Safety
/// `closure` is a `*const &LoadProgress`.
pub(crate) unsafe extern "C" fn on_load(
    fraction: f32,
    stage: *const c_char,
    closure: *mut c_void,
) -> bool {
    // SAFETY: the caller's, and the header's.
    guard(|| unsafe {
        let stage = CStr::from_ptr(stage).to_string_lossy();
        (*closure.cast_const().cast::<&LoadProgress<'_>>())(fraction, &stage)
    })
}
