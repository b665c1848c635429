//! Training: what makes the loss of a program or of a language model small.

use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

use crate::adapter::Adapter;
use crate::array::Array;
use crate::error::{Error, Result, Status, check, opened};
use crate::model::Model;
use crate::owner::Owner;
use crate::params::params;
use crate::program::{Input, Program};
use crate::runtime::Runtime;
use crate::text::{c_path, c_text};
use crate::{buffer, callback, sys};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrainingEventKind {
    /// Steps were made.
    Step,
    /// The validation data were evaluated.
    Evaluation,
    /// The training was saved.
    Checkpoint,
    /// The fit has ended.
    End,
    /// Something that a newer library tells.
    Other(i32),
}

/// Why a fit has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FitEnd {
    /// It has not.
    None,
    /// All steps are made.
    Steps,
    /// All epochs are over.
    Epochs,
    /// There are no more batches.
    Data,
    /// Nothing got better any more.
    Early,
    /// Something that a newer library tells.
    Other(i32),
}

/// What a training tells. What an event does not have is 0 or NaN.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TrainingEvent {
    /// What it is about.
    pub kind: TrainingEventKind,
    /// Why the fit has ended.
    pub finish: FitEnd,
    /// Steps that the training has made.
    pub step: usize,
    /// At which the fit will end, if that is known.
    pub steps: usize,
    /// Of the data, from 0.
    pub epoch: usize,
    /// That were predicted since the last event of its kind.
    pub targets: usize,
    /// Steps that were left out so far.
    pub skipped: usize,
    /// Mean over these targets.
    pub loss: f64,
    /// Mean over the targets of the validation data.
    pub validation_loss: f64,
    /// Part of them that is predicted right.
    pub accuracy: f64,
    /// The exponential of the loss.
    pub perplexity: f64,
    /// Of the last step.
    pub learning_rate: f64,
    /// Of the last step, before clipping.
    pub gradient_norm: f64,
    /// Targets in a second.
    pub tokens_per_second: f64,
    /// Seconds since the call began.
    pub elapsed: f64,
    /// Seconds that are expected until steps are made.
    pub remaining: f64,
    /// Bytes, of the process's mlx arrays since its start.
    pub peak_memory: u64,
}

impl TrainingEvent {
    fn new(event: &sys::cow_mlx_training_event) -> Self {
        Self {
            kind: match event.kind {
                sys::COW_MLX_TRAINING_STEP => TrainingEventKind::Step,
                sys::COW_MLX_TRAINING_EVALUATION => TrainingEventKind::Evaluation,
                sys::COW_MLX_TRAINING_CHECKPOINT => TrainingEventKind::Checkpoint,
                sys::COW_MLX_TRAINING_END => TrainingEventKind::End,
                other => TrainingEventKind::Other(other),
            },
            finish: match event.finish {
                sys::COW_MLX_FIT_NONE => FitEnd::None,
                sys::COW_MLX_FIT_STEPS => FitEnd::Steps,
                sys::COW_MLX_FIT_EPOCHS => FitEnd::Epochs,
                sys::COW_MLX_FIT_DATA => FitEnd::Data,
                sys::COW_MLX_FIT_EARLY => FitEnd::Early,
                other => FitEnd::Other(other),
            },
            step: event.step,
            steps: event.steps,
            epoch: event.epoch,
            targets: event.targets,
            skipped: event.skipped,
            loss: event.loss,
            validation_loss: event.validation_loss,
            accuracy: event.accuracy,
            perplexity: event.perplexity,
            learning_rate: event.learning_rate,
            gradient_norm: event.gradient_norm,
            tokens_per_second: event.tokens_per_second,
            elapsed: event.elapsed,
            remaining: event.remaining,
            peak_memory: event.peak_memory,
        }
    }

    /// What a call fills.
    fn empty() -> sys::cow_mlx_training_event {
        // SAFETY: all zeros is a value of it.
        let mut event: sys::cow_mlx_training_event = unsafe { std::mem::zeroed() };
        event.struct_size = size_of::<sys::cow_mlx_training_event>();
        event
    }
}

