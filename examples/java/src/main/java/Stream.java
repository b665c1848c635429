import com.sun.jna.Callback;
import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.IntByReference;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;

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

  private final CowMlx api;
  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  private Stream(String library) {
    api = Native.load(library, CowMlx.class, Map.of(Library.OPTION_STRING_ENCODING, "UTF-8"));
  }

  private void check(int status) {
    if (status < 0) throw new IllegalStateException(api.cow_mlx_error_message());
  }

  /** Prints what is generated, and cancels after so many bytes. */
  private void generate(int context, int[] prompt, long limit) {
    long[] received = {0};
    CowMlx.OnText onText = (text, length, userData) -> {
      out.write(text.getByteArray(0, (int) length), 0, (int) length);
      received[0] += length;
      if (received[0] >= limit) pressStop(context);
      return 1;
    };
    int status = api.cow_mlx_context_generate(
        context, prompt, prompt.length, null, onText, null, null);
    if (status != CowMlx.ECANCELED) check(status);
    out.println(status == CowMlx.OK ? "\n[ended]" : "\n[canceled]");
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

  private void run(String folder, byte[] text) {
    IntByReference model = new IntByReference();
    IntByReference context = new IntByReference();
    int[] tokens = new int[2048];
    long[] count = {0};
    check(api.cow_mlx_runtime_start(null));
    check(api.cow_mlx_model_load(folder, null, model));
    check(api.cow_mlx_context_create(model.getValue(), null, context));
    check(api.cow_mlx_model_tokenize(
        model.getValue(), text, text.length, CowMlx.ADD_SPECIAL, tokens, tokens.length, count));
    int[] prompt = Arrays.copyOf(tokens, (int) count[0]);
    generate(context.getValue(), prompt, Long.MAX_VALUE);
    generate(context.getValue(), prompt, 20);
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
