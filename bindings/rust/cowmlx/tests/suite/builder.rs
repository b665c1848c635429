use cowmlx::operations::{Mean, Slice, Sum, Svd};
use cowmlx::{
    Array, Bf16, Complex64, Dtype, Element, F16, Input, ProgramBuilder, RunParams, Status,
};

use crate::support::runtime;

fn run(builder: &ProgramBuilder<'_>, inputs: &[Input<'_>], outputs: usize) -> Vec<Vec<f32>> {
    let program = builder.build().unwrap();
    let found = program.run(inputs, outputs, &RunParams::new()).unwrap();
    found.iter().map(|array| array.to_vec().unwrap()).collect()
}

#[test]
fn a_program_is_written_with_operators() {
    let b = ProgramBuilder::new(runtime());
    let x = b.input("x", Dtype::Float32, ("rows", 3));
    let w = b.parameter_with("w", Dtype::Float32, [3], "\"normal\"");
    let y = x.matmul(w);
    b.output("y", -(y + 1) / 2 - 3 * y);
    b.output("loss", y.square().mean_with(Mean::new().axis(0).keepdims(true)));
    b.output("above", y.greater(5).where_(1.0, 0.5));
    b.output("total", y.sum());
    let of_x = Input::new(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let of_w = Input::new(&[1f32, 0.0, 1.0], &[3]).unwrap();
    let found = run(&b, &[of_x, of_w], 4);
    assert_eq!(found, [vec![-14.5, -35.5], vec![58.0], vec![0.5, 1.0], vec![14.0]]);
    let program = b.build().unwrap();
    assert!(program.info(None).unwrap().contains("\"init\": {\"name\": \"normal\""));
    let spec = r#"{"gradient": {"of": "total", "with_respect_to": ["w"]}}"#;
    let slope = program.derive(spec).unwrap().run(&[of_x, of_w], 1, &RunParams::new()).unwrap();
    assert_eq!(slope[0].to_vec::<f32>().unwrap(), [5.0, 7.0, 9.0]);
}

#[test]
fn numbers_take_the_dtype_of_what_they_meet() {
    let b = ProgramBuilder::new(runtime());
    for (name, dtype) in [
        ("h", Dtype::Float16),
        ("b", Dtype::Bfloat16),
        ("d", Dtype::Float64),
        ("c", Dtype::Complex64),
    ] {
        let x = b.input(name, dtype, ["n"]);
        for value in [x * 2, 0.5 * x, x - 1.5f32] {
            assert_eq!(value.dtype().unwrap(), dtype);
        }
    }
    let i = b.input("i", Dtype::Uint8, ["n"]);
    let bit = i.greater_equal(1);
    for (value, dtype) in [
        (i + 1, Dtype::Uint8),
        (i * 0.5, Dtype::Float32),
        (i / 2, Dtype::Float32),
        (bit, Dtype::Bool),
        (bit + 1, Dtype::Int32),
        (bit.logical_and(true), Dtype::Bool),
        (bit.where_(i, 0), Dtype::Uint8),
        (bit.where_(0, i), Dtype::Uint8),
    ] {
        assert_eq!(value.dtype().unwrap(), dtype);
    }
}

#[test]
fn constants_are_what_they_were() {
    fn through<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
        let b = ProgramBuilder::new(runtime());
        b.output("y", b.constants(values, &[1, values.len() as i64]));
        b.output("first", b.constant(values[0]));
        let found = b.build().unwrap().run(&[], 2, &RunParams::new()).unwrap();
        assert_eq!(found[0].to_vec::<T>().unwrap(), values);
        assert_eq!(found[0].shape().unwrap(), [1, values.len() as i64]);
        assert_eq!(found[1].to_vec::<T>().unwrap(), values[..1]);
    }
    through(&[true, false]);
    through(&[u8::MAX, 0]);
    through(&[u64::MAX, 1]);
    through(&[i64::MIN, 2]);
    through(&[0.1f32, -1e-42, f32::MAX, f32::INFINITY, f32::NEG_INFINITY]);
    through(&[0.1f64, 1e300]);
    through(&[F16(0x3555), F16(1), F16(0xfbff), F16(0x7c00)]);
    through(&[Bf16(0x3eab), Bf16(0xff80)]);
    through(&[Complex64 { re: 1.5, im: -2.0 }, Complex64 { re: 0.0, im: 1e-3 }]);
    let b = ProgramBuilder::new(runtime());
    b.output("none", b.constants::<f32>(&[], &[0, 3]));
    b.output("nan", b.constant(f32::NAN));
    let found = b.build().unwrap().run(&[], 2, &RunParams::new()).unwrap();
    assert_eq!(found[0].shape().unwrap(), [0, 3]);
    assert!(found[1].to_vec::<f32>().unwrap()[0].is_nan());
}

