import cowmlx.*;
import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * Tells what mistakes give: Mistakes LIBRARY MODEL. Each line is [call, what is wrong, error]. Every
 * public method is called with null for each argument, on closed objects, without a library and before
 * the runtime is started.
 */
public final class Mistakes {
  private interface Run {
    Object run() throws Throwable;
  }

  private static void tell(String call, String given, Throwable error) {
    Object shown = error == null ? null : error.toString();
    if (error instanceof CowMlxException failed) {
      Map<String, Object> all = new LinkedHashMap<>();
      all.put("status", failed.status().name());
      all.put("reason", failed.reason());
      all.put("operation", failed.operation());
      all.put("message", failed.getMessage());
      all.put("argument", failed.details().get("argument"));
      shown = all;
    }
    System.out.println(Json.write(Arrays.asList(call, given, shown)));
  }

  private static void tried(String call, String given, Run run) {
    try {
      Object result = run.run();
      if (result instanceof CompletableFuture<?> future) future.join();
      tell(call, given, null);
    } catch (CompletionException | InvocationTargetException wrapped) {
      tell(call, given, wrapped.getCause());
    } catch (Throwable problem) {
      tell(call, given, problem);
    }
  }

  private static Object valueOf(Class<?> type, String folder) {
    if (type == String.class) return "/nope/nope";
    if (type == int.class) return 0;
    if (type == long.class) return 0L;
    if (type == float.class) return 0f;
    if (type == double.class) return 0.0;
    if (type == boolean.class) return false;
    if (type == int[].class) return new int[] {1, 2};
    if (type == long[].class) return new long[] {2};
    if (type == float[].class) return new float[] {1, 2};
    if (type == double[].class) return new double[] {1, 2};
    if (type == short[].class) return new short[] {1, 2};
    if (type == byte[].class) return new byte[] {1, 2};
    if (type == Object[].class) return new Object[] {};
    if (type == List.class) return List.of();
    if (type == Map.class) return Map.of();
    if (type == Dtype.class) return Dtype.FLOAT32;
    if (type == Tensor.class) return Tensor.of(new float[] {1, 2}, 2);
    if (type == Object.class) return 1;
    if (type == Function.class) return (Function<Object, Object>) each -> each;
    return null; // params, listeners and objects: null is one of the values
  }

  /** Calls each public method of a class: each argument null, and one call as it should be. */
  private static void all(Class<?> type, String given, Supplier<?> subject, boolean withNulls) {
    for (Method method : type.getMethods()) {
      boolean isStatic = Modifier.isStatic(method.getModifiers());
      String owner = method.getDeclaringClass().getSimpleName().replaceFirst("Methods$", "");
      boolean isInherited = type.getSuperclass().getSimpleName().equals(owner + "Methods");
      if (method.getDeclaringClass().getPackageName().startsWith("java")) continue;
      if (method.isSynthetic() && !isInherited) continue; // those of generated classes are, too
      if (List.of("close", "isClosed", "useLibrary", "toString").contains(method.getName())) continue;
      if (isStatic && given.equals("closed") || !isStatic && subject == null) continue;
      method.setAccessible(true); // the interfaces of operations are not public
      String call = (owner.endsWith("Operations") ? "ProgramBuilder" : owner) + "." + method.getName();
      Class<?>[] types = method.getParameterTypes();
      Object[] right = Arrays.stream(types).map(each -> valueOf(each, "/nope")).toArray();
      Supplier<Object> on = () -> isStatic ? null : subject.get();
      tried(call, given, () -> method.invoke(on.get(), right));
      for (int at = 0; withNulls && at < types.length; at++) {
        if (types[at].isPrimitive()) continue;
        Object[] wrong = right.clone();
        wrong[at] = null;
        tried(call, "null at " + at, () -> method.invoke(on.get(), wrong));
        if (right[at] instanceof List<?>) {
          wrong[at] = Arrays.asList((Object) null);
          tried(call, "a list of null at " + at, () -> method.invoke(on.get(), wrong));
        } else if (right[at] instanceof String) {
          wrong[at] = "a\0b";
          tried(call, "NUL at " + at, () -> method.invoke(on.get(), wrong));
        }
      }
    }
  }

  private static void withoutObjects(String given) {
    for (Class<?> type : List.of(Model.class, NDArray.class, Program.class, Training.class,
        cowmlx.Runtime.class)) {
      all(type, given, null, false);
    }
  }

  private static Program line() {
    var b = new ProgramBuilder();
    var x = b.input("x", Dtype.FLOAT32, 1);
    var w = b.parameter("w", Dtype.FLOAT32, "zeros", 1);
    b.output("loss", b.sum(b.multiply(x, w), Map.of()));
    return b.build();
  }

