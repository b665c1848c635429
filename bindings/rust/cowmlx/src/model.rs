//! Models: weights, tokenizer and chat template of one folder.

use std::ffi::CStr;
use std::ops::BitOr;
use std::path::Path;
use std::ptr::null;

use crate::error::{Result, check, opened};
use crate::owner::Owner;
use crate::params::{EmbedParams, ModelParams, RankParams};
use crate::rows::{Embeddings, Scores, rows};
use crate::runtime::Runtime;
use crate::transfer::{c_path, c_text};
use crate::{callback, sys, transfer};

/// The id of a token.
pub type Token = i32;

/// How special tokens, such as `<|end|>`, are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Special(u32);

impl Special {
    /// Text is plain text.
    pub const NONE: Self = Self(0);
    /// [`Model::tokenize`]: add the tokens that open (and close) a text.
    pub const ADD: Self = Self(sys::COW_MLX_ADD_SPECIAL as u32);
    /// [`Model::tokenize`]: read `<|end|>` in the text as the special token. Only for text that
    /// the host wrote itself.
    pub const PARSE: Self = Self(sys::COW_MLX_PARSE_SPECIAL as u32);
    /// [`Model::detokenize`]: leave special tokens out.
    pub const SKIP: Self = Self(sys::COW_MLX_SKIP_SPECIAL as u32);
}

impl BitOr for Special {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A model: weights, tokenizer and chat template of one folder.
///
/// It may be used from any number of threads. The runtime it was loaded with is borrowed or
/// shared, see [`Owner`].
#[derive(Debug)]
pub struct Model<'r> {
    raw: sys::cow_mlx_model,
    _runtime: Owner<'r, Runtime>,
}

