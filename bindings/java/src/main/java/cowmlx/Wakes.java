package cowmlx;

import com.sun.jna.Library;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Platform;
import com.sun.jna.Pointer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ForkJoinPool;

/** The one thread that waits for descriptors of the library, however many there are. */
final class Wakes {
  /** What poll(2) takes: a descriptor, what is waited for, what has come. */
  private static final int SIZE = 8, EVENTS = 4, REVENTS = 6;

  private static final short POLLIN = 1;
  private static final Map<Runnable, Integer> WAITING = new LinkedHashMap<>();

  /** Its thread is started when something waits. */
  private static final class Started {
    static final Wakes ALL = new Wakes();
  }

  interface LibC extends Library {
    int poll(Pointer descriptors, long count, int milliseconds);

    int pipe(int[] ends);

    long read(int descriptor, byte[] bytes, long count);

    long write(int descriptor, byte[] bytes, long count);
  }

  private final LibC system = Native.load(Platform.C_LIBRARY_NAME, LibC.class);
  private final int[] ends = new int[2];

  private Wakes() {
    if (system.pipe(ends) != 0) {
      throw new CowMlxException(Status.EIO, "no descriptor can be opened", "no_descriptors");
    }
    // It belongs to nobody who waits for the threads of a group to end.
    ThreadGroup group = Thread.currentThread().getThreadGroup();
    while (group.getParent() != null) group = group.getParent();
    Thread thread = new Thread(group, this::turn, "cowmlx-wakes");
    thread.setDaemon(true);
    thread.start();
  }

  /** Lets it look, once, on a thread of the common pool, as soon as a descriptor is readable. */
  static void once(int descriptor, Runnable look) {
    synchronized (WAITING) {
      WAITING.put(look, descriptor);
    }
    Started.ALL.system.write(Started.ALL.ends[1], new byte[1], 1);
  }

  /** Lets it look now, if it waits. */
  static void raise(Runnable look) {
    synchronized (WAITING) {
      if (WAITING.remove(look) == null) return;
    }
    ForkJoinPool.commonPool().execute(look);
  }

  /** Lets all look that wait: what they wait for was freed. */
  static void raiseAll() {
    List<Runnable> looks;
    synchronized (WAITING) {
      looks = List.copyOf(WAITING.keySet());
    }
    looks.forEach(Wakes::raise);
  }

  private void turn() {
    for (;;) {
      List<Runnable> looks = new ArrayList<>();
      try (Memory descriptors = watched(looks)) {
        if (system.poll(descriptors, looks.size() + 1L, -1) <= 0) continue; // a signal came
        if (descriptors.getShort(REVENTS) != 0) system.read(ends[0], new byte[64], 64);
        for (int i = 0; i < looks.size(); i++) {
          // A descriptor that was closed meanwhile counts, too.
          if (descriptors.getShort(SIZE * (i + 1L) + REVENTS) != 0) raise(looks.get(i));
        }
      }
    }
  }

  private Memory watched(List<Runnable> looks) {
    synchronized (WAITING) {
      Memory descriptors = new Memory(SIZE * (WAITING.size() + 1L));
      watch(descriptors, 0, ends[0]);
      WAITING.forEach((look, descriptor) -> {
        looks.add(look);
        watch(descriptors, looks.size(), descriptor);
      });
      return descriptors;
    }
  }

  private static void watch(Memory descriptors, int at, int descriptor) {
    descriptors.setInt((long) SIZE * at, descriptor);
    descriptors.setShort((long) SIZE * at + EVENTS, POLLIN);
    descriptors.setShort((long) SIZE * at + REVENTS, (short) 0);
  }
}
