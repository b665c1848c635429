//! One runtime and one model for all tests of the process.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use cowmlx::{Context, Event, Generation, Model, Piece, Result, Runtime, Token};
use serde_json::{Value, json};

static RUNTIME: LazyLock<Arc<Runtime>> =
    LazyLock::new(|| Arc::new(Runtime::start().expect("the runtime starts")));

static MODEL: LazyLock<Arc<Model<'static>>> =
    LazyLock::new(|| Arc::new(Model::load(runtime(), calf()).expect("models/calf loads")));

pub fn runtime() -> Arc<Runtime> {
    Arc::clone(&RUNTIME)
}

pub fn model() -> Arc<Model<'static>> {
    Arc::clone(&MODEL)
}

pub fn context() -> Context<'static> {
    Context::new(model()).expect("a context")
}

/// The bundled model.
pub fn calf() -> PathBuf {
    match std::env::var_os("COWMLX_TEST_MODEL") {
        Some(folder) => folder.into(),
        None => concat!(env!("CARGO_MANIFEST_DIR"), "/../../../models/calf").into(),
    }
}

/// A conversation of one message.
pub fn says(text: &str) -> String {
    json!([{"role": "user", "content": text}]).to_string()
}

/// That conversation as a prompt.
pub fn prompt(text: &str) -> Vec<Token> {
    model().chat_prompt(&says(text), None).expect("a prompt")
}

/// A prompt whose answer is long.
pub fn story() -> Vec<Token> {
    prompt("Tell me a story about an owl.")
}

pub fn pieces(generation: Generation<'_>) -> Vec<Piece> {
    generation.collect::<Result<_>>().expect("pieces")
}

pub fn text(pieces: &[Piece]) -> String {
    pieces.iter().map(ToString::to_string).collect()
}

pub fn tokens(pieces: &[Piece]) -> Vec<Token> {
    pieces.iter().map(|piece| piece.token).collect()
}

/// The text of an answer.
pub fn said(events: &[Event<'_>]) -> String {
    let text = |event: &Event<'_>| match event {
        Event::Text(text) => text.to_string(),
        _ => String::new(),
    };
    events.iter().map(text).collect()
}

pub fn parse(info: Result<String>) -> Value {
    serde_json::from_str(&info.expect("information")).expect("JSON")
}

/// A folder that is removed in the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cowmlx-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
