package cowmlx;

import com.sun.jna.Memory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntSupplier;

/**
 * A context: one sequence of tokens and its cache. One call at a time runs on it. An interruption of
 * the thread cancels the generation or the chat that it waits for, which throws
 * {@link CowMlxException.Canceled} and leaves the thread interrupted.
 */
public final class Context extends ContextMethods {
  static final GenerationParams WATCHED =
      new GenerationParams().promptProgress((processed, total) -> true);

  /** A token and its log probability. */
  public record Candidate(int token, float logprob) {}

  /** The follower of a call that has returned at once. */
  private final AtomicReference<Follower<?>> following = new AtomicReference<>();
  /** The calls that wait on their threads, of which one may run. */
  private final AtomicInteger waiting = new AtomicInteger();

  Context(int handle) {
    super(handle);
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

  /** Processes a prompt; the pieces are generated as they are asked for. It takes no logitsFn. */
  public Pieces generate(int[] tokens, GenerationParams params) {
    Given.given(tokens, "tokens");
    begin(tokens, params);
    return new Pieces(this);
  }

  /** The pieces that are still to come after a begin. */
  public Pieces pieces() {
    return new Pieces(this);
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

  /** Makes a call that waits; if it has begun, it ends the follower of an earlier one. */
  int begun(IntSupplier call) {
    waiting.incrementAndGet();
    int status;
    try {
      status = call.getAsInt();
    } finally {
      waiting.decrementAndGet();
    }
    Follower<?> before = following.get();
    if (status >= 0) {
      follow(null);
    } else if (before != null) {
      before.goOn();
    }
    return status;
  }

  /** Whether another call may run than that of the follower. */
  boolean isWaiting() {
    return waiting.get() > 0;
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

  /** Waits until a piece would come at once; -1: as long as it takes. False: not yet. */
  public boolean poll(int milliseconds) {
    return CowMlxException.isThere(Api.get().cow_mlx_context_poll(handle(), milliseconds));
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

  /**
   * The log probability of each token given those before it, behind those that the context holds: a
   * row of the token itself and of the most probable ones. Behind an empty context the first token
   * has none: NaN.
   */
  public List<List<Candidate>> promptLogprobs(int[] tokens, int top) {
    try (Arena arena = new Arena()) {
      Memory given = arena.copy(Given.given(tokens, "tokens")), length = arena.allocate(8);
      CowMlxException.check(Api.get().cow_mlx_context_prompt_logprobs(
          handle(), given, tokens.length, top, null, null, 0, length));
      long size = length.getLong(0);
      Memory ids = arena.allocate(4 * size), values = arena.allocate(4 * size);
      CowMlxException.check(Api.get().cow_mlx_context_prompt_logprobs(
          handle(), given, tokens.length, top, ids, values, size, length));
      List<List<Candidate>> rows = new ArrayList<>();
      for (int i = 0; i < size; i++) {
        if (i % (1 + top) == 0) rows.add(new ArrayList<>());
        rows.get(rows.size() - 1).add(new Candidate(ids.getInt(4L * i), values.getFloat(4L * i)));
      }
      return rows;
    }
  }
}
