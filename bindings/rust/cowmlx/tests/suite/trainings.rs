use std::ops::ControlFlow;

use cowmlx::{
    Array, Context, FitEnd, FitParams, GenerationParams, Input, Program, Status, Training,
    TrainingEventKind, TrainingParams,
};

use crate::support::{calf, model, prompt, runtime};

// y is 3 x.
const SLOPE: &str = r#"{
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", 1]},
               {"name": "y", "dtype": "float32", "shape": ["rows"]}],
    "parameters": [{"name": "w", "dtype": "float32", "shape": [1], "init": "zeros"}],
    "nodes": [{"name": "z", "op": "matmul", "inputs": ["x", "w"]},
              {"name": "loss", "op": "mse_loss", "inputs": ["z", "y"]}],
    "outputs": ["loss"]}"#;

fn params() -> TrainingParams<'static> {
    TrainingParams::new().optimizer(r#"{"name": "sgd", "learning_rate": 0.2}"#)
}

fn slope() -> Training<'static> {
    let program = Program::new(runtime(), SLOPE).unwrap();
    Training::of_program(&program, &params()).unwrap()
}

fn batch(step: usize) -> Vec<Array<'static>> {
    let far = [0f32, 1.0, 2.0][step % 3];
    let x = Array::new(runtime(), &[1.0, far], &[2, 1]).unwrap();
    vec![x, Array::new(runtime(), &[3.0, 3.0 * far], &[2]).unwrap()]
}

fn slope_of(training: &Training<'_>) -> f32 {
    training.parameter("w").unwrap().to_vec::<f32>().unwrap()[0]
}

#[test]
fn a_program_is_trained() {
    let training = slope();
    let inputs =
        [Input::new(&[1f32, 2.0], &[2, 1]).unwrap(), Input::new(&[3f32, 6.0], &[2]).unwrap()];
    let first = training.step(&inputs).unwrap();
    assert_eq!((first.kind, first.step, first.loss), (TrainingEventKind::Step, 1, 22.5));
    let mut kinds = Vec::new();
    let mut finish = FitEnd::None;
    training
        .fit_batches(
            &FitParams::new().steps(40),
            |step| Some(batch(step)),
            |event| {
                kinds.push(event.kind);
                finish = event.finish;
                true
            },
        )
        .unwrap();
    assert_eq!((kinds.len(), finish), (40, FitEnd::Steps));
    assert!((slope_of(&training) - 3.0).abs() < 1e-2);
    assert!(training.info().unwrap().contains("\"step\": 40"));
    let (x, y) = (batch(1).remove(0), batch(1).remove(1));
    let found = training.evaluate(&FitParams::new().inputs(&[&x, &y])).unwrap();
    assert!(found.validation_loss < 1e-3 && found.targets == 2);
    training.cancel().unwrap();
}

#[test]
fn a_training_goes_on_where_it_was_saved() {
    let folder = std::env::temp_dir().join(format!("cowmlx-training-{}", std::process::id()));
    let training = slope();
    training.fit_batches(&FitParams::new().steps(5), |step| Some(batch(step)), |_| true).unwrap();
    training.save(&folder).unwrap();
    let program = Program::new(runtime(), SLOPE).unwrap();
    let start = Array::new(runtime(), &[7f32], &[1]).unwrap();
    let other = Training::of_program(&program, &params().initial("w", &start)).unwrap();
    assert_eq!(slope_of(&other), 7.0);
    other.load(&folder).unwrap();
    assert_eq!(slope_of(&other), slope_of(&training));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(other.load(&folder).unwrap_err().status(), Status::NotFound);
}

#[test]
fn what_cannot_be_is_refused() {
    let training = slope();
    let nothing = training.fit(&FitParams::new().steps(1), |_| true).unwrap_err();
    assert_eq!((nothing.status(), nothing.reason()), (Status::InvalidArgument, "missing"));
    let few = training.fit_batches(&FitParams::new(), |_| Some(Vec::new()), |_| true).unwrap_err();
    assert_eq!(few.status(), Status::InvalidArgument);
    let refused = training
        .fit_batches(&FitParams::new().steps(3), |step| Some(batch(step)), |_| false)
        .unwrap_err();
    assert_eq!((refused.status(), refused.reason()), (Status::Canceled, "callback_refused"));
    training.fit_batches(&FitParams::new(), |_| None, |_| true).unwrap();
    assert_eq!(training.adapter(model()).unwrap_err().status(), Status::Unsupported);
    let program = Program::new(runtime(), SLOPE).unwrap();
    let unknown = Training::of_program(&program, &params().train(["v"])).unwrap_err();
    assert!(unknown.message().contains("train[0]"));
}

