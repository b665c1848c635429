//! How a generation goes.

use std::ffi::CStr;
use std::ptr::null;
use std::sync::Arc;

use crate::callback::PromptProgress;
use crate::error::Result;
use crate::model::{Model, Token};
use crate::owner::Owner;
use crate::params::params;
use crate::text::c_text;
use crate::{callback, sys};

/// What an output must match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grammar {
    /// A JSON schema.
    JsonSchema(String),
    /// A regular expression.
    Regex(String),
    /// A Lark grammar.
    Lark(String),
    /// A GBNF grammar, as llama.cpp has them.
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

params! {
    /// How a generation goes. Sampling follows mlx-lm; the manual has the order.
    ///
    /// The library checks the values: what is out of range is
    /// [`InvalidArgument`](crate::Status::InvalidArgument) of the call that uses it.
    GenerationParams<'a> for cow_mlx_generation_params by cow_mlx_generation_params_init {
        /// Tokens to generate, default 256; 0 only processes the prompt; [`usize::MAX`]: until
        /// the window is full.
        max_tokens: usize,
        /// 0 (default): greedy. At least 0.
        temperature: f32,
        /// (0, 1]; 1 (default): off.
        top_p: f32,
        /// [0, 1]; 0 (default): off.
        min_p: f32,
        /// (0, 1]; 1 (default): off. Needs a temperature.
        typical_p: f32,
        /// 0 (default): off.
        top_k: i32,
        /// [0, 1]; 0 (default): off. Needs a temperature.
        xtc_probability: f32,
        /// (0, 0.5]; goes with `xtc_probability`.
        xtc_threshold: f32,
        /// Above 0; 1 (default): off.
        repetition_penalty: f32,
        /// Tokens that it looks back on, at least 1; default 20.
        repetition_window: usize,
        /// Subtracted once from what occurs; 0 (default): off.
        presence_penalty: f32,
        /// Tokens that `presence_penalty` looks back on; default 20.
        presence_window: usize,
        /// Subtracted for each occurrence; 0 (default): off.
        frequency_penalty: f32,
        /// Tokens that `frequency_penalty` looks back on; default 20.
        frequency_window: usize,
        /// The same seed gives the same tokens, whatever else runs.
        seed: u64,
        /// 0 (default): none; n: of each token and of the n most probable ones, which come with
        /// each [`Piece`](crate::Piece).
        logprobs: i32,
        /// Tokens guessed at a time, 0 to 64. 0 (default): none, or 4 with a draft model. Without
        /// one, what followed the last tokens earlier in the sequence is the guess.
        draft_tokens: i32,
        /// Seconds from begin after which a generation ends; 0 (default): none.
        timeout: f64,
        /// What a token that goes on with a run of tokens that has been there before loses at
        /// least; 0 (default): off.
        dry_multiplier: f32,
        /// By what that grows with each token of the run, at least 1; default 1.75.
        dry_base: f32,
        /// Tokens of the shortest run that counts, at least 1; default 2.
        dry_allowed_length: i32,
        /// Tokens that DRY looks back on, at least 1; -1 (default): all.
        dry_penalty_last_n: i32,
        /// Standard deviations below the best logit that tokens may have; 0 (default): off.
        top_n_sigma: f32,
        /// 2: drops tokens that are more surprising than a bound, which adapts; 0 (default): off.
        /// Needs a temperature, and goes with no filter and no draft.
        mirostat: i32,
        /// Bits of surprise that it aims at, above 0; default 5.
        mirostat_tau: f32,
        /// How fast it adapts, (0, 1]; default 0.1.
        mirostat_eta: f32,
        /// By how much the temperature is lower and higher, as the entropy tells; 0 (default): off.
        /// Needs a temperature.
        dynatemp_range: f32,
        /// Of the entropy, above 0; default 1.
        dynatemp_exponent: f32,
    }
    also {
        bias: Vec<(Token, f32)>,
        stop: Vec<String>,
        dry_sequence_breakers: Option<Vec<String>>,
        grammar: Option<Grammar>,
        draft: Option<Owner<'a, Model<'a>>>,
        prompt_progress: Option<Arc<PromptProgress<'a>>>,
    }
}

