import CowMLX
import Foundation

/// What a model has generated, as JSON that may be incomplete.
public struct GeneratedContent: Hashable, Sendable, CustomStringConvertible {
  let value: JSONValue
  /// Whether the model has written all of it.
  public let isComplete: Bool

  /// - Parameter json: a JSON text, or the beginning of one.
  public init(json: String) throws {
    if let value = try? JSONValue(parsing: json) {
      (self.value, isComplete) = (value, true)
    } else {
      (self.value, isComplete) = (try JSONValue(parsing: completed(json)), false)
    }
  }

  init(_ value: JSONValue, isComplete: Bool = true) {
    (self.value, self.isComplete) = (value, isComplete)
  }

  public var jsonString: String { value.description }
  public var description: String { jsonString }

  /// The whole as a type.
  public func value<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
    try value.decode(type)
  }

  /// A property as a type.
  public func value<Value: Decodable>(
    _ type: Value.Type = Value.self, forProperty property: String
  ) throws -> Value {
    guard let member = value[property] else {
      throw LanguageModelSession.GenerationError.decodingFailure(
        .init(debugDescription: "there is no property \(property)"))
    }
    return try member.decode(type)
  }

  /// A property as a type; nil if it is absent.
  public func value<Value: Decodable>(
    _ type: Value?.Type = Value?.self, forProperty property: String
  ) throws -> Value? {
    guard let member = value[property], !member.isNull else { return nil }
    return try member.decode(Value.self)
  }
}

/// A type that a model can write. Its properties are written in their order.
///
///     struct Recipe: Generable { let title: String, steps: [String] }
public protocol Generable: Codable, Sendable {
  /// What a stream gives before the value is complete.
  associatedtype PartiallyGenerated: Sendable = GeneratedContent
  static var generationSchema: GenerationSchema { get throws }
  static func partial(_ content: GeneratedContent) throws -> PartiallyGenerated
}

extension Generable {
  public static var generationSchema: GenerationSchema {
    get throws { GenerationSchema(try JSONSchema(of: Self.self)) }
  }
}

extension Generable where PartiallyGenerated == GeneratedContent {
  public static func partial(_ content: GeneratedContent) -> GeneratedContent { content }
}

extension String: Generable {
  public static func partial(_ content: GeneratedContent) -> String {
    content.value.string ?? content.jsonString
  }
}

extension Bool: Generable {}
extension Int: Generable {}
extension Double: Generable {}
extension Float: Generable {}
extension Decimal: Generable {}
extension Swift.Array: Generable where Element: Generable {}

/// A schema of what a model writes.
public struct GenerationSchema: Hashable, Sendable, CustomStringConvertible {
  let schema: JSONSchema

  /// The schema of a type, or one that is built: `GenerationSchema(.object([…]))`.
  public init(_ schema: JSONSchema) { self.schema = schema }

  public var description: String { schema.text }
}

/// The shortest JSON text that begins with the complete parts of another's beginning.
func completed(_ json: String) -> String {
  var (open, inString, isEscaped) = ([Character](), false, false)
  var (end, endOpen) = (json.startIndex, [Character]())  // of the last place where a value may end
  var isKey = false
  for index in json.indices {
    let character = json[index]
    let next = json.index(after: index)
    if inString {
      if isEscaped {
        isEscaped = false
      } else if character == "\\" {
        isEscaped = true
      } else if character == "\"" {
        inString = false
        if !isKey { (end, endOpen) = (next, open) }
      }
      continue
    }
    switch character {
    case "\"": inString = true
    case "{", "[":
      open.append(character == "{" ? "}" : "]")
      isKey = character == "{"
      (end, endOpen) = (next, open)
    case "}", "]":
      _ = open.popLast()
      (end, endOpen) = (next, open)
    case ":": isKey = false
    case ",":
      // A number or a word ends here.
      (end, endOpen) = (index, open)
      isKey = open.last == "}"
    default: break
    }
  }
  if inString, !isKey, let last = json.lastIndex(where: { _ in true }) {
    // A text that is being written is a value, without an escape that is cut short.
    var text = String(json[...last])
    if let escape = text.range(of: #"\\(u[0-9a-fA-F]{0,3})?$"#, options: .regularExpression),
      isEscaped || !text.hasSuffix("\\")
    {
      text = String(text[..<escape.lowerBound])
    }
    return text + "\"" + String(open.reversed())
  }
  let text = String(json[..<end])
  return text.isEmpty ? "null" : text + String(endOpen.reversed())
}
