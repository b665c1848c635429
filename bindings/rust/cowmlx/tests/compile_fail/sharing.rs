//! Each marked line is refused with the error that it names; without these lines all is well.

use cowmlx::{CancelHandle, Context, Generation, Model};

fn is_sync<T: Sync>(_: &T) {}

fn calls_on_one_context_are_made_one_at_a_time(context: &Context<'_>) {
    is_sync(context); //~ E0277
}

fn those_on_its_generation_too(generation: &Generation<'_>) {
    is_sync(generation); //~ E0277
}

fn a_model_and_a_cancellation_are_for_all_threads(model: &Model<'_>, cancel: &CancelHandle) {
    is_sync(model);
    is_sync(cancel);
}

fn main() {}
