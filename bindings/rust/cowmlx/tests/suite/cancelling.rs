use std::sync::mpsc;
use std::thread;

use cowmlx::{Finish, GenerationParams, Status};

use crate::support::{context, story};

#[test]
fn another_thread_cancels_a_generation() {
    let mut context = context();
    let cancel = context.cancel_handle();
    let (started, wait) = mpsc::channel();
    let canceller = thread::spawn(move || {
        wait.recv().unwrap();
        cancel.cancel()
    });
    // It does not end before it is cancelled: each text waits until that is so.
    let mut canceller = Some(canceller);
    let result = context.generate(&story(), &GenerationParams::new(), |_| {
        if let Some(canceller) = canceller.take() {
            started.send(()).unwrap();
            canceller.join().unwrap().unwrap();
        }
        true
    });
    assert_eq!(result.unwrap_err().status(), Status::Canceled);
}

#[test]
fn a_cancelled_iterator_ends_and_the_context_goes_on() {
    let mut context = context();
    let params = GenerationParams::new();
    let mut generation = context.begin(&story(), &params).unwrap();
    generation.next().unwrap().unwrap();
    let cancel = generation.cancel_handle();
    thread::spawn(move || cancel.cancel()).join().unwrap().unwrap();
    assert!(generation.by_ref().count() <= 1);
    assert_eq!(generation.finish(), Some(Finish::Canceled));
    assert!(context.begin(&story(), &params).unwrap().count() > 20);
}

#[test]
fn a_handle_of_a_dropped_context_says_so() {
    let cancel = context().cancel_handle();
    assert_eq!(cancel.cancel().unwrap_err().status(), Status::InvalidHandle);
}
