import com.sun.jna.ptr.IntByReference;

/** What a callback throws reaches the caller, and the call it left has ended. */
public final class Thrown {
  public static void main(String[] arguments) {
    Stream stream = new Stream(arguments[0]);
    int context = stream.open(arguments[1], new IntByReference());
    int[] prompt = {5, 6, 7}, calls = {0}, heard = {0};
    for (int i = 0; i < 20; i++) {
      try {
        stream.generate(context, prompt, text -> {
          calls[0]++;
          throw new UnsupportedOperationException("mine");
        });
      } catch (UnsupportedOperationException mine) {
        heard[0]++;
      }
    }
    boolean canceled = stream.generate(context, prompt, text -> true);
    System.out.println(calls[0] + " " + heard[0] + " " + canceled);
  }
}
