//! Let a model fill in a form, as JSON: `json [MODEL]`.
//!
//! A grammar leaves it no other way: whatever it says has these keys and these types.

use std::env;
use std::error::Error;

use cowmlx::{Context, GenerationParams, Grammar, Model, Runtime};
use serde_json::{Value, json};

/// As text, since the model fills in the keys in this order.
const FORM: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"enum": ["cow", "fox", "owl"]},
        "colour": {"type": "string", "pattern": "^[a-z]{3,9}$"},
        "sound": {"type": "string", "maxLength": 12},
        "legs": {"type": "integer", "minimum": 2, "maximum": 4},
        "tame": {"type": "boolean"}
    },
    "required": ["name", "colour", "sound", "legs", "tame"],
    "additionalProperties": false
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let params = GenerationParams::new().grammar(Grammar::JsonSchema(FORM.into()));

    let path = env::args().nth(1).unwrap_or("models/calf".into());
    let model = Model::load(Runtime::start()?, path)?;
    let mut context = Context::new(&model)?;
    for question in ["Describe a cow.", "Describe an owl."] {
        let messages = json!([{"role": "user", "content": question}]).to_string();
        let tokens = model.chat_prompt(&messages, None)?;
        let pieces = context.begin(&tokens, &params)?;
        let text: String = pieces.map(|piece| Ok(piece?.text)).collect::<cowmlx::Result<_>>()?;
        let animal: Value = serde_json::from_str(&text)?;
        println!("{text}");
        eprintln!("It has {} legs and says {}.", animal["legs"], animal["sound"]);
    }
    Ok(())
}
