#![allow(unused_imports, unused_mut, unused_variables)]

use cowmlx::{Context, Event, Finish, GenerationParams, Model, Result, Runtime, Special, Status};

fn main() -> Result<()> {
    let runtime = Runtime::start()?;
    let model = Model::load(&runtime, "models/calf")?;
    let mut context = Context::new(&model)?;
    {
        /* BLOCK */
    }
    Ok(())
}
