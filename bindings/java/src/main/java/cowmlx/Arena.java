package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.lang.reflect.Array;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;

/** The memory that one call is given. */
final class Arena implements AutoCloseable {
  private final List<Memory> taken = new ArrayList<>();
  private final List<Object> kept = new ArrayList<>();

  interface Call {
    int call(Arena arena);
  }

  interface Making {
    int make(Arena arena, Memory out);
  }

  /** Makes a call. */
  static void call(Call call) {
    try (Arena arena = new Arena()) {
      CowMlxException.check(call.call(arena));
    }
  }

  /** Makes a call and returns the number that it writes. */
  static long number(Making call) {
    try (Arena arena = new Arena()) {
      Memory out = arena.allocate(8);
      CowMlxException.check(call.make(arena, out));
      return out.getLong(0);
    }
  }

  /** The handle that a call writes. */
  static int opened(Making call) {
    return (int) number(call);
  }

  /** Memory of a struct that C fills. */
  Memory struct(int size) {
    Memory memory = allocate(size);
    memory.setLong(0, size);
    return memory;
  }

  /** Memory of zeros. */
  Memory allocate(long bytes) {
    Memory memory = new Memory(Math.max(bytes, 1));
    memory.clear();
    taken.add(memory);
    return memory;
  }

  /** Lets an object live as long as the call. */
  void keep(Object object) {
    kept.add(object);
  }

  /** A copy of an array of numbers. */
  Memory copy(Object array) {
    int count = Array.getLength(array);
    Memory memory = allocate(sizeOf(array));
    if (array instanceof byte[] bytes) memory.write(0, bytes, 0, count);
    else if (array instanceof short[] shorts) memory.write(0, shorts, 0, count);
    else if (array instanceof int[] ints) memory.write(0, ints, 0, count);
    else if (array instanceof long[] longs) memory.write(0, longs, 0, count);
    else if (array instanceof float[] floats) memory.write(0, floats, 0, count);
    else memory.write(0, (double[]) array, 0, count);
    return memory;
  }

  /** The bytes of an array of numbers. */
  static long sizeOf(Object array) {
    Class<?> type = array.getClass().getComponentType();
    return (long) Array.getLength(array) * Native.getNativeSize(type);
  }

  /** A text that ends at its NUL; null is NULL. */
  Pointer string(String value, String name) {
    if (value == null) return null;
    if (value.indexOf('\0') >= 0) {
      throw new CowMlxException(Status.EINVAL, name + " has a NUL character in it", "out_of_range",
          Map.of("argument", name));
    }
    return copy((value + "\0").getBytes(StandardCharsets.UTF_8));
  }

  Pointer strings(List<String> values, String name) {
    Memory memory = allocate(8L * Given.all(values, name).size());
    for (int i = 0; i < values.size(); i++) {
      memory.setPointer(8L * i, string(values.get(i), name));
    }
    return memory;
  }

  /** The structs of texts. */
  Memory texts(List<String> texts, String name) {
    Memory memory = allocate((long) CowMlx.At.TEXT * texts.size());
    for (int i = 0; i < texts.size(); i++) {
      byte[] utf8 = utf8(texts.get(i), name + "[" + i + "]");
      long at = (long) CowMlx.At.TEXT * i;
      memory.setPointer(at + CowMlx.At.TEXT_DATA, copy(utf8));
      memory.setLong(at + CowMlx.At.TEXT_LENGTH, utf8.length);
    }
    return memory;
  }

  /** UTF-8 of a text that must be given. */
  static byte[] utf8(String value, String name) {
    return Given.given(value, name).getBytes(StandardCharsets.UTF_8);
  }

  /** A text of C's with so many bytes; of -1: up to its NUL. */
  static String text(Pointer memory, int length) {
    if (memory == null) return "";
    if (length < 0) return memory.getString(0, "UTF-8");
    return new String(memory.getByteArray(0, length), StandardCharsets.UTF_8);
  }

  Pointer handles(List<NDArray> arrays) {
    return copy(arrays.stream().mapToLong(each -> each == null ? 0 : each.number()).toArray());
  }

  @Override
  public void close() {
    taken.forEach(Memory::close);
    kept.clear();
  }
}

/** Calls that fill buffers, repeated with a larger one if the first was too small. */
final class Fill {
  private Fill() {}

  interface Call {
    int fill(Pointer buffer, long capacity, Pointer length);
  }

  static String text(int guess, Call call) {
    return elements(guess, 1, 1, call, (buffer, count) -> Arena.text(buffer, count));
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

  /** Numbers cut into so many rows. */
  static float[][] rows(int count, float[] all) {
    float[][] rows = new float[count][];
    for (int i = 0; i < count; i++) {
      int width = all.length / count;
      rows[i] = Arrays.copyOfRange(all, i * width, (i + 1) * width);
    }
    return rows;
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