  public static void main(String[] arguments) {
    String library = arguments[0], folder = arguments[1];
    withoutObjects("no library");
    tried("new Runtime", "no library", cowmlx.Runtime::new);
    cowmlx.Runtime.useLibrary("/nope.so");
    tried("new Runtime", "/nope.so", cowmlx.Runtime::new);
    tried("Model.load", "/nope.so", () -> Model.load(folder));
    cowmlx.Runtime.useLibrary("libc.so.6");
    tried("new Runtime", "libc", cowmlx.Runtime::new);
    tried("Runtime.useLibrary", "null", () -> use(null));
    cowmlx.Runtime.useLibrary(library);
    withoutObjects("no runtime");
    tried("Runtime.useLibrary", "another", () -> use("/nope.so"));
    tried("new Runtime", "threads", () -> new cowmlx.Runtime(new RuntimeParams().threads(-1)));
    try (var runtime = new cowmlx.Runtime(); Model model = Model.load(folder)) {
      NDArray array = NDArray.of(new float[] {1, 2}, 2);
      all(Model.class, "right", () -> model, true);
      all(Context.class, "right", model::context, true);
      all(NDArray.class, "right", () -> array, true);
      all(Program.class, "right", Mistakes::line, true);
      all(Training.class, "right", () -> Training.of(line(), null), true);
      all(ProgramBuilder.class, "right", ProgramBuilder::new, true);
      all(Tensor.class, "right", () -> Tensor.of(new float[] {1, 2}, 2), true);
      for (Class<?> params : List.of(GenerationParams.class, ModelParams.class, ContextParams.class,
          RuntimeParams.class, EmbedParams.class, RankParams.class, RunParams.class, TrainingParams.class,
          FitParams.class)) {
        all(params, "right", () -> made(params), true);
      }
      closed(model);
      users(model);
    }
  }

  private static Object made(Class<?> type) {
    try {
      return type.getConstructor().newInstance();
    } catch (ReflectiveOperationException problem) {
      throw new IllegalStateException(problem);
    }
  }

  private static Object use(String path) {
    cowmlx.Runtime.useLibrary(path);
    return null;
  }

  private static void closed(Model model) {
    Context context = model.context();
    NDArray array = NDArray.of(new float[] {1, 2}, 2);
    Program program = line();
    Training training = Training.of(program, null);
    List<AutoCloseable> all = List.of(context, array, program, training);
    for (AutoCloseable each : all) tried("close", "twice", () -> { each.close(); each.close(); return null; });
    all(Context.class, "closed", () -> context, false);
    all(NDArray.class, "closed", () -> array, false);
    all(Program.class, "closed", () -> program, false);
    all(Training.class, "closed", () -> training, false);
    tried("NDArray.apply", "closed array", () -> NDArray.apply("square", List.of(array), null));
  }

  private static void users(Model model) {
    Context context = model.context();
    int[] tokens = {1, 2};
    Map<String, GenerationParams> wrong = new LinkedHashMap<>();
    wrong.put("topP", new GenerationParams().topP(2));
    wrong.put("temperature", new GenerationParams().temperature(-1));
    wrong.put("biasValues", new GenerationParams().biasTokens(tokens).biasValues(new float[] {1}));
    wrong.put("no biasTokens", new GenerationParams().biasTokens(new int[0]).biasValues(new float[] {1}));
    wrong.put("no biasValues", new GenerationParams().biasValues(new float[] {1}).biasValues(new float[0])
        .biasTokens(tokens));
    wrong.put("stop", new GenerationParams().stop(List.of("a\0b")));
    wrong.forEach((name, params) -> tried("Context.begin", name, () -> {
      context.begin(tokens, params);
      return null;
    }));
    tried("Context.begin", "stop twice", () -> {
      context.begin(tokens, new GenerationParams().stop(List.of("a")).stop(List.of("a", "b")));
      return null;
    });
    context.reset();
    tried("Pieces.hasNext", "nothing begun", () -> context.pieces().hasNext());
    tried("Context.chatAsync", "options", () -> context.chatAsync("[]", null, "[", null));
    tried("Model.chatPrompt", "role", () -> model.chatPrompt(List.of(new Message(null, "x"))));
    tried("Tensor.of", "heap", () -> Tensor.of(ByteBuffer.allocate(4), Dtype.INT8, 4));
    tried("NDArray.of", "strides", () -> NDArray.of(Tensor.of(tokens, 2).strided(0, 1, 1)));
    Training training = Training.of(line(), null);
    Map<String, List<NDArray>> batches = new LinkedHashMap<>();
    batches.put("no arrays", List.of());
    batches.put("a null array", new ArrayList<>(Arrays.asList((NDArray) null)));
    batches.forEach((name, batch) -> tried("Training.fit", name, () -> fit(training, batch)));
    kept();
  }

  private static Object fit(Training training, List<NDArray> batch) {
    training.fit(new FitParams().steps(1).nextBatch(step -> batch), null);
    return null;
  }

  /** A batch that is refused stays the host's, who closes its arrays. */
  private static void kept() {
    var b = new ProgramBuilder();
    var x = b.multiply(b.input("x", Dtype.FLOAT32, 1), b.parameter("w", Dtype.FLOAT32, "zeros", 1));
    b.output("loss", b.sum(b.add(x, b.input("y", Dtype.FLOAT32, 1)), Map.of()));
    Training training = Training.of(b.build(), null);
    for (boolean isTwice : new boolean[] {true, false}) {
      long before = arrays();
      NDArray first = NDArray.of(new float[] {1}, 1), closed = NDArray.of(new float[] {1}, 1);
      closed.close();
      String name = isTwice ? "an array twice" : "a closed array";
      tried("Training.fit", name, () -> fit(training, List.of(first, isTwice ? first : closed)));
      first.close();
      tell("NDArray.close", name, arrays() == before ? null : new IllegalStateException("one is left"));
    }
  }

  private static long arrays() {
    return (Long) ((Map<?, ?>) cowmlx.Runtime.info().get("handles")).get("array");
  }
}
