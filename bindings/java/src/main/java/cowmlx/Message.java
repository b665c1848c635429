package cowmlx;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** A message of a conversation. */
public record Message(String role, String content) {
  public static Message user(String content) {
    return new Message("user", content);
  }

  /** The JSON of a conversation. */
  static String json(List<Message> messages) {
    for (Message each : Given.all(messages, "messages")) {
      Given.given(each.role, "role");
      Given.given(each.content, "content");
    }
    return Json.write(messages.stream()
        .map(each -> Map.of("role", each.role, "content", each.content))
        .collect(Collectors.toList()));
  }
}
