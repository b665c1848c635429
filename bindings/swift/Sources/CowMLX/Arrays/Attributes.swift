/// What an attribute of an operation can be.
protocol AttributeValue {
  var attribute: String { get }
}

/// A text as JSON.
func jsonText(_ text: String) -> String {
  var json = "\""
  for each in text.unicodeScalars {
    if each == "\"" || each == "\\" || each.value < 0x20 {
      let digits = String(each.value, radix: 16)
      json += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
    } else {
      json.unicodeScalars.append(each)
    }
  }
  return json + "\""
}

extension Int: AttributeValue {
  var attribute: String { json }
}
extension Double: AttributeValue {
  var attribute: String { json }
}
extension Bool: AttributeValue {
  var attribute: String { json }
}
extension String: AttributeValue {
  var attribute: String { jsonText(self) }
}
extension DType: AttributeValue {
  var attribute: String { jsonText(name) }
}
extension Optional: AttributeValue where Wrapped: AttributeValue {
  var attribute: String { self?.attribute ?? "null" }
}
extension Swift.Array: AttributeValue where Element: AttributeValue {
  var attribute: String { "[" + map(\.attribute).joined(separator: ", ") + "]" }
}

/// Attributes of one operation.
struct Attributes: ExpressibleByDictionaryLiteral {
  var json: String

  init(dictionaryLiteral elements: (String, any AttributeValue)...) {
    json = "{" + elements.map { "\"\($0)\": \($1.attribute)" }.joined(separator: ", ") + "}"
  }
}

/// A dimension of a program: a size, or a name that has one value in a run; expressions such as `"2*n+1"`, too.
public struct Dimension: Hashable, Sendable, ExpressibleByIntegerLiteral,
  ExpressibleByStringLiteral,
  AttributeValue
{
  let attribute: String

  /// A size.
  public init(_ size: Int) { attribute = "\(size)" }

  /// A name or an expression.
  public init(_ name: String) { attribute = jsonText(name) }

  public init(integerLiteral size: Int) { self.init(size) }
  public init(stringLiteral name: String) { self.init(name) }
}

/// A shape, the outermost dimension first: `[2, 3]` or `["rows", 3]`.
public struct Shape: Hashable, Sendable, ExpressibleByArrayLiteral, AttributeValue {
  let dimensions: [Dimension]

  /// A shape of sizes.
  public init(_ sizes: [Int]) { dimensions = sizes.map { Dimension($0) } }

  /// A shape of dimensions.
  public init(_ dimensions: [Dimension]) { self.dimensions = dimensions }

  public init(arrayLiteral dimensions: Dimension...) { self.dimensions = dimensions }

  var attribute: String { dimensions.attribute }
}

/// An integer or integers: an axis or axes, one size or one for each dimension.
public struct Ints: Hashable, Sendable, ExpressibleByIntegerLiteral, ExpressibleByArrayLiteral,
  AttributeValue
{
  let attribute: String
  /// How many parts a split makes: so many, or those between places.
  let parts: Int

  /// One for all.
  public init(_ value: Int) { (attribute, parts) = ("\(value)", max(value, 0)) }

  /// A list of them.
  public init(_ values: [Int]) { (attribute, parts) = (values.attribute, values.count + 1) }

  public init(integerLiteral value: Int) { self.init(value) }
  public init(arrayLiteral values: Int...) { self.init(values) }
}

/// What is before and after each dimension, or one number for both sides of all.
public struct Pairs: Hashable, Sendable, ExpressibleByIntegerLiteral, AttributeValue {
  let attribute: String

  /// On both sides of all dimensions.
  public init(_ value: Int) { attribute = "\(value)" }

  /// Before and after each dimension.
  public init(_ pairs: [(Int, Int)]) { attribute = pairs.map { [$0.0, $0.1] }.attribute }

  public init(integerLiteral value: Int) { self.init(value) }
}

/// A number, such as the limit of a range.
public struct Number: Hashable, Sendable, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
  ExpressibleByBooleanLiteral, AttributeValue
{
  let attribute: String

  /// The number as an attribute.
  public init(_ value: some ArrayNumber) { attribute = value.json }

  public init(integerLiteral value: Int) { self.init(value) }
  public init(floatLiteral value: Double) { self.init(value) }
  public init(booleanLiteral value: Bool) { self.init(value) }
}
