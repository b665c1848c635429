import CCowMLX
import Foundation

/// Any JSON value: what calls that describe an object return, and what a tool is given.
public enum JSONValue: Hashable, Sendable {
  /// Null.
  case null
  /// True or false.
  case bool(Bool)
  /// A number without a fraction.
  case int(Int)
  /// Any other number.
  case double(Double)
  /// A text.
  case string(String)
  /// An array.
  case array([JSONValue])
  /// An object.
  case object([String: JSONValue])

  /// The member of an object; nil if there is none.
  public subscript(key: String) -> JSONValue? { object?[key] }

  /// The element of an array; nil if there is none.
  public subscript(index: Int) -> JSONValue? {
    guard let array, array.indices.contains(index) else { return nil }
    return array[index]
  }

  /// The value; nil if it is no `bool`.
  public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
  /// The value; nil if it is no `int`.
  public var int: Int? { if case .int(let value) = self { value } else { nil } }
  /// The text; nil if it is no `string`.
  public var string: String? { if case .string(let value) = self { value } else { nil } }
  /// The elements; nil if it is no `array`.
  public var array: [JSONValue]? { if case .array(let value) = self { value } else { nil } }
  /// The members; nil if it is no `object`.
  public var object: [String: JSONValue]? {
    if case .object(let value) = self { value } else { nil }
  }
  /// Whether the value is null.
  public var isNull: Bool { self == .null }

  /// The number, also of an integer.
  public var double: Double? {
    switch self {
    case .int(let value): Double(value)
    case .double(let value): value
    default: nil
    }
  }
}

extension JSONValue: Codable {
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Int.self) {
      self = .int(value)
    } else if let value = try? container.decode(Double.self) {
      self = .double(value)
    } else if let value = try? container.decode(String.self) {
      self = .string(value)
    } else if let value = try? container.decode([JSONValue].self) {
      self = .array(value)
    } else {
      self = .object(try container.decode([String: JSONValue].self))
    }
  }

  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    switch self {
    case .null: try container.encodeNil()
    case .bool(let value): try container.encode(value)
    case .int(let value): try container.encode(value)
    case .double(let value): try container.encode(value)
    case .string(let value): try container.encode(value)
    case .array(let value): try container.encode(value)
    case .object(let value): try container.encode(value)
    }
  }

  /// Any value as JSON.
  public init(encoding value: some Encodable) throws {
    self = try JSONDecoder().decode(JSONValue.self, from: JSONEncoder().encode(value))
  }

  /// The value as a type of the host.
  public func decode<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
    try JSONDecoder().decode(type, from: JSONEncoder().encode(self))
  }
}

extension JSONValue: CustomStringConvertible {
  /// The JSON text, with sorted keys.
  public var description: String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    // JSON has no number for NaN and the infinities.
    guard let data = try? encoder.encode(self) else { return "null" }
    return String(decoding: data, as: UTF8.self)
  }

  /// The value of a JSON text.
  public init(parsing text: String) throws(CowMLXError) {
    do {
      self = try JSONDecoder().decode(JSONValue.self, from: Data(text.utf8))
    } catch {
      throw .refused(COW_MLX_EINVAL, "JSONValue", "invalid_json", "the text is not JSON: \(error)")
    }
  }
}

extension JSONValue: ExpressibleByNilLiteral, ExpressibleByBooleanLiteral,
  ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral, ExpressibleByStringLiteral,
  ExpressibleByStringInterpolation, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
  public init(nilLiteral: ()) { self = .null }
  public init(booleanLiteral value: Bool) { self = .bool(value) }
  public init(integerLiteral value: Int) { self = .int(value) }
  public init(floatLiteral value: Double) { self = .double(value) }
  public init(stringLiteral value: String) { self = .string(value) }
  public init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
  public init(dictionaryLiteral elements: (String, JSONValue)...) {
    self = .object(Dictionary(elements) { _, last in last })
  }
}