params! {
    /// What is trained, and how.
    TrainingParams<'a> for cow_mlx_training_params by cow_mlx_training_params_init {
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
    also {
        optimizer: Option<String>,
        train: Vec<String>,
        initial: Vec<(String, sys::cow_mlx_array, PhantomData<&'a ()>)>,
        fine_tune: Option<String>,
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
        self.train = patterns.into_iter().map(Into::into).collect();
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
    /// Data, and when a fit ends: steps or epochs have to say, unless batches end.
    FitParams<'a> for cow_mlx_fit_params by cow_mlx_fit_params_init {
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
    also {
        inputs: Vec<sys::cow_mlx_array>,
        validation: Vec<sys::cow_mlx_array>,
        folder: Option<PathBuf>,
        lines: Option<String>,
        lines_file: Option<PathBuf>,
        validation_lines: Option<String>,
        validation_file: Option<PathBuf>,
        lines_options: Option<String>,
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

type NextBatch<'a, 'r> = dyn FnMut(usize) -> Option<Vec<Array<'r>>> + 'a;

/// A training of a program or of a language model. One call at a time runs on it; it may be saved,
/// asked and cancelled meanwhile.
#[derive(Debug)]
pub struct Training<'r> {
    raw: sys::cow_mlx_training,
    runtime: Owner<'r, Runtime>,
}

impl<'r> Training<'r> {
    /// Train a program, which may be dropped then.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_create`.
    pub fn of_program(program: &Program<'r>, params: &TrainingParams<'_>) -> Result<Self> {
        // SAFETY: the struct and what it points to live until the call returns.
        Self::create(params, program.runtime(), |given, out| unsafe {
            sys::cow_mlx_training_create(program.as_raw(), given, out)
        })
    }

    /// Train a language model, which goes on as it is, and may be dropped then.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_create_for_model`.
    pub fn of_model(model: &Model<'r>, params: &TrainingParams<'_>) -> Result<Self> {
        // SAFETY: the struct and what it points to live until the call returns.
        Self::create(params, model.runtime(), |given, out| unsafe {
            sys::cow_mlx_training_create_for_model(model.as_raw(), given, out)
        })
    }

    fn create(
        params: &TrainingParams<'_>,
        runtime: Owner<'r, Runtime>,
        make: impl FnOnce(
            *const sys::cow_mlx_training_params,
            *mut sys::cow_mlx_training,
        ) -> sys::cow_mlx_status,
    ) -> Result<Self> {
        let optimizer = optional("training_create: optimizer", params.optimizer.as_ref())?;
        let fine_tune = optional("training_create: fine_tune", params.fine_tune.as_ref())?;
        let text = |what: &str, text: &String| c_text(&format!("training_create: {what}"), text);
        let train =
            params.train.iter().map(|each| text("train", each)).collect::<Result<Vec<_>>>()?;
        let train: Vec<_> = train.iter().map(|each| each.as_ptr()).collect();
        let names = params.initial.iter().map(|(name, ..)| text("initial_names", name));
        let names = names.collect::<Result<Vec<_>>>()?;
        let names: Vec<_> = names.iter().map(|each| each.as_ptr()).collect();
        let arrays: Vec<_> = params.initial.iter().map(|(_, array, _)| *array).collect();
        let mut filled = params.filled();
        filled.raw.optimizer = pointer(optimizer.as_ref());
        filled.raw.fine_tune = pointer(fine_tune.as_ref());
        filled.raw.train = train.as_ptr();
        filled.raw.train_count = train.len();
        filled.raw.initial_names = names.as_ptr();
        filled.raw.initial_arrays = arrays.as_ptr();
        filled.raw.initial_count = names.len();
        let mut raw = 0;
        let status = make(filled.as_ptr(), &mut raw);
        opened(status, || Self { raw, runtime })
    }

    /// Make a step on a batch.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_step`.
    pub fn step(&self, inputs: &[Input<'_>]) -> Result<TrainingEvent> {
        let values: Vec<_> = inputs.iter().map(Input::value).collect();
        let mut event = TrainingEvent::empty();
        // SAFETY: the values and what they point to live until the call returns.
        check(unsafe {
            sys::cow_mlx_training_step(self.raw, values.as_ptr(), values.len(), &mut event)
        })?;
        Ok(TrainingEvent::new(&event))
    }

    /// Make steps until an end; `on_event` hears of them, and cancels with `false`.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_fit`.
    pub fn fit(
        &self,
        params: &FitParams<'_>,
        on_event: impl FnMut(&TrainingEvent) -> bool,
    ) -> Result<()> {
        self.run(params, None, on_event)
    }

    /// Make steps on batches that `next_batch` makes: an array for each input; `None` at the end.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_fit`.
    pub fn fit_batches(
        &self,
        params: &FitParams<'_>,
        mut next_batch: impl FnMut(usize) -> Option<Vec<Array<'r>>>,
        on_event: impl FnMut(&TrainingEvent) -> bool,
    ) -> Result<()> {
        self.run(params, Some(&mut next_batch), on_event)
    }

    fn run<F: FnMut(&TrainingEvent) -> bool>(
        &self,
        params: &FitParams<'_>,
        next_batch: Option<&mut NextBatch<'_, 'r>>,
        mut on_event: F,
    ) -> Result<()> {
        with(params, next_batch, |given| {
            // SAFETY: the struct, what it points to and the closures live until the call returns.
            check(unsafe {
                sys::cow_mlx_training_fit(
                    self.raw,
                    given,
                    Some(on_training::<F>),
                    (&raw mut on_event).cast(),
                )
            })
        })
    }

    /// Loss, accuracy and perplexity on data.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_evaluate`.
    pub fn evaluate(&self, params: &FitParams<'_>) -> Result<TrainingEvent> {
        let mut event = TrainingEvent::empty();
        with(params, None, |given| {
            // SAFETY: the struct and what it points to live until the call returns.
            check(unsafe { sys::cow_mlx_training_evaluate(self.raw, given, &mut event) })
        })?;
        Ok(TrainingEvent::new(&event))
    }

    /// A parameter as it is now.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_parameter`.
    pub fn parameter(&self, name: &str) -> Result<Array<'r>> {
        let name = c_text("training_parameter: name", name)?;
        let mut raw = 0;
        // SAFETY: the name lives until the call returns.
        let status = unsafe { sys::cow_mlx_training_parameter(self.raw, name.as_ptr(), &mut raw) };
        opened(status, || Array::open(raw, self.runtime.clone()))
    }

    /// What it is, as a JSON object.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_info`.
    pub fn info(&self) -> Result<String> {
        // SAFETY: the buffer has that capacity.
        buffer::text(|text, capacity, length| unsafe {
            sys::cow_mlx_training_info(self.raw, text, capacity, length)
        })
    }

    /// Save it, whole or not at all; also while a fit runs.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_save`.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = c_path("training_save: folder", folder.as_ref())?;
        // SAFETY: the path lives until the call returns.
        check(unsafe { sys::cow_mlx_training_save(self.raw, folder.as_ptr()) })
    }

    /// Go on where one of the same program or model, and params, was saved.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_load`.
    pub fn load(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = c_path("training_load: folder", folder.as_ref())?;
        // SAFETY: the path lives until the call returns.
        check(unsafe { sys::cow_mlx_training_load(self.raw, folder.as_ptr()) })
    }

    /// What was trained of a language model, as it is now, for contexts of `model`.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_adapter`.
    pub fn adapter<'m>(&self, model: impl Into<Owner<'m, Model<'m>>>) -> Result<Adapter<'m>> {
        let mut raw = 0;
        // SAFETY: takes any handle.
        let status = unsafe { sys::cow_mlx_training_adapter(self.raw, &mut raw) };
        opened(status, || Adapter::open(raw, model.into()))
    }

    /// Write what was trained of a language model as mlx-lm reads it, with options as JSON.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_export`.
    pub fn export(&self, folder: impl AsRef<Path>, options_json: Option<&str>) -> Result<()> {
        let folder = c_path("training_export: folder", folder.as_ref())?;
        let options =
            options_json.map(|text| c_text("training_export: options_json", text)).transpose()?;
        // SAFETY: the texts live until the call returns.
        check(unsafe {
            sys::cow_mlx_training_export(self.raw, folder.as_ptr(), pointer(options.as_ref()))
        })
    }

    /// End the call that runs on it, from any thread and at any time. Never blocks.
    ///
    /// # Errors
    /// [`InvalidHandle`](Status::InvalidHandle) if the runtime was stopped.
    pub fn cancel(&self) -> Result<()> {
        // SAFETY: takes any value, from any thread.
        let status = unsafe { sys::cow_mlx_training_cancel(self.raw) };
        if status == sys::COW_MLX_OK {
            return Ok(());
        }
        // The call sets no message, as it may be made in signal handlers.
        Err(Error::new(Status::from_code(status), "training_cancel: no such training is open"))
    }

    /// The handle, for calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_training {
        self.raw
    }
}

impl Drop for Training<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's, and is freed once.
        unsafe { sys::cow_mlx_training_free(self.raw) };
        callback::forget_panic();
    }
}

