package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.util.List;

/** An input of a run or a step: an array of the library's, or elements of the host's. */
public sealed interface Value permits NDArray, Tensor {
  /** The structs of values. */
  static Pointer lower(Arena arena, List<? extends Value> values) {
    Memory memory = arena.allocate((long) CowMlx.At.VALUE * Given.all(values, "inputs").size());
    for (int i = 0; i < values.size(); i++) {
      long at = (long) CowMlx.At.VALUE * i;
      if (values.get(i) instanceof NDArray array) {
        memory.setLong(at + CowMlx.At.VALUE_ARRAY, array.number());
      } else {
        memory.setPointer(at + CowMlx.At.VALUE_HOST, ((Tensor) values.get(i)).lower(arena));
      }
    }
    return memory;
  }
}
