use std::sync::Mutex;

use cowmlx::{Activations, Model, ModelParams, Special, Status};

use crate::support::{calf, model, parse, runtime};

#[test]
fn text_survives_its_tokens() {
    for text in ["Once upon a time", "ü 🙂 \0 end", ""] {
        let tokens = model().tokenize(text, Special::NONE).unwrap();
        assert_eq!(model().detokenize(&tokens, Special::NONE).unwrap(), text);
    }
}

#[test]
fn special_tokens_are_treated_as_asked() {
    let model = model();
    let plain = model.tokenize("Hello", Special::NONE).unwrap();
    let opened = model.tokenize("Hello", Special::ADD).unwrap();
    assert!(opened.len() > plain.len());
    assert_ne!(
        model.detokenize(&opened, Special::NONE).unwrap(),
        model.detokenize(&opened, Special::SKIP).unwrap()
    );
    let mark = model.detokenize(&opened[..1], Special::NONE).unwrap();
    assert_eq!(model.tokenize(&mark, Special::PARSE).unwrap().len(), 1);
    assert!(model.tokenize(&mark, Special::NONE).unwrap().len() > 1);
    let both = model.tokenize(&mark, Special::ADD | Special::PARSE).unwrap();
    assert_eq!(both, [opened[0], opened[0]]);
}

#[test]
fn a_flag_of_the_other_direction_is_refused() {
    let error = model().tokenize("Hello", Special::SKIP).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

#[test]
fn a_long_text_fits() {
    let text = "Once upon a time. ".repeat(500);
    let tokens = model().tokenize(&text, Special::NONE).unwrap();
    assert_eq!(model().detokenize(&tokens, Special::NONE).unwrap(), text);
}

#[test]
fn information_is_json() {
    assert_eq!(parse(model().info())["architecture"], "llama");
    assert!(parse(runtime().info())["architectures"].as_array().unwrap().len() > 10);
    runtime().memory_trim().unwrap();
}

#[test]
fn progress_rises_to_one() {
    let heard = Mutex::new(Vec::new());
    let params = ModelParams::new().progress(|fraction, stage| {
        assert!(!stage.is_empty());
        heard.lock().unwrap().push(fraction);
        true
    });
    let model = Model::load_with(runtime(), calf(), &params).unwrap();
    drop(params);
    let heard = heard.into_inner().unwrap();
    assert!(heard.is_sorted() && heard.last() == Some(&1.0), "{heard:?}");
    assert!(model.is_end(-1).is_ok_and(|end| !end));
}

#[test]
fn a_false_cancels_a_load() {
    let params = ModelParams::new().progress(|_, _| false);
    let error = Model::load_with(runtime(), calf(), &params).unwrap_err();
    assert_eq!(error.status(), Status::Canceled);
}

#[test]
fn parameters_of_a_load_reach_the_library() {
    let params = ModelParams::new().lazy(true).trust_remote_code(true).prefix_cache_bytes(0);
    assert!(Model::load_with(runtime(), calf(), &params).is_ok());
    let exact = params.clone().activations(Activations::Exact);
    assert!(Model::load_with(runtime(), calf(), &exact).is_ok());
    let packed = params.clone().activations(Activations::Int8);
    let error = Model::load_with(runtime(), calf(), &packed).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    let missing = params.adapter_path("no such adapter");
    let error = Model::load_with(runtime(), calf(), &missing).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
}
