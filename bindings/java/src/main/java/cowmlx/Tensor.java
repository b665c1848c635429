package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;

/**
 * Elements in the host's memory, and a strided view of them. Those of a direct buffer, such as
 * {@code MemorySegment.asByteBuffer()} gives, are used where they are; those of Java's arrays are
 * copied for the call. Offset and strides are in elements.
 */
public final class Tensor implements Value {
  private final Object data;
  private final Dtype dtype;
  private final long[] shape;
  private final long[] strides;
  private final long offset;

  private Tensor(Object data, Dtype dtype, long[] shape, long[] strides, long offset) {
    this.data = data;
    this.dtype = dtype;
    this.shape = shape;
    this.strides = strides;
    this.offset = offset;
  }

  public static Tensor of(float[] data, long... shape) {
    return new Tensor(Given.given(data, "data"), Dtype.FLOAT32, Given.given(shape, "shape"), null, 0);
  }

  public static Tensor of(double[] data, long... shape) {
    return new Tensor(Given.given(data, "data"), Dtype.FLOAT64, Given.given(shape, "shape"), null, 0);
  }

  public static Tensor of(int[] data, long... shape) {
    return new Tensor(Given.given(data, "data"), Dtype.INT32, Given.given(shape, "shape"), null, 0);
  }

  public static Tensor of(long[] data, long... shape) {
    return new Tensor(Given.given(data, "data"), Dtype.INT64, Given.given(shape, "shape"), null, 0);
  }

  public static Tensor of(short[] data, long... shape) {
    return new Tensor(Given.given(data, "data"), Dtype.INT16, Given.given(shape, "shape"), null, 0);
  }

  public static Tensor of(byte[] data, long... shape) {
    return new Tensor(Given.given(data, "data"), Dtype.INT8, Given.given(shape, "shape"), null, 0);
  }

  /** Elements of a direct buffer, from its position on, in the machine's order of bytes. */
  public static Tensor of(Buffer direct, Dtype dtype, long... shape) {
    if (!Given.given(direct, "direct").isDirect()) {
      throw new CowMlxException(Status.EINVAL, "the buffer is in Java's heap, must be direct", "out_of_range");
    }
    return new Tensor(direct, Given.given(dtype, "dtype"), Given.given(shape, "shape"), null, 0);
  }

  /** The same elements as a dtype of their size, such as the bits of 16-bit floats. */
  public Tensor as(Dtype other) {
    return new Tensor(data, Given.given(other, "other"), shape, strides, offset);
  }

  /** Another view of the same memory. */
  public Tensor strided(long first, long... steps) {
    return new Tensor(data, dtype, shape, Given.given(steps, "steps"), first);
  }

  /** The struct. C may write into copies, which {@link #copyBack} copies to Java's arrays. */
  Memory lower(Arena arena) {
    long bytes = bytes();
    if (strides != null && strides.length != shape.length) {
      throw new CowMlxException(Status.EINVAL,
          "strides has " + strides.length + " elements, must have " + shape.length, "conflict");
    }
    Memory memory = arena.allocate(CowMlx.At.TENSOR);
    memory.setLong(CowMlx.At.TENSOR_STRUCT_SIZE, CowMlx.At.TENSOR);
    memory.setPointer(CowMlx.At.TENSOR_DATA, bytes == 0 ? null : elements(arena));
    memory.setLong(CowMlx.At.TENSOR_BYTES, bytes);
    memory.setLong(CowMlx.At.TENSOR_OFFSET, offset * dtype.bytes);
    memory.setInt(CowMlx.At.TENSOR_DTYPE, dtype.value);
    memory.setInt(CowMlx.At.TENSOR_RANK, shape.length);
    memory.setPointer(CowMlx.At.TENSOR_SHAPE, arena.copy(shape));
    if (strides != null) memory.setPointer(CowMlx.At.TENSOR_STRIDES, arena.copy(strides));
    return memory;
  }

  /** Where the elements are, or a copy of them. */
  Pointer elements(Arena arena) {
    if (data instanceof Buffer buffer) {
      arena.keep(buffer);
      return Native.getDirectBufferPointer(buffer).share((long) buffer.position() * width(buffer));
    }
    return arena.copy(data);
  }

  /** Copies the elements that C has written to the array. */
  void copyBack(Pointer memory) {
    if (data instanceof float[] floats) memory.read(0, floats, 0, floats.length);
    else if (data instanceof double[] doubles) memory.read(0, doubles, 0, doubles.length);
    else if (data instanceof int[] ints) memory.read(0, ints, 0, ints.length);
    else if (data instanceof long[] longs) memory.read(0, longs, 0, longs.length);
    else if (data instanceof short[] shorts) memory.read(0, shorts, 0, shorts.length);
    else if (data instanceof byte[] some) memory.read(0, some, 0, some.length);
  }

  private long bytes() {
    if (data instanceof Buffer buffer) return (long) buffer.remaining() * width(buffer);
    return Arena.sizeOf(data);
  }

  private static int width(Buffer buffer) {
    if (buffer instanceof ByteBuffer) return 1;
    if (buffer instanceof ShortBuffer) return 2;
    if (buffer instanceof FloatBuffer || buffer instanceof IntBuffer) return 4;
    if (buffer instanceof DoubleBuffer || buffer instanceof LongBuffer) return 8;
    throw new CowMlxException(Status.EINVAL, "a " + buffer.getClass().getSimpleName()
        + " holds no elements, must be of bytes or numbers", "out_of_range");
  }
}
