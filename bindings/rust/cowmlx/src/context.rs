//! Contexts: sequences of tokens with their caches.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::array::Array;
use crate::chat::{self, Event};
use crate::error::{Result, Status, check, check_cancel, opened};
use crate::generation::{self, Generation, TokenLogprob};
use crate::later::{LaterHeard, milliseconds};
use crate::model::{Model, Token};
use crate::owner::Owner;
use crate::params::{ContextParams, GenerationParams};
use crate::records::Stats;
use crate::runtime::Runtime;
use crate::{Adapter, callback, sys};

/// A context: one sequence of tokens and its cache.
///
/// It may be sent to another thread, but takes one call at a time, so it cannot be shared between
/// threads; its [`CancelHandle`] can. The model is borrowed or shared, see [`Owner`].
#[derive(Debug)]
pub struct Context<'m> {
    raw: sys::cow_mlx_context,
    model: Owner<'m, Model<'m>>,
    /// Kept for the last call that returned at once.
    pub(crate) later: Option<LaterHeard>,
    one_call_at_a_time: PhantomData<Cell<()>>,
}

impl<'m> Context<'m> {
    /// Open a context that holds nothing.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_create`.
    pub fn new(model: impl Into<Owner<'m, Model<'m>>>) -> Result<Self> {
        Self::with_params(model, &ContextParams::new())
    }

    /// Open a context that holds nothing, with parameters.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_create`.
    pub fn with_params(
        model: impl Into<Owner<'m, Model<'m>>>,
        params: &ContextParams,
    ) -> Result<Self> {
        let model = model.into();
        let mut raw = 0;
        // SAFETY: the struct lives until the call returns.
        let status = params.lowered(
            "context_create",
            |_| (),
            |params| unsafe { sys::cow_mlx_context_create(model.as_raw(), params, &mut raw) },
        )?;
        opened(status, || Self { raw, model, later: None, one_call_at_a_time: PhantomData })
    }

