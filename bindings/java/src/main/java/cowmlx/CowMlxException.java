package cowmlx;

import java.util.Map;

/** A call that failed: for people a message, for programs a status, a reason and its details. */
public class CowMlxException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final Status status;
  private final String reason;
  private final String operation;
  private final transient Map<String, Object> details;

  CowMlxException(Status status, String message, String reason) {
    this(status, message, reason, Map.of(), "");
  }

  CowMlxException(Status status, String message, String reason, Map<String, Object> details,
      String operation) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.details = details;
    this.operation = operation;
  }

  public Status status() {
    return status;
  }

  /** A name of COW_MLX_REASONS, such as "out_of_range". */
  public String reason() {
    return reason;
  }

  /** Texts and numbers by their names. */
  public Map<String, Object> details() {
    return details;
  }

  /** The call, such as "context_begin". */
  public String operation() {
    return operation;
  }

  /** The call was cancelled: by cancel(), a callback, or an interruption of its thread. */
  public static final class Canceled extends CowMlxException {
    private static final long serialVersionUID = 1;

    Canceled(String message, String reason, Map<String, Object> details, String operation) {
      super(Status.ECANCELED, message, reason, details, operation);
    }
  }

  /** Throws if the call that this thread has just made failed. */
  static void check(int status) {
    if (status >= 0) return;
    CowMlx api = Api.get();
    String message = api.cow_mlx_error_message();
    Map<String, Object> all =
        Json.object(Fill.text(1024, (json, room, length) ->
            api.cow_mlx_error_details(json, room, length)));
    String reason = (String) all.getOrDefault("reason", "");
    String operation = (String) all.getOrDefault("operation", "");
    Map<String, Object> details = Json.asObject(all.getOrDefault("details", Map.of()));
    if (status == Status.ECANCELED.value) {
      throw new Canceled(message, reason, details, operation);
    }
    throw new CowMlxException(Status.of(status), message, reason, details, operation);
  }
}
