package cowmlx;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON as maps, lists, texts, numbers (Long or Double) and booleans. */
public final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** The value of a JSON text that the library gave. */
  public static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value();
    if (json.peek() != 0) throw json.malformed();
    return value;
  }

  static Map<String, Object> object(String text) {
    return asObject(parse(text));
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> asObject(Object value) {
    return (Map<String, Object>) value;
  }

  @SuppressWarnings("unchecked")
  static List<Map<String, Object>> objects(Object value) {
    return (List<Map<String, Object>>) value;
  }

  /** The JSON text of a value. */
  public static String write(Object value) {
    if (value instanceof Map<?, ?> map) {
      List<String> members = new ArrayList<>();
      map.forEach((key, each) -> members.add(quote((String) key) + ": " + write(each)));
      return "{" + String.join(", ", members) + "}";
    }
    if (value instanceof Iterable<?> list) {
      List<String> elements = new ArrayList<>();
      list.forEach(each -> elements.add(write(each)));
      return "[" + String.join(", ", elements) + "]";
    }
    return value instanceof CharSequence said ? quote(said) : String.valueOf(value);
  }

  private static String quote(CharSequence text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toString().toCharArray()) {
      if (c == '"' || c == '\\') quoted.append('\\').append(c);
      else if (c < ' ') quoted.append(String.format("\\u%04x", (int) c));
      else quoted.append(c);
    }
    return quoted.append('"').toString();
  }

  private Object value() {
    switch (peek()) {
      case '{': {
        Map<String, Object> members = new LinkedHashMap<>();
        for (char next = '{'; at(next) && peek() != '}'; next = ',') {
          String key = string();
          if (!at(':')) throw malformed();
          members.put(key, value());
        }
        if (!at('}')) throw malformed();
        return members;
      }
      case '[': {
        List<Object> elements = new ArrayList<>();
        for (char next = '['; at(next) && peek() != ']'; next = ',') elements.add(value());
        if (!at(']')) throw malformed();
        return elements;
      }
      case '"':
        return string();
      default:
        return word();
    }
  }

  private Object word() {
    int begin = at;
    while (at < text.length() && ",]} \n\r\t".indexOf(text.charAt(at)) < 0) at++;
    String word = text.substring(begin, at);
    switch (word) {
      case "null": return null;
      case "true": return true;
      case "false": return false;
      case "NaN": return Double.NaN;
      case "Infinity": return Double.POSITIVE_INFINITY;
      case "-Infinity": return Double.NEGATIVE_INFINITY;
      default: return number(word);
    }
  }

  private static Object number(String word) {
    try {
      return Long.valueOf(word);
    } catch (NumberFormatException larger) { // or no whole number
      return Double.valueOf(word);
    }
  }

  private String string() {
    if (!at('"')) throw malformed();
    StringBuilder found = new StringBuilder();
    for (char c; (c = text.charAt(at++)) != '"'; ) {
      if (c != '\\') {
        found.append(c);
      } else if ((c = text.charAt(at++)) == 'u') {
        found.append((char) Integer.parseInt(text.substring(at, at += 4), 16));
      } else {
        int escape = "bfnrt".indexOf(c);
        found.append(escape < 0 ? c : "\b\f\n\r\t".charAt(escape));
      }
    }
    return found.toString();
  }

  /** The next character that is no whitespace; 0 at the end. */
  private char peek() {
    while (at < text.length() && text.charAt(at) <= ' ') at++;
    return at < text.length() ? text.charAt(at) : 0;
  }

  private boolean at(char c) {
    if (peek() != c) return false;
    at++;
    return true;
  }

  private IllegalArgumentException malformed() {
    return new IllegalArgumentException("malformed JSON at " + at + ": " + text);
  }
}
