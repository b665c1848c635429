package cowmlx;

import java.lang.reflect.Executable;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A call that failed: for people a message, for programs a status, a reason and its details. */
public class CowMlxException extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final Pattern WORDS = Pattern.compile("[\\w.\"'/\\\\-]*\\w");

  private final Status status;
  private final String reason;
  private final transient Map<String, Object> details;
  private String operation;

  CowMlxException(Status status, String text, String reason) {
    this(status, text, reason, Map.of());
  }

  /** That of the call that the host has made. */
  CowMlxException(Status status, String text, String reason, Map<String, Object> details) {
    this(status, text, reason, details, Given.operation());
  }

  CowMlxException(Status status, String text, String reason, Map<String, Object> details,
      String operation) {
    super(text);
    this.status = status;
    this.reason = reason;
    this.details = details;
    this.operation = operation;
  }

  /** What failed, and why: it begins with the call. */
  @Override
  public String getMessage() {
    return operation.isEmpty() ? super.getMessage() : operation + ": " + super.getMessage();
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

  /** The call, such as "Context.begin". */
  public String operation() {
    return operation;
  }

  /** Names another call as the one that failed. */
  final CowMlxException by(String call) {
    operation = call;
    return this;
  }

  /** The call was cancelled: by cancel(), a callback, or an interruption of its thread. */
  public static final class Canceled extends CowMlxException {
    private static final long serialVersionUID = 1;

    Canceled(String text, String reason, Map<String, Object> details, String operation) {
      super(Status.ECANCELED, text, reason, details, operation);
    }
  }

  /** Whether a call that waits has ended in time; throws if it failed. */
  static boolean isThere(int status) {
    if (status != Status.ETIMEDOUT.value) check(status);
    return status == Status.OK.value;
  }

  /** Throws if the call that this thread has just made failed. */
  static void check(int status) {
    if (status >= 0) return;
    CowMlx api = Api.get();
    String text = api.cow_mlx_error_message();
    Map<String, Object> all =
        Json.object(Fill.text(1024, (json, room, length) ->
            api.cow_mlx_error_details(json, room, length)));
    String reason = (String) all.getOrDefault("reason", "");
    String call = (String) all.getOrDefault("operation", "");
    Map<String, Object> details = new LinkedHashMap<>(Json.asObject(all.getOrDefault("details", Map.of())));
    details.computeIfPresent("argument", (key, name) -> renamed((String) name));
    if (text.startsWith(call + ": ")) text = text.substring(call.length() + 2);
    String operation = Given.operation();
    if (operation.isEmpty()) operation = Names.CALLS.getOrDefault(call, call);
    if (status == Status.ECANCELED.value) {
      throw new Canceled(renamed(text), reason, details, operation);
    }
    throw new CowMlxException(Status.of(status), renamed(text), reason, details, operation);
  }

  /**
   * Calls, parameters and fields of C by the names that they have here. Words in quotes and parts of
   * paths are the host's, and stay as they are.
   */
  private static String renamed(String text) {
    return WORDS.matcher(text.replace("is NULL", "is null")).replaceAll(found -> {
      String word = found.group();
      String name = word.replaceFirst("^[a-z]+_params\\.", "");
      String call = Names.CALLS.get(name.replaceFirst("^cow_mlx_", ""));
      return Matcher.quoteReplacement(
          call != null ? call : Names.FIELDS.getOrDefault(name, name.equals(word) ? word : name));
    });
  }
}

/** Checks of arguments; their errors use the names of the host's code. */
final class Given {
  private static final StackWalker WALKER =
      StackWalker.getInstance(StackWalker.Option.RETAIN_CLASS_REFERENCE);

  private Given() {}

  /** The argument, which must not be null. */
  static <T> T given(T value, String name) {
    if (value != null) return value;
    throw new CowMlxException(Status.EINVAL, name + " is null, must be given", "null_argument",
        Map.of("argument", name));
  }

  /** A list that must not be null, nor an element of it. */
  static <T, L extends Collection<T>> L all(L values, String name) {
    int at = 0;
    for (T each : given(values, name)) given(each, name + "[" + at++ + "]");
    return values;
  }

  /** A map, whose keys and values must not be null. */
  static <K, V, M extends Map<K, V>> M all(M values, String name) {
    given(values, name).forEach((key, value) -> given(value, name + "[" + given(key, name) + "]"));
    return values;
  }

  /** The handle of an object that must be open. */
  static int open(Handle object, String name) {
    if (given(object, name).isClosed()) {
      throw new CowMlxException(Status.EHANDLE, name + " is closed", "unknown_handle",
          Map.of("argument", name));
    }
    return object.handle();
  }

  /** The same of an array, whose numbers are longer. */
  static long open(NDArray array, String name) {
    open((Handle) array, name);
    return array.number();
  }

  /** The public method that the host has called; "" on a thread of the library's own. */
  static String operation() {
    return WALKER.walk(Given::outermost);
  }

  private static String outermost(Stream<StackWalker.StackFrame> frames) {
    String found = "";
    for (Iterator<StackWalker.StackFrame> each = frames.iterator(); each.hasNext(); ) {
      StackWalker.StackFrame frame = each.next();
      Class<?> type = frame.getDeclaringClass();
      if (!type.getPackageName().equals("cowmlx")) {
        if (isBetween(type.getName())) continue;
        return found;
      }
      if (isPublic(type, frame.getMethodName())) found = named(type, frame.getMethodName());
    }
    return found;
  }

  /** Whether a class may stand between the host's call and where it failed. */
  private static boolean isBetween(String type) {
    return Stream.of("java.", "jdk.", "com.sun.jna.", "com.sun.proxy.").anyMatch(type::startsWith);
  }

  private static boolean isPublic(Class<?> type, String method) {
    boolean isConstructor = method.equals("<init>");
    boolean isSeen = Modifier.isPublic(type.getModifiers()) || isGenerated(type.getSimpleName());
    if (!isSeen || type == CowMlxException.class) return false;
    if (type == Handle.class || Modifier.isAbstract(type.getModifiers()) && isConstructor) return false;
    List<? extends Executable> all = isConstructor ? List.of(type.getDeclaredConstructors())
        : Arrays.stream(type.getDeclaredMethods()).filter(each -> each.getName().equals(method)).toList();
    return all.stream().anyMatch(each -> Modifier.isPublic(each.getModifiers()) && !each.isSynthetic());
  }

  /** Whether a class has methods of another one, which is public. */
  private static boolean isGenerated(String name) {
    return name.endsWith("Operations") || name.endsWith("Methods");
  }

  private static String named(Class<?> type, String method) {
    String name = type.getSimpleName().replaceFirst("Methods$", "");
    if (name.endsWith("Operations")) name = "ProgramBuilder";
    return method.equals("<init>") ? "new " + name : name + "." + method;
  }
}
