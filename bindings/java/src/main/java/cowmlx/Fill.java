package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.util.function.BiFunction;

/** Calls that fill buffers, made again where the first guess of their size was too small. */
final class Fill {
  private Fill() {}

  interface Call {
    int fill(Pointer buffer, long capacity, Pointer length);
  }

  static String text(int guess, Call call) {
    return elements(guess, 1, 1, call, (buffer, count) -> Memories.text(buffer, count));
  }

  static int[] ints(int guess, Call call) {
    return elements(guess, 4, 1, call, (buffer, count) -> buffer.getIntArray(0, count));
  }

  static float[] floats(int guess, int rows, Call call) {
    return elements(guess, 4, rows, call, (buffer, count) -> buffer.getFloatArray(0, count));
  }

  static long[] longs(int guess, Call call) {
    return elements(guess, 8, 1, call, (buffer, count) -> buffer.getLongArray(0, count));
  }

  /** The call reports one of so many rows. */
  private static <T> T elements(int guess, int bytes, int rows, Call call,
      BiFunction<Memory, Integer, T> read) {
    for (long capacity = Math.max(guess, 1); ; ) {
      try (Memory buffer = new Memory(capacity * bytes); Memory length = new Memory(8)) {
        length.setLong(0, 0);
        int status = call.fill(buffer, capacity, length);
        long needed = length.getLong(0) * rows;
        if (status != Status.EBUFFER.value) {
          CowMlxException.check(status);
          return read.apply(buffer, (int) needed);
        }
        capacity = needed;
      }
    }
  }
}
