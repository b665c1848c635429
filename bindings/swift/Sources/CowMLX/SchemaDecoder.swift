/// Decodes a type from made-up values and records the properties that it asks for.
final class SchemaDecoder: Decoder {
  let codingPath: [any CodingKey] = []
  let userInfo: [CodingUserInfoKey: Any] = [:]
  fileprivate let probe: SchemaProbe
  private let guides: [String: SchemaGuide]
  private var properties: [JSONSchema.Property] = []
  fileprivate var optionals: Set<String> = []
  fileprivate var single: JSONSchema?

  init(_ probe: SchemaProbe, _ guides: [String: SchemaGuide]) {
    (self.probe, self.guides) = (probe, guides)
  }

  /// What the type has asked for.
  func schema(of type: String) throws -> JSONSchema {
    if let single { return single }
    for name in guides.keys where !properties.contains(where: { $0.name == name }) {
      throw CowMLXError.refused(
        -1, "JSONSchema", "unknown_option", argument: "guides",
        "guides of \(type) name \(name), which is none of its properties")
    }
    return .object(properties)
  }

  fileprivate func record<Value: Decodable>(
    _ type: Value.Type, _ name: String, isRequired: Bool
  ) throws {
    guard !properties.contains(where: { $0.name == name }) else { return }
    let schema = try probe.schema(of: type)
    let guided = guides[name]?.applied(to: schema) ?? schema
    properties.append(.init(name, guided, isRequired: isRequired))
  }

  func container<Key>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
    KeyedDecodingContainer(SchemaProperties(decoder: self))
  }

  func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    throw DecodingError.dataCorrupted(
      .init(
        codingPath: [], debugDescription: "a type that decodes itself from an array has no schema"))
  }

  func singleValueContainer() -> any SingleValueDecodingContainer { SchemaValue(decoder: self) }
}

/// The value of a type that decodes itself from one value.
private struct SchemaValue: SingleValueDecodingContainer {
  let decoder: SchemaDecoder
  var codingPath: [any CodingKey] { [] }

  func decodeNil() -> Bool { false }

  func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    if decoder.single == nil { decoder.single = try decoder.probe.schema(of: type) }
    return try decoder.probe.sample(of: type)
  }
}

/// The properties of a type.
private struct SchemaProperties<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let decoder: SchemaDecoder
  var codingPath: [any CodingKey] { [] }
  var allKeys: [Key] { [] }

  func contains(_ key: Key) -> Bool { true }

  /// A type that calls this accepts an absent property; the standard library does so for optional numbers.
  func decodeNil(forKey key: Key) -> Bool {
    decoder.optionals.insert(key.stringValue)
    return false
  }

  func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
    let isRequired = !decoder.optionals.contains(key.stringValue)
    try decoder.record(type, key.stringValue, isRequired: isRequired)
    return try decoder.probe.sample(of: type)
  }

  func decodeIfPresent<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value? {
    try decoder.record(type, key.stringValue, isRequired: false)
    return nil
  }

  func nestedContainer<Nested>(
    keyedBy type: Nested.Type, forKey key: Key
  ) throws -> KeyedDecodingContainer<Nested> { throw nested(key) }

  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
    throw nested(key)
  }

  func superDecoder() throws -> any Decoder { decoder }
  func superDecoder(forKey key: Key) throws -> any Decoder { throw nested(key) }

  private func nested(_ key: Key) -> any Error {
    DecodingError.dataCorrupted(
      .init(
        codingPath: [key], debugDescription: "nested containers have no schema; use another type"))
  }
}
