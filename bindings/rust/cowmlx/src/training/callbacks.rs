//! What the library calls while a training runs.

use std::ffi::c_void;

use super::events::TrainingEvent;
use crate::array::Array;
use crate::{callback, sys};

pub(crate) type NextBatch<'a, 'r> = dyn FnMut(usize) -> Option<Vec<Array<'r>>> + 'a;

/// # Safety
/// `closure` is a `*mut F`, and nothing else uses it.
pub(crate) unsafe extern "C" fn on_training<F: FnMut(&TrainingEvent) -> bool>(
    event: *const sys::cow_mlx_training_event,
    closure: *mut c_void,
) -> bool {
    // SAFETY: the caller's, and the header's.
    callback::guard(|| unsafe { (*closure.cast::<F>())(&TrainingEvent::new(&*event)) })
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
