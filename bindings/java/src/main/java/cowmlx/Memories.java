package cowmlx;

import com.sun.jna.Pointer;
import java.nio.charset.StandardCharsets;

/** Reads what C has written. */
final class Memories {
  private Memories() {}

  /** A text of so many bytes; of -1: up to its NUL. */
  static String text(Pointer memory, int length) {
    if (memory == null) return "";
    if (length < 0) return memory.getString(0, "UTF-8");
    return new String(memory.getByteArray(0, length), StandardCharsets.UTF_8);
  }
}