#[test]
fn loops_use_what_is_around_them() {
    let b = ProgramBuilder::new(runtime());
    let x = b.input("x", Dtype::Float32, ["n"]);
    let (twice, half) = (x + x, b.constant(0.5f32));
    // A loop within a branch within a loop, which all use values from outside.
    let state = b.while_loop(
        &[x, b.constant(0)],
        |s| s[1].less(3),
        |s| {
            let small = s[0].sum().less(twice.sum() * 10);
            let inner = b.cond(
                small,
                || {
                    let turned = b.while_loop(
                        s,
                        |t| t[1].less(3),
                        |t| vec![t[0] + twice * half, t[1] + 1],
                        9,
                    );
                    vec![turned[0]]
                },
                || vec![twice],
            );
            vec![inner[0], s[1] + 1]
        },
        100,
    );
    b.output("y", state[0]);
    let input = Input::new(&[1f32, 2.0], &[2]).unwrap();
    assert_eq!(run(&b, &[input], 1), [[7.0, 14.0]]); // 1 + 3 + 2 + 1 times x
}

#[test]
fn a_body_may_give_a_value_twice_or_as_it_came() {
    let b = ProgramBuilder::new(runtime());
    let x = b.input("x", Dtype::Float32, [2]);
    let y = b.input("y", Dtype::Float32, [2]);
    let turned = b.while_loop(&[x, y, x], |s| s[0].max().less(5), |s| vec![y, s[0], y], 2);
    let chosen = b.cond(x.max().less(5), || vec![x, x], || vec![y, x]);
    for (name, value) in
        [("a", turned[0]), ("b", turned[1]), ("c", x), ("d", x), ("e", chosen[0]), ("f", chosen[1])]
    {
        b.output(name, value);
    }
    let of_x = Input::new(&[1f32, 2.0], &[2]).unwrap();
    let of_y = Input::new(&[7f32, 8.0], &[2]).unwrap();
    let found = run(&b, &[of_x, of_y], 6);
    assert_eq!(found[0], [7.0, 8.0]);
    assert!(found[1..].iter().all(|each| each == &[1.0, 2.0]));
}

#[test]
fn shapes_of_a_state_may_be_expressions() {
    let b = ProgramBuilder::new(runtime());
    let x = b.input("x", Dtype::Float32, ["n"]);
    let thin = x.slice_with([0], [-1], Slice::new().strides([2]));
    let wide = x.pad([(1, 2)]);
    let state = b.while_loop(
        &[thin, wide, b.constant(0)],
        |s| s[2].less(2),
        |s| vec![s[0] + thin, s[1] * wide, s[2] + 1],
        5,
    );
    b.output("thin", state[0]);
    b.output("wide", state[1]);
    let found = run(&b, &[Input::new(&[1f32, 2.0, 3.0, 4.0], &[4]).unwrap()], 2);
    assert_eq!(found, [vec![3.0, 9.0], vec![0.0, 1.0, 8.0, 27.0, 64.0, 0.0, 0.0]]);
}

