use std::fs;
use std::path::Path;

use cowmlx::{Adapter, GenerationParams, Status};
use serde_json::json;

use crate::support::{Folder, context, model, parse, pieces, story, tokens};

const NAME: &str = "model.layers.0.self_attn.q_proj";
const RANK: usize = 2;

/// Write a LoRA adapter for the first layer of models/calf, as mlx-lm's trainer does.
fn write(folder: &Path) {
    let config = json!({
        "fine_tune_type": "lora",
        "num_layers": 0,
        "lora_parameters": {"rank": RANK, "scale": 10.0, "dropout": 0.0, "keys": [NAME]},
    });
    fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    let size = 128 * RANK * 4;
    let header = json!({
        format!("{NAME}.lora_a"): {"dtype": "F32", "shape": [128, RANK], "data_offsets": [0, size]},
        format!("{NAME}.lora_b"): {"dtype": "F32", "shape": [RANK, 128], "data_offsets": [size, 2 * size]},
    });
    let header = header.to_string().into_bytes();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    for value in 0..2 * 128 * RANK {
        file.extend(((value as f32 * 0.7).sin() * 0.3).to_le_bytes());
    }
    fs::write(folder.join("adapters.safetensors"), file).unwrap();
}

#[test]
fn an_adapter_changes_a_context_until_it_is_taken_away() {
    let folder = Folder::new("adapter");
    write(&folder.0);
    let params = GenerationParams::new().max_tokens(30);
    let mut context = context();
    let plain = tokens(&pieces(context.begin(&story(), &params).unwrap()));

    let adapter = Adapter::load(model(), &folder.0, 1.0).unwrap();
    context.set_adapter(Some(&adapter)).unwrap();
    assert_eq!(parse(context.info())["adapter"], adapter.as_raw());
    drop(adapter); // the context keeps it
    let adapted = tokens(&pieces(context.begin(&story(), &params).unwrap()));
    assert_ne!(adapted, plain);

    context.set_adapter(None).unwrap();
    assert_eq!(tokens(&pieces(context.begin(&story(), &params).unwrap())), plain);
}

#[test]
fn a_missing_adapter_is_refused() {
    let error = Adapter::load(model(), "no such folder", 1.0).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
}
