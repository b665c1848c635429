//! Each marked line is refused with the error that it names; without these lines all is well.

use cowmlx::{Array, Dtype, Program, ProgramBuilder, Result, Runtime, Value};

fn is_sync<T: Sync>(_: &T) {}

fn is_send<T: Send>(_: &T) {}

fn a_value_is_not_used_behind_its_builder(runtime: &Runtime) -> Result<Dtype> {
    let builder = ProgramBuilder::new(runtime);
    let value = builder.input("x", Dtype::Float32, ["n"]);
    drop(builder); //~ E0505
    value.dtype()
}

fn a_value_of_a_body_is_not_kept_longer<'b>(builder: &'b ProgramBuilder<'b>, x: Value<'b>) {
    let mut kept: Vec<&[Value<'_>]> = Vec::new();
    builder.function(&[x], |given| {
        kept.push(given); //~ E0521
        vec![given[0]]
    });
}

fn one_thread_writes_a_program(builder: &ProgramBuilder<'_>, value: Value<'_>) {
    is_send(builder);
    is_sync(builder); //~ E0277
    is_send(&value); //~ E0277
}

fn a_builder_is_given_to_another_thread(builder: ProgramBuilder<'static>) -> Result<()> {
    std::thread::spawn(move || builder.build().map(drop)).join().unwrap()
}

fn a_text_is_no_operand(x: Value<'_>) {
    let _ = x + "1"; //~ E0277
}

fn an_array_is_no_value<'b>(x: Value<'b>, array: &'b Array<'b>) {
    let _ = x.matmul(array); //~ E0277
}

fn a_runtime_is_not_dropped_before_a_sum(runtime: Runtime) -> Result<()> {
    let array = Array::new(&runtime, &[1f32], &[1])?;
    let sum = &array + 1;
    drop(array);
    drop(runtime); //~ E0505
    sum.shape().map(drop)
}

fn a_string_is_no_element(runtime: &Runtime) -> Result<()> {
    let _ = Array::new(runtime, &[String::new()], &[1])?; //~ E0277
    Ok(())
}

fn all_threads_use_arrays_and_programs(array: &Array<'_>, program: &Program<'_>) {
    is_sync(array);
    is_send(program);
    is_sync(program);
}

fn main() {}