#[test]
fn sequences_are_gone_through() {
    let b = ProgramBuilder::new(runtime());
    let rows = b.input("rows", Dtype::Float32, ("n", 2));
    let scale = b.input("scale", Dtype::Float32, ());
    let zero = b.constants(&[0f32, 0.0], &[2]);
    for (name, reverse) in [("ahead", false), ("back", true)] {
        let found = b.scan(&[zero], &[rows], reverse, |carry, row| {
            let next = carry[0] + row[0] * scale;
            vec![next, next.sum()]
        });
        b.output(name, found[1]);
    }
    let of_rows = Input::new(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
    let found = run(&b, &[of_rows, Input::new(&[10f32], &[]).unwrap()], 2);
    assert_eq!(found, [[30.0, 100.0, 210.0], [210.0, 180.0, 110.0]]);
}

#[test]
fn a_function_is_called_again() {
    let b = ProgramBuilder::new(runtime());
    let x = b.input("x", Dtype::Float32, ["n"]);
    let bias = b.input("bias", Dtype::Float32, ());
    let affine = b.function(&[x], |given| vec![given[0] * 2 + bias]);
    let once = b.call(&affine, &[x])[0];
    b.output("y", b.call(&affine, &[once])[0]);
    let of_x = Input::new(&[1f32, 2.0], &[2]).unwrap();
    assert_eq!(run(&b, &[of_x, Input::new(&[3f32], &[]).unwrap()], 1), [[13.0, 17.0]]);
}

#[test]
fn operations_give_what_the_table_says() {
    let b = ProgramBuilder::new(runtime());
    let x = b.input("x", Dtype::Float32, [2, 3]);
    let [low, high] = x.minmax_with(cowmlx::operations::Minmax::new().axis(1));
    assert_eq!((x.split([1, 2]).len(), x.split(2).len(), x.unstack(2_usize).len()), (3, 2, 2));
    let square = x.matmul(x.transpose());
    assert_eq!((square.svd().len(), square.svd_with(Svd::new().compute_uv(false)).len()), (3, 1));
    let [first, second] = x.split_with(2, Default::default())[..] else { panic!("two") };
    b.output("y", b.concatenate([low, high, first.sum_with(Sum::new().axis([0])) + second.sum()]));
    b.output("z", b.linspace(0.0, 1.0));
    let input = Input::new(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let found = run(&b, &[input], 2);
    assert_eq!(found[0], [1.0, 4.0, 3.0, 6.0, 16.0, 17.0, 18.0]);
    assert_eq!((found[1].len(), found[1][49]), (50, 1.0));
}

#[test]
fn the_first_thing_that_is_wrong_is_told() {
    fn message(write: impl FnOnce(&ProgramBuilder<'_>)) -> String {
        let b = ProgramBuilder::new(runtime());
        write(&b);
        let error = b.build().unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        error.message().to_owned()
    }
    assert!(message(|_| ()).contains("the program has no output"));
    let named = message(|b| b.output("y", b.input("%1", Dtype::Int8, ())));
    assert!(named.contains("the name of an input is \"%1\""), "{named}");
    assert!(message(|b| b.output("y", b.constants(&[1f32], &[3]))).contains("1 values are no"));
    let foreign = message(|b| {
        let other = ProgramBuilder::new(runtime());
        b.output("y", b.input("x", Dtype::Int8, ()) + other.input("x", Dtype::Int8, ()));
    });
    assert!(foreign.contains("a value is of another program"), "{foreign}");
    let inside = message(|b| {
        let x = b.input("x", Dtype::Int8, ());
        b.function(&[x], |_| vec![b.input("z", Dtype::Int8, ())]);
        b.output("y", x);
    });
    assert!(inside.contains("an input is declared in a body"), "{inside}");
    let leaked = message(|b| {
        let x = b.input("x", Dtype::Int8, ());
        let mut kept = x;
        b.function(&[x], |given| {
            kept = given[0];
            vec![kept]
        });
        b.output("y", kept + x);
    });
    assert!(leaked.contains("a value of a body is used outside of it"), "{leaked}");
    let function = message(|b| {
        let other = ProgramBuilder::new(runtime());
        let y = other.input("y", Dtype::Int8, ());
        let foreign = other.function(&[y], <[_]>::to_vec);
        b.output("y", b.call(&foreign, &[b.input("x", Dtype::Int8, ())])[0]);
    });
    assert!(function.contains("a function is of another program"), "{function}");
    let many = message(|b| b.output("y", b.input("x", Dtype::Int8, ["n"]).split(i64::MAX)[0]));
    assert!(many.contains("results, must have at most 50000"), "{many}");
    // The library's own words, where its answer is needed, and else as the program is made.
    for double in [false, true] {
        let wrong = message(|b| {
            let x = b.input("x", Dtype::Float32, ("n", 3));
            let wrong = x.matmul(x);
            b.output("y", if double { wrong * 2 } else { wrong });
            assert_eq!(wrong.dtype().unwrap_err().reason(), "conflict");
        });
        assert!(wrong.contains("(matmul): matmul cannot take (n, 3) and (n, 3)"), "{wrong}");
    }
}

#[test]
fn a_body_that_panics_leaves_the_builder_as_it_was() {
    let b = ProgramBuilder::new(runtime());
    let x = b.input("x", Dtype::Float32, [2]);
    let body = std::panic::AssertUnwindSafe(|| b.function(&[x], |_| panic!("in a body")));
    assert!(std::panic::catch_unwind(|| drop(body())).is_err());
    b.output("sum", x.sum());
    assert_eq!(run(&b, &[Input::new(&[1f32, 2.0], &[2]).unwrap()], 1), [[3.0]]);
}

#[test]
fn arrays_have_operators() {
    let array = |values: &[f32]| Array::new(runtime(), values, &[values.len() as i64]).unwrap();
    let (a, b) = (array(&[1.0, 2.0, 3.0]), array(&[4.0, 5.0, 6.0]));
    let values = |array: Array<'_>| array.to_vec::<f32>().unwrap();
    assert_eq!(values(a.add(&b).unwrap().multiply(2).unwrap()), [10.0, 14.0, 18.0]);
    assert_eq!(values((&a + &b) * 2 - 1), [9.0, 13.0, 17.0]);
    assert_eq!(values(1.0 / &a), [1.0, 0.5, 1.0 / 3.0]);
    assert_eq!(values(-(&b / &a) + array(&[1.0])), [-3.0, -1.5, -1.0]);
    assert_eq!(values(3 - -a.negative().unwrap()), [2.0, 1.0, 0.0]);
    assert_eq!(a.less(2).unwrap().to_vec::<bool>().unwrap(), [true, false, false]);
    let equal = a.greater_equal(&b).unwrap().equal(&a.not_equal(&b).unwrap()).unwrap();
    assert_eq!(equal.to_vec::<bool>().unwrap(), [false; 3]);
    assert!(a.less_equal(&b).unwrap().view::<bool>().unwrap()[0]);
    assert!(!a.greater(&b).unwrap().view::<bool>().unwrap()[0]);
    let bytes = Array::new(runtime(), &[1u8, 2], &[2]).unwrap();
    assert_eq!(bytes.add(1).unwrap().dtype().unwrap(), Dtype::Uint8);
    assert_eq!(bytes.multiply(0.5).unwrap().dtype().unwrap(), Dtype::Float32);
    let error = a.add(&bytes).unwrap_err();
    assert_eq!((error.status(), error.reason()), (Status::InvalidArgument, "conflict"));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| &a + &bytes));
    let message = panic.unwrap_err().downcast::<String>().expect("a message");
    assert!(message.contains("add cannot take (3) and (2)"), "{message}");
}

#[test]
fn builders_go_from_thread_to_thread() {
    let b = ProgramBuilder::new(runtime());
    b.output("y", b.input("x", Dtype::Float32, ["n"]) + 1);
    let program = std::thread::spawn(move || b.build().unwrap()).join().unwrap();
    let input = Input::new(&[1f32], &[1]).unwrap();
    let found = program.run(&[input], 1, &RunParams::new()).unwrap();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), [2.0]);
}
