//! Each marked line is refused with the error that it names; without these lines all is well.

use cowmlx::{Context, GenerationParams};

fn a_context_is_not_used_while_it_streams(mut context: Context<'_>) {
    let stream = context.stream([1], &GenerationParams::new());
    let _ = context.tokens(); //~ E0502
    drop(stream);
}

fn a_context_is_not_dropped_before_its_stream(mut context: Context<'_>) {
    let stream = context.stream([1], &GenerationParams::new());
    drop(context); //~ E0505
    drop(stream);
}

fn what_a_closure_uses_must_live_as_long_as_the_helper_thread(mut context: Context<'static>) {
    let heard = Vec::<i32>::new();
    let params = GenerationParams::new().prompt_progress(move |_, _| heard.is_empty());
    drop(context.stream([1], &params));
}

fn main() {}