/// Make a call with params as C has them.
fn with<'r>(
    params: &FitParams<'_>,
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
    let folder = path("folder", &params.folder)?;
    let lines = text("lines", &params.lines)?;
    let lines_file = path("lines_file", &params.lines_file)?;
    let validation_lines = text("validation_lines", &params.validation_lines)?;
    let validation_file = path("validation_file", &params.validation_file)?;
    let lines_options = text("lines_options", &params.lines_options)?;
    let mut filled = params.filled();
    let raw = &mut filled.raw;
    raw.inputs = params.inputs.as_ptr();
    raw.inputs_count = params.inputs.len();
    raw.validation = params.validation.as_ptr();
    raw.validation_count = params.validation.len();
    raw.folder = pointer(folder.as_ref());
    raw.lines = pointer(lines.as_ref());
    raw.lines_file = pointer(lines_file.as_ref());
    raw.validation_lines = pointer(validation_lines.as_ref());
    raw.validation_file = pointer(validation_file.as_ref());
    raw.lines_options = pointer(lines_options.as_ref());
    raw.user_data = null_mut();
    if let Some(next_batch) = &mut next_batch {
        raw.next_batch = Some(on_batch);
        raw.user_data = (&raw mut *next_batch).cast();
    }
    call(filled.as_ptr())
}

