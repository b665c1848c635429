package cowmlx;

import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;

/** An object of the library, which close() frees. */
public abstract class Handle implements AutoCloseable {
  private final String kind;
  private final LongConsumer free;
  private final AtomicLong number;

  Handle(String kind, long number, LongConsumer free) {
    this.kind = kind;
    this.free = free;
    this.number = new AtomicLong(number);
  }

  final long number() {
    long found = number.get();
    if (found == 0) {
      throw new CowMlxException(Status.EHANDLE, "the " + kind + " is closed", "unknown_handle",
          Map.of("kind", kind));
    }
    return found;
  }

  /** Whether it was closed, or taken over. */
  final boolean isClosed() {
    return number.get() == 0;
  }

  /** The number that the library knows it by. */
  int handle() {
    return (int) number();
  }

  /** Checks a cancel, which leaves the thread's message alone, also where it fails. */
  final void checkCancel(int status) {
    if (status < 0) {
      throw new CowMlxException(Status.EHANDLE, "the " + kind + " is closed", "unknown_handle");
    }
  }

  /** The caller frees it. */
  final long release() {
    long found = number();
    number.set(0);
    return found;
  }

  /** Frees it; a second time does nothing, nor after the runtime was stopped. */
  @Override
  public void close() {
    long found = number.getAndSet(0);
    if (found != 0) free.accept(found);
  }
}
