//! Waiting on a file descriptor, as an application's event loop does.

use std::ffi::{c_int, c_short, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cowmlx::{Event, Finish, GenerationParams, Model, ModelParams, Status};

use crate::support::{calf, context, pieces, runtime, says, story, text};

#[cfg(target_os = "linux")]
type Count = c_ulong;
#[cfg(not(target_os = "linux"))]
type Count = std::ffi::c_uint;

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

unsafe extern "C" {
    fn poll(fds: *mut PollFd, count: Count, timeout: c_int) -> c_int;
}

const POLLIN: c_short = 1;

/// Whether the descriptor becomes readable within a minute.
fn readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut wanted = PollFd { fd: descriptor.as_raw_fd(), events: POLLIN, revents: 0 };
    // SAFETY: there is one.
    unsafe { poll(&mut wanted, 1, 60_000) == 1 && wanted.revents & POLLIN != 0 }
}

#[test]
fn a_descriptor_is_readable_when_a_piece_is_there() {
    let mut context = context();
    let expected = text(&pieces(context.begin(&story(), &GenerationParams::new()).unwrap()));
    let mut generation = context.begin(&story(), &GenerationParams::new()).unwrap();
    let mut text = String::new();
    loop {
        assert!(readable(generation.wake_fd().unwrap()));
        assert!(generation.poll(Some(Duration::ZERO)).unwrap());
        match generation.next() {
            Some(piece) => text += &piece.unwrap().text,
            None => break,
        }
    }
    assert_eq!(text, expected);
}

#[test]
fn one_thread_looks_after_many_contexts() {
    let mut contexts: Vec<_> = (0..3).map(|_| context()).collect();
    let mut texts = vec![String::new(); contexts.len()];
    for context in &mut contexts {
        context.begin(&story(), &GenerationParams::new().max_tokens(20)).unwrap();
    }
    let mut open: Vec<usize> = (0..contexts.len()).collect();
    while let Some(&first) = open.first() {
        assert!(readable(contexts[first].wake_fd().unwrap()));
        open.retain(|&index| {
            if !contexts[index].poll(Some(Duration::ZERO)).unwrap() {
                return true;
            }
            let piece = contexts[index].resume().next();
            texts[index] +=
                &piece.as_ref().map_or(String::new(), |p| p.as_ref().unwrap().text.clone());
            piece.is_some()
        });
    }
    assert!(!texts[0].is_empty());
    assert!(texts.iter().all(|text| *text == texts[0]));
}

#[test]
fn nothing_waits_where_a_call_returns_at_once() {
    let mut context = context();
    let expected = text(&pieces(context.begin(&story(), &GenerationParams::new()).unwrap()));
    let told = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&told);
    let params = GenerationParams::new().prompt_progress(move |processed, _| {
        heard.store(processed, Ordering::Relaxed);
        true
    });
    for _ in 0..2 {
        let mut generation = context.begin_async(&story(), &params).unwrap();
        let mut text = String::new();
        loop {
            assert!(readable(generation.wake_fd().unwrap()));
            if !generation.poll(Some(Duration::ZERO)).unwrap() {
                continue; // that was progress
            }
            match generation.next() {
                Some(piece) => text += &piece.unwrap().text,
                None => break,
            }
        }
        assert_eq!(text, expected);
        assert_eq!(told.swap(0, Ordering::Relaxed), story().len());
    }
}

#[test]
fn what_begins_in_vain_says_so_as_its_first_item() {
    let mut context = context();
    let params = GenerationParams::new().top_p(7.0);
    let mut generation = context.begin_async(&story(), &params).unwrap();
    assert!(generation.poll(None).unwrap());
    let error = generation.next().unwrap().unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(generation.next().is_none());
}

#[test]
fn a_chat_s_events_are_taken_one_by_one() {
    let mut context = context();
    context.chat_async(&says("What colour is a fox?"), None, &GenerationParams::new()).unwrap();
    let mut said = String::new();
    let end = loop {
        match context.next_event().unwrap() {
            Event::Text(text) => said += &text,
            event => break event,
        }
    };
    assert_eq!(said, "A fox is red.");
    assert_eq!(end, Event::End(Finish::Stop));
    assert_eq!(context.next_event().unwrap(), end);
    context.chat_async("[", None, &GenerationParams::new()).unwrap();
    assert_eq!(context.next_event().unwrap_err().status(), Status::InvalidArgument);
}

#[test]
fn an_event_outlives_the_next_event_and_the_thread_that_took_it() {
    let mut context = context();
    let question = says("What colour is a fox?");
    let params = GenerationParams::new();
    context.chat_async(&question, None, &params).unwrap();
    let event = context.next_event().unwrap();
    let expected = event.clone().into_owned();
    tell_a_story();
    assert_eq!(event, expected);
    context.chat_async(&question, None, &params).unwrap();
    let elsewhere = std::thread::scope(|scope| {
        let taker = scope.spawn(|| context.next_event().unwrap());
        taker.join().unwrap()
    });
    tell_a_story();
    assert_eq!(elsewhere, expected);
}

/// Takes the events of another context, which need memory as these did.
fn tell_a_story() {
    let mut context = context();
    let params = GenerationParams::new().max_tokens(20);
    context.chat_async(&says("Tell me a story about an owl."), None, &params).unwrap();
    while !matches!(context.next_event().unwrap(), Event::End(_)) {}
}

#[test]
fn a_model_comes_when_its_poll_says_so() {
    let told = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&told);
    let params = ModelParams::new().progress(move |_, stage| {
        heard.fetch_add(stage.len(), Ordering::Relaxed);
        true
    });
    let loading = Model::load_async(runtime(), calf(), &params).unwrap();
    while !loading.poll(Some(Duration::ZERO)).unwrap() {
        assert!(readable(loading.wake_fd().unwrap()));
    }
    let model = loading.model().unwrap();
    assert!(told.load(Ordering::Relaxed) > 0);
    assert!(model.info().unwrap().contains("architecture"));
    let loading = Model::load_async(runtime(), "/nowhere", &ModelParams::new()).unwrap();
    assert_eq!(loading.model().unwrap_err().status(), Status::NotFound);
    let _freed = Model::load_async(runtime(), calf(), &ModelParams::new()).unwrap();
}
