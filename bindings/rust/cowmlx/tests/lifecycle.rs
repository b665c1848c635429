//! Starts and stops, in a separate process.

#![allow(missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cowmlx::{
    CancelHandle, Context, GenerationParams, LogLevel, Model, Runtime, RuntimeParams, Status,
};

fn calf() -> PathBuf {
    match std::env::var_os("COWMLX_TEST_MODEL") {
        Some(folder) => folder.into(),
        None => concat!(env!("CARGO_MANIFEST_DIR"), "/../../../models/calf").into(),
    }
}

fn runs() -> bool {
    // SAFETY: takes nothing.
    unsafe { cowmlx::sys::cow_mlx_memory_trim() == 0 }
}

/// The runtime is the process's, so its tests take turns.
fn alone() -> impl Drop {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn the_version_is_known_before_a_start() {
    assert_eq!(cowmlx::version().unwrap(), cowmlx::sys::COW_MLX_VERSION);
}

#[test]
fn the_last_runtime_stops_it() {
    let _alone = alone();
    let first = Runtime::start().unwrap();
    let second = Runtime::start().unwrap();
    drop(first);
    assert!(runs());
    second.stop().unwrap();
    assert!(!runs());
}

#[test]
fn a_model_keeps_the_runtime_that_it_was_given() {
    let _alone = alone();
    let model = Model::load(Runtime::start().unwrap(), calf()).unwrap();
    assert!(runs());
    let context = Context::new(model).unwrap();
    assert!(runs());
    drop(context);
    assert!(!runs());
}

#[test]
fn dropping_frees_every_kind_of_handle() {
    let _alone = alone();
    let runtime = Runtime::start().unwrap();
    let handles = || {
        let info: serde_json::Value = serde_json::from_str(&runtime.info().unwrap()).unwrap();
        info["handles"].clone()
    };
    let before = handles();
    {
        let model = Model::load(&runtime, calf()).unwrap();
        let mut context = Context::new(&model).unwrap();
        context.begin(&[1], &GenerationParams::new().max_tokens(0)).unwrap();
        let fork = context.fork().unwrap();
        let _checkpoint = fork.checkpoint().unwrap();
        let open = handles();
        assert_eq!((&open["model"], &open["context"]), (&1.into(), &2.into()), "{open}");
        assert_eq!(open["checkpoint"], 1, "{open}");
    }
    assert_eq!(handles(), before);
}

#[test]
fn a_cancel_behind_the_end_is_an_error() {
    let _alone = alone();
    let cancel: CancelHandle = {
        let model = Model::load(Runtime::start().unwrap(), calf()).unwrap();
        Context::new(&model).unwrap().cancel_handle()
    };
    assert!(cancel.cancel().is_err());
}

#[test]
fn the_log_is_heard_and_then_dropped() {
    let _alone = alone();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let params = RuntimeParams::new().log(move |level, message| {
        hears.lock().unwrap().push((level, message.to_owned()));
    });
    let runtime = Runtime::start_with(&params).unwrap();
    drop((runtime, params));
    let heard = Arc::into_inner(heard).expect("the closure is dropped").into_inner().unwrap();
    let started =
        |(level, message): &(LogLevel, String)| *level == LogLevel::Info && message.contains("mlx");
    assert!(heard.iter().any(started), "{heard:?}");
}

#[test]
fn a_log_level_is_kept_to() {
    let _alone = alone();
    let log = |level: LogLevel, message: &str| panic!("{level:?}: {message}");
    let params = RuntimeParams::new().log_level(LogLevel::Off).log(log);
    let runtime = Runtime::start_with(&params).unwrap();
    assert!(Model::load(&runtime, calf()).is_ok());
}

#[test]
fn a_panic_of_the_log_goes_on_and_nothing_stays_open() {
    let _alone = alone();
    let params = RuntimeParams::new().log(|_, _| panic!("the log's"));
    let start = AssertUnwindSafe(|| Runtime::start_with(&params).map(drop));
    let panic = catch_unwind(start).expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the log's"));
    assert!(!runs(), "what was started is stopped again");
}

#[test]
fn other_parameters_are_refused_while_it_runs() {
    let _alone = alone();
    let quiet = RuntimeParams::new().cache_limit(1 << 20).memory_limit(1 << 33).threads(2);
    let runtime = Runtime::start_with(&quiet).unwrap();
    assert!(Runtime::start_with(&quiet).is_ok(), "the same ones are not refused");
    assert!(Runtime::start().is_ok());
    for params in [quiet.clone().cache_limit(2 << 20), quiet.clone().log(|_, _| ())] {
        let error = Runtime::start_with(&params).unwrap_err();
        assert_eq!(error.status(), Status::InvalidState);
    }
    let info = runtime.info().unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["memory"]["limit"], 1_u64 << 33);
}

#[test]
fn devices_and_folders_that_are_not_there_are_refused() {
    let _alone = alone();
    let device = RuntimeParams::new().device("abacus");
    let error = Runtime::start_with(&device).unwrap_err();
    assert!(error.message().contains("abacus"), "{error}");
    let folder = RuntimeParams::new().python_home("a\0b");
    let error = Runtime::start_with(&folder).unwrap_err();
    assert_eq!(error.message(), "Runtime::start: python_home has a NUL byte at 1");
    assert!(!runs());
}
