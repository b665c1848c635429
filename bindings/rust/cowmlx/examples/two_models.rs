//! Two models answer at the same time: `two_models [MODEL [MODEL]]`.
//!
//! Each has a thread; the library lets them take turns, token by token.

use std::env;
use std::error::Error;
use std::thread;

use cowmlx::{Context, Event, GenerationParams, Model, Result, Runtime};

const QUESTIONS: [&str; 2] = [
    r#"[{"role": "user", "content": "What colour is a fox?"}]"#,
    r#"[{"role": "user", "content": "Tell me a story about an owl."}]"#,
];

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let first = arguments.next().unwrap_or("models/calf".into());
    let second = arguments.next().unwrap_or(first.clone());

    let runtime = Runtime::start()?;
    let models = [Model::load(&runtime, &first)?, Model::load(&runtime, &second)?];
    thread::scope(|scope| {
        let pairs = models.iter().zip(QUESTIONS);
        let threads: Vec<_> = pairs.map(|pair| scope.spawn(|| answer(pair.0, pair.1))).collect();
        for (thread, path) in threads.into_iter().zip([first, second]) {
            let (text, tokens) = thread.join().expect("it does not panic")?;
            println!("{path}, {tokens} tokens: {text}");
        }
        Ok(())
    })
}

/// The answer of a model, and how many tokens it has.
fn answer(model: &Model<'_>, messages: &str) -> Result<(String, usize)> {
    let mut answer = String::new();
    let stats = Context::new(model)?.chat(messages, None, &GenerationParams::new(), |event| {
        if let Event::Text(text) = event {
            answer += &text;
        }
        true
    })?;
    Ok((answer, stats.generated_tokens))
}
