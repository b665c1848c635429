//! One generation: an iterator of pieces.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::context::Context;
use crate::error::{Result, check};
use crate::model::Token;
use crate::params::GenerationParams;
use crate::records::{Finish, Stats};
use crate::{callback, sys, transfer};

/// A token, and the natural logarithm of its probability under the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token's id.
    pub token: Token,
    /// Before penalties, filters and temperature.
    pub logprob: f32,
}

/// Process a prompt, and be ready to generate.
pub(crate) fn begin(
    context: sys::cow_mlx_context,
    tokens: &[Token],
    params: &GenerationParams<'_>,
) -> Result<()> {
    params.refuse_logits("context_begin")?;
    let (data, count) = (tokens.as_ptr(), tokens.len());
    // SAFETY: there are that many tokens, and the struct lives until the call returns.
    let begin = |raw| unsafe { sys::cow_mlx_context_begin(context, data, count, raw) };
    check(params.with_raw("context_begin", begin)?)
}

/// Process a prompt with rows of embeddings.
pub(crate) fn begin_embeddings(
    context: sys::cow_mlx_context,
    tokens: &[Token],
    rows: sys::cow_mlx_array,
    params: &GenerationParams<'_>,
) -> Result<()> {
    params.refuse_logits("context_begin_embeddings")?;
    let (data, count) = (tokens.as_ptr(), tokens.len());
    // SAFETY: there are that many tokens, and the struct lives until the call returns.
    let begin =
        |raw| unsafe { sys::cow_mlx_context_begin_embeddings(context, data, count, rows, raw) };
    check(params.with_raw("context_begin_embeddings", begin)?)
}

/// Begin and generate to the end.
pub(crate) fn generate<F: FnMut(&str) -> bool>(
    context: sys::cow_mlx_context,
    tokens: &[Token],
    params: &GenerationParams<'_>,
    mut on_text: F,
) -> Result<Stats> {
    let (data, count) = (tokens.as_ptr(), tokens.len());
    let closure = (&raw mut on_text).cast();
    let mut stats = Stats::raw();
    // SAFETY: tokens, struct and closure live until the call returns.
    let generate = |raw| unsafe {
        let on_text = Some(callback::on_text::<F> as _);
        let stats = &mut stats;
        sys::cow_mlx_context_generate(context, data, count, raw, on_text, closure, stats)
    };
    check(params.with_raw("context_generate", generate)?)?;
    Ok(Stats::from_raw(&stats))
}

/// The most probable tokens where a context's last piece was chosen.
pub(crate) fn logprobs(context: sys::cow_mlx_context) -> Result<Vec<TokenLogprob>> {
    let mut values = Vec::new();
    let tokens = transfer::vector(16, |tokens, capacity, count| {
        values.resize(capacity, 0.0);
        let logprobs = values.as_mut_ptr();
        // SAFETY: both buffers have that capacity.
        unsafe { sys::cow_mlx_context_logprobs(context, tokens, logprobs, capacity, count) }
    })?;
    let pairs = tokens.into_iter().zip(values);
    Ok(pairs.map(|(token, logprob)| TokenLogprob { token, logprob }).collect())
}

/// The log probabilities of tokens behind those of a context.
pub(crate) fn prompt_logprobs(
    context: sys::cow_mlx_context,
    prompt: &[Token],
    top: usize,
) -> Result<Vec<Vec<TokenLogprob>>> {
    let top = i32::try_from(top).unwrap_or(i32::MAX);
    let (data, count) = (prompt.as_ptr(), prompt.len());
    let mut values = Vec::new();
    let tokens = transfer::vector(0, |tokens, capacity, length| {
        values.resize(capacity, 0.0);
        let logprobs = if capacity == 0 { std::ptr::null_mut() } else { values.as_mut_ptr() };
        // SAFETY: both buffers have that capacity; the prompt lives until the call returns.
        unsafe {
            sys::cow_mlx_context_prompt_logprobs(
                context, data, count, top, tokens, logprobs, capacity, length,
            )
        }
    })?;
    let width = tokens.len() / prompt.len().max(1);
    let pairs: Vec<_> = tokens
        .into_iter()
        .zip(values)
        .map(|(token, logprob)| TokenLogprob { token, logprob })
        .collect();
    Ok(pairs.chunks(width.max(1)).map(<[_]>::to_vec).collect())
}

