import cowmlx.*;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Says as JSON what each kind of call gives, and then does what Following and Stream do: Everything
 * LIBRARY MODEL FOLDER TEXT. All in one process, since Maven takes its time.
 */
public final class Everything {
  private static final Map<String, Object> said = new LinkedHashMap<>();
  private static final List<Message> MESSAGES = List.of(Message.user("What is 3 + 4?"));

  private static double close(double number) {
    return Math.round(number * 1e4) / 1e4;
  }

  private static List<Object> list(float... numbers) {
    List<Object> found = new ArrayList<>();
    for (float each : numbers) found.add(close(each));
    return found;
  }

  private static List<Integer> list(int... numbers) {
    return Arrays.stream(numbers).boxed().toList();
  }

  private static List<Long> list(long... numbers) {
    return Arrays.stream(numbers).boxed().toList();
  }

  private static RuntimeException caught(Runnable run) {
    try {
      run.run();
    } catch (RuntimeException problem) {
      return problem;
    }
    throw new IllegalStateException("nothing was thrown");
  }

  private static CowMlxException failed(Runnable run) {
    return (CowMlxException) caught(run);
  }

  private static void model(Model model) {
    int[] prompt = model.tokenize("Once upon a time", true);
    said.put("tokens", list(prompt));
    said.put("text", model.detokenize(prompt, true));
    int[] ends = ((List<?>) model.info().get("end_tokens")).stream()
        .mapToInt(each -> ((Long) ((Map<?, ?>) each).get("id")).intValue()).toArray();
    said.put("ends", List.of(model.isEnd(prompt[0]), model.isEnd(ends[0])));
    EmbedParams params = new EmbedParams().normalize(false).pooling(Pooling.LAST);
    said.put("embedded", Arrays.stream(model.embed(List.of("fox", "frog"), params))
        .map(each -> List.of(each.length, close(each[0]))).toList());
    said.put("none", model.embed(List.of(), null).length);
    RankParams asked = new RankParams().prompt("{query} {document}").yes("a").no("b")
        .normalize(false);
    said.put("ranked", Arrays.stream(model.rank("a fox", List.of("fox", "frog"), asked))
        .map(each -> List.of(each.length, close(each[0]))).toList());
  }

  private static void generations(Model model, Context context, int[] prompt) {
    GenerationParams sampling = new GenerationParams().maxTokens(24).temperature(0.8f).seed(7)
        .logprobs(2).biasTokens(new int[] {prompt[1]}).biasValues(new float[] {-1})
        .stop(List.of("\n\n", "zebra"));
    List<Piece> pieces = new ArrayList<>();
    Pieces generated = context.generate(prompt, sampling);
    for (Piece piece : generated) {
      pieces.add(piece);
      if (pieces.size() == 1) said.put("candidates", context.logprobs().size());
    }
    said.put("generated", pieces.stream().map(Piece::token).toList());
    said.put("finish", generated.finish().name().toLowerCase());
    said.put("logprob", close(pieces.get(0).logprob()));
    said.put("logits", context.logits().length == (Long) model.info().get("vocabulary_size"));
    try (Context fresh = model.context(null)) {
      List<List<Context.Candidate>> scored = fresh.promptLogprobs(prompt, 2);
      var whole = fresh.perplexity("Once upon a time", 0);
      int width = ((Long) model.info().get("embedding_width")).intValue();
      int[] placed = prompt.clone();
      placed[0] = -1;
      NDArray zeros = NDArray.of(Tensor.of(new float[width], 1, width));
      fresh.beginEmbeddings(placed, zeros, new GenerationParams().maxTokens(0));
      said.put("scored", List.of(list(fresh.tokens()), scored.size(), scored.get(1).size(),
          close(scored.get(1).get(0).logprob()), fresh.promptLogits(prompt, new int[] {1, 0}).length,
          fresh.hiddenStates(prompt).length, close(whole.perplexity() / 1e4), whole.scored()));
    }
    StringBuilder greedy = new StringBuilder();
    GenerationParams most = new GenerationParams().maxTokens(24);
    Stats stats = context.generate(prompt, most, text -> greedy.append(text) != null);
    said.put("greedy", greedy);
    said.put("stats", List.of(stats.promptTokens(), stats.generatedTokens(),
        context.stats().generatedTokens()));
    said.put("prompt", list(model.chatPrompt(MESSAGES)));
    StringBuilder answer = new StringBuilder();
    context.chat(MESSAGES, new GenerationParams().maxTokens(40), event -> {
      if (event.kind() == EventKind.TEXT) answer.append(event.text());
      if (event.kind() == EventKind.END) said.put("end", event.finish().name().toLowerCase());
      return true;
    });
    said.put("answer", answer);
  }

