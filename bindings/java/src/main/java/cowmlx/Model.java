package cowmlx;

import com.sun.jna.Memory;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** A model: weights, tokenizer and chat template of one folder. */
public final class Model extends Handle {
  private static final ModelParams WATCHED = new ModelParams().progress((fraction, stage) -> true);

  Model(int handle) {
    super("model", handle, number -> Api.get().cow_mlx_model_free((int) number));
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

  /** Describes a model's folder without loading it: see cow_mlx_model_inspect(). */
  public static Map<String, Object> inspect(String path, int kvBits) {
    try (Arena arena = new Arena()) {
      Memory name = (Memory) arena.string(path, "path");
      return Json.object(Fill.text(8192, (buffer, room, length) ->
          Api.get().cow_mlx_model_inspect(name, kvBits, buffer, room, length)));
    }
  }

  /** See cow_mlx_model_info(). */
  public Map<String, Object> info() {
    return Json.object(Fill.text(16384, (buffer, room, length) ->
        Api.get().cow_mlx_model_info(handle(), buffer, room, length)));
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

  /** Whether a token ends a generation. */
  public boolean isEnd(int token) {
    return Arena.number((arena, out) -> Api.get().cow_mlx_model_is_end(handle(), token, out)) != 0;
  }

  /** The tokens of a conversation, by the model's chat template. */
  public int[] chatPrompt(List<Message> messages) {
    return chatPrompt(Message.json(messages), null);
  }

  /** The same of JSON; options may be null: see cow_mlx_model_chat_prompt(). */
  public int[] chatPrompt(String messagesJson, String optionsJson) {
    byte[] utf8 = Arena.utf8(messagesJson, "messagesJson");
    try (Arena arena = new Arena()) {
      Memory messages = arena.copy(utf8);
      var options = arena.string(optionsJson, "optionsJson");
      return Fill.ints(utf8.length + 64, (tokens, room, count) -> Api.get().cow_mlx_model_chat_prompt(
          handle(), messages, utf8.length, options, tokens, room, count));
    }
  }

  /** Turns texts into vectors. */
  public float[][] embed(List<String> texts, EmbedParams params) {
    try (Arena arena = new Arena()) {
      int rows = Given.given(texts, "texts").size();
      Memory given = lower(arena, texts, "texts");
      var options = Params.lower(arena, null, null, params);
      return rows(rows, Fill.floats(4096 * rows, rows, (out, room, dims) -> Api.get()
          .cow_mlx_model_embed(handle(), given, rows, options, out, room, dims)));
    }
  }

  /**
   * Tells how well each document fits a query: the higher a score, the better. A row for each
   * document has one, or one for each label of a classification head.
   */
  public float[][] rank(String query, List<String> documents, RankParams params) {
    try (Arena arena = new Arena()) {
      int rows = Given.given(documents, "documents").size();
      var asked = arena.string(query, "query");
      Memory given = lower(arena, documents, "documents");
      var options = Params.lower(arena, null, null, params);
      return rows(rows, Fill.floats(rows, rows, (scores, room, labels) -> Api.get()
          .cow_mlx_model_rank(handle(), asked, given, rows, options, scores, room, labels)));
    }
  }

  private static Memory lower(Arena arena, List<String> texts, String name) {
    Memory given = arena.allocate((long) CowMlx.At.TEXT * texts.size());
    for (int i = 0; i < texts.size(); i++) {
      byte[] utf8 = Arena.utf8(texts.get(i), name + "[" + i + "]");
      long at = (long) CowMlx.At.TEXT * i;
      given.setPointer(at + CowMlx.At.TEXT_DATA, arena.copy(utf8));
      given.setLong(at + CowMlx.At.TEXT_LENGTH, utf8.length);
    }
    return given;
  }

  private static float[][] rows(int count, float[] all) {
    float[][] rows = new float[count][];
    for (int i = 0; i < count; i++) {
      int width = all.length / count;
      rows[i] = java.util.Arrays.copyOfRange(all, i * width, (i + 1) * width);
    }
    return rows;
  }

  /** Opens a context. */
  public Context context() {
    return context(null);
  }

  public Context context(ContextParams params) {
    return new Context(Arena.opened((arena, out) -> Api.get().cow_mlx_context_create(
        handle(), Params.lower(arena, null, null, params), out)));
  }

  /** Loads an adapter, which applies {@code scale} times. */
  public Adapter adapter(String path, float scale) {
    return new Adapter(Arena.opened((arena, out) -> Api.get().cow_mlx_adapter_load(
        handle(), arena.string(path, "path"), scale, out)));
  }
}
