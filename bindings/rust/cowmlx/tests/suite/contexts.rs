use std::time::Duration;

use cowmlx::{Context, ContextParams, GenerationParams, Overflow, Status};
use serde_json::json;

use crate::support::{Folder, context, model, parse, pieces, story, text, tokens};

/// A context that holds a whole answer.
fn answered() -> Context<'static> {
    let mut context = context();
    pieces(context.begin(&story(), &GenerationParams::new()).unwrap());
    context
}

#[test]
fn the_parameters_are_those_that_were_given() {
    let params = ContextParams::new()
        .max_tokens(512)
        .kv_bits(8)
        .kv_group_size(32)
        .solo(true)
        .priority(-1)
        .overflow(Overflow::Roll)
        .keep_tokens(3)
        .share_prefix(false);
    let info = parse(Context::with_params(model(), &params).unwrap().info());
    for (name, value) in [
        ("max_tokens", json!(512)),
        ("kv_bits", json!(8)),
        ("kv_group_size", json!(32)),
        ("solo", json!(true)),
        ("priority", json!(-1)),
        ("keep_tokens", json!(3)),
        ("share_prefix", json!(false)),
    ] {
        assert_eq!(info[name], value, "{name}");
    }
    assert_ne!(info["overflow"], parse(context().info())["overflow"]);
}

#[test]
fn a_context_holds_its_prompt_and_answer() {
    let held = answered().tokens().unwrap();
    assert_eq!(held[..story().len()], story());
    assert!(held.len() > story().len() + 20);
}

#[test]
fn more_tokens_are_held_than_the_first_buffer_takes() {
    let mut context = context();
    let long = model().tokenize(&"a b ".repeat(800), cowmlx::Special::NONE).unwrap();
    assert!(long.len() > 1024);
    context.begin(&long, &GenerationParams::new().max_tokens(0)).unwrap();
    assert_eq!(context.tokens().unwrap(), long);
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut one = answered();
    let mut other = one.fork().unwrap();
    one.reset().unwrap();
    assert!(one.tokens().unwrap().is_empty());
    let held = other.tokens().unwrap();
    other.begin(&held, &GenerationParams::new().max_tokens(1)).unwrap();
    assert_eq!(other.stats().unwrap().reused_tokens, held.len() - 1);
}

#[test]
fn tokens_are_trimmed_at_both_ends() {
    let mut context = answered();
    let held = context.tokens().unwrap();
    assert_eq!(context.trim_end(5).unwrap(), 5);
    assert_eq!(context.trim_front(2).unwrap(), 2);
    assert_eq!(context.tokens().unwrap(), held[2..held.len() - 5]);
    assert_eq!(context.trim_end(usize::MAX).unwrap(), held.len() - 7);
}

#[test]
fn a_checkpoint_is_come_back_to() {
    let mut context = context();
    context.begin(&story(), &GenerationParams::new().max_tokens(0)).unwrap();
    let checkpoint = context.checkpoint().unwrap();
    for _ in 0..2 {
        pieces(context.begin(&story(), &GenerationParams::new()).unwrap());
        context.rewind(&checkpoint).unwrap();
        assert_eq!(context.tokens().unwrap(), story());
    }
}

#[test]
fn a_checkpoint_outlives_its_context_and_is_then_of_no_use() {
    let first = answered();
    let checkpoint = first.checkpoint().unwrap();
    drop(first);
    let error = context().rewind(&checkpoint).unwrap_err();
    assert_eq!(error.status(), Status::InvalidHandle);
}

#[test]
fn a_context_is_saved_and_loaded() {
    let folder = Folder::new("saved");
    let path = folder.0.join("context.safetensors");
    let saved = answered();
    saved.save(&path).unwrap();
    let mut loaded = context();
    loaded.load(&path).unwrap();
    assert_eq!(loaded.tokens().unwrap(), saved.tokens().unwrap());
    let error = loaded.load(folder.0.join("none")).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
}

#[test]
fn poll_waits_for_a_piece() {
    let mut context = context();
    let mut generation = context.begin(&story(), &GenerationParams::new()).unwrap();
    assert!(generation.poll(None).unwrap());
    assert!(generation.poll(Some(Duration::ZERO)).unwrap());
    assert!(generation.next().is_some());
}

#[test]
fn poll_tells_that_nothing_is_there_yet() {
    let mut context = context();
    let mut generation = context.begin(&story(), &GenerationParams::new()).unwrap();
    let mut not_yet = 0;
    loop {
        while !generation.poll(Some(Duration::ZERO)).unwrap() {
            not_yet += 1;
        }
        if generation.next().is_none() {
            break;
        }
    }
    assert!(not_yet > 0, "asking takes less time than a token");
}

#[test]
fn poll_is_refused_before_a_begin() {
    let error = context().poll(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.status(), Status::InvalidState);
}

#[test]
fn contexts_on_many_threads_give_what_one_gives() {
    let expected = text(&pieces(context().begin(&story(), &GenerationParams::new()).unwrap()));
    std::thread::scope(|scope| {
        let answer = || {
            let mut context = context();
            text(&pieces(context.begin(&story(), &GenerationParams::new()).unwrap()))
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(answer)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), expected);
        }
    });
}

#[test]
fn a_full_context_refuses_a_longer_prompt() {
    let mut context = Context::with_params(model(), &ContextParams::new().max_tokens(4)).unwrap();
    let error = context.begin(&story(), &GenerationParams::new()).map(drop).unwrap_err();
    assert_eq!(error.status(), Status::ContextFull);
}

#[test]
fn tokens_of_a_prompt_are_reused() {
    let mut context = answered();
    let again = tokens(&pieces(context.begin(&story(), &GenerationParams::new()).unwrap()));
    assert!(again.len() > 20);
    assert_eq!(context.stats().unwrap().reused_tokens, story().len() - 1);
    assert_eq!(context.model().as_raw(), model().as_raw());
}
