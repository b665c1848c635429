//! A question to a model: `cargo run -- MODEL`.

use std::env;
use std::io::{Write, stdout};

use cowmlx::{Context, Event, GenerationParams, Model, Result, Runtime};

const QUESTION: &str = r#"[{"role": "user", "content": "What is 3 + 4?"}]"#;

fn main() -> Result<()> {
    let folder = env::args().nth(1).unwrap_or("models/calf".into());
    let runtime = Runtime::start()?;
    let model = Model::load(&runtime, folder)?;
    let mut context = Context::new(&model)?;
    context.chat(QUESTION, None, &GenerationParams::new(), |event| {
        if let Event::Text(text) = event {
            print!("{text}");
        }
        stdout().flush().is_ok()
    })?;
    println!();
    Ok(())
}