  private static void caches(Context context, int[] prompt, String scratch) {
    context.begin(prompt, new GenerationParams().maxTokens(4));
    said.put("polled", List.of(context.poll(-1), context.poll(0), context.wakeFd() > 0,
        context.pieces().next().token() > 0));
    context.reset();
    context.begin(prompt, new GenerationParams().maxTokens(0));
    try (Checkpoint held = context.checkpoint(); Context fork = context.fork()) {
      said.put("trimmed",
          List.of(context.trimEnd(2), context.trimFront(1), context.tokens().length));
      context.rewind(held);
      context.save(scratch + "/context.safetensors");
      fork.load(scratch + "/context.safetensors");
      said.put("held",
          List.of(context.tokens().length, fork.tokens().length, context.info().get("tokens")));
    }
  }

  private static void refusals(Context context, int[] prompt) {
    CowMlxException refused =
        failed(() -> context.begin(prompt, new GenerationParams().topP(1.5f)));
    said.put("refused", List.of(refused.status().name(), refused.reason(),
        refused.details().get("accepted")));
    for (int i = 0; i < 20; i++) { // the context is usable after each
      said.put("thrown", caught(() -> context.generate(prompt, null, text -> {
        throw new IllegalArgumentException("mine");
      })).getMessage());
    }
    boolean canceled = caught(() -> {
      for (Piece piece : context.generate(prompt, null)) Thread.currentThread().interrupt();
    }) instanceof CowMlxException.Canceled && Thread.interrupted();
    canceled &= caught(() -> context.generate(prompt, null, text -> {
      Thread.currentThread().interrupt();
      return true;
    })) instanceof CowMlxException.Canceled && Thread.interrupted();
    said.put("canceled", canceled ? "AbortError" : "");
  }

  private static void arrays(NDArray array, String scratch) {
    NDArray sum = NDArray.apply("add", List.of(array, array), null).get(0);
    ByteBuffer direct = ByteBuffer.allocateDirect(24).order(ByteOrder.nativeOrder());
    direct.asIntBuffer().put(new int[] {1, 2, 3, 4, 5, 6});
    NDArray turned = NDArray.of(Tensor.of(direct, Dtype.INT32, 3, 2).strided(0, 1, 3));
    String file = scratch + "/arrays.safetensors";
    NDArray.save(file, Map.of("sum", sum, "turned", turned));
    NDArray loaded = NDArray.load(file, List.of("turned")).get("turned");
    said.put("arrays", List.of(sum.dtype().name().toLowerCase(), list(sum.shape()),
        list(sum.floats()), list(loaded.ints()), loaded.dtype().name().toLowerCase()));
    said.put("file",
        ((Map<?, ?>) NDArray.infoOf(file).get("tensors")).keySet().stream().sorted().toList());
    said.put("viewed", sum.view(bytes -> {
      float[] seen = new float[6];
      bytes.asFloatBuffer().get(seen);
      return list(seen);
    }));
    said.put("strides", failed(() ->
        NDArray.of(Tensor.of(new int[] {1}, 1, 1).strided(0, 1))).reason());
    said.put("operations", cowmlx.Runtime.operations().size());
  }

  private static void programs(NDArray array) {
    ProgramBuilder b = new ProgramBuilder();
    var x = b.input("x", Dtype.FLOAT32, "rows", 3);
    var y = b.input("y", Dtype.FLOAT32, "rows");
    var w = b.parameter("w", Dtype.FLOAT32, "zeros", 3);
    var error = b.subtract(b.node("matmul", x, w), y);
    b.output("loss", b.mean(b.multiply(b.square(error), 2), Map.of("axis", List.of(0))));
    Program program = b.build();
    List<Value> inputs = List.of(array, Tensor.of(new float[] {1, -1}, 2),
        Tensor.of(new float[] {0.5f, 0, -0.5f}, 3));
    List<NDArray> slopes = program.gradient("loss", List.of("w"), true).run(inputs);
    List<Object> numbers = list(slopes.get(0).floats());
    numbers.addAll(list(slopes.get(1).floats()));
    said.put("gradient", numbers);
    Program bound = program.bind(Map.of("w", NDArray.of((Tensor) inputs.get(2))));
    NDArray loss = bound.run(inputs.subList(0, 2), new RunParams().submit(true)).get(0);
    said.put("bound", List.of(loss.await(-1), close(loss.floats()[0])));
    said.put("program",
        ((Map<?, ?>) ((List<?>) program.info(Map.of()).get("outputs")).get(0)).get("shape"));
    said.put("shape", failed(() -> program.run(
        List.of(array, Tensor.of(new float[] {1}, 1), inputs.get(2)))).reason());
  }

