//! What a training tells.

use crate::sys;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    pub(super) fn new(event: &sys::cow_mlx_training_event) -> Self {
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
    pub(super) fn empty() -> sys::cow_mlx_training_event {
        // SAFETY: all zeros is a value of it.
        let mut event: sys::cow_mlx_training_event = unsafe { std::mem::zeroed() };
        event.struct_size = size_of::<sys::cow_mlx_training_event>();
        event
    }
}
