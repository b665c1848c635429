import Foundation

/// A type that says more of its properties than their types do.
public protocol SchemaGuided {
  /// Descriptions and bounds of properties, by their names in JSON.
  static var guides: [String: SchemaGuide] { get }
}

/// The description and the bounds of a property.
public struct SchemaGuide: Hashable, Sendable {
  /// What the property is for.
  public var description: String?
  /// Of a number.
  public var range: ClosedRange<Double>?
  /// The number of elements of an array.
  public var count: ClosedRange<Int>?
  /// A regular expression that a text matches.
  public var pattern: String?
  /// The values that are allowed.
  public var anyOf: [JSONValue]?

  /// Makes a guide; nil leaves that part to the property's type.
  public init(
    _ description: String? = nil, range: ClosedRange<Double>? = nil, count: ClosedRange<Int>? = nil,
    pattern: String? = nil, anyOf: [JSONValue]? = nil
  ) {
    (self.description, self.range, self.count) = (description, range, count)
    (self.pattern, self.anyOf) = (pattern, anyOf)
  }

  func applied(to schema: JSONSchema) -> JSONSchema {
    var guided = schema
    switch schema {
    case .integer(let minimum, let maximum):
      guided = .integer(
        minimum: range.map { Int($0.lowerBound.rounded(.up)) } ?? minimum,
        maximum: range.map { Int($0.upperBound.rounded(.down)) } ?? maximum)
    case .number(let minimum, let maximum):
      guided = .number(
        minimum: range?.lowerBound ?? minimum, maximum: range?.upperBound ?? maximum)
    case .array(let element, let minimum, let maximum):
      guided = .array(
        of: element, minimumCount: count?.lowerBound ?? minimum,
        maximumCount: count?.upperBound ?? maximum)
    case .string(var rules):
      rules.pattern = pattern ?? rules.pattern
      guided = .string(rules)
    default: break
    }
    if let anyOf { guided = .any(anyOf) }
    return description.map { .described(guided, $0) } ?? guided
  }
}

extension JSONSchema {
  /// The schema of a type's JSON: its stored properties, as its `init(from:)` decodes them.
  ///
  /// The type is decoded once, from values that are made up. So this works with the `init(from:)` that the
  /// compiler writes, and with others that decode every property and accept any value of its type. An
  /// enum needs `CaseIterable`.
  public init(of type: (some Decodable).Type) throws {
    let probe = SchemaProbe()
    let schema = try probe.schema(of: type)
    let used = probe.definitions.filter { probe.referenced.contains($0.key) }
    self = used.isEmpty ? schema : .root(schema, definitions: used)
  }
}

/// A type whose schema follows from another type's.
protocol SchemaContainer {
  static func schema(_ probe: SchemaProbe) throws -> JSONSchema
  static var sample: Any { get }
}

extension Swift.Array: SchemaContainer where Element: Decodable {
  static func schema(_ probe: SchemaProbe) throws -> JSONSchema {
    .array(of: try probe.schema(of: Element.self))
  }
  static var sample: Any { [Element]() }
}

extension Set: SchemaContainer where Element: Decodable {
  static func schema(_ probe: SchemaProbe) throws -> JSONSchema {
    .array(of: try probe.schema(of: Element.self))
  }
  static var sample: Any { Set<Element>() }
}

extension Dictionary: SchemaContainer where Key == String, Value: Decodable {
  static func schema(_ probe: SchemaProbe) throws -> JSONSchema {
    .dictionary(of: try probe.schema(of: Value.self))
  }
  static var sample: Any { [String: Value]() }
}

extension Optional: SchemaContainer where Wrapped: Decodable {
  static func schema(_ probe: SchemaProbe) throws -> JSONSchema {
    .anyOf([try probe.schema(of: Wrapped.self), .null])
  }
  static var sample: Any { Wrapped?.none as Any }
}

/// Finds the schemas of types, and samples of them.
final class SchemaProbe {
  private(set) var definitions: [String: JSONSchema] = [:]
  private(set) var referenced: Set<String> = []
  private var inProgress: [ObjectIdentifier: String] = [:]
  private var samples: [ObjectIdentifier: Any] = [:]

