package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** A program: a computation on arrays, checked once and run many times, by any number of threads. */
public final class Program extends ProgramMethods {
  private int results = -1;

  Program(int handle) {
    super(handle);
  }

  /** Makes a program of its JSON: see cow_mlx_program_create(). */
  public static Program of(String json) {
    byte[] utf8 = Arena.utf8(json, "json");
    return new Program(Arena.opened((arena, out) -> Api.get().cow_mlx_program_create(
        arena.copy(utf8), utf8.length, null, out)));
  }

  /** Makes the program of a file: see cow_mlx_program_load(); params may be null. */
  public static Program load(String path, ProgramParams params) {
    return new Program(Arena.opened((arena, out) -> Api.get().cow_mlx_program_load(
        arena.string(path, "path"), Params.lower(arena, null, null, params), out)));
  }

  /** See cow_mlx_program_info(); dimensions may be empty. */
  public Map<String, Object> info(Map<String, Long> dimensions) {
    try (Arena arena = new Arena()) {
      Pointer given = Given.all(dimensions, "dimensions").isEmpty() ? null
          : arena.string(Json.write(dimensions), "dimensions");
      return Json.object(Fill.text(1 << 16, (buffer, room, length) ->
          Api.get().cow_mlx_program_info(handle(), given, buffer, room, length)));
    }
  }

  /** Makes another program of this one: see cow_mlx_program_derive(). */
  public Program derive(Map<String, ?> spec) {
    byte[] utf8 = Arena.utf8(Json.write(Given.given(spec, "spec")), "spec");
    return new Program(Arena.opened((arena, out) -> Api.get().cow_mlx_program_derive(
        handle(), arena.copy(utf8), utf8.length, out)));
  }

  /** The program of the gradients of an output; {@code value}: with the output itself in front. */
  public Program gradient(String of, List<String> withRespectTo, boolean value) {
    return derive(Map.of("gradient",
        Map.of("of", Given.given(of, "of"),
        "with_respect_to", Given.all(withRespectTo, "withRespectTo"), "value", value)));
  }

  /** The program for many rows at a time: axes of inputs by their names. */
  public Program vectorize(Map<String, Integer> axes) {
    return derive(Map.of("vectorize", Given.given(axes, "axes")));
  }

  /** The program with inputs that are given once and for all. */
  public Program bind(Map<String, NDArray> arrays) {
    return derive(Map.of("bind", Given.all(arrays, "arrays").entrySet().stream()
        .collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().number()))));
  }

  /** Runs the program on its inputs and parameters, in their order. */
  public List<NDArray> run(List<? extends Value> inputs) {
    return run(inputs, null);
  }

  /** The same; with {@link RunParams#submit} it returns at once, and arrays are awaited. */
  public List<NDArray> run(List<? extends Value> inputs, RunParams params) {
    Given.given(inputs, "inputs");
    int count = results();
    try (Arena arena = new Arena()) {
      Memory outputs = arena.allocate((long) CowMlx.At.VALUE * count);
      CowMlxException.check(Api.get().cow_mlx_program_run(handle(), Value.lower(arena, inputs),
          inputs.size(), outputs, count, Params.lower(arena, null, null, params)));
      long[] handles = new long[count];
      for (int i = 0; i < count; i++) {
        handles[i] = outputs.getLong((long) CowMlx.At.VALUE * i + CowMlx.At.VALUE_ARRAY);
      }
      return NDArray.opened(handles);
    }
  }

  private int results() {
    if (results < 0) results = Json.objects(info(Map.of()).get("outputs")).size();
    return results;
  }
}
