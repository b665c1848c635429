package cowmlx;

/** What a context held at one moment. */
public final class Checkpoint extends Handle {
  Checkpoint(int handle) {
    super("checkpoint", handle, number -> Api.get().cow_mlx_checkpoint_free((int) number));
  }
}
