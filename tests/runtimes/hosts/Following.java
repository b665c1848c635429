import cowmlx.*;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ForkJoinWorkerThread;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/** Says as JSON what comes of calls that return at once, and how it ends: Following LIBRARY MODEL. */
public final class Following {
  private static final Map<String, Object> said = new LinkedHashMap<>();
  private static final Set<Thread> HEARD = ConcurrentHashMap.newKeySet();
  private static final List<Message> MESSAGES = List.of(Message.user("What is 3 + 4?"));

  /** What a future has failed with. */
  private static List<String> failed(CompletableFuture<?> future) {
    try {
      future.join();
      return List.of("nothing");
    } catch (CancellationException canceled) {
      return List.of("canceled");
    } catch (CompletionException failure) {
      Throwable problem = failure.getCause();
      if (!(problem instanceof CowMlxException told)) return List.of(problem.getMessage());
      return List.of(told.status().name(), told.reason(), told.operation());
    }
  }

  /** Remembers who has called back. */
  private static boolean heard() {
    HEARD.add(Thread.currentThread());
    return true;
  }

  private static RuntimeException mine() {
    return new IllegalStateException("mine");
  }

  private static Model models(String folder) {
    ModelParams watched = new ModelParams().progress((part, stage) -> heard());
    var loadings = List.of(Model.loadAsync(folder, watched), Model.loadAsync(folder, watched));
    loadings.get(1).join().close();
    said.put("missing", failed(Model.loadAsync(folder + "/none", null)));
    CompletableFuture<Model> left = Model.loadAsync(folder, null);
    left.cancel(true);
    said.put("left", failed(left));
    said.put("refused",
        failed(Model.loadAsync(folder, new ModelParams().progress((part, stage) -> false))));
    said.put("thrown", failed(Model.loadAsync(folder, new ModelParams().progress((part, stage) -> {
      throw mine();
    }))));
    return loadings.get(0).join();
  }

  /** What each of so many contexts says, all at once. */
  private static void many(Model model, int[] prompt) {
    List<Context> contexts = IntStream.range(0, 48).mapToObj(at -> model.context()).toList();
    List<List<Integer>> tokens = new ArrayList<>();
    List<CompletableFuture<Finish>> ends = new ArrayList<>();
    for (int seed = 0; seed < 8; seed++) {
      List<Integer> own = new ArrayList<>();
      tokens.add(own);
      ends.add(contexts.get(seed).generateAsync(prompt,
          new GenerationParams().maxTokens(16).temperature(0.9f).seed(seed)
              .promptProgress((processed, total) -> heard()),
          piece -> heard() && own.add(piece.token())));
    }
    said.put("length", ends.stream().map(CompletableFuture::join).distinct().toList().toString());
    said.put("tokens", tokens);
    List<ConcurrentLinkedQueue<String>> answers = new ArrayList<>();
    var chats = contexts.stream().map(context -> {
      var parts = new ConcurrentLinkedQueue<String>();
      answers.add(parts);
      return context.chatAsync(MESSAGES, null, event -> heard() && parts.add(event.text()));
    }).toList();
    said.put("threads", Thread.activeCount() < contexts.size());
    said.put("stop", chats.stream().map(CompletableFuture::join).distinct().toList().toString());
    said.put("answers", answers.stream().limit(8).map(parts -> String.join("", parts)).toList());
    said.put("pool", HEARD.stream().allMatch(each -> each instanceof ForkJoinWorkerThread));
    said.put("large", failed(CompletableFuture.supplyAsync(
        () -> model.context(new ContextParams().maxTokens(-1)))));
    contexts.forEach(Context::close);
  }

  private static int first(Context context, int[] prompt, GenerationParams params) {
    int[] found = {-1};
    CompletableFuture<Finish> ended = context.generateAsync(prompt, params, piece -> {
      found[0] = piece.token();
      return false;
    });
    if (!failed(ended).equals(List.of("ECANCELED", "callback_refused", "Context.generateAsync"))) {
      throw new IllegalStateException(failed(ended).toString());
    }
    return found[0];
  }

