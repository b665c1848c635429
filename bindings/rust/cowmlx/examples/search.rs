//! Search the lines of a file by meaning: `search MODEL FILE QUERY...`.
//!
//! The model is one for embeddings, such as all-MiniLM-L6-v2. Where its folder has prompts named
//! "query" and "document", they are used. Prints the best lines for each query.

use std::env;
use std::error::Error;
use std::fs;

use cowmlx::{EmbedParams, Embeddings, Model, Result, Runtime, Status};

const SHOWN: usize = 3;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, file, queries @ ..] = arguments.as_slice() else {
        return Err("usage: search MODEL FILE QUERY...".into());
    };
    let runtime = Runtime::start()?;
    let model = Model::load(&runtime, path)?;
    let text = fs::read_to_string(file)?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let vectors = embed(&model, &lines, "document")?;

    for query in queries {
        let wanted = embed(&model, &[query], "query")?;
        let wanted = wanted.rows().next().expect("there is one text");
        let mut found: Vec<(f32, &str)> =
            vectors.rows().map(|row| cosine(row, wanted)).zip(lines.iter().copied()).collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        println!("{query}");
        for (similarity, line) in found.iter().take(SHOWN) {
            println!("  {similarity:.4}  {line}");
        }
    }
    Ok(())
}

/// Vectors of length 1, with a prompt of the folder where it has one of that name.
fn embed(model: &Model<'_>, texts: &[impl AsRef<str>], prompt: &str) -> Result<Embeddings> {
    match model.embed(texts, &EmbedParams::new().prompt_name(prompt)) {
        Err(error) if error.status() == Status::InvalidArgument => {
            model.embed(texts, &EmbedParams::new())
        }
        found => found,
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
