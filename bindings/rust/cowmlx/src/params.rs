//! Params: setters of options that have a type of Rust's own, and the way to C's structs.

use std::ffi::{CString, c_char};
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::callback::{self, Heard, LoadProgress, LogitsFn, PromptProgress};
use crate::error::{Error, Result, Status};
use crate::runtime::Log;
use crate::training::{NextBatch, on_batch};
use crate::transfer::{c_path, c_text};
use crate::{
    Activations, Array, LogLevel, Model, Overflow, Owner, Pooling, QuantizedFormat, Split, Token,
    sys,
};

mod generated;

pub use generated::{
    ContextParams, EmbedParams, FitParams, GenerationParams, ModelParams, ProgramParams,
    RankParams, RunParams, RuntimeParams, TrainingParams,
};

/// A struct as the library's `_init` function fills it. That of a newer library is larger, since
/// structs grow at their end, and writes its size into `struct_size`: there is room for it.
#[repr(C)]
pub(crate) struct Filled<T> {
    raw: T,
    growth: [u64; 64],
}

impl<T> Filled<T> {
    /// # Safety
    /// `T` is a struct of the header, and `init` its function.
    pub(crate) unsafe fn new(init: unsafe fn(*mut T, usize)) -> Self {
        // SAFETY: all zeros is a value of each of them.
        let mut filled: Self = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is that of the whole, growth included.
        unsafe { init((&raw mut filled).cast(), size_of::<T>()) };
        filled
    }

    /// For the call: the whole, growth included.
    pub(crate) fn as_ptr(&self) -> *const T {
        (&raw const *self).cast()
    }
}

/// Texts in C's form, for as long as a call runs.
struct Texts<'o> {
    operation: &'o str,
    texts: Vec<CString>,
    lists: Vec<Vec<*const c_char>>,
}

impl<'o> Texts<'o> {
    fn new(operation: &'o str) -> Self {
        Self { operation, texts: Vec::new(), lists: Vec::new() }
    }

    fn keep(&mut self, text: CString) -> *const c_char {
        let data = text.as_ptr(); // stays where it is
        self.texts.push(text);
        data
    }

    fn text(&mut self, name: &str, text: Option<&str>) -> Result<*const c_char> {
        let Some(text) = text else { return Ok(null()) };
        let text = c_text(&format!("{}: {name}", self.operation), text)?;
        Ok(self.keep(text))
    }

    fn path(&mut self, name: &str, path: Option<&Path>) -> Result<*const c_char> {
        let Some(path) = path else { return Ok(null()) };
        let path = c_path(&format!("{}: {name}", self.operation), path)?;
        Ok(self.keep(path))
    }

    /// The list, which is not NULL if it is empty, and its length.
    fn list(
        &mut self,
        name: &str,
        list: Option<&[String]>,
    ) -> Result<(*const *const c_char, usize)> {
        let Some(list) = list else { return Ok((null(), 0)) };
        let pointers = list.iter().map(|text| self.text(name, Some(text)));
        let pointers = pointers.collect::<Result<Vec<_>>>()?;
        let data = pointers.as_ptr();
        self.lists.push(pointers);
        Ok((data, list.len()))
    }
}

/// Show an option that was set.
fn shown(to: &mut fmt::DebugStruct<'_, '_>, name: &str, value: &Option<impl fmt::Debug>) {
    if let Some(value) = value {
        to.field(name, value);
    }
}

impl RuntimeParams {
    /// Receives log messages, on the thread of the call that caused one and as that call ends.
    ///
    /// If it panics, the panic continues where that call returns; one from within a `drop` is lost.
    pub fn log(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// The function that receives log messages.
    pub(crate) fn logger(&self) -> Option<Arc<Log>> {
        self.log.clone()
    }
}

impl<'a> ModelParams<'a> {
    /// The other machines that run a part of the model, `"HOST:PORT"` where `python -m cowmlx
    /// worker` listens, and the file with the workers' secret.
    pub fn workers(
        mut self,
        addresses: impl IntoIterator<Item = impl Into<String>>,
        secret_path: impl Into<PathBuf>,
    ) -> Self {
        self.workers = Some(addresses.into_iter().map(Into::into).collect());
        self.secret_path = Some(secret_path.into());
        self
    }

