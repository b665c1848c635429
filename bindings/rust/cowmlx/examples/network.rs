//! A network of two layers that learns which points have coordinates of one sign: `network`.
//!
//! Its loss is one program, whose gradient the library derives; operators of arrays do the rest.

use cowmlx::{Array, Dtype, Input, ProgramBuilder, Result, RunParams, Runtime};

const POINTS: usize = 128;
const HIDDEN: usize = 16;
const STEPS: usize = 1000;
const SPEC: &str = r#"{"gradient": {
    "of": "loss", "with_respect_to": ["w1", "b1", "w2", "b2"], "value": true}}"#;

/// What a run takes.
fn all<'a>(data: &'a [Array<'_>], trained: &'a [Array<'_>]) -> Vec<Input<'a>> {
    data.iter().chain(trained).map(Input::from).collect()
}

fn main() -> Result<()> {
    let mut random = 1u32;
    let mut next = || {
        // Anywhere from -1 to 1.
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
        (random >> 16 & 0x7fff) as f32 / 16384.0 - 1.0
    };
    let x: Vec<f32> = (0..POINTS * 2).map(|_| next()).collect();
    let y: Vec<f32> = x.chunks(2).map(|pair| f32::from(pair[0] * pair[1] > 0.0)).collect();
    let first: Vec<f32> = (0..HIDDEN * 2).map(|_| next()).collect();
    let second: Vec<f32> = (0..HIDDEN).map(|_| next() / 2.0).collect();

    let runtime = Runtime::start()?;
    let builder = ProgramBuilder::new(&runtime);
    let hidden = HIDDEN as i64;
    let inputs = builder.input("x", Dtype::Float32, ("points", 2));
    let targets = builder.input("y", Dtype::Float32, ["points"]);
    let w1 = builder.parameter("w1", Dtype::Float32, [2, hidden]);
    let b1 = builder.parameter("b1", Dtype::Float32, [hidden]);
    let w2 = builder.parameter("w2", Dtype::Float32, [hidden]);
    let b2 = builder.parameter("b2", Dtype::Float32, ());
    let logit = (inputs.matmul(w1) + b1).tanh().matmul(w2) + b2;
    builder.output("loss", logit.binary_cross_entropy(targets));
    builder.output("right", logit.greater(0).equal(targets.greater(0.5)).sum());
    let program = builder.build()?;
    let gradient = program.derive(SPEC)?;

    let data = [
        Array::new(&runtime, &x, &[POINTS as i64, 2])?,
        Array::new(&runtime, &y, &[POINTS as i64])?,
    ];
    let mut trained = [
        Array::new(&runtime, &first, &[2, hidden])?,
        Array::new(&runtime, &[0f32; HIDDEN], &[hidden])?,
        Array::new(&runtime, &second, &[hidden])?,
        Array::new(&runtime, &[0f32], &[])?,
    ];
    let params = RunParams::new();
    let before = program.run(&all(&data, &trained), 2, &params)?[0].to_vec::<f32>()?[0];
    for _ in 0..STEPS {
        let slopes = gradient.run(&all(&data, &trained), 5, &params)?;
        for (each, slope) in trained.iter_mut().zip(&slopes[1..]) {
            *each = each.subtract(slope)?; // behind the loss
        }
    }
    let last = program.run(&all(&data, &trained), 2, &params)?;
    let (after, right) = (last[0].to_vec::<f32>()?[0], last[1].to_vec::<i32>()?[0]);
    println!("loss {before:.2}, then {after:.2}: {right} of {POINTS} points are classified right");
    Ok(())
}