  func schema<Value: Decodable>(of type: Value.Type) throws -> JSONSchema {
    if let known = plain(type) { return known.0 }
    if let container = type as? any SchemaContainer.Type { return try container.schema(self) }
    if let values = try cases(of: type) { return .any(values) }
    let (id, name) = (ObjectIdentifier(type), "\(type)")
    if inProgress[id] != nil {
      referenced.insert(name)
      return .reference(name)
    }
    inProgress[id] = name
    defer { inProgress[id] = nil }
    let decoder = SchemaDecoder(self, (type as? any SchemaGuided.Type)?.guides ?? [:])
    samples[id] = try Value(from: decoder)
    let schema = try decoder.schema(of: name)
    definitions[name] = schema
    return schema
  }

  /// A value of the type, whatever it is.
  func sample<Value: Decodable>(of type: Value.Type) throws -> Value {
    if let known = plain(type) { return known.1 as! Value }
    if let container = type as? any SchemaContainer.Type { return container.sample as! Value }
    if let cases = type as? any CaseIterable.Type { return try first(of: cases, as: type) }
    if let sample = samples[ObjectIdentifier(type)] { return sample as! Value }
    throw unusable(type, "contains itself other than in an array or an optional")
  }

  /// The schema of a type that JSON has, and a value of it.
  private func plain(_ type: Any.Type) -> (JSONSchema, Any)? {
    switch type {
    case is String.Type: (.string(), "")
    case is Bool.Type: (.boolean, false)
    case is Int.Type: (.integer(), 0)
    case is Int8.Type: (.integer(minimum: -128, maximum: 127), Int8(0))
    case is Int16.Type: (.integer(minimum: -32768, maximum: 32767), Int16(0))
    case is Int32.Type: (.integer(minimum: Int(Int32.min), maximum: Int(Int32.max)), Int32(0))
    case is Int64.Type: (.integer(), Int64(0))
    case is UInt.Type: (.integer(minimum: 0), UInt(0))
    case is UInt8.Type: (.integer(minimum: 0, maximum: 255), UInt8(0))
    case is UInt16.Type: (.integer(minimum: 0, maximum: 65535), UInt16(0))
    case is UInt32.Type: (.integer(minimum: 0, maximum: Int(UInt32.max)), UInt32(0))
    case is UInt64.Type: (.integer(minimum: 0), UInt64(0))
    case is Double.Type: (.number(), 0.0)
    case is Float.Type: (.number(), Float(0))
    case is Decimal.Type: (.number(), Decimal(0))
    case is Date.Type: (.string(.init(format: "date-time")), Date(timeIntervalSince1970: 0))
    case is URL.Type: (.string(.init(format: "uri")), URL(fileURLWithPath: "/"))
    case is UUID.Type: (.string(.init(format: "uuid")), UUID())
    case is JSONValue.Type: (.anything, JSONValue.null)
    default: nil
    }
  }

  /// The values of an enum's cases, if it can list them.
  private func cases<Value: Decodable>(of type: Value.Type) throws -> [JSONValue]? {
    guard let cases = type as? any CaseIterable.Type else { return nil }
    return try values(of: cases)
  }

  private func values<T: CaseIterable>(of type: T.Type) throws -> [JSONValue] {
    try type.allCases.map { one in
      if let encodable = one as? any Encodable { return try JSONValue(encoding: encodable) }
      guard let raw = (one as? any RawRepresentable)?.rawValue as? any Encodable else {
        throw unusable(type, "has cases that cannot be written as JSON; make it Codable")
      }
      return try JSONValue(encoding: raw)
    }
  }

  private func first<T: CaseIterable, Value>(of cases: T.Type, as type: Value.Type) throws -> Value
  {
    guard let first = cases.allCases.first as? Value else { throw unusable(type, "has no case") }
    return first
  }

  func unusable(_ type: Any.Type, _ problem: String) -> any Error {
    CowMLXError.refused(
      -1, "JSONSchema", "unsupported", argument: "type", "the type \(type) \(problem)")
  }
}