/// One generated token. It displays as its text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Piece {
    /// Whole characters; empty where the token is a part of one, or may begin a stop text.
    pub text: String,
    /// The token's id.
    pub token: Token,
    /// Its log probability, if [`logprobs`](crate::GenerationParams::logprobs) were asked for.
    pub logprob: Option<f32>,
    /// The most probable tokens in its place, the most probable first, if they were asked for.
    pub alternatives: Vec<TokenLogprob>,
    /// Why the generation ends with it, if that is known already. An end token without text is no
    /// piece: [`Generation::finish`] has the reason in any case.
    pub finish: Option<Finish>,
}

impl fmt::Display for Piece {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

/// Takes the pieces of the generation that has begun on a context, one after the other.
#[derive(Debug)]
pub(crate) struct Pieces {
    context: sys::cow_mlx_context,
    text: Vec<u8>,
    ended: bool,
    finish: Option<Finish>,
    last_token: Option<Token>,
}

impl Pieces {
    pub(crate) fn new(context: sys::cow_mlx_context) -> Self {
        Self { context, text: vec![0; 256], ended: false, finish: None, last_token: None }
    }

    /// Why the generation ended, if it has.
    pub(crate) fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// The next piece; `None` behind the last one, and behind an error.
    pub(crate) fn next(&mut self) -> Option<Result<Piece>> {
        if self.ended {
            return None;
        }
        let next = self.take();
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }

    fn take(&mut self) -> Result<Option<Piece>> {
        let struct_size = size_of::<sys::cow_mlx_piece>();
        let mut piece = sys::cow_mlx_piece { struct_size, token: -1, logprob: 0.0, finish: 0 };
        let mut length = 0;
        let status = loop {
            let (text, capacity) = (self.text.as_mut_ptr().cast(), self.text.len());
            // SAFETY: the buffer has that capacity, the struct the size that it says.
            let status = unsafe {
                sys::cow_mlx_context_next(self.context, text, capacity, &mut length, &mut piece)
            };
            if status != sys::COW_MLX_EBUFFER || length <= capacity {
                break status;
            }
            self.text.resize(length, 0);
        };
        let done = status == sys::COW_MLX_DONE;
        check(if done { sys::COW_MLX_OK } else { status })?;
        self.finish = Finish::from_code(piece.finish);
        self.last_token = (piece.token >= 0).then_some(piece.token);
        if done {
            return Ok(None);
        }
        // Each has one if they were asked for, and none otherwise.
        let logprob = (!piece.logprob.is_nan()).then_some(piece.logprob);
        Ok(Some(Piece {
            text: String::from_utf8_lossy(&self.text[..length]).into_owned(),
            token: piece.token,
            logprob,
            alternatives: logprob.map_or(Ok(Vec::new()), |_| logprobs(self.context))?,
            finish: self.finish,
        }))
    }
}

/// A generation under way: an iterator of its pieces.
///
/// It borrows its context, which can be asked through it ([`Context::stats`],
/// [`Context::wake_fd`]) and be used again once it is dropped. Dropping it early leaves the
/// generation where it is: the next [`Context::begin`] ends it, [`Context::resume`] goes on.
pub struct Generation<'c> {
    context: &'c Context<'c>,
    pieces: Pieces,
    exclusive: PhantomData<&'c mut ()>,
}

// SAFETY: the reference to the context, which may not be shared between threads, comes from a
// `&mut` that is borrowed as long as this lives; so there is no other.
unsafe impl Send for Generation<'_> {}

impl<'c> Generation<'c> {
    pub(crate) fn new(context: &'c mut Context<'_>) -> Self {
        let context: &'c Context<'_> = context;
        let pieces = Pieces::new(context.as_raw());
        Self { context, pieces, exclusive: PhantomData }
    }

    /// Why the generation ended; `None` while it has not.
    pub fn finish(&self) -> Option<Finish> {
        self.pieces.finish()
    }

    /// The last token: at the end, the end token that has no piece.
    pub fn last_token(&self) -> Option<Token> {
        self.pieces.last_token
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece>;

    /// Generate one token. Blocks until it is there; contexts that generate at the same time take
    /// turns. Behind an error nothing comes.
    fn next(&mut self) -> Option<Self::Item> {
        self.pieces.next()
    }
}

impl FusedIterator for Generation<'_> {}

impl<'c> Deref for Generation<'c> {
    type Target = Context<'c>;

    fn deref(&self) -> &Context<'c> {
        self.context
    }
}

impl fmt::Debug for Generation<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Generation")
            .field("context", self.context)
            .field("finish", &self.finish())
            .finish_non_exhaustive()
    }
}
