package cowmlx;

import com.sun.jna.Memory;
import java.util.List;
import java.util.Map;

/** A training of a program or of a language model. One call at a time runs on it. */
public final class Training extends Handle {
  private Training(int handle) {
    super("training", handle, number -> Api.get().cow_mlx_training_free((int) number));
  }

  /** Makes a training of a program. */
  public static Training of(Program program, TrainingParams params) {
    return new Training(Arena.opened((arena, out) -> Api.get().cow_mlx_training_create(
        Given.open(program, "program"), Params.lower(arena, null, null, params), out)));
  }

  /** Makes a training of a language model: LoRA, DoRA or all weights, as fineTune says. */
  public static Training of(Model model, TrainingParams params) {
    return new Training(Arena.opened((arena, out) -> Api.get().cow_mlx_training_create_for_model(
        Given.open(model, "model"), Params.lower(arena, null, null, params), out)));
  }

  /** Makes a step on a batch: the program's inputs without its parameters, in their order. */
  public TrainingEvent step(List<? extends Value> inputs) {
    try (Arena arena = new Arena()) {
      Memory event = arena.struct(TrainingEvent.SIZE);
      CowMlxException.check(Api.get().cow_mlx_training_step(
          handle(), Value.lower(arena, inputs), inputs.size(), event));
      return TrainingEvent.read(event);
    }
  }

  /** Makes steps until an end that params tell; {@code onEvent} may be null. */
  public void fit(FitParams params, Listener.Training onEvent) {
    Listener.Training heard = onEvent != null ? onEvent : event -> true;
    try (Arena arena = new Arena(); Listener listener = new Listener()) {
      listener.check(Api.get().cow_mlx_training_fit(handle(),
          Params.lower(arena, listener, null, params),
          listener.hear(Listener.Kind.TRAINING, heard), listener.id()));
    }
  }

  /** Loss, accuracy and perplexity on data. */
  public TrainingEvent evaluate(FitParams params) {
    try (Arena arena = new Arena(); Listener listener = new Listener()) {
      Memory event = arena.struct(TrainingEvent.SIZE);
      listener.check(Api.get().cow_mlx_training_evaluate(
          handle(), Params.lower(arena, listener, null, params), event));
      return TrainingEvent.read(event);
    }
  }

  /** A parameter as it is now. */
  public NDArray parameter(String name) {
    return new NDArray(Arena.number((arena, out) -> Api.get().cow_mlx_training_parameter(
        handle(), arena.string(name, "name"), out)));
  }

  /** See cow_mlx_training_info(). */
  public Map<String, Object> info() {
    return Json.object(Fill.text(1 << 16, (buffer, room, length) ->
        Api.get().cow_mlx_training_info(handle(), buffer, room, length)));
  }

  /** Saves the training, to continue later. */
  public void save(String folder) {
    Arena.call(arena -> Api.get().cow_mlx_training_save(handle(), arena.string(folder, "folder")));
  }

  /** Continues a saved training. */
  public void load(String folder) {
    Arena.call(arena -> Api.get().cow_mlx_training_load(handle(), arena.string(folder, "folder")));
  }

  /** The layers of a language model trained so far, as an adapter. */
  public Adapter adapter() {
    return new Adapter(Arena.opened((arena, out) -> Api.get().cow_mlx_training_adapter(
        handle(), out)));
  }

  /** Writes the trained layers of a language model as mlx-lm reads them; options are JSON, or null. */
  public void export(String folder, String options) {
    Arena.call(arena -> Api.get().cow_mlx_training_export(
        handle(), arena.string(folder, "folder"), arena.string(options, "options")));
  }

  /** Ends the call that runs; for any thread. */
  public void cancel() {
    checkCancel(Api.get().cow_mlx_training_cancel(handle()));
  }
}
