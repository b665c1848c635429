use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::{self, Thread};

use cowmlx::{Event, EventStream, Finish, GenerationParams, PieceStream, Status};
use futures_core::Stream;
use futures_core::stream::FusedStream;

use crate::support::{context, parse, pieces, said, says, story, text};

/// The smallest executor: a thread that sleeps until it is woken.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<R>(future: impl Future<Output = R>) -> R {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Task::from_waker(&waker)) {
            return result;
        }
        thread::park();
    }
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|task| Pin::new(&mut *stream).poll_next(task)).await
}

async fn collect<S: Stream + Unpin>(stream: &mut S) -> Vec<S::Item> {
    let mut items = Vec::new();
    while let Some(item) = next(stream).await {
        items.push(item);
    }
    items
}

#[test]
fn a_stream_gives_the_pieces_of_the_iterator() {
    let mut context = context();
    let expected = pieces(context.begin(&story(), &GenerationParams::new().logprobs(2)).unwrap());
    let mut stream = context.stream(story(), &GenerationParams::new().logprobs(2));
    let items = block_on(collect(&mut stream));
    let found: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    assert_eq!(text(&found), text(&expected));
    let alternatives = |piece: &cowmlx::Piece| -> Vec<_> {
        piece.alternatives.iter().map(|one| one.token).collect()
    };
    assert_eq!(alternatives(&found[3]), alternatives(&expected[3]));
    assert_eq!(found[3].alternatives.len(), 2);
    assert_eq!(stream.finish(), Some(Finish::Stop));
    assert!(stream.is_terminated());
    assert!(block_on(stream.next()).is_none(), "nothing comes behind the end");
    drop(stream);
    assert!(context.stats().unwrap().generated_tokens >= expected.len());
}

#[test]
fn one_thread_drives_several_streams() {
    let (mut one, mut other) = (context(), context());
    let params = GenerationParams::new().max_tokens(30);
    let mut streams = [one.stream(story(), &params), other.stream(story(), &params)];
    let mut texts = [String::new(), String::new()];
    block_on(poll_fn(|task| {
        let mut open = false;
        for (stream, text) in streams.iter_mut().zip(&mut texts) {
            loop {
                match Pin::new(&mut *stream).poll_next(task) {
                    Poll::Ready(Some(piece)) => *text += &piece.unwrap().text,
                    Poll::Ready(None) => break,
                    Poll::Pending => {
                        open = true;
                        break;
                    }
                }
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    }));
    assert!(!texts[0].is_empty());
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn an_error_of_begin_is_the_first_item() {
    let mut context = context();
    let mut stream = context.stream([], &GenerationParams::new());
    let items = block_on(collect(&mut stream));
    assert_eq!(items.len(), 1);
    let error = items[0].as_ref().unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().starts_with("Context::begin: "), "{error}");
}

#[test]
fn a_dropped_stream_leaves_a_context_that_can_be_used() {
    let mut context = context();
    for taken in 0..3 {
        let mut stream = context.stream(story(), &GenerationParams::new());
        for _ in 0..taken {
            block_on(next(&mut stream)).unwrap().unwrap();
        }
        drop(stream);
        assert!(context.tokens().is_ok());
    }
    assert!(!pieces(context.begin(&story(), &GenerationParams::new()).unwrap()).is_empty());
}

#[test]
fn a_stream_that_is_never_polled_ends_with_its_drop() {
    let mut context = context();
    let heard = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&heard);
    let params = GenerationParams::new().prompt_progress(move |_, _| {
        hears.fetch_add(1, Ordering::Relaxed);
        true
    });
    drop(context.stream(story(), &params));
    drop(params);
    assert_eq!(Arc::strong_count(&heard), 1, "the helper thread has ended");
}

#[test]
fn a_cancelled_stream_ends() {
    let mut context = context();
    let mut stream = context.stream(story(), &GenerationParams::new());
    block_on(next(&mut stream)).unwrap().unwrap();
    stream.cancel_handle().cancel().unwrap();
    assert!(block_on(collect(&mut stream)).len() <= 2);
    assert_eq!(stream.finish(), Some(Finish::Canceled));
}

#[test]
fn a_panic_on_the_helper_thread_goes_on_in_the_task() {
    let mut context = context();
    let params = GenerationParams::new().prompt_progress(|_, _| panic!("the closure's"));
    let mut stream = context.stream(story(), &params);
    let polled = std::panic::AssertUnwindSafe(|| block_on(collect(&mut stream)));
    let panic = std::panic::catch_unwind(polled).expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the closure's"));
}

/// Panics where it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any("the payload's");
    }
}

