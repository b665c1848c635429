package cowmlx;

import com.sun.jna.Memory;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A model: weights, tokenizer and chat template of one folder. */
public final class Model extends ModelMethods {
  private static final ModelParams WATCHED = new ModelParams().progress((fraction, stage) -> true);

  Model(int handle) {
    super(handle);
  }

  /** Loads a model's folder. */
  public static Model load(String path) {
    return load(path, null);
  }

  public static Model load(String path, ModelParams params) {
    try (Arena arena = new Arena(); Listener listener = new Listener()) {
      Memory out = arena.allocate(4);
      listener.check(Api.get().cow_mlx_model_load(arena.string(path, "path"),
          Params.lower(arena, listener, WATCHED, params), out));
      return new Model(out.getInt(0));
    }
  }

  /**
   * Loads a model's folder, and returns at once; no thread waits for it. A cancel of the future ends
   * the load. Callbacks run on threads of the common pool.
   */
  public static CompletableFuture<Model> loadAsync(String path, ModelParams params) {
    return new Loading(path, params).begin();
  }

  /** Turns text into tokens, with those that open (and close) a text if {@code addSpecial}. */
  public int[] tokenize(String text, boolean addSpecial) {
    return tokenize(text, addSpecial, false);
  }

  /** The same; {@code parseSpecial}: also reads special tokens in the text, which is the host's. */
  public int[] tokenize(String text, boolean addSpecial, boolean parseSpecial) {
    byte[] utf8 = Arena.utf8(text, "text");
    int flags = (addSpecial ? CowMlx.ADD_SPECIAL : 0) | (parseSpecial ? CowMlx.PARSE_SPECIAL : 0);
    try (Arena arena = new Arena()) {
      Memory bytes = arena.copy(utf8);
      return Fill.ints(utf8.length + 16, (tokens, room, count) -> Api.get()
          .cow_mlx_model_tokenize(handle(), bytes, utf8.length, flags, tokens, room, count));
    }
  }

  /** Turns tokens into text, without special ones if {@code skipSpecial}. */
  public String detokenize(int[] tokens, boolean skipSpecial) {
    int flags = skipSpecial ? CowMlx.SKIP_SPECIAL : 0;
    Given.given(tokens, "tokens");
    try (Arena arena = new Arena()) {
      var given = arena.copy(tokens);
      return Fill.text(8 * tokens.length + 16, (text, room, length) -> Api.get()
          .cow_mlx_model_detokenize(handle(), given, tokens.length, flags, text, room, length));
    }
  }

  /** The tokens of a conversation, by the model's chat template. */
  public int[] chatPrompt(List<Message> messages) {
    return chatPrompt(Message.json(messages), null);
  }

  /** Opens a context. */
  public Context context() {
    return context(null);
  }
}
