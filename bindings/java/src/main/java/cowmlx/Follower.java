package cowmlx;

import com.sun.jna.Library;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Platform;
import com.sun.jna.Pointer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinPool;

/**
 * Takes the results of a call on a context that has returned at once. It looks on one thread at a
 * time, and again when the descriptor is readable.
 */
final class Follower<T> extends CompletableFuture<Finish> implements Runnable {
  /** One result; {@code item} is null if it is only the end. */
  record Taken<T>(T item, boolean isEnd, Finish finish) {}

  interface Take<T> {
    Taken<T> take();
  }

  /** Hears results; false cancels. */
  interface Hear<T> {
    boolean hear(T item);
  }

  final CompletableFuture<Void> settled = new CompletableFuture<>();
  private final Context context;
  private final String operation;
  private final Take<T> take;
  private final Hear<T> hears;
  private final Listener listener = new Listener();
  private volatile Throwable problem; // of the host's function, which has ended the call
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

  /** Begins, after the end of a call on this context that was cancelled. */
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
    ForkJoinPool.commonPool().execute(this); // whose threads hear every result, the first included
  }

  /** Ends the call; later results are dropped. */
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
    } catch (CowMlxException failure) { // of the call, or since the context was freed
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
      if (failure != listener.thrown()) throw failure;
      problem = problem != null ? problem : failure;
    } catch (Throwable thrown) { // by the host's function for progress
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

  /** A call beside it was refused, which could have been the one that a cancel ends. */
  void goOn() {
    if (isCancelled() || problem != null) end();
  }

  private void end() {
    if (context.isWaiting()) return; // another call may run: see Context.begun()
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

/** A model that is being loaded; a cancel of the future ends that. */
final class Loading extends CompletableFuture<Model> implements Runnable {
  private final Listener listener = new Listener();
  private int model;
  private int descriptor;

  Loading(String path, ModelParams params) {
    try (Arena arena = new Arena()) {
      Memory out = arena.allocate(4);
      listener.check(Api.get().cow_mlx_model_load_async(arena.string(path, "path"),
          Params.lower(arena, listener, null, params), out));
      model = out.getInt(0);
      CowMlxException.check(Api.get().cow_mlx_model_wake_fd(model, out));
      descriptor = out.getInt(0);
    } catch (Throwable failure) {
      fail(failure);
    }
  }

  Loading begin() {
    if (!isDone()) ForkJoinPool.commonPool().execute(this);
    return this;
  }

  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    if (!super.cancel(mayInterruptIfRunning)) return false;
    Wakes.raise(this);
    return true;
  }

  @Override
  public void run() {
    try {
      int status = Api.get().cow_mlx_model_poll(model, 0);
      boolean isThere = status != Status.ETIMEDOUT.value;
      listener.check(isThere ? status : 0);
      if (isDone()) {
        fail(null);
      } else if (!isThere) {
        Wakes.once(descriptor, this);
        if (isDone()) Wakes.raise(this);
      } else {
        Model loaded = new Model(model);
        listener.close();
        if (!complete(loaded)) loaded.close();
      }
    } catch (Throwable failure) {
      fail(failure);
    }
  }

  private void fail(Throwable failure) {
    listener.close();
    if (model != 0) ForkJoinPool.commonPool().execute(() -> Api.get().cow_mlx_model_free(model));
    if (failure != null) completeExceptionally(failure);
  }
}

/** The one thread that waits for descriptors of the library, however many there are. */
final class Wakes {
  /** The struct of poll(2): a descriptor, the events to wait for, the events that came. */
  private static final int SIZE = 8, EVENTS = 4, REVENTS = 6;

  private static final short POLLIN = 1;
  private static final Map<Runnable, Integer> WAITING = new LinkedHashMap<>();

  /** Its thread is started when something waits. */
  private static final class Started {
    static final Wakes ALL = new Wakes();
  }

  interface LibC extends Library {
    int poll(Pointer descriptors, long count, int milliseconds);

    int pipe(int[] ends);

    long read(int descriptor, byte[] bytes, long count);

    long write(int descriptor, byte[] bytes, long count);
  }

  private final LibC system = Native.load(Platform.C_LIBRARY_NAME, LibC.class);
  private final int[] ends = new int[2];

  private Wakes() {
    if (system.pipe(ends) != 0) {
      throw new CowMlxException(Status.EIO, "no descriptor can be opened", "no_descriptors");
    }
    // In the outermost group, so that no one who waits for the threads of a group waits for it.
    ThreadGroup group = Thread.currentThread().getThreadGroup();
    while (group.getParent() != null) group = group.getParent();
    Thread thread = new Thread(group, this::turn, "cowmlx-wakes");
    thread.setDaemon(true);
    thread.start();
  }

  /** Lets it look, once, on a thread of the common pool, as soon as a descriptor is readable. */
  static void once(int descriptor, Runnable look) {
    synchronized (WAITING) {
      WAITING.put(look, descriptor);
    }
    Started.ALL.system.write(Started.ALL.ends[1], new byte[1], 1);
  }

  /** Lets it look now, if it waits. */
  static void raise(Runnable look) {
    synchronized (WAITING) {
      if (WAITING.remove(look) == null) return;
    }
    ForkJoinPool.commonPool().execute(look);
  }

  /** Lets all waiters look: the runtime was stopped. */
  static void raiseAll() {
    List<Runnable> looks;
    synchronized (WAITING) {
      looks = List.copyOf(WAITING.keySet());
    }
    looks.forEach(Wakes::raise);
  }

  private void turn() {
    for (;;) {
      List<Runnable> looks = new ArrayList<>();
      try (Memory descriptors = watched(looks)) {
        if (system.poll(descriptors, looks.size() + 1L, -1) <= 0) continue; // a signal came
        if (descriptors.getShort(REVENTS) != 0) system.read(ends[0], new byte[64], 64);
        for (int i = 0; i < looks.size(); i++) {
          // A descriptor that was closed meanwhile counts, too.
          if (descriptors.getShort(SIZE * (i + 1L) + REVENTS) != 0) raise(looks.get(i));
        }
      }
    }
  }

  private Memory watched(List<Runnable> looks) {
    synchronized (WAITING) {
      Memory descriptors = new Memory(SIZE * (WAITING.size() + 1L));
      watch(descriptors, 0, ends[0]);
      WAITING.forEach((look, descriptor) -> {
        looks.add(look);
        watch(descriptors, looks.size(), descriptor);
      });
      return descriptors;
    }
  }

  private static void watch(Memory descriptors, int at, int descriptor) {
    descriptors.setInt((long) SIZE * at, descriptor);
    descriptors.setShort((long) SIZE * at + EVENTS, POLLIN);
    descriptors.setShort((long) SIZE * at + REVENTS, (short) 0);
  }
}
