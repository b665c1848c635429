import cowmlx.Context;
import cowmlx.Finish;
import cowmlx.Model;
import cowmlx.Piece;
import cowmlx.Pieces;
import cowmlx.Runtime;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Stream the continuation of a text, then again and stop half-way.
 *
 * <pre>mvn -q compile exec:java -Dexec.args="LIBRARY MODEL 'TEXT'"</pre>
 *
 * LIBRARY is what {@code python -m cowmlx library} prints, or that of {@code make install}.
 */
public final class Stream {
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  /** Prints what is generated, and cancels after so many characters. */
  private static void print(Context context, int[] prompt, long limit) {
    Pieces pieces = context.generate(prompt, null);
    long received = 0;
    for (Piece piece : pieces) {
      OUT.print(piece.text());
      OUT.flush();
      received += piece.text().length();
      if (received >= limit) context.cancel(); // any thread may
    }
    OUT.println(pieces.finish() == Finish.CANCELED ? "\n[canceled]" : "\n[ended]");
  }

  public static void main(String[] arguments) {
    if (arguments.length != 3) {
      System.err.println("usage: Stream LIBRARY MODEL TEXT");
      System.exit(2);
    }
    Runtime.useLibrary(arguments[0]);
    try (Runtime runtime = new Runtime();
        Model model = Model.load(arguments[1]);
        Context context = model.context()) {
      int[] prompt = model.tokenize(arguments[2], true);
      print(context, prompt, Long.MAX_VALUE);
      print(context, prompt, 20);
    }
  }
}
