use std::sync::Arc;
use std::thread;

use cowmlx::{
    Adapter, CancelHandle, Checkpoint, Context, Generation, GenerationParams, Model, Runtime,
};

use crate::support::{calf, context, model, parse, pieces, runtime, story};

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn what_may_be_sent_and_shared_is_what_the_header_allows() {
    is_send::<Runtime>();
    is_sync::<Runtime>();
    is_send::<Model<'_>>();
    is_sync::<Model<'_>>();
    is_send::<Adapter<'_>>();
    is_sync::<Adapter<'_>>();
    is_send::<Checkpoint<'_>>();
    is_sync::<Checkpoint<'_>>();
    is_send::<CancelHandle>();
    is_sync::<CancelHandle>();
    is_send::<GenerationParams<'_>>();
    is_sync::<GenerationParams<'_>>();
    // One call at a time: sent, not shared. That they are not Sync is among the compile_fail tests.
    is_send::<Context<'_>>();
    is_send::<Generation<'_>>();
}

#[test]
fn a_shared_model_is_kept_by_its_context() {
    let model = Arc::new(Model::load(runtime(), calf()).unwrap());
    let mut context = Context::new(Arc::clone(&model)).unwrap();
    drop(model);
    let thread = thread::spawn(move || {
        pieces(context.begin(&story(), &GenerationParams::new()).unwrap()).len()
    });
    assert!(thread.join().unwrap() > 20);
}

#[test]
fn a_borrowed_model_serves_scoped_threads() {
    let model = model();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut context = Context::new(&model).unwrap();
                pieces(context.begin(&story(), &GenerationParams::new().max_tokens(5)).unwrap())
            });
        }
    });
}

#[test]
fn what_is_dropped_is_freed() {
    let open = |raw: i32| {
        let mut end = false;
        // SAFETY: takes any value.
        unsafe { cowmlx::sys::cow_mlx_model_is_end(raw, 0, &mut end) == 0 }
    };
    let model = Model::load(runtime(), calf()).unwrap();
    let raw = model.as_raw();
    assert!(open(raw));
    drop(model);
    assert!(!open(raw));

    let context = context();
    let cancel = context.cancel_handle();
    assert!(cancel.cancel().is_ok());
    drop(context);
    assert!(cancel.cancel().is_err());
}

#[test]
fn a_second_runtime_shares_the_first() {
    let mine = runtime();
    let second = Runtime::start().unwrap();
    second.stop().unwrap();
    assert_eq!(parse(mine.info())["abi"], 1);
}