    /// The handle, for calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_context {
        self.raw
    }

    /// The model that the context is one of.
    pub fn model(&self) -> &Model<'m> {
        &self.model
    }

    /// What ends a call on this context from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::new(self.raw)
    }

    /// Open a context that holds what this one holds: tokens, state, parameters and adapter. The
    /// arrays are shared until either writes to them. A generation under way is not forked.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_fork`.
    pub fn fork(&self) -> Result<Self> {
        let mut raw = 0;
        // SAFETY: writes a handle.
        let status = unsafe { sys::cow_mlx_context_fork(self.raw, &mut raw) };
        let model = self.model.clone();
        opened(status, || Self { raw, model, later: None, one_call_at_a_time: PhantomData })
    }

    /// Keep what the context holds, to come back to it: exact for every kind of cache.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_fork`.
    pub fn checkpoint(&self) -> Result<Checkpoint<'m>> {
        let mut raw = 0;
        // SAFETY: writes a handle.
        let status = unsafe { sys::cow_mlx_context_checkpoint(self.raw, &mut raw) };
        opened(status, || Checkpoint { raw, _model: self.model.clone() })
    }

    /// Hold again what the context held at a checkpoint, as often as you like. A generation under
    /// way ends.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) if the checkpoint is another context's.
    pub fn rewind(&mut self, checkpoint: &Checkpoint<'_>) -> Result<()> {
        // SAFETY: takes handles.
        check(unsafe { sys::cow_mlx_context_rewind(self.raw, checkpoint.raw) })
    }

    /// Save what the context holds to an array of bytes.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_save_array`.
    pub fn save_array<'r>(&self, runtime: impl Into<Owner<'r, Runtime>>) -> Result<Array<'r>> {
        let mut raw = 0;
        // SAFETY: takes any handle.
        let status = unsafe { sys::cow_mlx_context_save_array(self.raw, &mut raw) };
        opened(status, || Array::open(raw, runtime.into()))
    }

    /// Load what a context has saved to an array of bytes.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_load_array`.
    pub fn load_array(&mut self, array: &Array<'_>) -> Result<()> {
        // SAFETY: takes handles.
        check(unsafe { sys::cow_mlx_context_load_array(self.raw, array.as_raw()) })
    }

    /// Use an adapter of the context's model from now on, or none. A change makes the context
    /// forget its tokens.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) if the adapter is another model's.
    pub fn set_adapter(&mut self, adapter: Option<&Adapter<'_>>) -> Result<()> {
        let adapter = adapter.map_or(0, Adapter::as_raw);
        // SAFETY: takes handles.
        check(unsafe { sys::cow_mlx_context_set_adapter(self.raw, adapter) })
    }

    /// Process a prompt, and be ready to generate: the [`Generation`] gives the pieces.
    ///
    /// `tokens` is the whole sequence so far, not only the new part: the longest common prefix of
    /// it and of what the cache holds is kept.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_begin`.
    pub fn begin(
        &mut self,
        tokens: &[Token],
        params: &GenerationParams<'_>,
    ) -> Result<Generation<'_>> {
        generation::begin(self.raw, tokens, params)?;
        Ok(Generation::new(self))
    }

    /// Process a prompt with rows of embeddings, floats of [rows, width], in the places of tokens
    /// of -1, and be ready to generate.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_context_begin_embeddings`.
    pub fn begin_embeddings(
        &mut self,
        tokens: &[Token],
        embeddings: &Array<'_>,
        params: &GenerationParams<'_>,
    ) -> Result<Generation<'_>> {
        generation::begin_embeddings(self.raw, tokens, embeddings.as_raw(), params)?;
        Ok(Generation::new(self))
    }

    /// Continue the generation that the last [`begin`](Self::begin) began, where its
    /// [`Generation`] has been dropped. So an event loop can keep a context, and look for pieces
    /// when [`poll`](Self::poll) or [`wake_fd`](Self::wake_fd) says that there are some.
    pub fn resume(&mut self) -> Generation<'_> {
        Generation::new(self)
    }

    /// Begin and generate to the end in one call. `on_text` receives the text as it comes, on
    /// this thread; `false` cancels.
    ///
    /// # Errors
    /// [`Canceled`](Status::Canceled) and [`TimedOut`](Status::TimedOut) leave the context with
    /// the tokens that were processed; otherwise as the manual says of
    /// `cow_mlx_context_generate`.
    ///
    /// # Panics
    /// If a closure does: the call is cancelled, and the panic goes on.
    pub fn generate(
        &mut self,
        tokens: &[Token],
        params: &GenerationParams<'_>,
        on_text: impl FnMut(&str) -> bool,
    ) -> Result<Stats> {
        generation::generate(self.raw, tokens, params, on_text)
    }

    /// Answer a conversation: render it, process its new part, generate, and report events.
    ///
    /// Takes what [`Model::chat_prompt`] takes. `on_event` receives the events, on this thread;
    /// `false` cancels. The last one is [`Event::End`], if the call succeeds.
    ///
    /// # Errors
    /// As [`Model::chat_prompt`] and [`generate`](Self::generate).
    ///
    /// # Panics
    /// If a closure does: the call is cancelled, and the panic goes on.
    pub fn chat(
        &mut self,
        messages: &str,
        options: Option<&str>,
        params: &GenerationParams<'_>,
        on_event: impl FnMut(Event<'_>) -> bool,
    ) -> Result<Stats> {
        chat::chat(self.raw, messages, options, params, on_event)
    }

    /// Wait until the generation's next piece would come without blocking, or none will; `false`
    /// if that is not so within the timeout. `None`: as long as it takes.
    ///
    /// The piece is computed meanwhile, so one thread can look after many contexts.
    ///
    /// # Errors
    /// [`InvalidState`](Status::InvalidState) if nothing has begun.
    pub fn poll(&self, timeout: Option<Duration>) -> Result<bool> {
        // SAFETY: takes a handle.
        match check(unsafe { sys::cow_mlx_context_poll(self.raw, milliseconds(timeout)) }) {
            Ok(()) => Ok(true),
            Err(error) if error.status() == Status::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A file descriptor that is readable while the generation's next piece would come without
    /// blocking, for the event loop of an application.
    ///
    /// From then on a piece is always computed ahead. It is closed with the context: only wait
    /// for it, do not read it.
    ///
    /// # Errors
    /// [`Io`](Status::Io) if the process has too many open files.
    pub fn wake_fd(&self) -> Result<BorrowedFd<'_>> {
        let mut descriptor = -1;
        // SAFETY: writes a number.
        check(unsafe { sys::cow_mlx_context_wake_fd(self.raw, &mut descriptor) })?;
        // SAFETY: it stays open until the context is freed, which the borrow precludes.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// The most probable tokens where the last piece was chosen, the most probable first.
    ///
    /// # Errors
    /// [`InvalidState`](Status::InvalidState) if no piece has come, or its generation has no
    /// logprobs.
    pub fn logprobs(&self) -> Result<Vec<TokenLogprob>> {
        generation::logprobs(self.raw)
    }

    /// The log probability of each token given those before it, behind those that the context
    /// holds: a row of the token itself and of the `top` most probable ones. Behind an empty context
    /// the first token has none: NaN.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) for no tokens, or one outside the vocabulary.
    pub fn prompt_logprobs(&self, tokens: &[Token], top: usize) -> Result<Vec<Vec<TokenLogprob>>> {
        generation::prompt_logprobs(self.raw, tokens, top)
    }

    /// Sizes and times of the last generation, so far.
    ///
    /// # Errors
    /// [`InvalidState`](Status::InvalidState) if nothing has begun.
    pub fn stats(&self) -> Result<Stats> {
        let mut stats = Stats::raw();
        // SAFETY: the struct has the size that it says.
        check(unsafe { sys::cow_mlx_context_stats(self.raw, &mut stats) })?;
        Ok(Stats::from_raw(&stats))
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's, and is freed once.
        unsafe { sys::cow_mlx_context_free(self.raw) };
        callback::forget_panic();
    }
}

/// What a context held at one moment. It is of no use without that context.
#[derive(Debug)]
pub struct Checkpoint<'m> {
    raw: sys::cow_mlx_checkpoint,
    _model: Owner<'m, Model<'m>>,
}

impl Checkpoint<'_> {
    /// The handle, for calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_checkpoint {
        self.raw
    }
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's; if it was freed with its context, it means nothing.
        unsafe { sys::cow_mlx_checkpoint_free(self.raw) };
        callback::forget_panic();
    }
}

/// Ends what a context is doing, from any thread and at any time.
///
/// It borrows nothing: once the context is gone, it says
/// [`InvalidHandle`](crate::Status::InvalidHandle), and never means another context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CancelHandle {
    raw: sys::cow_mlx_context,
}

impl CancelHandle {
    pub(crate) fn new(raw: sys::cow_mlx_context) -> Self {
        Self { raw }
    }

    /// End what the context is doing, within one step or prompt chunk. Never blocks.
    ///
    /// What runs returns [`Canceled`](crate::Status::Canceled); a
    /// [`Generation`](crate::Generation) ends with
    /// [`Finish::Canceled`](crate::Finish::Canceled). A context that does nothing is left as it
    /// is. The context stays usable.
    ///
    /// # Errors
    /// [`InvalidHandle`](crate::Status::InvalidHandle) if the context has been dropped.
    pub fn cancel(&self) -> Result<()> {
        // SAFETY: takes any value, from any thread.
        check_cancel(unsafe { sys::cow_mlx_context_cancel(self.raw) }, "context")
    }
}
