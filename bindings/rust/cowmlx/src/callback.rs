//! Closures as C callbacks. They run on the thread of the call, while it waits.
//!
//! A panic must not unwind through C: it is caught here, the callback returns `false`, which
//! cancels the call, and [`crate::error::check`] continues the panic once the call has returned.
//! A program that aborts on panics ends before that.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::{fmt, slice};

use crate::chat::Event;
use crate::model::Token;
use crate::sys;

/// What a panic carries.
type Payload = Box<dyn Any + Send>;

thread_local! {
    /// Of the call that this thread is in: its first panic.
    static PANIC: Cell<Option<Payload>> = const { Cell::new(None) };
}

/// Run a callback's body; `false` if it panics.
pub(crate) fn guard(body: impl FnOnce() -> bool) -> bool {
    let earlier = take_panic(); // nothing to calls that the body makes
    let (goes_on, panic) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(goes_on) => (goes_on, None),
        Err(panic) => (false, Some(panic)),
    };
    let mut panics = earlier.into_iter().chain(panic);
    let mut first = panics.next();
    // A thread that is about to end keeps nothing any more.
    let _ = PANIC.try_with(|kept| kept.set(first.take()));
    first.into_iter().chain(panics).for_each(discard);
    goes_on
}

fn take_panic() -> Option<Payload> {
    PANIC.try_with(Cell::take).ok().flatten()
}

/// Continue the panic of a callback, if there was one.
pub(crate) fn resume_panic() {
    if let Some(panic) = take_panic() {
        resume_unwind(panic);
    }
}

/// Drop the panic of a callback, where a call is made that must not panic.
pub(crate) fn forget_panic() {
    take_panic().into_iter().for_each(discard);
}

/// Drop a panic without a receiver. Dropping it may panic in turn.
pub(crate) fn discard(panic: Payload) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(another);
    }
}

/// Text of the library: whole UTF-8 characters.
///
/// # Safety
/// `text` points to `length` bytes.
pub(crate) unsafe fn text_of<'a>(text: *const c_char, length: usize) -> std::borrow::Cow<'a, str> {
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

/// What `logits_fn` is: all tokens of the context, and the logits behind them, to be changed.
pub(crate) type LogitsFn<'a> = dyn Fn(&[Token], &mut [f32]) -> bool + Send + Sync + 'a;

/// The closures of a generation's parameters.
#[derive(Clone)]
pub(crate) struct Heard<'a> {
    pub(crate) progress: Option<Arc<PromptProgress<'a>>>,
    pub(crate) logits: Option<Arc<LogitsFn<'a>>>,
}

impl fmt::Debug for Heard<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Heard").finish_non_exhaustive()
    }
}

/// # Safety
/// `heard` is a `*const Heard`, and the arrays have the lengths given.
pub(crate) unsafe extern "C" fn on_logits(
    tokens: *const i32,
    count: usize,
    logits: *mut f32,
    vocabulary: usize,
    heard: *mut c_void,
) -> bool {
    // SAFETY: the caller's.
    guard(|| unsafe {
        let tokens = slice::from_raw_parts(tokens, count);
        let logits = slice::from_raw_parts_mut(logits, vocabulary);
        let heard = &*heard.cast_const().cast::<Heard<'_>>();
        heard.logits.as_ref().is_none_or(|change| change(tokens, logits))
    })
}

/// # Safety
/// `heard` is a `*const Heard`.
pub(crate) unsafe extern "C" fn on_prompt(
    processed: usize,
    total: usize,
    heard: *mut c_void,
) -> bool {
    // SAFETY: the caller's.
    guard(|| unsafe {
        let heard = &*heard.cast_const().cast::<Heard<'_>>();
        heard.progress.as_ref().is_none_or(|progress| progress(processed, total))
    })
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

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// A payload that panics where it is dropped, as do so many that come of it.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                panic_any(Bomb(self.0 - 1));
            }
        }
    }

    fn explodes() -> bool {
        panic_any(Bomb(2))
    }

    fn kept() -> Option<&'static str> {
        take_panic().map(|panic| *panic.downcast().expect("a text"))
    }

    #[test]
    fn a_later_callback_s_calls_have_nothing_to_do_with_a_panic() {
        assert!(!guard(|| panic_any("first")));
        assert!(guard(|| {
            resume_panic();
            forget_panic();
            true
        }));
        assert_eq!(kept(), Some("first"));
    }

    #[test]
    fn the_first_panic_is_kept() {
        assert!(!guard(|| panic_any("first")));
        assert!(!guard(|| panic_any("second")));
        assert_eq!(kept(), Some("first"));
        assert_eq!(kept(), None);
    }

    #[test]
    fn what_is_not_heard_may_panic_where_it_is_dropped() {
        assert!(!guard(|| panic_any("first")));
        assert!(!guard(explodes));
        assert_eq!(kept(), Some("first"));
        assert!(!guard(explodes));
        forget_panic();
        assert_eq!(kept(), None);
    }

    #[test]
    fn a_thread_that_ends_keeps_no_panic() {
        struct AtTheEnd;
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                assert!(!guard(|| panic_any("dropped")));
                assert!(!guard(explodes));
            }
        }
        thread_local! {
            static LAST: AtTheEnd = const { AtTheEnd };
        }
        std::thread::spawn(|| {
            LAST.with(|_| ()); // registered first, dropped last
            forget_panic();
        })
        .join()
        .expect("it ends well");
    }
}
