package cowmlx;

import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import java.io.File;
import java.lang.reflect.Method;
import java.util.Map;

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
