//! How well documents fit a query.

use std::ffi::CStr;
use std::ptr::null;

use crate::error::Result;
use crate::params::params;
use crate::sys;
use crate::text::c_text;

params! {
    /// How documents are ranked.
    RankParams for cow_mlx_rank_params by cow_mlx_rank_params_init {
        /// To probabilities: the sigmoid of a single score, the softmax of several; default true.
        normalize: bool,
        /// Cut what is too long at the end of its document; default false: it is refused.
        truncate: bool,
        /// Tokens of a prompt; 0 (default): the model's context length.
        max_tokens: usize,
        /// Tokens processed at a time, padding included; default 2048.
        batch_tokens: usize,
    }
    also {
        prompt: Option<String>,
        instruction: Option<String>,
        yes: Option<String>,
        no: Option<String>,
    }
}

impl RankParams {
    /// What the model reads, where `{query}`, `{document}` and `{instruction}` stand for these; by
    /// default that of Qwen3-Reranker, and of a classification head the pair.
    pub fn prompt(mut self, text: impl Into<String>) -> Self {
        self.prompt = Some(text.into());
        self
    }

    /// What a document has to do for the query.
    pub fn instruction(mut self, text: impl Into<String>) -> Self {
        self.instruction = Some(text.into());
        self
    }

    /// The tokens whose logits speak for and against a document; by default yes and no.
    pub fn answers(mut self, yes: impl Into<String>, no: impl Into<String>) -> Self {
        (self.yes, self.no) = (Some(yes.into()), Some(no.into()));
        self
    }

    /// Make a call with the parameters in C's form, which lives as long as the call.
    pub(crate) fn with_raw<R>(
        &self,
        call: impl FnOnce(*const sys::cow_mlx_rank_params) -> R,
    ) -> Result<R> {
        let texts = [
            ("prompt", &self.prompt),
            ("instruction", &self.instruction),
            ("yes", &self.yes),
            ("no", &self.no),
        ];
        let c_field = |(name, text): (&str, &Option<String>)| {
            text.as_ref().map(|text| c_text(&format!("model_rank: {name}"), text)).transpose()
        };
        let [prompt, instruction, yes, no] = texts.map(c_field);
        let (prompt, instruction, yes, no) = (prompt?, instruction?, yes?, no?);
        let mut filled = self.filled();
        let raw = &mut filled.raw;
        raw.prompt = prompt.as_deref().map_or(null(), CStr::as_ptr);
        raw.instruction = instruction.as_deref().map_or(null(), CStr::as_ptr);
        raw.yes = yes.as_deref().map_or(null(), CStr::as_ptr);
        raw.no = no.as_deref().map_or(null(), CStr::as_ptr);
        Ok(call(filled.as_ptr()))
    }
}

/// Scores, a row per document.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    labels: usize,
    values: Vec<f32>,
}

impl Scores {
    pub(crate) fn new(labels: usize, values: Vec<f32>) -> Self {
        Self { labels, values }
    }

    /// Values per document: 1, or the labels of a classification head.
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// The scores of each document, in their order.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.labels.max(1))
    }

    /// All values, row by row.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}