    /// Receives the loaded fraction, from 0 to 1, and the name of the stage; `false` cancels. Runs
    /// on the thread that loads.
    pub fn progress(mut self, progress: impl Fn(f32, &str) -> bool + Send + Sync + 'a) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// The closure that receives progress.
    pub(crate) fn closure(&self) -> Option<&Arc<LoadProgress<'a>>> {
        self.progress.as_ref()
    }

    /// Make a call with the parameters in C's form and a closure that lives as long as the load.
    pub(crate) fn with_raw<R>(
        &self,
        operation: &str,
        progress: Option<*const &LoadProgress<'a>>,
        call: impl FnOnce(*const sys::cow_mlx_model_params) -> R,
    ) -> Result<R> {
        let own = |raw: &mut sys::cow_mlx_model_params| {
            if let Some(progress) = progress {
                raw.progress = Some(callback::on_load);
                raw.user_data = progress.cast_mut().cast();
            }
        };
        self.lowered(operation, own, call)
    }
}

/// The grammar of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grammar {
    /// A JSON schema.
    JsonSchema(String),
    /// A regular expression.
    Regex(String),
    /// A Lark grammar.
    Lark(String),
    /// A GBNF grammar, as in llama.cpp.
    Gbnf(String),
}

impl Grammar {
    fn parts(&self) -> (i32, &str) {
        match self {
            Self::JsonSchema(text) => (sys::COW_MLX_GRAMMAR_JSON_SCHEMA, text),
            Self::Regex(text) => (sys::COW_MLX_GRAMMAR_REGEX, text),
            Self::Lark(text) => (sys::COW_MLX_GRAMMAR_LARK, text),
            Self::Gbnf(text) => (sys::COW_MLX_GRAMMAR_GBNF, text),
        }
    }
}

impl<'a> GenerationParams<'a> {
    /// Values added to the logits of tokens, all different; [`f32::NEG_INFINITY`] forbids a token,
    /// unless a grammar allows no other.
    pub fn bias(mut self, bias: impl IntoIterator<Item = (Token, f32)>) -> Self {
        self.bias = bias.into_iter().collect();
        self
    }

    /// The grammar of the output; in a chat it applies after the model's thinking.
    pub fn grammar(mut self, grammar: Grammar) -> Self {
        self.grammar = Some(grammar);
        self
    }

    /// A draft model: a smaller model with the same vocabulary.
    pub fn draft(mut self, model: impl Into<Owner<'a, Model<'a>>>) -> Self {
        self.draft = Some(model.into());
        self
    }

    /// Receives the number of processed tokens of the prompt, and of all, after each chunk;
    /// `false` cancels. Runs on the thread of the call.
    pub fn prompt_progress(
        mut self,
        progress: impl Fn(usize, usize) -> bool + Send + Sync + 'a,
    ) -> Self {
        self.prompt_progress = Some(Arc::new(progress));
        self
    }

    /// Changes the logits of every token of the vocabulary, behind all tokens of the context,
    /// before a token is sampled; `false` cancels. Runs on the thread of the call that waits for
    /// the token: of [`generate`](crate::Context::generate) and
    /// [`chat`](crate::Context::chat), and of those that take or poll after a call that returns at
    /// once.
    pub fn logits_fn(
        mut self,
        change: impl Fn(&[Token], &mut [f32]) -> bool + Send + Sync + 'a,
    ) -> Self {
        self.logits_fn = Some(Arc::new(change));
        self
    }

