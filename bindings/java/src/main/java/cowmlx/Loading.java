package cowmlx;

import com.sun.jna.Memory;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinPool;

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
