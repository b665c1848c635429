package cowmlx;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** The pieces of a generation, one after the other. A loop may be left early. */
public final class Pieces implements Iterable<Piece>, Iterator<Piece> {
  private final Context context;
  private final boolean[] ended = {false};
  private Piece waiting;
  private Finish finish = Finish.NONE;

  Pieces(Context context) {
    this.context = context;
  }

  /** Waits for the next piece. */
  @Override
  public boolean hasNext() {
    if (waiting != null) return true;
    if (ended[0]) return false;
    if (Thread.currentThread().isInterrupted()) {
      context.cancel();
      throw new CowMlxException.Canceled("the thread was interrupted", "canceled",
          java.util.Map.of(), "Pieces.next");
    }
    Piece piece = context.next(ended);
    finish = piece.finish();
    if (!ended[0]) waiting = piece;
    return !ended[0];
  }

  @Override
  public Piece next() {
    if (!hasNext()) throw new NoSuchElementException();
    Piece piece = waiting;
    waiting = null;
    return piece;
  }

  @Override
  public Iterator<Piece> iterator() {
    return this;
  }

  public Stream<Piece> stream() {
    return StreamSupport.stream(
        Spliterators.spliteratorUnknownSize(this, Spliterator.ORDERED | Spliterator.NONNULL), false);
  }

  /** Why the generation ended; NONE before its end. */
  public Finish finish() {
    return finish;
  }
}
