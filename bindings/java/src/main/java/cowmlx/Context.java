package cowmlx;

import com.sun.jna.Memory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A context: one sequence of tokens and its cache. One call at a time runs on it. An interruption of
 * the thread cancels the generation or the chat that it waits for, which throws
 * {@link CowMlxException.Canceled} and leaves the thread interrupted.
 */
public final class Context extends Handle {
  private static final GenerationParams WATCHED =
      new GenerationParams().promptProgress((processed, total) -> true);

  /** A token and its log probability. */
  public record Candidate(int token, float logprob) {}

  /** The follower of a call that has returned at once. */
  private final AtomicReference<Follower<?>> following = new AtomicReference<>();

  Context(int handle) {
    super("context", handle, number -> Api.get().cow_mlx_context_free((int) number));
  }

  /** See cow_mlx_context_info(). */
  public Map<String, Object> info() {
    return Json.object(Fill.text(4096, (buffer, room, length) ->
        Api.get().cow_mlx_context_info(handle(), buffer, room, length)));
  }

  /** Processes a prompt, and is ready to generate. */
  public void begin(int[] tokens, GenerationParams params) {
    Given.given(tokens, "tokens");
    follow(null);
    try (Arena arena = new Arena(); Listener listener = new Listener()) {
      listener.check(Api.get().cow_mlx_context_begin(handle(), arena.copy(tokens), tokens.length,
          Params.lower(arena, listener, WATCHED, params)));
    }
  }

  /** The next piece; at the end one without text, whose finish is the reason. */
  Piece next(boolean[] ended) {
    try (Memory piece = new Memory(Piece.SIZE)) {
      piece.setLong(0, Piece.SIZE);
      String text = Fill.text(256, (buffer, room, length) -> {
        int status = Api.get().cow_mlx_context_next(handle(), buffer, room, length, piece);
        ended[0] = status == Status.DONE.value;
        return status;
      });
      return Piece.read(piece, text);
    }
  }

  /** Processes a prompt; the pieces are generated as they are asked for. */
  public Pieces generate(int[] tokens, GenerationParams params) {
    Given.given(tokens, "tokens");
    begin(tokens, params);
    return new Pieces(this);
  }

  /** The pieces that are still to come after a begin. */
  public Pieces pieces() {
    return new Pieces(this);
  }

  /** Processes a prompt and generates to the end; {@code onText} may be null. */
  public Stats generate(int[] tokens, GenerationParams params, Listener.Text onText) {
    Given.given(tokens, "tokens");
    follow(null);
    try (Arena arena = new Arena(); Listener listener = new Listener()) {
      Memory stats = arena.struct(Stats.SIZE);
      Listener.Text heard = onText != null ? onText : text -> true;
      listener.check(Api.get().cow_mlx_context_generate(handle(), arena.copy(tokens),
          tokens.length, Params.lower(arena, listener, WATCHED, params),
          listener.hear(Listener.Kind.TEXT, heard), listener.id(), stats));
      return Stats.read(stats);
    }
  }

  /**
   * Processes a prompt and generates to the end, and returns at once. No thread waits for the
   * pieces, whatever the number of contexts: {@code onPiece}, which may be null, hears them on
   * threads of the common pool, one after the other. The future gives the reason of the end;
   * a cancel of it ends the generation.
   */
  public CompletableFuture<Finish> generateAsync(int[] tokens, GenerationParams params,
      Listener.Pieces onPiece) {
    Given.given(tokens, "tokens");
    boolean[] ended = {false};
    Follower.Take<Piece> take = () -> {
      Piece piece = next(ended);
      return new Follower.Taken<>(ended[0] ? null : piece, ended[0], piece.finish());
    };
    return new Follower<>(this, "Context.generateAsync", take, onPiece == null ? null : onPiece::hear)
        .after(following.get(), listener -> {
          try (Arena arena = new Arena()) {
            listener.check(Api.get().cow_mlx_context_begin_async(handle(), arena.copy(tokens),
                tokens.length, Params.lower(arena, listener, null, params)));
          }
        });
  }

  /** Answers a conversation, and returns at once: see {@link #generateAsync}. */
  public CompletableFuture<Finish> chatAsync(List<Message> messages, GenerationParams params,
      Listener.Event onEvent) {
    return chatAsync(Message.json(messages), params, null, onEvent);
  }

  /** The same of JSON; options may be null: see cow_mlx_model_chat_prompt(). */
  public CompletableFuture<Finish> chatAsync(String messagesJson, GenerationParams params,
      String optionsJson, Listener.Event onEvent) {
    byte[] utf8 = Arena.utf8(messagesJson, "messagesJson");
    return new Follower<>(this, "Context.chatAsync", this::takeEvent,
        onEvent == null ? null : onEvent::hear)
        .after(following.get(), listener -> {
          try (Arena arena = new Arena()) {
            listener.check(Api.get().cow_mlx_context_chat_async(handle(), arena.copy(utf8),
                utf8.length, Params.lower(arena, listener, null, params),
                arena.string(optionsJson, "optionsJson")));
          }
        });
  }

  private Follower.Taken<Event> takeEvent() {
    try (Arena arena = new Arena()) {
      Memory memory = arena.struct(Event.SIZE);
      int status = Api.get().cow_mlx_context_next_event(handle(), memory);
      CowMlxException.check(status);
      Event event = Event.read(memory);
      return new Follower.Taken<>(event, status == Status.DONE.value, event.finish());
    }
  }

  /** Wakes the follower of an earlier call, if any: another call has begun. */
  void follow(Follower<?> follower) {
    Follower<?> before = following.getAndSet(follower);
    if (before != null) Wakes.raise(before);
  }

