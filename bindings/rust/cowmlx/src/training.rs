//! Training: what makes the loss of a program or of a language model small.

use std::ffi::c_void;

use crate::adapter::Adapter;
use crate::array::Array;
use crate::error::{Result, check, check_cancel, opened};
use crate::model::Model;
use crate::owner::Owner;
use crate::params::{FitParams, TrainingParams};
use crate::program::{Input, Program};
use crate::records::TrainingEvent;
use crate::runtime::Runtime;
use crate::transfer::c_text;
use crate::{callback, sys};

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

    /// Train a language model, which does not change, and may be dropped then.
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
        let mut raw = 0;
        let status = params.with("training_create", |given| make(given, &mut raw))?;
        opened(status, || Self { raw, runtime })
    }

    /// Make a step on a batch.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_step`.
    pub fn step(&self, inputs: &[Input<'_>]) -> Result<TrainingEvent> {
        let values: Vec<_> = inputs.iter().map(Input::value).collect();
        let mut event = TrainingEvent::raw();
        // SAFETY: the values and what they point to live until the call returns.
        check(unsafe {
            sys::cow_mlx_training_step(self.raw, values.as_ptr(), values.len(), &mut event)
        })?;
        Ok(TrainingEvent::from_raw(&event))
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
        params.with("training_fit", next_batch, |given| {
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
        let mut event = TrainingEvent::raw();
        params.with("training_evaluate", None, |given| {
            // SAFETY: the struct and what it points to live until the call returns.
            check(unsafe { sys::cow_mlx_training_evaluate(self.raw, given, &mut event) })
        })?;
        Ok(TrainingEvent::from_raw(&event))
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

    /// The current weights of a language model as an adapter, for contexts of `model`.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_training_adapter`.
    pub fn adapter<'m>(&self, model: impl Into<Owner<'m, Model<'m>>>) -> Result<Adapter<'m>> {
        let mut raw = 0;
        // SAFETY: takes any handle.
        let status = unsafe { sys::cow_mlx_training_adapter(self.raw, &mut raw) };
        opened(status, || Adapter::open(raw, model.into()))
    }

    /// End the call that runs on it, from any thread and at any time. Never blocks.
    ///
    /// # Errors
    /// [`InvalidHandle`](crate::Status::InvalidHandle) if the runtime was stopped.
    pub fn cancel(&self) -> Result<()> {
        // SAFETY: takes any value, from any thread.
        check_cancel(unsafe { sys::cow_mlx_training_cancel(self.raw) }, "training")
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

pub(crate) type NextBatch<'a, 'r> = dyn FnMut(usize) -> Option<Vec<Array<'r>>> + 'a;

/// # Safety
/// `closure` is a `*mut F`, and nothing else uses it.
unsafe extern "C" fn on_training<F: FnMut(&TrainingEvent) -> bool>(
    event: *const sys::cow_mlx_training_event,
    closure: *mut c_void,
) -> bool {
    // SAFETY: the caller's, and the header's.
    callback::guard(|| unsafe { (*closure.cast::<F>())(&TrainingEvent::from_raw(&*event)) })
}

/// # Safety
/// `closure` is a `*mut &mut NextBatch`, and `inputs` has room for `count` handles.
pub(crate) unsafe extern "C" fn on_batch(
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
