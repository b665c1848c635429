package cowmlx;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinPool;

/**
 * Takes what a call brings about on a context that has returned at once. It looks on one thread at a
 * time: again when its descriptor is readable.
 */
final class Follower<T> extends CompletableFuture<Finish> implements Runnable {
  /** One thing that was there; {@code item} is null if it is only the end. */
  record Taken<T>(T item, boolean isEnd, Finish finish) {}

  interface Take<T> {
    Taken<T> take();
  }

  /** Hears what comes; false cancels. */
  interface Hear<T> {
    boolean hear(T item);
  }


  final CompletableFuture<Void> settled = new CompletableFuture<>();
  private final Context context;
  private final String operation;
  private final Take<T> take;
  private final Hear<T> hears;
  private final Listener listener = new Listener();
  private Throwable problem; // of who hears, which has ended the call
  private int descriptor = -1;

  Follower(Context context, String operation, Take<T> take, Hear<T> hears) {
    this.context = context;
    this.operation = operation;
    this.take = take;
    this.hears = hears;
  }

  interface Begin {
    void begin(Listener listener);
  }

  /** Begins, behind what was cancelled here and has not ended yet. */
  Follower<T> after(Follower<?> before, Begin begin) {
    if (before == null || !before.isDone()) {
      start(begin);
    } else {
      before.settled.thenRunAsync(() -> start(begin));
    }
    return this;
  }

  private void start(Begin begin) {
    try {
      if (isDone()) {
        settle(null);
        return;
      }
      begin.begin(listener);
      context.follow(this);
      if (isDone()) context.cancel(); // before it had begun
      descriptor = context.wakeFd();
    } catch (Throwable failure) {
      if (context.isFollowedBy(this)) end();
      settle(failure);
      return;
    }
    ForkJoinPool.commonPool().execute(this); // whose threads hear of all, the first included
  }

  /** Ends the call; what comes until then is heard by nobody. */
  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    if (!super.cancel(mayInterruptIfRunning)) return false;
    if (context.isFollowedBy(this)) end();
    return true;
  }

  @Override
  public void run() {
    try {
      while (context.isFollowedBy(this)) {
        if (!isThere()) {
          Wakes.once(descriptor, this);
          if (!context.isFollowedBy(this)) Wakes.raise(this);
          return;
        }
        Taken<T> taken = take.take();
        if (taken.item() != null && problem == null && !isDone()) tell(taken.item());
        if (taken.isEnd()) {
          if (problem == null) complete(taken.finish());
          settle(problem);
          return;
        }
      }
      settle(left());
    } catch (CowMlxException failure) { // which ends it, or the context was freed
      settle(problem != null ? problem : context.isClosed() ? left() : failure.by(operation));
    } catch (Throwable failure) {
      settle(failure);
    }
  }

  private boolean isThere() {
    int status = Api.get().cow_mlx_context_poll(context.handle(), 0);
    try {
      listener.check(status == Status.ETIMEDOUT.value ? 0 : status);
    } catch (CowMlxException failure) {
      throw failure;
    } catch (Throwable thrown) { // by who hears of progress
      problem = problem != null ? problem : thrown;
    }
    return status != Status.ETIMEDOUT.value;
  }

  private void tell(T item) {
    try {
      if (hears == null || hears.hear(item)) return;
      problem = new CowMlxException.Canceled("the listener ended it", "callback_refused",
          Map.of(), operation);
    } catch (Throwable thrown) {
      problem = thrown;
    }
    end();
  }

  private void end() {
    try {
      context.cancel();
    } catch (CowMlxException closed) {
      // which has ended it
    }
  }

  private CowMlxException left() {
    if (context.isClosed()) {
      return new CowMlxException.Canceled("the context was freed", "freed", Map.of(), operation);
    }
    return new CowMlxException(Status.ESTATE, "another call has begun on this context",
        "context_busy", Map.of(), operation);
  }

  private void settle(Throwable failure) {
    listener.close();
    context.leave(this);
    if (failure != null) completeExceptionally(failure);
    settled.complete(null);
  }
}
