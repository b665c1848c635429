/// A type of Swift that arrays can have elements of.
public protocol ArrayElement: BitwiseCopyable, Sendable {
  /// The type in an array.
  static var dtype: DType { get }

  /// The element as JSON.
  var json: String { get }
}

/// A number beside arrays and values: `a + 1`.
///
/// It takes the type of the array that it meets, if it fits: a `Bool` is a bool; an integer is of the other's type, or
/// int32 beside bools; other numbers are of the other's type if that is one of floats, or else float32.
public protocol ArrayNumber: ArrayElement {
  /// Whether it has a fraction.
  static var isFloat: Bool { get }
}

extension ArrayNumber {
  static func dtype(beside other: DType) -> DType {
    if Self.self == Bool.self { return .bool }
    if isFloat { return other.isFloat ? other : .float32 }
    return other == .bool ? .int32 : other
  }
}

extension DType {
  /// Whether numbers of it have a fraction.
  public var isFloat: Bool {
    switch self {
    case .float16, .bfloat16, .float32, .float64, .complex64: true
    default: false
    }
  }
}

extension BinaryFloatingPoint {
  /// What is not finite is a text.
  fileprivate var numberJSON: String {
    if isNaN { return "\"nan\"" }
    if isInfinite { return self > 0 ? "\"inf\"" : "\"-inf\"" }
    return "\(Double(self))"
  }
}

extension Bool: ArrayNumber {
  public static var dtype: DType { .bool }
  public static var isFloat: Bool { false }
  public var json: String { "\(self)" }
}

extension UInt8: ArrayNumber {
  public static var dtype: DType { .uint8 }
}
extension UInt16: ArrayNumber {
  public static var dtype: DType { .uint16 }
}
extension UInt32: ArrayNumber {
  public static var dtype: DType { .uint32 }
}
extension UInt64: ArrayNumber {
  public static var dtype: DType { .uint64 }
}
extension UInt: ArrayNumber {
  public static var dtype: DType { .uint64 }
}
extension Int8: ArrayNumber {
  public static var dtype: DType { .int8 }
}
extension Int16: ArrayNumber {
  public static var dtype: DType { .int16 }
}
extension Int32: ArrayNumber {
  public static var dtype: DType { .int32 }
}
extension Int64: ArrayNumber {
  public static var dtype: DType { .int64 }
}
extension Int: ArrayNumber {
  public static var dtype: DType { .int64 }
}

extension ArrayNumber where Self: FixedWidthInteger {
  public static var isFloat: Bool { false }
  public var json: String { "\(self)" }
}

#if !((os(macOS) || targetEnvironment(macCatalyst)) && arch(x86_64))
  extension Float16: ArrayNumber {
    public static var dtype: DType { .float16 }
  }
#endif
extension Float: ArrayNumber {
  public static var dtype: DType { .float32 }
}
extension Double: ArrayNumber {
  public static var dtype: DType { .float64 }
}

extension ArrayNumber where Self: BinaryFloatingPoint {
  public static var isFloat: Bool { true }
  public var json: String { numberJSON }
}

/// The upper half of a `Float`: eight bits of exponent, seven of fraction.
public struct BFloat16: ArrayElement, Hashable {
  /// The bits, as arrays hold them.
  public var bitPattern: UInt16

  /// The number of these bits.
  public init(bitPattern: UInt16) { self.bitPattern = bitPattern }

  /// The nearest number, halves to the even one.
  public init(_ value: Float) {
    let bits = value.bitPattern
    let isNaN = value.isNaN
    let rounded = bits &+ 0x7fff &+ (bits >> 16 & 1)
    bitPattern = UInt16(truncatingIfNeeded: isNaN ? bits >> 16 | 0x40 : rounded >> 16)
  }

  /// The same number, exactly.
  public var float: Float { Float(bitPattern: UInt32(bitPattern) << 16) }

  public static var dtype: DType { .bfloat16 }
  public var json: String { float.json }
}

/// A complex number of two floats.
public struct Complex64: ArrayElement, Hashable {
  /// The real part.
  public var real: Float
  /// The imaginary part.
  public var imaginary: Float

  /// The number with these parts.
  public init(_ real: Float, _ imaginary: Float = 0) {
    (self.real, self.imaginary) = (real, imaginary)
  }

  public static var dtype: DType { .complex64 }
  public var json: String { "\"\(real)\(imaginary.sign == .minus ? "" : "+")\(imaginary)j\"" }
}