  private static void trainings(String scratch) {
    Program line = Program.of("""
        {"inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", 1]},
                    {"name": "y", "dtype": "float32", "shape": ["rows"]}],
         "parameters": [{"name": "w", "dtype": "float32", "shape": [1], "init": "zeros"}],
         "nodes": [{"name": "z", "op": "matmul", "inputs": ["x", "w"]},
                   {"name": "loss", "op": "mse_loss", "inputs": ["z", "y"]}],
         "outputs": ["loss"]}""");
    Training training = Training.of(line,
        new TrainingParams().optimizer("{\"name\": \"sgd\", \"learning_rate\": 0.2}"));
    TrainingEvent step = training.step(
        List.of(Tensor.of(new float[] {1, 2}, 2, 1), Tensor.of(new float[] {3, 6}, 2)));
    said.put("step", List.of(step.kind().name().toLowerCase(), step.step(), step.loss()));
    AtomicInteger events = new AtomicInteger();
    StringBuilder last = new StringBuilder();
    training.fit(new FitParams().steps(40).nextBatch(at -> List.of(
        NDArray.of(new float[] {1, at % 3}, 2, 1), NDArray.of(new float[] {3, 3 * (at % 3)}, 2))),
        event -> {
          events.incrementAndGet();
          last.replace(0, last.length(), event.kind().name().toLowerCase());
          return true;
        });
    boolean trained = Math.abs(training.parameter("w").floats()[0] - 3) < 0.01;
    said.put("fit", List.of(events.get(), last, trained));
    training.save(scratch + "/training");
    training.load(scratch + "/training");
    said.put("resumed", training.info().get("step"));
    said.put("evaluated", training.evaluate(new FitParams().inputs(List.of(
        NDArray.of(new float[] {1}, 1, 1), NDArray.of(new float[] {3}, 1)))).validationLoss() < 0.01);
  }

  private static void tuning(Model model, Context context, String scratch) {
    Training tuning = Training.of(model,
        new TrainingParams().fineTune("{\"rank\": 2, \"num_layers\": 1}"));
    tuning.fit(new FitParams().steps(1).batchSize(1).lines("{\"text\": \"The fox is red.\"}"), null);
    context.setAdapter(tuning.adapter());
    tuning.export(scratch + "/adapter", null);
    context.setAdapter(model.adapter(scratch + "/adapter", 0.5f));
    said.put("adapted", context.info().get("adapter") != null);
    List<Object> image = new ArrayList<>();
    try (Media media = Media.fromPixels(new byte[] {1, 2, 3, 4, 5, 6}, 2, 1, 3)) {
      Map<String, Object> about = media.info();
      image.addAll(List.of(about.get("width"), about.get("height"), about.get("channels"),
          ((String) about.get("hash")).matches("[0-9a-f]{32}")));
    }
    try {
      Media.fromPixels(new byte[] {1, 2}, 2, 1, 3);
    } catch (CowMlxException error) {
      image.add(error.reason());
    }
    said.put("image", image);
    context.setAdapter(null);
  }

  public static void main(String[] arguments) {
    cowmlx.Runtime.useLibrary(arguments[0]);
    List<String> logged = new ArrayList<>();
    RuntimeParams params = new RuntimeParams().log((level, message) -> logged.add(level.name()));
    cowmlx.Runtime runtime = new cowmlx.Runtime(params);
    said.put("versions", List.of(!cowmlx.Runtime.version().isEmpty(), 1,
        cowmlx.Runtime.info().get("device")));
    List<String> stages = new ArrayList<>();
    Model model = Model.load(arguments[1], new ModelParams().progress((f, stage) -> stages.add(stage)));
    said.put("stages", stages.contains("weights"));
    said.put("inspected",
        Model.inspect(arguments[1], 0).get("architecture").equals(model.info().get("architecture")));
    int[] prompt = model.tokenize("Once upon a time", true);
    Context context = model.context(new ContextParams().maxTokens(512));
    NDArray array = NDArray.of(new float[] {1, 2, 3, 4, 5, 6}, 2, 3);
    model(model);
    generations(model, context, prompt);
    caches(context, prompt, arguments[2]);
    refusals(context, prompt);
    arrays(array, arguments[2]);
    programs(array);
    trainings(arguments[2]);
    tuning(model, context, arguments[2]);
    cowmlx.Runtime.trimMemory();
    said.put("logged", logged.stream().allMatch(List.of("INFO", "WARNING")::contains));
    model.close();
    said.put("closed", failed(model::info).status().name());
    runtime.close();
    said.put("stopped", failed(context::info).reason());
    System.out.println(Json.write(said));
    Following.main(arguments);
    Stream.main(new String[] {arguments[0], arguments[1], arguments[3]});
  }
}
