//! Waiting on a file descriptor, as an application's event loop does.

use std::ffi::{c_int, c_short, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use cowmlx::GenerationParams;

use crate::support::{context, pieces, story, text};

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
