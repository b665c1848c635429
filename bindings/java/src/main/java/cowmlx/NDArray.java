package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** An array of numbers, which lives in the library: a value, which nothing changes. */
public final class NDArray extends Handle implements Value {
  private record Type(Dtype dtype, long[] shape) {}

  private Type type; // of any number of threads: all find the same

  NDArray(long handle) {
    super("array", handle, number -> Api.get().cow_mlx_array_free(number));
  }

  /** Makes an array of elements, which are copied. */
  public static NDArray of(Tensor from) {
    return new NDArray(Arena.number((arena, out) -> Api.get().cow_mlx_array_create(
        Given.given(from, "from").lower(arena), out)));
  }

  public static NDArray of(float[] data, long... shape) {
    return of(Tensor.of(data, shape));
  }

  public static NDArray of(int[] data, long... shape) {
    return of(Tensor.of(data, shape));
  }

  public Dtype dtype() {
    return type().dtype;
  }

  public long[] shape() {
    return type().shape.clone();
  }

  /** The number of its elements. */
  public int size() {
    return (int) Arrays.stream(shape()).reduce(1, (a, b) -> a * b);
  }

  private Type type() {
    Type known = type;
    if (known != null) return known;
    try (Arena arena = new Arena()) {
      Memory dtype = arena.allocate(4), sizes = arena.allocate(8 * CowMlx.MAX_RANK);
      Memory rank = arena.allocate(8);
      CowMlxException.check(
          Api.get().cow_mlx_array_type(number(), dtype, sizes, CowMlx.MAX_RANK, rank));
      int count = (int) rank.getLong(0);
      long[] shape = count == 0 ? new long[0] : sizes.getLongArray(0, count);
      return type = new Type(Dtype.of(dtype.getInt(0)), shape);
    }
  }

  /** Waits until the elements are there; -1: as long as it takes. False: not yet. */
  public boolean await(int milliseconds) {
    return CowMlxException.isThere(Api.get().cow_mlx_array_wait(number(), milliseconds));
  }

  /** Copies the elements, once they are computed. */
  public void read(Tensor to) {
    try (Arena arena = new Arena()) {
      Memory tensor = Given.given(to, "to").lower(arena);
      CowMlxException.check(Api.get().cow_mlx_array_read(number(), tensor));
      Pointer elements = tensor.getPointer(CowMlx.At.TENSOR_DATA);
      if (elements != null) to.copyBack(elements);
    }
  }

  /** The elements of a float32. */
  public float[] floats() {
    float[] found = new float[size()];
    read(Tensor.of(found, shape()));
    return found;
  }

  /** The elements of a float64. */
  public double[] doubles() {
    double[] found = new double[size()];
    read(Tensor.of(found, shape()));
    return found;
  }

  /** The elements of an int32; of a uint32 their bits. */
  public int[] ints() {
    int[] found = new int[size()];
    read(Tensor.of(found, shape()).as(dtype() == Dtype.UINT32 ? Dtype.UINT32 : Dtype.INT32));
    return found;
  }

  /** The elements of an int64; of a uint64 their bits. */
  public long[] longs() {
    long[] found = new long[size()];
    read(Tensor.of(found, shape()).as(dtype() == Dtype.UINT64 ? Dtype.UINT64 : Dtype.INT64));
    return found;
  }

  /** Looks at the elements where they are, without a copy; the buffer must not be kept. */
  public <T> T view(Function<ByteBuffer, T> look) {
    Given.given(look, "look");
    try (Arena arena = new Arena()) {
      Memory data = arena.allocate(8);
      CowMlxException.check(Api.get().cow_mlx_array_view(number(), data, null));
      long bytes = (long) size() * dtype().bytes;
      ByteBuffer seen = bytes == 0 ? ByteBuffer.allocate(0) : data.getPointer(0).getByteBuffer(0, bytes);
      return look.apply(seen.asReadOnlyBuffer().order(java.nio.ByteOrder.nativeOrder()));
    }
  }

  /** Applies an operation: see cow_mlx_array_apply(). Attributes are JSON, or null. */
  public static List<NDArray> apply(String operation, List<NDArray> inputs, String attributes) {
    Given.given(inputs, "inputs");
    try (Arena arena = new Arena()) {
      Pointer name = arena.string(operation, "operation"), handles = arena.handles(inputs);
      Pointer json = arena.string(attributes, "attributes");
      return opened(Fill.longs(4, (outputs, room, length) -> Api.get().cow_mlx_array_apply(
          name, handles, inputs.size(), json, outputs, room, length)));
    }
  }

  static List<NDArray> opened(long[] handles) {
    List<NDArray> arrays = new ArrayList<>();
    for (long handle : handles) arrays.add(new NDArray(handle));
    return arrays;
  }

  /** Loads arrays of a safetensors file by their names. */
  public static Map<String, NDArray> load(String path, List<String> names) {
    try (Arena arena = new Arena()) {
      Memory handles = arena.allocate(8L * Given.all(names, "names").size());
      CowMlxException.check(Api.get().cow_mlx_arrays_load(arena.string(path, "path"),
          arena.strings(names, "names"), names.size(), handles));
      Map<String, NDArray> found = new LinkedHashMap<>();
      for (int i = 0; i < names.size(); i++) {
        found.put(names.get(i), new NDArray(handles.getLong(8L * i)));
      }
      return found;
    }
  }

  /** Saves arrays by their names as a safetensors file. */
  public static void save(String path, Map<String, NDArray> arrays) {
    List<String> names = List.copyOf(Given.all(arrays, "arrays").keySet());
    try (Arena arena = new Arena()) {
      Pointer handles = arena.handles(names.stream().map(arrays::get).toList());
      CowMlxException.check(Api.get().cow_mlx_arrays_save(arena.string(path, "path"),
          arena.strings(names, "names"), handles, names.size()));
    }
  }

  /** The contents of a safetensors file: see cow_mlx_arrays_info(). */
  public static Map<String, Object> infoOf(String path) {
    try (Arena arena = new Arena()) {
      Pointer name = arena.string(path, "path");
      return Json.object(Fill.text(4096, (buffer, room, length) ->
          Api.get().cow_mlx_arrays_info(name, buffer, room, length)));
    }
  }
}
