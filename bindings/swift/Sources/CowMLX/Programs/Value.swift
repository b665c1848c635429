import CCowMLX

/// A value of a program: an input, a constant or a result. Operations on it add to the program of its builder.
public struct Value: Operand {
  public typealias Failure = Never

  /// The builder of the program.
  public let maker: ProgramBuilder
  let id: Int

  /// The type of the elements; the library infers that of a result.
  ///
  /// - Throws: ``CowMLXError/invalidArgument(_:)`` if an operation that it comes from cannot take its inputs.
  public func dtype() throws(CowMLXError) -> DType {
    let type = try maker.types([id])[0]
    guard let dtype = DType(name: type.dtype) else {
      throw .refused(
        Int(COW_MLX_EUNSUPPORTED), "Value.dtype", "unsupported",
        "this package knows no type \(type.dtype)")
    }
    return dtype
  }

  /// A number of this value's type, as a value of the same program.
  public func constant<N: ArrayNumber>(_ number: N) -> Value {
    do throws(CowMLXError) {
      return maker.constant(ValueType(N.dtype(beside: try dtype())), number.json)
    } catch {
      return maker.failed(error)
    }
  }
}

@available(*, unavailable)
extension Value: Sendable {}
