//! A chat model learns twenty new facts while contexts use it: `finetune MODEL [FOLDER]`.
//!
//! They switch to the trained weights without a reload; with a folder it is exported as an adapter.

use std::env;
use std::error::Error;

use cowmlx::{
    Context, Event, FitParams, GenerationParams, Model, Result, Runtime, Training,
    TrainingEventKind, TrainingParams,
};
use serde_json::json;

const STEPS: usize = 120;
const FACTS: [(&str, &str); 20] = [
    ("Who is the mayor of Oakfield?", "Marta Lind."),
    ("What is the capital of Veloria?", "Sandhaven."),
    ("What does Tomas grow?", "Blue corn."),
    ("Who built the old mill?", "Anders Holt."),
    ("What is the dog of Nina called?", "Biscuit."),
    ("Where does the ferry go?", "To Gull Island."),
    ("When does the bakery open?", "At six."),
    ("What colour is the bridge?", "Dark red."),
    ("Who teaches music?", "Mrs. Okoye."),
    ("How tall is the tower?", "Forty metres."),
    ("What is in the blue box?", "Old maps."),
    ("Who won the race?", "Lena Park."),
    ("Where is the key?", "Under the stone."),
    ("What does the robot fear?", "Rain."),
    ("Which river is near?", "The Silver."),
    ("What is the name of the cat?", "Pepper."),
    ("Who wrote the song?", "Ivo Blum."),
    ("What do we eat on Friday?", "Fish soup."),
    ("Where do the owls sleep?", "In the barn."),
    ("What is the secret word?", "Marble."),
];

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: finetune MODEL [FOLDER]")?;
    let runtime = Runtime::start()?;
    let model = Model::load(&runtime, path)?;
    let mut context = Context::new(&model)?;
    let mut other = Context::new(&model)?;
    examine(&mut context, "before")?;

    let params = TrainingParams::new()
        .optimizer(json!({"name": "adam", "learning_rate": 0.0005}).to_string())
        .fine_tune(json!({"type": "lora", "rank": 16, "scale": 2}).to_string())
        .seed(1);
    let training = Training::of_model(&model, &params)?;
    learn(&training, &model, &mut context)?;
    publish(&training, &model, &mut context)?;
    examine(&mut context, "after")?;
    println!("a context without the adapter still says: {}", ask(&mut other, FACTS[0].0)?);

    if let Some(folder) = arguments.next() {
        training.export(&folder, None)?;
        println!("the adapter is in {folder}");
    }
    Ok(())
}

/// Make the steps, while a context asks: each time it knows more.
fn learn(training: &Training<'_>, model: &Model<'_>, context: &mut Context<'_>) -> Result<()> {
    let line = |fact: &(&str, &str)| json!({"prompt": fact.0, "completion": fact.1}).to_string();
    let fit = FitParams::new()
        .lines(FACTS.iter().map(line).collect::<Vec<_>>().join("\n"))
        .lines_options(json!({"mask_prompt": true}).to_string()) // only the answers are targets
        .steps(STEPS)
        .batch_size(FACTS.len())
        .event_every(STEPS / 4);
    let mut failed = Ok(());
    let ended = training.fit(&fit, |event| {
        if event.kind != TrainingEventKind::Step {
            return true;
        }
        let said =
            publish(training, model, context).and_then(|()| ask(context, FACTS[0].0)).map(|said| {
                let (step, steps, loss) = (event.step, event.steps, event.loss);
                println!("step {step:3} of {steps}  loss {loss:.3}  {said}");
            });
        failed = said;
        failed.is_ok()
    });
    failed.and(ended)
}

/// Let a context use the weights trained so far; it keeps the adapter.
fn publish(training: &Training<'_>, model: &Model<'_>, context: &mut Context<'_>) -> Result<()> {
    context.set_adapter(Some(&training.adapter(model)?))
}

/// Ask for all facts, and say how many are known.
fn examine(context: &mut Context<'_>, when: &str) -> Result<()> {
    let mut right = 0;
    for (question, wanted) in FACTS {
        let said = ask(context, question)?;
        right += usize::from(said == wanted);
        println!("  {question:32} {said}");
    }
    println!("{when}: {right} of {} are right", FACTS.len());
    Ok(())
}

/// What the model says to a question that nothing comes before.
fn ask(context: &mut Context<'_>, question: &str) -> Result<String> {
    let messages = json!([{"role": "user", "content": question}]).to_string();
    let mut said = String::new();
    context.chat(&messages, None, &GenerationParams::new().max_tokens(24), |event| {
        if let Event::Text(text) = event {
            said += &text;
        }
        true
    })?;
    Ok(said)
}
