#![allow(unused_imports, unused_mut, unused_variables)]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::{self, Thread};

use cowmlx::{Context, Event, Finish, GenerationParams, Model, Result, Runtime};

/// The smallest executor: a thread that sleeps until it is woken.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

async fn block(model: &Model<'_>, mut context: Context<'_>) -> Result<()> {
    /* BLOCK */
    Ok(())
}

fn main() -> Result<()> {
    let model = Model::load(Runtime::start()?, "models/calf")?;
    let mut future = pin!(block(&model, Context::new(&model)?));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Task::from_waker(&waker)) {
            return result;
        }
        thread::park();
    }
}
