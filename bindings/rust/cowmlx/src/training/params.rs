//! What is trained, how, and on what.

use std::ffi::CString;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

use super::callbacks::{self, NextBatch};
use crate::array::Array;
use crate::error::Result;
use crate::params::params;
use crate::sys;
use crate::text::{c_path, c_text};

params! {
    /// What is trained, and how. With the feature `serde` it is read and written, but for arrays.
    saved TrainingParams<'a> for cow_mlx_training_params by cow_mlx_training_params_init {
        /// Of all that is random; default 0.
        seed: u64,
        /// The gradients' elements are brought within ± it; 0 (default): not.
        clip_value: f32,
        /// Then their norm, over all, is brought to it at most; 0 (default): not.
        clip_norm: f32,
        /// Rows that are computed at once; 0 (default): all.
        micro_batch: usize,
        /// Leave a step out whose loss or gradient is not finite; default false.
        skip_non_finite: bool,
    }
    texts {
        optimizer: String,
        train: Vec<String>,
        fine_tune: String,
    }
    also {
        initial: Vec<(String, sys::cow_mlx_array, PhantomData<&'a ()>)>,
    }
}

impl<'a> TrainingParams<'a> {
    /// The optimizer as JSON; Adam by default.
    pub fn optimizer(mut self, json: impl Into<String>) -> Self {
        self.optimizer = Some(json.into());
        self
    }

    /// Patterns of names of a program's parameters that are trained; all by default.
    pub fn train<T: Into<String>>(mut self, patterns: impl IntoIterator<Item = T>) -> Self {
        self.train = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// What a program's parameter begins as, in place of its "init".
    pub fn initial(mut self, name: impl Into<String>, array: &'a Array<'_>) -> Self {
        self.initial.push((name.into(), array.as_raw(), PhantomData));
        self
    }

    /// What is trained of a model, as JSON; LoRA by default.
    pub fn fine_tune(mut self, json: impl Into<String>) -> Self {
        self.fine_tune = Some(json.into());
        self
    }
}

params! {
    /// Data, and when a fit ends: steps or epochs have to say, unless batches end. With the feature
    /// `serde` it is read and written, but for arrays.
    saved FitParams<'a> for cow_mlx_fit_params by cow_mlx_fit_params_init {
        /// Of the training, where the fit ends; 0 (default): no limit.
        steps: usize,
        /// Of the data; 0 (default): no limit.
        epochs: usize,
        /// Rows of a batch; 0 (default): all, or 4 of lines.
        batch_size: usize,
        /// Whether rows have another order in each epoch; default true.
        shuffle: bool,
        /// Steps between two events of steps; default 1.
        event_every: usize,
        /// Steps between two evaluations; 0 (default): after each epoch.
        evaluate_every: usize,
        /// Evaluations without a better one after which it ends; 0 (default): none.
        patience: usize,
        /// How much lower a loss has to be to be better; default 0.
        min_delta: f64,
        /// Steps after which the training is saved; 0 (default): never.
        save_every: usize,
    }
    texts {
        folder: PathBuf,
        lines: String,
        lines_file: PathBuf,
        validation_lines: String,
        validation_file: PathBuf,
        lines_options: String,
    }
    also {
        inputs: Vec<sys::cow_mlx_array>,
        validation: Vec<sys::cow_mlx_array>,
        of: PhantomData<&'a ()>,
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

    /// Where [`save_every`](Self::save_every) saves.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The data of a language model: JSON lines.
    pub fn lines(mut self, lines: impl Into<String>) -> Self {
        self.lines = Some(lines.into());
        self
    }

    /// A file of them.
    pub fn lines_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.lines_file = Some(path.into());
        self
    }

    /// JSON lines to evaluate on.
    pub fn validation_lines(mut self, lines: impl Into<String>) -> Self {
        self.validation_lines = Some(lines.into());
        self
    }

