//! Each marked line is refused with the error that it names; without these lines all is well.

use std::os::fd::AsRawFd;

use cowmlx::{Context, Event, GenerationParams, Model, ModelParams, Result, Runtime};

fn a_runtime_is_not_dropped_before_its_model(runtime: Runtime) -> Result<()> {
    let model = Model::load(&runtime, "model")?;
    drop(runtime); //~ E0505
    model.info().map(drop)
}

fn a_model_is_not_dropped_before_its_context(model: Model<'_>) -> Result<()> {
    let context = Context::new(&model)?;
    drop(model); //~ E0505
    context.info().map(drop)
}

fn a_model_is_not_used_behind_its_drop(model: Model<'_>) {
    drop(model);
    let _ = model.info(); //~ E0382
}

fn a_context_is_not_dropped_before_its_generation(mut context: Context<'_>) -> Result<()> {
    let mut generation = context.begin(&[1], &GenerationParams::new())?;
    drop(context); //~ E0505
    generation.next();
    Ok(())
}

fn a_context_is_not_changed_during_a_generation(mut context: Context<'_>) -> Result<()> {
    let mut generation = context.begin(&[1], &GenerationParams::new())?;
    context.reset()?; //~ E0499
    generation.next();
    Ok(())
}

fn a_context_is_asked_through_its_generation(mut context: Context<'_>) -> Result<()> {
    let mut generation = context.begin(&[1], &GenerationParams::new())?;
    context.stats()?; //~ E0502
    generation.stats()?;
    generation.next();
    Ok(())
}

fn one_generation_at_a_time(mut context: Context<'_>) -> Result<()> {
    let mut first = context.begin(&[1], &GenerationParams::new())?;
    let second = context.begin(&[1], &GenerationParams::new())?; //~ E0499
    first.next();
    Ok(())
}

fn a_context_is_not_used_within_its_own_call(mut context: Context<'_>) -> Result<()> {
    let params = GenerationParams::new();
    context.generate(&[1], &params, |_| context.tokens().is_ok())?; //~ E0502
    Ok(())
}

fn a_descriptor_is_not_kept_behind_its_context(context: Context<'_>) -> Result<i32> {
    let descriptor = context.wake_fd()?;
    drop(context); //~ E0505
    Ok(descriptor.as_raw_fd())
}

fn text_is_not_kept_behind_its_callback(mut context: Context<'_>) -> Result<()> {
    let mut parts: Vec<&str> = Vec::new();
    context.generate(&[1], &GenerationParams::new(), |text| {
        parts.push(text); //~ E0521
        true
    })?;
    Ok(())
}

fn an_event_is_not_kept_behind_its_callback(mut context: Context<'_>) -> Result<()> {
    let mut events: Vec<Event<'_>> = Vec::new();
    context.chat("[]", None, &GenerationParams::new(), |event| {
        events.push(event); //~ E0521
        true
    })?;
    Ok(())
}

fn what_a_closure_uses_is_not_dropped_before_it(heard: Vec<i32>) -> Result<()> {
    let params = ModelParams::new().progress(|_, _| heard.is_empty());
    drop(heard); //~ E0505
    Model::load_with(Runtime::start()?, "model", &params).map(drop)
}

fn a_draft_is_not_dropped_before_its_use(draft: Model<'_>, mut context: Context<'_>) -> Result<()> {
    let params = GenerationParams::new().draft(&draft);
    drop(draft); //~ E0505
    context.begin(&[1], &params).map(drop)
}

fn a_shared_model_needs_no_borrow(model: std::sync::Arc<Model<'static>>) -> Result<()> {
    let context: Context<'static> = Context::new(model.clone())?;
    drop(model);
    context.info().map(drop)
}

fn main() {}