    /// The closures.
    pub(crate) fn heard(&self) -> Heard<'a> {
        Heard { progress: self.prompt_progress.clone(), logits: self.logits_fn.clone() }
    }

    /// Refuse closures that a generation would call after the call that begins it.
    pub(crate) fn refuse_logits(&self, operation: &str) -> Result<()> {
        if self.logits_fn.is_none() {
            return Ok(());
        }
        let message = format!(
            "{operation}: logits_fn goes with generate and chat, and with calls that return \
             at once"
        );
        Err(Error::new(Status::Unsupported, "conflict", message))
    }

    /// Make a call with the parameters in C's form, which live as long as the call.
    pub(crate) fn with_raw<R>(
        &self,
        operation: &str,
        call: impl FnOnce(*const sys::cow_mlx_generation_params) -> R,
    ) -> Result<R> {
        let heard = self.heard();
        self.with_heard(operation, &raw const heard, call)
    }

    /// The same, with closures that live longer.
    pub(crate) fn with_heard<R>(
        &self,
        operation: &str,
        heard: *const Heard<'a>,
        call: impl FnOnce(*const sys::cow_mlx_generation_params) -> R,
    ) -> Result<R> {
        let (tokens, values): (Vec<_>, Vec<_>) = self.bias.iter().copied().unzip();
        let mut texts = Texts::new(operation);
        let (kind, grammar) = self.grammar.as_ref().map(Grammar::parts).unzip();
        let grammar = texts.text("grammar", grammar)?;
        let own = |raw: &mut sys::cow_mlx_generation_params| {
            raw.bias_count = tokens.len();
            (raw.bias_tokens, raw.bias_values) = (tokens.as_ptr(), values.as_ptr());
            (raw.grammar, raw.grammar_kind) = (grammar, kind.unwrap_or(sys::COW_MLX_GRAMMAR_NONE));
            raw.draft = self.draft.as_deref().map_or(0, Model::as_raw);
            if self.prompt_progress.is_some() {
                raw.prompt_progress = Some(callback::on_prompt);
            }
            if self.logits_fn.is_some() {
                raw.logits_fn = Some(callback::on_logits);
            }
            raw.user_data = heard.cast_mut().cast();
        };
        self.lowered(operation, own, call)
    }
}

impl RankParams {
    /// The tokens whose logits speak for and against a document; by default yes and no.
    pub fn answers(mut self, yes: impl Into<String>, no: impl Into<String>) -> Self {
        (self.yes, self.no) = (Some(yes.into()), Some(no.into()));
        self
    }
}

impl<'a> TrainingParams<'a> {
    /// The array that a program's parameter begins as, in place of its "init".
    pub fn initial(mut self, name: impl Into<String>, array: &'a Array<'_>) -> Self {
        self.initial.push((name.into(), array.as_raw(), PhantomData));
        self
    }

    /// Make a call with the parameters in C's form.
    pub(crate) fn with<R>(
        &self,
        operation: &str,
        call: impl FnOnce(*const sys::cow_mlx_training_params) -> R,
    ) -> Result<R> {
        let names: Vec<_> = self.initial.iter().map(|(name, ..)| name.clone()).collect();
        let arrays: Vec<_> = self.initial.iter().map(|(_, array, _)| *array).collect();
        let mut texts = Texts::new(operation);
        let (names, count) = texts.list("initial_names", Some(&names))?;
        let own = |raw: &mut sys::cow_mlx_training_params| {
            (raw.initial_names, raw.initial_count) = (names, count);
            raw.initial_arrays = arrays.as_ptr();
        };
        self.lowered(operation, own, call)
    }
}

impl<'a> FitParams<'a> {
    /// The data of a program: an array for each of its inputs.
    pub fn inputs(mut self, arrays: &[&'a Array<'_>]) -> Self {
        self.inputs = arrays.iter().map(|array| array.as_raw()).collect();
        self
    }

    /// Data like [`inputs`](Self::inputs) to evaluate on.
    pub fn validation(mut self, arrays: &[&'a Array<'_>]) -> Self {
        self.validation = arrays.iter().map(|array| array.as_raw()).collect();
        self
    }

    /// Make a call with the parameters in C's form.
    pub(crate) fn with<'r>(
        &self,
        operation: &str,
        mut next_batch: Option<&mut NextBatch<'_, 'r>>,
        call: impl FnOnce(*const sys::cow_mlx_fit_params) -> Result<()>,
    ) -> Result<()> {
        let own = |raw: &mut sys::cow_mlx_fit_params| {
            (raw.inputs, raw.inputs_count) = (self.inputs.as_ptr(), self.inputs.len());
            (raw.validation, raw.validation_count) =
                (self.validation.as_ptr(), self.validation.len());
            raw.user_data = null_mut();
            if let Some(next_batch) = &mut next_batch {
                raw.next_batch = Some(on_batch);
                raw.user_data = (&raw mut *next_batch).cast();
            }
        };
        self.lowered(operation, own, call)?
    }
}
