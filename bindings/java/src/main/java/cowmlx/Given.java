package cowmlx;

import java.lang.reflect.Executable;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** What hosts give, checked: what is wrong is named as they have written it. */
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

  /** A list, and what is in it, none of which may be null. */
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
    boolean isSeen = Modifier.isPublic(type.getModifiers()) || type.getSimpleName().endsWith("Operations");
    if (!isSeen || type == CowMlxException.class) return false;
    if (type == Handle.class || Modifier.isAbstract(type.getModifiers()) && isConstructor) return false;
    List<? extends Executable> all = isConstructor ? List.of(type.getDeclaredConstructors())
        : Arrays.stream(type.getDeclaredMethods()).filter(each -> each.getName().equals(method)).toList();
    return all.stream().anyMatch(each -> Modifier.isPublic(each.getModifiers()) && !each.isSynthetic());
  }

  private static String named(Class<?> type, String method) {
    String name = type.getSimpleName();
    if (name.endsWith("Operations")) name = "ProgramBuilder";
    return method.equals("<init>") ? "new " + name : name + "." + method;
  }
}
