use cowmlx::{Array, Input, Output, Program, RunParams, Status};

use crate::support::runtime;

const DOUBLE: &str = r#"{
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["n"]}],
    "nodes": [{"name": "y", "op": "add", "inputs": ["x", "x"]},
              {"name": "s", "op": "sum", "inputs": ["y"]}],
    "outputs": ["y", "s"]}"#;

#[test]
fn a_program_runs_on_memory_and_arrays() {
    let program = Program::new(runtime(), DOUBLE).unwrap();
    let params = RunParams::new();
    let (mut y, mut s) = ([0f32; 3], [0f32; 1]);
    let input = Input::new(&[1f32, 2.0, 3.0], &[3]).unwrap();
    let mut outputs = [Output::new(&mut y, &[3]).unwrap(), Output::new(&mut s, &[]).unwrap()];
    program.run_into(&[input], &mut outputs, &params).unwrap();
    assert_eq!((y, s), ([2.0, 4.0, 6.0], [12.0]));
    let array = Array::new(runtime(), &[1f32, 2.0, 3.0], &[3]).unwrap();
    let results = program.run(&[(&array).into()], 2, &params).unwrap();
    assert_eq!(results[0].to_vec::<f32>().unwrap(), y);
    let later = program.submit(&[(&results[0]).into()], 2, &params).unwrap();
    assert!(later[1].wait(None).unwrap());
    assert_eq!(later[1].to_vec::<f32>().unwrap(), [24.0]);
    let given = program.run_donated(vec![array], 2, &params).unwrap();
    assert_eq!(given[0].to_vec::<f32>().unwrap(), y);
}

#[test]
fn an_operation_is_applied() {
    let array = Array::new(runtime(), &[1f32, 2.0, 3.0, 4.0], &[4]).unwrap();
    let sum = Array::apply(runtime(), "add", &[Some(&array), Some(&array)], None).unwrap();
    assert_eq!(sum[0].to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    let attributes = Some(r#"{"indices_or_sections": 8, "axis": 0}"#);
    let wrong = Array::apply(runtime(), "split", &[Some(&array)], attributes).unwrap_err();
    assert_eq!(wrong.status(), Status::InvalidArgument);
    let attributes = Some(r#"{"indices_or_sections": 4, "axis": 0}"#);
    let parts = Array::apply(runtime(), "split", &[Some(&array)], attributes).unwrap();
    assert_eq!(parts.len(), 4);
}

#[test]
fn a_program_is_derived_and_described() {
    let program = Program::new(runtime(), DOUBLE).unwrap();
    let gradient =
        program.derive(r#"{"gradient": {"of": "s", "with_respect_to": ["x"]}}"#).unwrap();
    let input = Input::new(&[1f32, 2.0], &[2]).unwrap();
    let found = gradient.run(&[input], 1, &RunParams::new()).unwrap();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), [2.0, 2.0]);
    assert!(program.info(None).unwrap().contains("\"n\""));
    assert!(program.info(Some(r#"{"n": 3}"#)).unwrap().contains("output_bytes"));
    assert!(Program::operations(&runtime()).unwrap().contains("matmul"));
    program.cancel().unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |error: cowmlx::Error| assert_eq!(error.status(), Status::InvalidArgument);
    refused(Program::new(runtime(), "{").unwrap_err());
    let program = Program::new(runtime(), DOUBLE).unwrap();
    refused(Input::new(&[1f32], &[2]).unwrap_err());
    refused(Output::new(&mut [1f32], &[2]).unwrap_err());
    refused(program.run(&[], 2, &RunParams::new()).unwrap_err());
    let high = Input::new(&[3e38f32], &[1]).unwrap();
    refused(program.run(&[high], 2, &RunParams::new().check_finite(true)).unwrap_err());
    refused(program.info(Some(r#"{"m": 3}"#)).unwrap_err());
}