    /// A file of them.
    pub fn validation_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.validation_file = Some(path.into());
        self
    }

    /// How lines become rows, as JSON.
    pub fn lines_options(mut self, json: impl Into<String>) -> Self {
        self.lines_options = Some(json.into());
        self
    }
}

impl TrainingParams<'_> {
    /// Make a call with these as C has them.
    pub(super) fn with<T>(
        &self,
        call: impl FnOnce(*const sys::cow_mlx_training_params) -> T,
    ) -> Result<T> {
        let optimizer = optional("training_create: optimizer", self.optimizer.as_ref())?;
        let fine_tune = optional("training_create: fine_tune", self.fine_tune.as_ref())?;
        let text = |what: &str, text: &String| c_text(&format!("training_create: {what}"), text);
        let train = self
            .train
            .iter()
            .flatten()
            .map(|each| text("train", each))
            .collect::<Result<Vec<_>>>()?;
        let train: Vec<_> = train.iter().map(|each| each.as_ptr()).collect();
        let names = self.initial.iter().map(|(name, ..)| text("initial_names", name));
        let names = names.collect::<Result<Vec<_>>>()?;
        let names: Vec<_> = names.iter().map(|each| each.as_ptr()).collect();
        let arrays: Vec<_> = self.initial.iter().map(|(_, array, _)| *array).collect();
        let mut filled = self.filled();
        filled.raw.optimizer = pointer(optimizer.as_ref());
        filled.raw.fine_tune = pointer(fine_tune.as_ref());
        filled.raw.train = train.as_ptr();
        filled.raw.train_count = train.len();
        filled.raw.initial_names = names.as_ptr();
        filled.raw.initial_arrays = arrays.as_ptr();
        filled.raw.initial_count = names.len();
        Ok(call(filled.as_ptr()))
    }
}

impl FitParams<'_> {
    /// Make a call with these as C has them.
    pub(super) fn with<'r>(
        &self,
        mut next_batch: Option<&mut NextBatch<'_, 'r>>,
        call: impl FnOnce(*const sys::cow_mlx_fit_params) -> Result<()>,
    ) -> Result<()> {
        let text = |what: &str, text: &Option<String>| {
            optional(&format!("training_fit: {what}"), text.as_ref())
        };
        let path = |what: &str, path: &Option<PathBuf>| {
            let what = format!("training_fit: {what}");
            path.as_ref().map(|path| c_path(&what, path)).transpose()
        };
        let folder = path("folder", &self.folder)?;
        let lines = text("lines", &self.lines)?;
        let lines_file = path("lines_file", &self.lines_file)?;
        let validation_lines = text("validation_lines", &self.validation_lines)?;
        let validation_file = path("validation_file", &self.validation_file)?;
        let lines_options = text("lines_options", &self.lines_options)?;
        let mut filled = self.filled();
        let raw = &mut filled.raw;
        raw.inputs = self.inputs.as_ptr();
        raw.inputs_count = self.inputs.len();
        raw.validation = self.validation.as_ptr();
        raw.validation_count = self.validation.len();
        raw.folder = pointer(folder.as_ref());
        raw.lines = pointer(lines.as_ref());
        raw.lines_file = pointer(lines_file.as_ref());
        raw.validation_lines = pointer(validation_lines.as_ref());
        raw.validation_file = pointer(validation_file.as_ref());
        raw.lines_options = pointer(lines_options.as_ref());
        raw.user_data = null_mut();
        if let Some(next_batch) = &mut next_batch {
            raw.next_batch = Some(callbacks::on_batch);
            raw.user_data = (&raw mut *next_batch).cast();
        }
        call(filled.as_ptr())
    }
}

fn optional(what: &str, text: Option<&String>) -> Result<Option<CString>> {
    text.map(|text| c_text(what, text)).transpose()
}

pub(super) fn pointer(text: Option<&CString>) -> *const std::ffi::c_char {
    text.map_or(null(), |text| text.as_ptr())
}
