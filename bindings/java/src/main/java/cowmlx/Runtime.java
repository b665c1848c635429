package cowmlx;

import java.util.List;
import java.util.Map;

/** The runtime runs as long as one of these is open. */
public final class Runtime implements AutoCloseable {
  private boolean open = true;

  /** Starts the runtime with the defaults, or as it runs already. */
  public Runtime() {
    this(null);
  }

  public Runtime(RuntimeParams params) {
    try (Arena arena = new Arena()) {
      Listener listener = new Listener(); // of the log, which is called as long as the runtime runs
      listener.check(Api.get().cow_mlx_runtime_start(Params.lower(arena, listener, null, params)));
    }
  }

  /**
   * Names the shared library, before the first call; otherwise the environment's COWMLX_LIBRARY
   * does. {@code python -m cowmlx library} prints where it is.
   */
  public static void useLibrary(String path) {
    Api.use(path);
  }

  /** Undoes the start. The last one frees all that is open. */
  @Override
  public void close() {
    if (!open) return;
    open = false;
    CowMlxException.check(Api.get().cow_mlx_runtime_stop());
    Wakes.raiseAll();
  }

  /** Versions, paths, the device, memory, open handles: see cow_mlx_runtime_info(). */
  public static Map<String, Object> info() {
    return Json.object(Fill.text(8192, Api.get()::cow_mlx_runtime_info));
  }

  /** All operations of programs: see cow_mlx_operations_info(). */
  public static List<Map<String, Object>> operations() {
    return Json.objects(Json.parse(Fill.text(1 << 19, Api.get()::cow_mlx_operations_info)));
  }

  /** Gives memory that is kept for reuse back to the system. */
  public static void trimMemory() {
    CowMlxException.check(Api.get().cow_mlx_memory_trim());
  }

  /** The library's version. */
  public static String version() {
    return Api.get().cow_mlx_version();
  }
}
