package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** Parameters of a call, which begin with the defaults. They can be used for many calls. */
public abstract class Params<T extends Params<T>> {
  interface Init {
    void init(CowMlx api, Pointer params, long size);
  }

  private interface Writer {
    void write(Lowering to);
  }

  /** A member that is a list, and the place of its count, which another member may share. */
  private record Counted(String name, int count, int length) {}

  /** A struct that is written, and its lists by their places. */
  private record Lowering(Memory memory, Arena arena, Listener listener, Map<Integer, Counted> lists) {
    void list(String name, int at, int count, Pointer values, int length) {
      memory.setPointer(at, values);
      lists.put(at, new Counted(name, count, length));
    }

    /** Lists that share a count must have equal lengths. */
    void count() {
      Map<Integer, Integer> lengths = new HashMap<>();
      for (Counted list : lists.values()) {
        Integer before = lengths.putIfAbsent(list.count, list.length);
        if (before != null && before != list.length) {
          throw new CowMlxException(Status.EINVAL,
              list.name + " has " + list.length + " elements, must have " + before, "conflict",
              Map.of("argument", list.name));
        }
        memory.setLong(list.count, list.length);
      }
    }
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
    Lowering to = new Lowering(memory, arena, listener, new LinkedHashMap<>());
    for (Params<T> each : java.util.Arrays.asList(first, given)) {
      if (each != null) each.writers.forEach(writer -> writer.write(to));
    }
    to.count();
    return memory;
  }

  final T set(Consumer<Memory> member) {
    return add(to -> member.accept(to.memory));
  }

  final T string(String name, int at, String value) {
    return add(to -> to.memory.setPointer(at, to.arena.string(value, name)));
  }

  final T number(int at, int value) {
    return set(memory -> memory.setInt(at, value));
  }

  final T strings(String name, int at, int count, List<String> values) {
    Given.all(values, name);
    return add(to -> to.list(name, at, count, to.arena.strings(values, name), values.size()));
  }

  final T numbers(String name, int at, int count, Object values) {
    Given.given(values, name);
    return add(to -> to.list(name, at, count, to.arena.copy(values), Array.getLength(values)));
  }

  final T handles(String name, int at, int count, List<NDArray> values) {
    Given.all(values, name);
    return add(to -> to.list(name, at, count, to.arena.handles(values), values.size()));
  }

  @SuppressWarnings("unchecked")
  final T hear(int at, int user, Listener.Kind kind, Object function) {
    if (function == null) return (T) this;
    return add(to -> {
      to.memory.setPointer(at, to.listener.hear(kind, function));
      to.memory.setPointer(user, to.listener.id());
    });
  }

  @SuppressWarnings("unchecked")
  private T add(Writer writer) {
    writers.add(writer);
    return (T) this;
  }
}
