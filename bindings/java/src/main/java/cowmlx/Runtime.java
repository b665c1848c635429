package cowmlx;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import java.io.File;
import java.lang.reflect.Method;
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

/** The library itself, loaded when it is first needed. */
final class Api {
  private static String path = System.getenv("COWMLX_LIBRARY");
  private static volatile CowMlx loaded;

  private Api() {}

  static synchronized void use(String file) {
    Given.given(file, "path");
    if (loaded != null && !file.equals(path)) {
      throw new CowMlxException(Status.ESTATE,
          "another library is in use: " + path + "; name one before the first call", "conflict");
    }
    path = file;
  }

  static CowMlx get() {
    CowMlx found = loaded;
    return found != null ? found : load();
  }

  private static synchronized CowMlx load() {
    if (loaded != null) return loaded;
    if (path == null || path.isEmpty()) {
      throw new CowMlxException(Status.ENOENT, "no library is named: call Runtime.useLibrary() or "
          + "set COWMLX_LIBRARY; python -m cowmlx library prints where it is", "missing");
    }
    CowMlx found = open();
    if (found.cow_mlx_abi_version() != CowMlx.ABI_VERSION) {
      throw new CowMlxException(Status.EUNSUPPORTED, path + " has the ABI "
          + found.cow_mlx_abi_version() + ", must have " + CowMlx.ABI_VERSION, "library_mismatch");
    }
    return loaded = found;
  }

  private static CowMlx open() {
    NativeLibrary library;
    try {
      // JNA would look for a relative path in its own places.
      if (path.contains(File.separator)) path = new File(path).getAbsolutePath();
      library = NativeLibrary.getInstance(path);
    } catch (LinkageError missing) {
      boolean isThere = new File(path).exists();
      throw new CowMlxException(isThere ? Status.EFORMAT : Status.ENOENT, "the library " + path
          + " cannot be opened: " + missing.getMessage().strip().replace("\n", " ")
          + "; name libcowmlx's file by Runtime.useLibrary() or in COWMLX_LIBRARY",
          isThere ? "malformed_file" : "file_not_found", Map.of("file", path));
    }
    try {
      for (Method each : CowMlx.class.getMethods()) library.getFunction(each.getName());
      return Native.load(path, CowMlx.class, Map.of(Library.OPTION_STRING_ENCODING, "UTF-8"));
    } catch (LinkageError other) {
      throw new CowMlxException(Status.EUNSUPPORTED, path + " is not libcowmlx " + CowMlx.VERSION
          + ": " + other.getMessage(), "library_mismatch", Map.of("file", path));
    }
  }
}
