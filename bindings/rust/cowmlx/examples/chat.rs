//! Talk with a model in the terminal: `chat MODEL [SYSTEM PROMPT]`.
//!
//! One line is one message; end with ^D.

use std::env;
use std::error::Error;
use std::io::{self, Write};

use cowmlx::{Context, Event, Finish, GenerationParams, Model, Runtime};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: chat MODEL [SYSTEM PROMPT]")?;
    let model = Model::load(Runtime::start()?, path)?;
    let mut context = Context::new(&model)?;

    let mut messages: Vec<Value> = Vec::new();
    if let Some(prompt) = arguments.next() {
        messages.push(json!({"role": "system", "content": prompt}));
    }
    eprint!("> ");
    for line in io::stdin().lines() {
        let line = line?;
        if !line.is_empty() {
            messages.push(json!({"role": "user", "content": line}));
            match answer(&mut context, &messages) {
                Ok(text) => messages.push(json!({"role": "assistant", "content": text})),
                Err(error) => {
                    eprintln!("{error}");
                    messages.pop(); // as if the line had not been said
                }
            }
        }
        eprint!("> ");
    }
    Ok(())
}

/// Print what comes, and keep the answer: the next turn needs it.
fn answer(context: &mut Context<'_>, messages: &[Value]) -> cowmlx::Result<String> {
    let mut answer = String::new();
    let messages = Value::from(messages).to_string();
    context.chat(&messages, None, &GenerationParams::new(), |event| {
        match event {
            Event::Text(text) => {
                print!("{text}");
                answer += &text;
            }
            Event::Reasoning(text) => eprint!("{text}"),
            Event::ToolCall { name, arguments } => print!("[{name} {arguments}]"),
            Event::End(Finish::Length) => println!(" ..."),
            Event::End(_) => println!(),
            _ => {}
        }
        io::stdout().flush().is_ok()
    })?;
    Ok(answer)
}