impl<'a> GenerationParams<'a> {
    /// What is added to the logits of tokens, all different; [`f32::NEG_INFINITY`] forbids one,
    /// unless a grammar allows no other.
    pub fn bias(mut self, bias: impl IntoIterator<Item = (Token, f32)>) -> Self {
        self.bias = bias.into_iter().collect();
        self
    }

    /// Texts that end the generation; they are never emitted.
    pub fn stop(mut self, texts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stop = texts.into_iter().map(Into::into).collect();
        self
    }

    /// Texts that no run goes beyond that DRY looks for, or none at all; by default a line break, a
    /// colon, a quotation mark and an asterisk.
    pub fn dry_sequence_breakers(
        mut self,
        texts: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.dry_sequence_breakers = Some(texts.into_iter().map(Into::into).collect());
        self
    }

    /// What the output must match.
    pub fn grammar(mut self, grammar: Grammar) -> Self {
        self.grammar = Some(grammar);
        self
    }

    /// A smaller model with the same vocabulary that guesses ahead.
    pub fn draft(mut self, model: impl Into<Owner<'a, Model<'a>>>) -> Self {
        self.draft = Some(model.into());
        self
    }

    /// Hears how many tokens of the prompt are processed, and how many there are, after each
    /// chunk; `false` cancels. Runs on the thread of the call.
    pub fn prompt_progress(
        mut self,
        progress: impl Fn(usize, usize) -> bool + Send + Sync + 'a,
    ) -> Self {
        self.prompt_progress = Some(Arc::new(progress));
        self
    }

    /// What hears of the prompt.
    pub(crate) fn progress(&self) -> Option<&Arc<PromptProgress<'a>>> {
        self.prompt_progress.as_ref()
    }

    /// Make a call with the parameters in C's form, which lives as long as the call.
    pub(crate) fn with_raw<R>(
        &self,
        operation: &str,
        call: impl FnOnce(*const sys::cow_mlx_generation_params) -> R,
    ) -> Result<R> {
        let progress = self.prompt_progress.as_deref();
        self.with_progress(operation, progress.as_ref().map(|closure| &raw const *closure), call)
    }

    /// The same, with a closure that lives longer, or none.
    pub(crate) fn with_progress<R>(
        &self,
        operation: &str,
        progress: Option<*const &PromptProgress<'a>>,
        call: impl FnOnce(*const sys::cow_mlx_generation_params) -> R,
    ) -> Result<R> {
        let c_stop = |text: &String| c_text(&format!("{operation}: a stop text"), text);
        let stop = self.stop.iter().map(c_stop).collect::<Result<Vec<_>>>()?;
        let stop_texts: Vec<_> = stop.iter().map(|text| text.as_ptr()).collect();
        let c_breaker = |text: &String| c_text(&format!("{operation}: a sequence breaker"), text);
        let breakers = self.dry_sequence_breakers.iter().flatten();
        let breakers = breakers.map(c_breaker).collect::<Result<Vec<_>>>()?;
        let breaker_texts: Vec<_> = breakers.iter().map(|text| text.as_ptr()).collect();
        let (tokens, values): (Vec<_>, Vec<_>) = self.bias.iter().copied().unzip();
        let (kind, grammar) = self.grammar.as_ref().map(Grammar::parts).unzip();
        let grammar =
            grammar.map(|text| c_text(&format!("{operation}: grammar"), text)).transpose()?;

        let mut filled = self.filled();
        let raw = &mut filled.raw;
        (raw.stop, raw.stop_count) = (stop_texts.as_ptr(), stop_texts.len());
        if self.dry_sequence_breakers.is_some() {
            raw.dry_sequence_breakers = breaker_texts.as_ptr();
            raw.dry_sequence_breaker_count = breaker_texts.len();
        }
        raw.bias_count = tokens.len();
        (raw.bias_tokens, raw.bias_values) = (tokens.as_ptr(), values.as_ptr());
        raw.grammar = grammar.as_deref().map_or(null(), CStr::as_ptr);
        raw.grammar_kind = kind.unwrap_or(sys::COW_MLX_GRAMMAR_NONE);
        raw.draft = self.draft.as_deref().map_or(0, Model::as_raw);
        if let Some(progress) = progress {
            raw.prompt_progress = Some(callback::on_prompt);
            raw.user_data = progress.cast_mut().cast();
        }
        Ok(call(filled.as_ptr()))
    }
}
