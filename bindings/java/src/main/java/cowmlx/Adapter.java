package cowmlx;

/** A LoRA or DoRA adapter of one model, which contexts use by {@link Context#setAdapter}. */
public final class Adapter extends Handle {
  Adapter(int handle) {
    super("adapter", handle, number -> Api.get().cow_mlx_adapter_free((int) number));
  }
}
