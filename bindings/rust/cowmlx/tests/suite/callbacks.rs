use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use cowmlx::{Context, Event, GenerationParams, Model, ModelParams, Status, Token};

use crate::support::{calf, context, pieces, runtime, says, story, text};

/// The panic of a body; it is silent.
fn panic_of<R>(body: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).map(drop).expect_err("it panics");
    *panic.downcast::<String>().expect("one of these tests'")
}

fn panics<T>() -> T {
    panic_any(String::from("the closure's"))
}

#[test]
fn a_panic_of_a_text_closure_goes_on_behind_the_call() {
    let mut context = context();
    let count = Cell::new(0);
    let panic = panic_of(|| {
        context.generate(&story(), &GenerationParams::new(), |_| {
            count.set(count.get() + 1);
            panics()
        })
    });
    assert_eq!((panic.as_str(), count.get()), ("the closure's", 1));
    // The context is as after any cancel.
    let held = context.tokens().unwrap();
    assert!(held.len() < story().len() + 10);
    assert!(!pieces(context.begin(&story(), &GenerationParams::new()).unwrap()).is_empty());
}

#[test]
fn a_panic_of_an_event_closure_goes_on() {
    let mut context = context();
    let says = says("Hello");
    let panic = panic_of(|| context.chat(&says, None, &GenerationParams::new(), |_| panics()));
    assert_eq!(panic, "the closure's");
}

#[test]
fn a_panic_of_a_progress_closure_goes_on() {
    let params = ModelParams::new().progress(|_, _| panics());
    assert_eq!(panic_of(|| Model::load_with(runtime(), calf(), &params)), "the closure's");
}

#[test]
fn a_panic_of_a_prompt_closure_goes_on() {
    let params = GenerationParams::new().prompt_progress(|_, _| panics());
    let mut context = context();
    assert_eq!(panic_of(|| context.begin(&story(), &params).map(drop)), "the closure's");
}

#[test]
fn a_panic_of_a_call_within_a_closure_goes_on_through_both() {
    let (mut outer, mut inner) = (context(), context());
    let panic = panic_of(|| {
        outer.generate(&story(), &GenerationParams::new(), |_| {
            inner.generate(&story(), &GenerationParams::new(), |_| panics()).is_ok()
        })
    });
    assert_eq!(panic, "the closure's");
}

#[test]
fn a_panic_that_is_caught_in_a_closure_is_over() {
    let (mut outer, mut inner) = (context(), context());
    let params = GenerationParams::new().max_tokens(3);
    let mut heard = Vec::new();
    let stats = outer.generate(&story(), &params, |_| {
        heard.push(panic_of(|| inner.generate(&story(), &params, |_| panics())));
        true
    });
    assert_eq!(stats.unwrap().generated_tokens, 3);
    assert!(!heard.is_empty() && heard.iter().all(|panic| panic == "the closure's"));
}

#[test]
fn a_panic_goes_on_where_the_call_fails_for_another_reason_too() {
    let mut context = context();
    let cancel = context.cancel_handle();
    let panic = panic_of(|| {
        context.generate(&story(), &GenerationParams::new(), |_| {
            cancel.cancel().unwrap();
            panics()
        })
    });
    assert_eq!(panic, "the closure's");
    let raw = context.as_raw();
    let panic = panic_of(|| {
        context.generate(&story(), &GenerationParams::new(), |_| {
            // SAFETY: takes a handle; what drops the context finds that it is gone.
            unsafe { cowmlx::sys::cow_mlx_context_free(raw) };
            panics()
        })
    });
    assert_eq!(panic, "the closure's");
}

#[test]
fn a_panic_while_a_panic_is_caught_goes_on_too() {
    struct Generates(Context<'static>);
    impl Drop for Generates {
        fn drop(&mut self) {
            let text = |_: &str| panics();
            let inner = || self.0.generate(&story(), &GenerationParams::new(), text);
            assert_eq!(panic_of(inner), "the closure's");
        }
    }
    let panic = panic_of(|| {
        let _generates = Generates(context());
        context().generate(&story(), &GenerationParams::new(), |_| panic_any(String::from("outer")))
    });
    assert_eq!(panic, "outer");
}

#[test]
fn threads_panic_apart() {
    let threads: Vec<_> = (0..4)
        .map(|number| {
            std::thread::spawn(move || {
                panic_of(|| {
                    context().generate(&story(), &GenerationParams::new(), |_| {
                        panic_any(format!("{number}"))
                    })
                })
            })
        })
        .collect();
    let heard: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(heard, ["0", "1", "2", "3"]);
}

#[test]
fn a_closure_may_call_the_library() {
    let (mut outer, mut inner) = (context(), context());
    let mut answers = Vec::new();
    let params = GenerationParams::new().max_tokens(3);
    outer
        .generate(&story(), &params, |_| {
            answers.push(text(&pieces(inner.begin(&story(), &params).unwrap())));
            true
        })
        .unwrap();
    assert!(answers.len() > 1 && answers.iter().all(|answer| *answer == answers[0]));
}

#[test]
fn an_error_within_a_closure_does_not_change_the_message_of_the_call() {
    let mut context = context();
    let error = context
        .chat(&says("Hello"), None, &GenerationParams::new(), |event| {
            assert!(Model::load(runtime(), "no such folder").is_err());
            matches!(event, Event::End(_))
        })
        .unwrap_err();
    assert_eq!(error.status(), Status::Canceled);
    assert!(error.message().starts_with("Context::chat: "), "{error}");
}

#[test]
fn the_prompt_s_progress_reaches_its_end() {
    let heard = std::sync::Mutex::new(Vec::new());
    let params = GenerationParams::new().max_tokens(0).prompt_progress(|processed, total| {
        heard.lock().unwrap().push((processed, total));
        true
    });
    context().begin(&story(), &params).map(drop).unwrap();
    let (processed, total) = *heard.lock().unwrap().last().unwrap();
    assert_eq!(processed, total);
}

#[test]
fn a_false_cancels_a_prompt() {
    let params = GenerationParams::new().prompt_progress(|_, _| false);
    let error = context().begin(&story(), &params).map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Canceled);
}

#[test]
fn a_closure_changes_logits() {
    let prompt = story();
    let length = prompt.len();
    let change = move |tokens: &[Token], logits: &mut [f32]| {
        logits.fill(f32::NEG_INFINITY);
        logits[40 + tokens.len() - length] = 0.0;
        true
    };
    let params = GenerationParams::new().max_tokens(2).logits_fn(change);
    let mut context = context();
    context.generate(&prompt, &params, |_| true).unwrap();
    assert_eq!(context.tokens().unwrap()[length..], [40]);
    let pieces = context.begin_async(&prompt, &params).unwrap();
    let tokens: Vec<_> = pieces.map(|piece| piece.unwrap().token).collect();
    assert_eq!(tokens, [40, 41]);
    let error = context.begin(&prompt, &params).map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
}
