package cowmlx;

import com.sun.jna.Callback;
import com.sun.jna.CallbackReference;
import com.sun.jna.Pointer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/**
 * Hears the callbacks of one call. An exception of a function cancels the call and is thrown
 * again after it; if the thread has been interrupted, the call is cancelled, too.
 */
public final class Listener implements AutoCloseable {
  /** How a load advances; false cancels it. */
  public interface Progress {
    boolean advance(float fraction, String stage);
  }

  /** How a prompt advances; false cancels the call. */
  public interface Prompt {
    boolean advance(long processed, long total);
  }

  /**
   * Changes the logits of every token of the vocabulary in place, behind all tokens of the
   * context; false cancels the call. The buffer is valid during the call.
   */
  public interface Logits {
    boolean change(int[] tokens, FloatBuffer logits);
  }

  /** Hears pieces as they are generated; false cancels the call. */
  public interface Pieces {
    boolean hear(Piece piece);
  }

  /** Hears text as it is generated; false cancels the call. */
  public interface Text {
    boolean hear(String text);
  }

  /** Hears the events of a chat; false cancels it. */
  public interface Event {
    boolean hear(cowmlx.Event event);
  }

  /** Hears how a training advances; false ends the fit. */
  public interface Training {
    boolean hear(TrainingEvent event);
  }

  /** Brings the batch of a step, which the training takes over; null if there are no more. */
  public interface Batch {
    List<NDArray> next(long step);
  }

  /** Hears the log. */
  public interface Log {
    void log(LogLevel level, String message);
  }

  enum Kind { LOG, PROGRESS, PROMPT, LOGITS, TEXT, EVENT, TRAINING, BATCH }

  private static final Map<Long, Listener> LISTENERS = new ConcurrentHashMap<>();
  private static final AtomicLong LAST = new AtomicLong();
  private static final Map<Kind, Callback> TRAMPOLINES = new EnumMap<>(Map.of(
      Kind.LOG, (CowMlx.LogFn) (level, message, user) -> answer(user, Kind.LOG, Log.class, log -> {
        log.log(LogLevel.of(level), Arena.text(message, -1));
        return true;
      }),
      Kind.PROGRESS, (CowMlx.ProgressFn) (fraction, stage, user) ->
          answer(user, Kind.PROGRESS, Progress.class,
              progress -> progress.advance(fraction, Arena.text(stage, -1))),
      Kind.PROMPT, (CowMlx.PromptFn) (processed, total, user) ->
          answer(user, Kind.PROMPT, Prompt.class, prompt -> prompt.advance(processed, total)),
      Kind.LOGITS, (CowMlx.LogitsFn) (tokens, count, logits, vocabulary, user) ->
          answer(user, Kind.LOGITS, Logits.class, on -> on.change(
              tokens.getIntArray(0, (int) count),
              logits.getByteBuffer(0, 4 * vocabulary).order(ByteOrder.nativeOrder())
                  .asFloatBuffer())),
      Kind.TEXT, (CowMlx.TextFn) (text, length, user) ->
          answer(user, Kind.TEXT, Text.class, on -> on.hear(Arena.text(text, (int) length))),
      Kind.EVENT, (CowMlx.EventFn) (event, user) ->
          answer(user, Kind.EVENT, Event.class, on -> on.hear(cowmlx.Event.read(event))),
      Kind.TRAINING, (CowMlx.TrainingFn) (event, user) ->
          answer(user, Kind.TRAINING, Training.class, on -> on.hear(TrainingEvent.read(event))),
      Kind.BATCH, (CowMlx.BatchFn) (step, inputs, count, user) ->
          answer(user, Kind.BATCH, Batch.class, batch -> give(batch.next(step), inputs, count))));

  private final long id = LAST.incrementAndGet();
  private final Map<Kind, Object> functions = new EnumMap<>(Kind.class);
  private Throwable thrown;

  Listener() {}

  /** The address that C calls. */
  Pointer hear(Kind kind, Object function) {
    functions.put(kind, function);
    LISTENERS.put(id, this);
    return CallbackReference.getFunctionPointer(TRAMPOLINES.get(kind));
  }

  /** The user data of each callback. */
  Pointer id() {
    return Pointer.createConstant(id);
  }

  /** Refuses a function that the library would call after the call that it is given to. */
  void refuseLogits() {
    if (!functions.containsKey(Kind.LOGITS)) return;
    throw new CowMlxException(Status.EUNSUPPORTED,
        "logitsFn goes with generate(tokens, params, onText), generateAsync, chat and chatAsync",
        "conflict", Map.of("argument", "logitsFn"));
  }

  /** Throws the exception of a callback, or of the call if it failed. */
  void check(int status) {
    if (thrown != null) throw Listener.<RuntimeException>unchanged(thrown);
    CowMlxException.check(status);
  }

  /** The exception of a callback, or null. */
  Throwable thrown() {
    return thrown;
  }

  /** Throws also checked exceptions that no signature declares: other languages do. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> T unchanged(Throwable problem) throws T {
    throw (T) problem;
  }

  @Override
  public void close() {
    LISTENERS.remove(id);
  }

  private static <T> byte answer(Pointer user, Kind kind, Class<T> type, Function<T, Boolean> ask) {
    Listener listener = LISTENERS.get(Pointer.nativeValue(user));
    if (listener == null) return 0; // its call has ended
    try {
      boolean more = ask.apply(type.cast(listener.functions.get(kind)));
      return (byte) (more && !Thread.currentThread().isInterrupted() ? 1 : 0);
    } catch (Throwable problem) {
      if (listener.thrown == null) listener.thrown = problem;
      return 0;
    }
  }

  private static boolean give(List<NDArray> batch, Pointer inputs, long count) {
    if (batch == null) return false;
    if (Given.all(batch, "the result of nextBatch").size() != count) {
      throw new CowMlxException(Status.EINVAL, "nextBatch gave " + batch.size()
          + " arrays, must give " + count + ", or null for no more", "out_of_range");
    }
    long[] numbers = batch.stream().mapToLong(NDArray::number).toArray(); // all are open
    if (Arrays.stream(numbers).distinct().count() < count) {
      throw new CowMlxException(Status.EINVAL, "nextBatch gave an array twice, must give different ones",
          "conflict");
    }
    for (int i = 0; i < count; i++) inputs.setLong(8L * i, batch.get(i).release());
    return true;
  }
}
