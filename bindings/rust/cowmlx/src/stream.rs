//! Generations as asynchronous streams, for any executor.
//!
//! A helper thread per stream makes the calls, which block, and wakes the task for each item. A
//! file descriptor and a reactor would save the thread while tokens come, but not while the prompt
//! is processed, and would tie the crate to the executors that have that reactor. The thread holds
//! the context's handle, a number, and nothing that is borrowed, so a stream that is forgotten
//! instead of dropped is harmless.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};

use futures_core::stream::{FusedStream, Stream};

use crate::callback;
use crate::chat::{self, Event};
use crate::context::CancelHandle;
use crate::context::Context;
use crate::error::{Error, Result, Status};
use crate::generation::{self, Piece, Pieces};
use crate::model::Token;
use crate::params::GenerationParams;
use crate::records::{Finish, Stats};

impl Context<'_> {
    /// As [`begin`](Self::begin), as a stream: the prompt is processed behind it too. An error of
    /// begin is the first item.
    pub fn stream(
        &mut self,
        tokens: impl AsRef<[Token]>,
        params: &GenerationParams<'static>,
    ) -> PieceStream<'_> {
        let (raw, tokens, params) = (self.as_raw(), tokens.as_ref().to_vec(), params.clone());
        let worker = Worker::spawn(self.cancel_handle(), move |shared| {
            if let Err(error) = generation::begin(raw, &tokens, &watched(params, shared)) {
                shared.send(Err(error));
                return None;
            }
            let mut pieces = Pieces::new(raw);
            while let Some(piece) = pieces.next() {
                if !shared.send(piece) {
                    break;
                }
            }
            pieces.finish()
        });
        PieceStream { worker, exclusive: PhantomData }
    }

    /// As [`chat`](Self::chat), as a stream. An error is the last item.
    pub fn chat_stream(
        &mut self,
        messages: impl Into<String>,
        options: Option<String>,
        params: &GenerationParams<'static>,
    ) -> EventStream<'_> {
        let (raw, messages, params) = (self.as_raw(), messages.into(), params.clone());
        let worker = Worker::spawn(self.cancel_handle(), move |shared| {
            let params = watched(params, shared);
            let deliver = |event: Event<'_>| shared.send(Ok(event.into_owned()));
            match chat::chat(raw, &messages, options.as_deref(), &params, deliver) {
                Ok(stats) => Some(stats),
                Err(error) => {
                    shared.send(Err(error));
                    None
                }
            }
        });
        EventStream { worker, exclusive: PhantomData }
    }
}

/// A generation as a stream of its pieces.
///
/// It borrows its context. The next piece is computed ahead. Dropping it cancels the generation,
/// and waits until that is so: one step or prompt chunk.
#[derive(Debug)]
#[must_use]
pub struct PieceStream<'c> {
    worker: Worker<Piece, Finish>,
    exclusive: PhantomData<&'c mut ()>,
}

impl PieceStream<'_> {
    /// Why the generation ended, once the stream has.
    pub fn finish(&self) -> Option<Finish> {
        self.worker.result
    }

    /// What ends the generation from elsewhere; the stream ends then.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.worker.cancel
    }
}

/// A chat as a stream of its events.
///
/// It borrows its context. Dropping it cancels the chat, and waits until that is so: one step or
/// prompt chunk.
#[derive(Debug)]
#[must_use]
pub struct EventStream<'c> {
    worker: Worker<Event<'static>, Stats>,
    exclusive: PhantomData<&'c mut ()>,
}

impl EventStream<'_> {
    /// Sizes and times, once the stream has ended well.
    pub fn stats(&self) -> Option<Stats> {
        self.worker.result
    }

    /// What ends the chat from elsewhere; the stream ends with an error then.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.worker.cancel
    }
}

macro_rules! streams {
    ($($name:ident: $item:ty,)*) => {
        $(
            impl $name<'_> {
                /// The next item; `None` at the end. As `next` of crates that extend streams has it,
                /// for hosts that use none of them.
                pub async fn next(&mut self) -> Option<Result<$item>> {
                    poll_fn(|task| Pin::new(&mut *self).poll_next(task)).await
                }
            }

            impl Stream for $name<'_> {
                type Item = Result<$item>;

                fn poll_next(
                    mut self: Pin<&mut Self>,
                    context: &mut std::task::Context<'_>,
                ) -> Poll<Option<Self::Item>> {
                    self.worker.poll_next(context.waker())
                }
            }

            impl FusedStream for $name<'_> {
                fn is_terminated(&self) -> bool {
                    self.worker.ended
                }
            }
        )*
    };
}