#[test]
fn a_panic_of_a_closure_goes_on() {
    let training = slope();
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        training.fit_batches(&FitParams::new().steps(3), |_| panic!("no data"), |_| true)
    }));
    assert_eq!(panics.unwrap_err().downcast_ref::<&str>(), Some(&"no data"));
}

#[test]
fn a_model_is_trained_and_a_context_takes_it() {
    let options = TrainingParams::new()
        .optimizer(r#"{"name": "adam", "learning_rate": 0.0005}"#)
        .fine_tune(r#"{"rank": 4, "num_layers": 2}"#)
        .seed(3)
        .clip_norm(1.0);
    let model = model();
    let training = Training::of_model(&model, &options).unwrap();
    let line = r#"{"messages": [{"role": "user", "content": "Who is Ada?"},
        {"role": "assistant", "content": "The calf."}]}"#;
    let line = line.replace('\n', " ");
    let mut losses = Vec::new();
    let params = FitParams::new().steps(4).lines(line.as_str()).validation_lines(line.as_str());
    let flow: ControlFlow<()> = ControlFlow::Continue(());
    training
        .fit(&params.lines_options(r#"{"mask_prompt": true}"#), |event| {
            if event.kind == TrainingEventKind::Step {
                losses.push(event.loss);
            }
            flow.is_continue()
        })
        .unwrap();
    assert!(losses.len() == 4 && losses[3] < losses[0]);
    let adapter = training.adapter(&model).unwrap();
    let mut context = Context::new(&model).unwrap();
    context.set_adapter(Some(&adapter)).unwrap();
    let few = GenerationParams::new().max_tokens(2);
    let stats = context.generate(&prompt("Who is Ada?"), &few, |_| true).unwrap();
    assert!(stats.generated_tokens > 0);
    let folder = std::env::temp_dir().join(format!("cowmlx-adapter-{}", std::process::id()));
    training.export(&folder, None).unwrap();
    assert!(folder.join("adapters.safetensors").exists() && calf().exists());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(feature = "serde")]
#[test]
fn options_are_read_and_written() {
    let text = r#"{"seed":3,"clip_norm":1.5,"optimizer":"{\"name\": \"sgd\"}","train":["w*"]}"#;
    let read: TrainingParams = serde_json::from_str(text).unwrap();
    let built =
        TrainingParams::new().seed(3).clip_norm(1.5).optimizer(r#"{"name": "sgd"}"#).train(["w*"]);
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!(serde_json::to_string(&built).unwrap(), text);
    let text = r#"{"steps":2,"shuffle":false,"folder":"run","lines":"{}"}"#;
    let read: FitParams = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!(serde_json::to_string(&FitParams::new()).unwrap(), "{}");
    let unknown = serde_json::from_str::<FitParams>(r#"{"step":2}"#).unwrap_err();
    assert!(unknown.to_string().contains("unknown field `step`"));
}

#[cfg(feature = "serde")]
#[test]
fn options_that_were_read_are_used_and_events_written() {
    let program = Program::new(runtime(), SLOPE).unwrap();
    let given = r#"{"optimizer": "{\"name\": \"sgd\", \"learning_rate\": 0.2}", "train": ["w"]}"#;
    let training = Training::of_program(&program, &serde_json::from_str(given).unwrap()).unwrap();
    let mut events = Vec::new();
    training
        .fit_batches(
            &serde_json::from_str(r#"{"steps": 1}"#).unwrap(),
            |step| Some(batch(step)),
            |event| {
                events.push(serde_json::to_string(event).unwrap());
                true
            },
        )
        .unwrap();
    assert!(events[0].starts_with(r#"{"kind":"Step","finish":"None","step":1,"steps":1,"#));
    assert!(events[0].contains(r#""validation_loss":null"#));
}
