package cowmlx;

import com.sun.jna.Library;
import com.sun.jna.Native;
import java.util.Map;

/** The library itself, loaded when it is first needed. */
final class Api {
  private static String path = System.getenv("COWMLX_LIBRARY");
  private static volatile CowMlx loaded;

  private Api() {}

  static synchronized void use(String file) {
    if (loaded != null && !file.equals(path)) {
      throw new CowMlxException(Status.ESTATE, "another library is in use: " + path, "conflict");
    }
    path = file;
  }

  static CowMlx get() {
    CowMlx found = loaded;
    return found != null ? found : load();
  }

  private static synchronized CowMlx load() {
    if (loaded != null) return loaded;
    if (path == null) {
      throw new CowMlxException(Status.ENOENT, "no library is named: call Runtime.useLibrary() or "
          + "set COWMLX_LIBRARY; python -m cowmlx library prints where it is", "missing");
    }
    CowMlx found = Native.load(path, CowMlx.class, Map.of(Library.OPTION_STRING_ENCODING, "UTF-8"));
    if (found.cow_mlx_abi_version() != CowMlx.ABI_VERSION) {
      throw new CowMlxException(Status.EUNSUPPORTED, path + " has the ABI "
          + found.cow_mlx_abi_version() + ", must have " + CowMlx.ABI_VERSION, "library_mismatch");
    }
    return loaded = found;
  }
}