streams! {
    PieceStream: Piece,
    EventStream: Event<'static>,
}

/// A thread that makes items, one ahead of its host, and has a result at the end.
struct Worker<T, R> {
    shared: Arc<Shared<T, R>>,
    cancel: CancelHandle,
    thread: Option<JoinHandle<()>>,
    ended: bool,
    result: Option<R>,
}

struct Shared<T, R> {
    state: Mutex<State<T, R>>,
    taken: Condvar,
}

struct State<T, R> {
    /// Items that were not taken yet.
    item: Option<Result<T>>,
    /// Of the whole work, or its panic.
    outcome: Option<thread::Result<Option<R>>>,
    /// Of the task that waits for either.
    waker: Option<Waker>,
    /// Whether the receiver is gone.
    closed: bool,
}

impl<T, R> Drop for State<T, R> {
    fn drop(&mut self) {
        if let Some(Err(panic)) = self.outcome.take() {
            callback::discard(panic);
        }
    }
}

impl<T: Send + 'static, R: Send + 'static> Worker<T, R> {
    fn spawn(
        cancel: CancelHandle,
        work: impl FnOnce(&Arc<Shared<T, R>>) -> Option<R> + Send + 'static,
    ) -> Self {
        let state = State { item: None, outcome: None, waker: None, closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), taken: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let body = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&of_thread)));
            of_thread.change(|state| state.outcome = Some(outcome));
        };
        let thread = thread::Builder::new().name("cowmlx-stream".into()).spawn(body);
        if let Err(error) = &thread {
            let message = format!("stream: no thread can be started: {error}");
            let mut state = shared.lock();
            state.item = Some(Err(Error::new(Status::OutOfMemory, "no_threads", message)));
            state.outcome = Some(Ok(None));
        }
        Self { shared, cancel, thread: thread.ok(), ended: false, result: None }
    }
}

impl<T, R> Worker<T, R> {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<T>>> {
        let mut state = self.shared.lock();
        if let Some(item) = state.item.take() {
            self.shared.taken.notify_one();
            return Poll::Ready(Some(item));
        }
        if let Some(outcome) = state.outcome.take() {
            drop(state);
            self.ended = true;
            self.result = outcome.unwrap_or_else(|panic| resume_unwind(panic));
        } else if !self.ended {
            state.waker = Some(waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(None)
    }
}

impl<T, R> Drop for Worker<T, R> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.taken.notify_one();
        let Some(thread) = self.thread.take().filter(|thread| !thread.is_finished()) else {
            return;
        };
        if !self.ended {
            // A call that has not begun yet sees that the receiver is gone.
            let _ = self.cancel.cancel();
        }
        // An executor may run its task where it is woken, which is that thread.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl<T, R> fmt::Debug for Worker<T, R> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Worker").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

impl<T, R> Shared<T, R> {
    fn lock(&self) -> MutexGuard<'_, State<T, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change the state, and wake the task.
    fn change(&self, change: impl FnOnce(&mut State<T, R>)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state); // the task may run within `wake`
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Give an item, and wait until it is taken; `false` if the receiver is gone.
    fn send(&self, item: Result<T>) -> bool {
        if self.lock().closed {
            return false;
        }
        self.change(|state| state.item = Some(item));
        let waiting = |state: &mut State<T, R>| state.item.is_some() && !state.closed;
        let state = self.taken.wait_while(self.lock(), waiting);
        !state.unwrap_or_else(PoisonError::into_inner).closed
    }
}

/// The parameters, with a prompt that is cancelled once the receiver is gone: a
/// cancellation that comes before the call would be missed.
fn watched<T: Send + 'static, R: Send + 'static>(
    params: GenerationParams<'static>,
    shared: &Arc<Shared<T, R>>,
) -> GenerationParams<'static> {
    let shared = Arc::clone(shared);
    let progress = params.heard().progress;
    params.prompt_progress(move |processed, total| {
        let goes_on = progress.as_ref().is_none_or(|progress| progress(processed, total));
        goes_on && !shared.lock().closed
    })
}