  boolean isFollowedBy(Follower<?> follower) {
    return following.get() == follower && !isClosed();
  }

  void leave(Follower<?> follower) {
    following.compareAndSet(follower, null);
  }

  /** Frees it. Futures of calls in progress fail with {@link CowMlxException.Canceled}. */
  @Override
  public void close() {
    super.close();
    follow(null);
  }

  /** Answers a conversation. */
  public Stats chat(List<Message> messages, GenerationParams params, Listener.Event onEvent) {
    return chat(Message.json(messages), params, null, onEvent);
  }

  /** The same of JSON; options may be null: see cow_mlx_model_chat_prompt(). */
  public Stats chat(String messagesJson, GenerationParams params, String optionsJson,
      Listener.Event onEvent) {
    byte[] utf8 = Arena.utf8(messagesJson, "messagesJson");
    follow(null);
    try (Arena arena = new Arena(); Listener listener = new Listener()) {
      Memory stats = arena.struct(Stats.SIZE);
      Listener.Event heard = onEvent != null ? onEvent : event -> true;
      listener.check(Api.get().cow_mlx_context_chat(handle(), arena.copy(utf8), utf8.length,
          Params.lower(arena, listener, WATCHED, params),
          arena.string(optionsJson, "optionsJson"),
          listener.hear(Listener.Kind.EVENT, heard), listener.id(), stats));
      return Stats.read(stats);
    }
  }

  /** Waits until a piece would come at once; -1: as long as it takes. False: not yet. */
  public boolean poll(int milliseconds) {
    return CowMlxException.isThere(Api.get().cow_mlx_context_poll(handle(), milliseconds));
  }

  /** A file descriptor that is readable while a piece would come at once. */
  public int wakeFd() {
    return Arena.opened((arena, out) -> Api.get().cow_mlx_context_wake_fd(handle(), out));
  }

  /** Ends the call that runs on the context, which stays usable; for any thread. */
  public void cancel() {
    checkCancel(Api.get().cow_mlx_context_cancel(handle()));
  }

  /** Opens a copy of the context, with its tokens and cache. */
  public Context fork() {
    return new Context(
        Arena.opened((arena, out) -> Api.get().cow_mlx_context_fork(handle(), out)));
  }

  /** Forgets every token. */
  public void reset() {
    CowMlxException.check(Api.get().cow_mlx_context_reset(handle()));
  }

  /** The tokens that the cache holds. */
  public int[] tokens() {
    return Fill.ints(1024, (tokens, room, count) ->
        Api.get().cow_mlx_context_tokens(handle(), tokens, room, count));
  }

  /** Drops the last tokens and returns how many. */
  public long trimEnd(long count) {
    return Arena.number(
        (arena, out) -> Api.get().cow_mlx_context_trim_end(handle(), count, out));
  }

  /** Drops the first tokens and returns how many. */
  public long trimFront(long count) {
    return Arena.number(
        (arena, out) -> Api.get().cow_mlx_context_trim_front(handle(), count, out));
  }

  /** Keeps the context's tokens and cache, to come back to them. */
  public Checkpoint checkpoint() {
    return new Checkpoint(
        Arena.opened((arena, out) -> Api.get().cow_mlx_context_checkpoint(handle(), out)));
  }

  /** Restores the tokens of a checkpoint. */
  public void rewind(Checkpoint checkpoint) {
    CowMlxException.check(Api.get().cow_mlx_context_rewind(handle(),
        Given.open(checkpoint, "checkpoint")));
  }

  /** Writes the context's tokens and cache to a file. */
  public void save(String path) {
    Arena.call(arena -> Api.get().cow_mlx_context_save(handle(), arena.string(path, "path")));
  }

  /** Loads the tokens and the cache that a context has saved. */
  public void load(String path) {
    Arena.call(arena -> Api.get().cow_mlx_context_load(handle(), arena.string(path, "path")));
  }

  /** Uses an adapter from now on; null: none. */
  public void setAdapter(Adapter adapter) {
    int handle = adapter == null ? 0 : Given.open(adapter, "adapter");
    CowMlxException.check(Api.get().cow_mlx_context_set_adapter(handle(), handle));
  }

  /** The most probable tokens where the last piece was chosen. */
  public List<Candidate> logprobs() {
    try (Arena arena = new Arena()) {
      Memory values = arena.allocate(4 * 64), count = arena.allocate(8), tokens = arena.allocate(4 * 64);
      int status = Api.get().cow_mlx_context_logprobs(handle(), tokens, values, 64, count);
      if (status == Status.EBUFFER.value) {
        long needed = count.getLong(0);
        values = arena.allocate(4 * needed);
        tokens = arena.allocate(4 * needed);
        status = Api.get().cow_mlx_context_logprobs(handle(), tokens, values, needed, count);
      }
      CowMlxException.check(status);
      List<Candidate> found = new ArrayList<>();
      for (int i = 0; i < count.getLong(0); i++) {
        found.add(new Candidate(tokens.getInt(4L * i), values.getFloat(4L * i)));
      }
      return found;
    }
  }

  /** The model's logits after the last token. */
  public float[] logits() {
    return Fill.floats(1 << 18, 1, (logits, room, count) ->
        Api.get().cow_mlx_context_logits(handle(), logits, room, count));
  }

  /** Sizes and times of the last generation, so far. */
  public Stats stats() {
    try (Arena arena = new Arena()) {
      Memory stats = arena.struct(Stats.SIZE);
      CowMlxException.check(Api.get().cow_mlx_context_stats(handle(), stats));
      return Stats.read(stats);
    }
  }
}