#[test]
fn a_panic_that_no_task_hears_is_dropped_quietly() {
    let mut context = context();
    let (panicked, heard) = std::sync::mpsc::channel();
    let params = GenerationParams::new().prompt_progress(move |_, _| {
        panicked.send(()).unwrap();
        std::panic::panic_any(Bomb)
    });
    let stream = context.stream(story(), &params);
    heard.recv().unwrap();
    drop(stream);
    assert!(!pieces(context.begin(&story(), &GenerationParams::new()).unwrap()).is_empty());
}

#[test]
fn a_stream_s_error_has_its_message() {
    let mut context = context();
    let mut stream = context.stream([1, 99999], &GenerationParams::new());
    let items = block_on(collect(&mut stream));
    drop(stream);
    let error = items.into_iter().next_back().unwrap().unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().starts_with("Context::begin: tokens[1] is 99999"), "{error}");
    let told = &parse(context.info())["error"];
    assert_eq!(told["status"], error.status().name());
    let message = error.message().replace("Context::begin", "context_begin"); // C's name there
    assert_eq!(told["message"], message.as_str());
}

#[test]
fn a_chat_is_a_stream_of_events() {
    let mut context = context();
    let question = says("What colour is a fox?");
    let mut stream = context.chat_stream(question, None, &GenerationParams::new());
    let items = block_on(collect(&mut stream));
    let events: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    assert_eq!(said(&events), "A fox is red.");
    assert_eq!(events.last(), Some(&Event::End(Finish::Stop)));
    assert!(stream.stats().unwrap().generated_tokens > 3);
}

#[test]
fn an_error_of_a_chat_is_its_last_item() {
    let mut context = context();
    let mut stream = context.chat_stream("[{]", None, &GenerationParams::new());
    let items = block_on(collect(&mut stream));
    assert_eq!(items.len(), 1);
    assert!(items[0].as_ref().unwrap_err().message().starts_with("Context::chat: "));
    assert!(stream.stats().is_none());
}

#[test]
fn a_dropped_chat_stream_leaves_a_context_that_can_be_used() {
    let mut context = context();
    let mut stream = context.chat_stream(says("Tell me a story."), None, &GenerationParams::new());
    block_on(next(&mut stream)).unwrap().unwrap();
    drop(stream);
    assert!(context.tokens().is_ok());
}

#[test]
fn streams_are_sent_between_threads() {
    fn is_send<T: Send + Unpin>() {}
    is_send::<PieceStream<'_>>();
    is_send::<EventStream<'_>>();
}

/// A task that runs where it is woken, as some executors let it.
struct Inline(std::sync::Mutex<Option<PieceStream<'static>>>, std::sync::mpsc::Sender<String>);

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut place = self.0.lock().unwrap();
        let Some(stream) = place.as_mut() else { return };
        loop {
            match Pin::new(&mut *stream).poll_next(&mut Task::from_waker(&waker)) {
                Poll::Ready(Some(piece)) => self.1.send(piece.unwrap().text).unwrap(),
                Poll::Ready(None) => break,
                Poll::Pending => return,
            }
        }
        *place = None; // dropped on the helper thread itself
    }
}

#[test]
fn a_task_may_run_on_the_helper_thread() {
    let mut one = context();
    let expected = text(&pieces(one.begin(&story(), &GenerationParams::new()).unwrap()));
    let context: &'static mut _ = Box::leak(Box::new(one));
    let stream = context.stream(story(), &GenerationParams::new());
    let (sender, texts) = std::sync::mpsc::channel();
    Waker::from(Arc::new(Inline(std::sync::Mutex::new(Some(stream)), sender))).wake();
    assert_eq!(texts.iter().collect::<String>(), expected);
}

#[test]
fn a_forgotten_stream_harms_nobody() {
    let mut context = context();
    let mut stream = context.stream(story(), &GenerationParams::new());
    block_on(next(&mut stream)).unwrap().unwrap();
    std::mem::forget(stream);
    // Its thread gets one more piece, and waits for ever then.
    let again = loop {
        match context.begin(&story(), &GenerationParams::new()) {
            Err(error) if error.status() == Status::InvalidState => thread::yield_now(),
            begun => break pieces(begun.unwrap()),
        }
    };
    assert!(!again.is_empty());
}