impl<'r> Model<'r> {
    pub(crate) fn runtime(&self) -> Owner<'r, Runtime> {
        self._runtime.clone()
    }

    /// Load a model folder in the Hugging Face layout. Never touches the network.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_model_load`.
    pub fn load(runtime: impl Into<Owner<'r, Runtime>>, path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(runtime, path, &ModelParams::new())
    }

    /// Load a model folder with parameters.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_model_load`.
    pub fn load_with(
        runtime: impl Into<Owner<'r, Runtime>>,
        path: impl AsRef<Path>,
        params: &ModelParams<'_>,
    ) -> Result<Self> {
        let path = c_path("model_load: path", path.as_ref())?;
        let progress = params.closure().map(|closure| &**closure);
        let progress = progress.as_ref().map(|closure| &raw const *closure);
        let mut raw = 0;
        let status = params.with_raw("model_load", progress, |params| {
            // SAFETY: texts and closure live until the call returns.
            unsafe { sys::cow_mlx_model_load(path.as_ptr(), params, &mut raw) }
        })?;
        Self::opened(status, raw, runtime.into())
    }

    /// What a call that loads has opened.
    pub(crate) fn opened(
        status: sys::cow_mlx_status,
        raw: sys::cow_mlx_model,
        runtime: Owner<'r, Runtime>,
    ) -> Result<Self> {
        opened(status, || Self { raw, _runtime: runtime })
    }

    /// Tell what is in a model's folder without loading it, as a JSON object; `kv_bits` of a
    /// context: 0, 4 or 8.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_model_inspect`.
    pub fn inspect(_runtime: &Runtime, path: impl AsRef<Path>, kv_bits: i32) -> Result<String> {
        let path = c_path("model_inspect: path", path.as_ref())?;
        // SAFETY: the path ends with NUL, the buffer has that capacity.
        transfer::text(|text, capacity, length| unsafe {
            sys::cow_mlx_model_inspect(path.as_ptr(), kv_bits, text, capacity, length)
        })
    }

    /// The handle, for calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_model {
        self.raw
    }

    /// Turn text into tokens; [`Special::ADD`] and [`Special::PARSE`] may be given.
    ///
    /// # Errors
    /// As the manual says.
    pub fn tokenize(&self, text: &str, special: Special) -> Result<Vec<Token>> {
        // SAFETY: the text has that length, the buffer that capacity.
        transfer::vector(text.len() + 8, |tokens, capacity, count| unsafe {
            let (data, length) = (text.as_ptr().cast(), text.len());
            sys::cow_mlx_model_tokenize(self.raw, data, length, special.0, tokens, capacity, count)
        })
    }

    /// Turn tokens into text; [`Special::SKIP`] may be given. Bytes that are no UTF-8 become
    /// U+FFFD.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) if a token is not in the vocabulary.
    pub fn detokenize(&self, tokens: &[Token], special: Special) -> Result<String> {
        let (data, count) = (tokens.as_ptr(), tokens.len());
        // SAFETY: there are that many tokens, and the buffer has that capacity.
        transfer::text(|buffer, capacity, length| unsafe {
            let flags = special.0;
            sys::cow_mlx_model_detokenize(self.raw, data, count, flags, buffer, capacity, length)
        })
    }

    /// Render a conversation with the model's own chat template, and tokenize it.
    ///
    /// `messages` is a JSON list, `[{"role": "user", "content": "Hello"}]`; `options` a JSON
    /// object with `tools`, `tool_choice`, `add_generation_prompt`, `enable_thinking` and others that
    /// `cow_mlx.h` lists, and variables that the template reads.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for malformed JSON or messages (the message
    /// gives the place), or an option that nobody reads; [`Unsupported`](crate::Status::Unsupported) if the model has no chat template.
    pub fn chat_prompt(&self, messages: &str, options: Option<&str>) -> Result<Vec<Token>> {
        let options = options.map(|text| c_text("model_chat_prompt: options", text)).transpose()?;
        let options = options.as_deref().map_or(null(), CStr::as_ptr);
        let (data, length) = (messages.as_ptr().cast(), messages.len());
        // SAFETY: the texts live until the call returns, and the buffer has that capacity.
        transfer::vector(messages.len() + 64, |tokens, capacity, count| unsafe {
            let raw = self.raw;
            sys::cow_mlx_model_chat_prompt(raw, data, length, options, tokens, capacity, count)
        })
    }

    /// Turn texts into vectors: pooled hidden states of the model's last layer.
    ///
    /// # Errors
    /// As the manual says; the message gives the index of a text that cannot be embedded.
    pub fn embed(&self, texts: &[impl AsRef<str>], params: &EmbedParams) -> Result<Embeddings> {
        let embed = |params| {
            rows(texts, |data, count, out, capacity, dims| {
                let raw = self.raw;
                // SAFETY: the texts live until the call returns, and `out` has room for that many.
                check(unsafe {
                    sys::cow_mlx_model_embed(raw, data, count, params, out, capacity, dims)
                })
            })
        };
        let (dims, values) = params.lowered("model_embed", |_| (), embed)??;
        Ok(Embeddings::new(dims, values))
    }

    /// Tell how well each document fits a query: the higher a score, the better.
    ///
    /// # Errors
    ///
    /// As the manual says; the message gives the index of a document that cannot be ranked.
    pub fn rank(
        &self,
        query: &str,
        documents: &[impl AsRef<str>],
        params: &RankParams,
    ) -> Result<Scores> {
        let query = c_text("model_rank: query", query)?;
        let rank = |params| {
            rows(documents, |data, count, out, capacity, labels| {
                // SAFETY: the texts live until the call returns, and `out` has room for that many.
                unsafe {
                    let (raw, query) = (self.raw, query.as_ptr());
                    check(sys::cow_mlx_model_rank(
                        raw, query, data, count, params, out, capacity, labels,
                    ))
                }
            })
        };
        let (labels, values) = params.lowered("model_rank", |_| (), rank)??;
        Ok(Scores::new(labels, values))
    }
}

impl Drop for Model<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's, and is freed once.
        unsafe { sys::cow_mlx_model_free(self.raw) };
        callback::forget_panic();
    }
}
