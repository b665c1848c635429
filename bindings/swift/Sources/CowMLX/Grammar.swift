/// A grammar that the output of a generation matches.
public enum Grammar: Hashable, Sendable {
  /// A JSON schema, as its text.
  case jsonSchema(String)
  /// A regular expression.
  case regex(String)
  /// A grammar in Lark's notation.
  case lark(String)
  /// A grammar in the notation of llama.cpp.
  case gbnf(String)

  /// JSON of a schema.
  public static func json(_ schema: JSONSchema) -> Grammar { .jsonSchema(schema.text) }
}
