import com.sun.jna.Callback;
import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.function.Predicate;

/**
 * Stream what a model makes of a text, then again and stop half-way.
 *
 * <pre>mvn -q compile exec:java -Dexec.args="LIBRARY MODEL 'TEXT'"</pre>
 *
 * LIBRARY is what {@code python -m cowmlx library} prints, or that of {@code make install}.
 */
public final class Stream {
  /** The functions used here; size_t is 64 bits wide, as long is where this library runs. */
  interface CowMlx extends Library {
    int OK = 0;
    int ECANCELED = -9;
    int ADD_SPECIAL = 1;

    String cow_mlx_error_message();

    int cow_mlx_error_details(byte[] json, long capacity, long[] length);

    int cow_mlx_runtime_start(Pointer params);

    int cow_mlx_runtime_stop();

    int cow_mlx_model_load(String path, Pointer params, IntByReference model);

    int cow_mlx_model_tokenize(int model, byte[] text, long length, int flags, int[] tokens,
        long capacity, long[] count);

    int cow_mlx_context_create(int model, Pointer params, IntByReference context);

    int cow_mlx_context_generate(int context, int[] tokens, long count, Pointer params,
        OnText onText, Pointer userData, Pointer stats);

    int cow_mlx_context_cancel(int context);

    /** Runs on the thread of the call. A byte is as wide as C's bool; 0 cancels. */
    interface OnText extends Callback {
      byte invoke(Pointer text, long length, Pointer userData);
    }
  }

  /** Hears the text of one call. What it throws cancels the call, and is thrown again behind it:
      it cannot pass through C, so JNA would print and forget it. */
  private static final class Listener implements CowMlx.OnText {
    private final Predicate<byte[]> onText;
    private Throwable thrown;

    Listener(Predicate<byte[]> onText) {
      this.onText = onText;
    }

    @Override
    public byte invoke(Pointer text, long length, Pointer userData) {
      try {
        return (byte) (onText.test(text.getByteArray(0, (int) length)) ? 1 : 0);
      } catch (Throwable problem) {
        thrown = problem;
        return 0;
      }
    }

    void rethrow() {
      if (thrown instanceof Error error) throw error;
      if (thrown != null) throw (RuntimeException) thrown;
    }
  }

  /** Why a call failed: for people a message, for programs its details, a JSON object. */
  static final class CowMlxException extends IllegalStateException {
    final int status;
    final String reason;
    final String details;

    CowMlxException(int status, String message, String failure) {
      super(message);
      this.status = status;
      // The keys come in this order, and a reason has no quotes.
      String[] parts = failure.split("\"reason\": \"|\", \"details\": ", 3);
      reason = parts[1];
      details = parts[2].substring(0, parts[2].length() - 1);
    }
  }

  private final CowMlx api;
  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  Stream(String library) {
    api = Native.load(library, CowMlx.class, Map.of(Library.OPTION_STRING_ENCODING, "UTF-8"));
  }

  /** For the thread that made the call; a virtual thread may have left the one it ran on. */
  private void check(int status) {
    if (status >= 0) return;
    byte[] json = new byte[4096];
    long[] length = new long[1];
    api.cow_mlx_error_details(json, json.length, length);
    String failure = new String(json, 0, (int) length[0], StandardCharsets.UTF_8);
    throw new CowMlxException(status, api.cow_mlx_error_message(), failure);
  }

  /** Gives the text as it comes, on this thread; false cancels. Tells whether it was cancelled. */
  boolean generate(int context, int[] prompt, Predicate<byte[]> onText) {
    Listener listener = new Listener(onText);
    int status = api.cow_mlx_context_generate(
        context, prompt, prompt.length, null, listener, null, null);
    listener.rethrow();
    if (status != CowMlx.ECANCELED) check(status);
    return status == CowMlx.ECANCELED;
  }

  /** Prints what is generated, and cancels after so many bytes. */
  private void print(int context, int[] prompt, long limit) {
    long[] received = {0};
    boolean canceled = generate(context, prompt, text -> {
      out.write(text, 0, text.length);
      received[0] += text.length;
      if (received[0] >= limit) pressStop(context);
      return true;
    });
    out.println(canceled ? "\n[canceled]" : "\n[ended]");
  }

  /** What a window's Stop button does: a call from another thread. */
  private void pressStop(int context) {
    Thread thread = new Thread(() -> check(api.cow_mlx_context_cancel(context)));
    thread.start();
    try {
      thread.join();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Starts the runtime, and opens a context on a model; the model goes to {@code model}. */
  int open(String folder, IntByReference model) {
    IntByReference context = new IntByReference();
    check(api.cow_mlx_runtime_start(null));
    check(api.cow_mlx_model_load(folder, null, model));
    check(api.cow_mlx_context_create(model.getValue(), null, context));
    return context.getValue();
  }

  private void run(String folder, byte[] text) {
    IntByReference model = new IntByReference();
    int context = open(folder, model);
    int[] tokens = new int[2048];
    long[] count = {0};
    check(api.cow_mlx_model_tokenize(
        model.getValue(), text, text.length, CowMlx.ADD_SPECIAL, tokens, tokens.length, count));
    int[] prompt = Arrays.copyOf(tokens, (int) count[0]);
    print(context, prompt, Long.MAX_VALUE);
    print(context, prompt, 20);
    check(api.cow_mlx_runtime_stop());
  }

  public static void main(String[] arguments) {
    if (arguments.length != 3) {
      System.err.println("usage: Stream LIBRARY MODEL TEXT");
      System.exit(2);
    }
    new Stream(arguments[0]).run(arguments[1], arguments[2].getBytes(StandardCharsets.UTF_8));
  }
}
