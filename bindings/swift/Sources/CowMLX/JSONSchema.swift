import Foundation

/// A JSON schema. Its properties keep their order, in which a model writes them.
public indirect enum JSONSchema: Hashable, Sendable {
  /// A text.
  case string(StringRules = StringRules())
  /// An integer within bounds, which are included.
  case integer(minimum: Int? = nil, maximum: Int? = nil)
  /// A number within bounds, which are included.
  case number(minimum: Double? = nil, maximum: Double? = nil)
  /// True or false.
  case boolean
  /// Null alone.
  case null
  /// One of these values.
  case any([JSONValue])
  /// An array whose elements match a schema.
  case array(of: JSONSchema, minimumCount: Int? = nil, maximumCount: Int? = nil)
  /// An object; others than these properties are not allowed.
  case object([Property])
  /// An object whose keys are free, and the schema of its values.
  case dictionary(of: JSONSchema)
  /// One of these schemas.
  case anyOf([JSONSchema])
  /// A type of `definitions`, by its name.
  case reference(String)
  /// A schema, and the types that its references name.
  case root(JSONSchema, definitions: [String: JSONSchema])
  /// A schema, and what it is for.
  case described(JSONSchema, String)
  /// Any JSON.
  case anything

  /// What a text must match.
  public struct StringRules: Hashable, Sendable {
    /// A regular expression.
    public var pattern: String?
    /// A format, such as `"date-time"`.
    public var format: String?

    /// Makes rules; nil allows everything.
    public init(pattern: String? = nil, format: String? = nil) {
      (self.pattern, self.format) = (pattern, format)
    }
  }

  /// A property of an object.
  public struct Property: Hashable, Sendable {
    /// The key.
    public var name: String
    /// The schema of the value.
    public var schema: JSONSchema
    /// Whether every object has it.
    public var isRequired: Bool

    /// Makes a property; it is required unless told otherwise.
    public init(_ name: String, _ schema: JSONSchema, isRequired: Bool = true) {
      (self.name, self.schema, self.isRequired) = (name, schema, isRequired)
    }
  }

  /// The schema as JSON.
  public var text: String { objectText(members) }

  private var members: [(String, String)] {
    switch self {
    case .string(let rules):
      [("type", "\"string\"")] + given("pattern", rules.pattern.map(quoted))
        + given("format", rules.format.map(quoted))
    case .integer(let minimum, let maximum):
      [("type", "\"integer\"")] + given("minimum", minimum) + given("maximum", maximum)
    case .number(let minimum, let maximum):
      [("type", "\"number\"")] + given("minimum", minimum) + given("maximum", maximum)
    case .boolean: [("type", "\"boolean\"")]
    case .null: [("type", "\"null\"")]
    case .any(let values): [("enum", JSONValue.array(values).description)]
    case .array(let element, let minimum, let maximum):
      [("type", "\"array\""), ("items", element.text)] + given("minItems", minimum)
        + given("maxItems", maximum)
    case .object(let properties): Self.members(properties)
    case .dictionary(let values): [("type", "\"object\""), ("additionalProperties", values.text)]
    case .anyOf(let schemas): [("anyOf", "[\(schemas.map(\.text).joined(separator: ","))]")]
    case .reference(let name): [("$ref", quoted("#/$defs/\(name)"))]
    case .root(let schema, let definitions):
      schema.members
        + [
          (
            "$defs",
            objectText(definitions.sorted { $0.key < $1.key }.map { ($0.key, $0.value.text) })
          )
        ]
    case .described(let schema, let description):
      schema.members + [("description", quoted(description))]
    case .anything: []
    }
  }

  private static func members(_ properties: [Property]) -> [(String, String)] {
    let required = properties.filter(\.isRequired).map { quoted($0.name) }
    return [
      ("type", "\"object\""),
      ("properties", objectText(properties.map { ($0.name, $0.schema.text) })),
      ("required", "[\(required.joined(separator: ","))]"),
      ("additionalProperties", "false"),
    ]
  }
}

private func quoted(_ text: String) -> String { JSONValue.string(text).description }

private func given(_ name: String, _ value: (some CustomStringConvertible)?) -> [(String, String)] {
  value.map { [(name, $0.description)] } ?? []
}
