//! Linear regression by gradient descent, written as one program: `regression`.
//!
//! The loop runs inside of the program, so that all of it takes one round trip.

use cowmlx::{Dtype, Input, ProgramBuilder, Result, RunParams, Runtime};

const POINTS: usize = 64;

fn main() -> Result<()> {
    // Points on y = 3 a - 2 b, where a and b are anywhere from -1 to 1.
    let mut random = 1u32;
    let mut next = || {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
        (random >> 16 & 0x7fff) as f32 / 16384.0 - 1.0
    };
    let x: Vec<f32> = (0..POINTS * 2).map(|_| next()).collect();
    let y: Vec<f32> = x.chunks(2).map(|pair| 3.0 * pair[0] - 2.0 * pair[1]).collect();

    let runtime = Runtime::start()?;
    let builder = ProgramBuilder::new(&runtime);
    let inputs = builder.input("x", Dtype::Float32, ("points", 2));
    let targets = builder.input("y", Dtype::Float32, ["points"]);
    let weights = builder.parameter("w", Dtype::Float32, [2]);
    let step = builder.parameter("rate", Dtype::Float32, ());
    let found = builder.while_loop(
        &[weights, builder.constant(0)],
        |state| state[1].less(500),
        |state| {
            let error = inputs.matmul(state[0]) - targets;
            let gradient = inputs.transpose().matmul(error); // of half of the squared error
            vec![state[0] - gradient * step, state[1] + 1]
        },
        10000,
    );
    builder.output("found", found[0]);
    builder.output("rounds", found[1]);

    let program = builder.build()?;
    let inputs = [
        Input::new(&x, &[POINTS as i64, 2])?,
        Input::new(&y, &[POINTS as i64])?,
        Input::new(&[0f32, 0.0], &[2])?,
        Input::new(&[0.01f32], &[])?,
    ];
    let results = program.run(&inputs, 2, &RunParams::new())?;
    let (line, rounds) = (results[0].to_vec::<f32>()?, results[1].to_vec::<i32>()?[0]);
    println!("y = {:.3} a {:+.3} b after {rounds} rounds", line[0], line[1]);
    Ok(())
}