fn optional(what: &str, text: Option<&String>) -> Result<Option<CString>> {
    text.map(|text| c_text(what, text)).transpose()
}

fn pointer(text: Option<&CString>) -> *const std::ffi::c_char {
    text.map_or(null(), |text| text.as_ptr())
}

/// # Safety
/// `closure` is a `*mut F`, and nothing else uses it.
unsafe extern "C" fn on_training<F: FnMut(&TrainingEvent) -> bool>(
    event: *const sys::cow_mlx_training_event,
    closure: *mut c_void,
) -> bool {
    // SAFETY: the caller's, and the header's.
    callback::guard(|| unsafe { (*closure.cast::<F>())(&TrainingEvent::new(&*event)) })
}

/// # Safety
/// `closure` is a `*mut &mut NextBatch`, and `inputs` has room for `count` handles.
unsafe extern "C" fn on_batch(
    step: usize,
    inputs: *mut sys::cow_mlx_array,
    count: usize,
    closure: *mut c_void,
) -> bool {
    callback::guard(|| {
        // SAFETY: the caller's.
        let next_batch = unsafe { &mut *closure.cast::<&mut NextBatch<'_, '_>>() };
        let Some(batch) = next_batch(step) else { return false };
        // Of another number none is given: the library says what it lacks.
        if batch.len() == count {
            for (at, array) in batch.into_iter().enumerate() {
                // SAFETY: the caller's.
                unsafe { inputs.add(at).write(array.into_raw()) };
            }
        }
        true
    })
}
