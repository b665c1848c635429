package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** Parameters of a call, which begin with the defaults. They can be used for many calls. */
public abstract class Params<T extends Params<T>> {
  interface Init {
    void init(CowMlx api, Pointer params, long size);
  }

  private interface Writer {
    void write(Memory memory, Arena arena, Listener listener);
  }

  private final int size;
  private final Init init;
  private final List<Writer> writers = new ArrayList<>();

  Params(int size, Init init) {
    this.size = size;
    this.init = init;
  }

  /** The struct; the members of `first` are set before those of `given`. Both may be null. */
  static <T extends Params<T>> Pointer lower(Arena arena, Listener listener, T first, T given) {
    if (first == null && given == null) return null;
    Params<T> shown = given != null ? given : first;
    Memory memory = arena.allocate(shown.size);
    shown.init.init(Api.get(), memory, shown.size);
    for (Params<T> each : java.util.Arrays.asList(first, given)) {
      if (each != null) each.writers.forEach(writer -> writer.write(memory, arena, listener));
    }
    return memory;
  }

  final T set(Consumer<Memory> member) {
    return add((memory, arena, listener) -> member.accept(memory));
  }

  final T string(String name, int at, String value) {
    return add((memory, arena, listener) -> memory.setPointer(at, arena.string(value, name)));
  }

  final T number(int at, int value) {
    return set(memory -> memory.setInt(at, value));
  }

  final T strings(String name, int at, int count, List<String> values) {
    Given.all(values, name);
    return add((memory, arena, listener) ->
        counted(memory, name, at, count, arena.strings(values, name), values.size()));
  }

  final T numbers(String name, int at, int count, Object values) {
    Given.given(values, name);
    return add((memory, arena, listener) ->
        counted(memory, name, at, count, arena.copy(values), Array.getLength(values)));
  }

  final T handles(String name, int at, int count, List<NDArray> values) {
    Given.all(values, name);
    return add((memory, arena, listener) ->
        counted(memory, name, at, count, arena.handles(values), values.size()));
  }

  @SuppressWarnings("unchecked")
  final T hear(int at, int user, Listener.Kind kind, Object function) {
    if (function == null) return (T) this;
    return add((memory, arena, listener) -> {
      memory.setPointer(at, listener.hear(kind, function));
      memory.setPointer(user, listener.id());
    });
  }

  /** Members that share a count have to have as many. */
  private static void counted(Memory memory, String name, int at, int count, Pointer values, long length) {
    long before = memory.getLong(count);
    if (before != 0 && before != length) {
      throw new CowMlxException(Status.EINVAL,
          name + " has " + length + " elements, must have " + before, "conflict",
          Map.of("argument", name));
    }
    memory.setPointer(at, values);
    memory.setLong(count, length);
  }

  @SuppressWarnings("unchecked")
  private T add(Writer writer) {
    writers.add(writer);
    return (T) this;
  }
}
