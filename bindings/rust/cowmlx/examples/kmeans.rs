//! k-means, written as one program: `kmeans`.
//!
//! The loop runs until no centre moves, and all of it takes one round trip.

use cowmlx::operations::{Argmin, Sum, Take};
use cowmlx::{Dtype, Input, ProgramBuilder, Result, RunParams, Runtime, Value};

const CLUSTERS: i64 = 3;
const POINTS: i64 = 300;
const PLACES: [[f32; 2]; 3] = [[1.0, 1.0], [4.0, 1.0], [2.0, 4.0]];

/// A row for each point, a column for each centre: 1 where it is the nearest.
fn nearest<'b>(points: Value<'b>, centres: Value<'b>) -> Value<'b> {
    let apart = points.expand_dims(1) - centres.expand_dims(0);
    let far = apart.square().sum_with(Sum::new().axis(2));
    far.argmin_with(Argmin::new().axis(1)).one_hot(CLUSTERS)
}

fn main() -> Result<()> {
    // Points within a distance of 1 from three places, one after the other.
    let mut random = 1u32;
    let mut next = |place: f32| {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
        place + ((random >> 16 & 0x7fff) as f32 / 16384.0 - 1.0)
    };
    let places = PLACES.into_iter().cycle().take(POINTS as usize);
    let data: Vec<f32> = places.flatten().map(&mut next).collect();

    let runtime = Runtime::start()?;
    let builder = ProgramBuilder::new(&runtime);
    let points = builder.input("points", Dtype::Float32, ("n", 2));
    let chosen = builder.constants(&[0i32, 3, 1], &[CLUSTERS]);
    let first = points.take_with(chosen, Take::new().axis(0));
    let found = builder.while_loop(
        &[first, builder.constant(1f32), builder.constant(0)],
        |state| state[1].greater(0),
        |state| {
            let members = nearest(points, state[0]);
            let sizes = members.sum_with(Sum::new().axis(0)).maximum(1).expand_dims(1);
            let centres = members.transpose().matmul(points) / sizes;
            vec![centres, (centres - state[0]).abs().max(), state[2] + 1]
        },
        100,
    );
    builder.output("centres", found[0]);
    builder.output("sizes", nearest(points, found[0]).sum_with(Sum::new().axis(0)));
    builder.output("rounds", found[2]);

    let shape = [POINTS, 2];
    let results = builder.build()?.run(&[Input::new(&data, &shape)?], 3, &RunParams::new())?;
    let (centres, sizes) = (results[0].to_vec::<f32>()?, results[1].to_vec::<f32>()?);
    for (centre, size) in centres.chunks(2).zip(sizes) {
        println!("{size:.0} points around {:.1}, {:.1}", centre[0], centre[1]);
    }
    println!("after {} rounds", results[2].to_vec::<i32>()?[0]);
    Ok(())
}