  /** What goes on, and has given a first one. */
  private static CompletableFuture<Finish> begun(
      java.util.function.Function<Runnable, CompletableFuture<Finish>> begin) {
    CompletableFuture<Void> first = new CompletableFuture<>();
    CompletableFuture<Finish> ended = begin.apply(() -> first.complete(null));
    first.join();
    return ended;
  }

  private static void ends(Model model, int[] prompt, Runnable stop) {
    int[] ends = ((List<?>) model.info().get("end_tokens")).stream()
        .mapToInt(each -> ((Long) ((Map<?, ?>) each).get("id")).intValue()).toArray();
    float[] never = new float[ends.length];
    java.util.Arrays.fill(never, -1000);
    Supplier<GenerationParams> endless =
        () -> new GenerationParams().maxTokens(1L << 40).biasTokens(ends).biasValues(never);
    ContextParams rolling = new ContextParams().overflow(Overflow.ROLL);
    Context context = model.context(rolling), other = model.context(rolling);
    java.util.function.Function<Context, CompletableFuture<Finish>> generating = of ->
        begun(tell -> of.generateAsync(prompt, endless.get(), piece -> {
          tell.run();
          return true;
        }));
    CompletableFuture<Finish> canceled = generating.apply(context);
    canceled.cancel(true);
    said.put("canceled", failed(canceled));
    String[] event = {""};
    CompletableFuture<Finish> chat = begun(tell -> context.chatAsync(MESSAGES, endless.get(), each -> {
      if (event[0].isEmpty()) event[0] = each.text();
      tell.run();
      return true;
    }));
    said.put("busy", failed(context.chatAsync(MESSAGES, null, null)));
    said.put("event", event[0]);
    said.put("beside", failed(CompletableFuture.runAsync(() -> context.begin(prompt, null))));
    chat.cancel(true);
    said.put("after", context.chatAsync(MESSAGES, null, null).join().name());
    CompletableFuture<Finish> before = generating.apply(context);
    said.put("again", first(context, prompt, endless.get()));
    said.put("before", failed(before));
    CompletableFuture<Finish> replaced = generating.apply(context);
    said.put("replaced", context.generate(prompt, endless.get().maxTokens(20), text -> {
      replaced.cancel(true);
      return true;
    }).generatedTokens());
    said.put("itself", begun(tell -> context.generateAsync(prompt, endless.get(), piece -> {
      context.cancel();
      tell.run();
      return true;
    })).join().name());
    said.put("heard", failed(context.generateAsync(prompt, null, piece -> {
      throw mine();
    })));
    said.put("progress", failed(context.generateAsync(prompt,
        new GenerationParams().promptProgress((processed, total) -> {
          throw mine();
        }), null)));
    said.put("own", failed(context.generateAsync(prompt,
        new GenerationParams().promptProgress((processed, total) -> {
          model.context(new ContextParams().maxTokens(-1));
          return true;
        }), null)));
    GenerationParams forced = new GenerationParams().logitsFn((tokens, logits) -> {
      for (int token = 0; token < logits.capacity(); token++) {
        logits.put(token, Float.NEGATIVE_INFINITY);
      }
      logits.put(40 + tokens.length - prompt.length, 0f);
      return true;
    });
    said.put("forced", first(context, prompt, forced));
    said.put("begun", failed(CompletableFuture.runAsync(() -> context.begin(prompt, forced))));
    said.put("begun_too",
        failed(CompletableFuture.runAsync(() -> context.generate(prompt, forced))));
    said.put("range", failed(context.generateAsync(prompt, new GenerationParams().topP(1.5f), null)));
    said.put("usable", first(context, prompt, null));
    CompletableFuture<Finish> freed = generating.apply(other);
    other.close();
    said.put("freed", failed(freed));
    said.put("closed", failed(other.generateAsync(prompt, null, null)));
    CompletableFuture<Finish> stopped = generating.apply(context);
    stop.run();
    said.put("stopped", failed(stopped));
  }

  public static void main(String[] arguments) {
    cowmlx.Runtime.useLibrary(arguments[0]);
    cowmlx.Runtime runtime = new cowmlx.Runtime();
    Model model = models(arguments[1]);
    int[] prompt = model.tokenize("Once upon a time", true);
    many(model, prompt);
    ends(model, prompt, runtime::close);
    System.out.println(Json.write(said));
  }
}
