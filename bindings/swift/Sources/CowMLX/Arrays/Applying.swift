import CCowMLX

extension Runtime: OperationMaker {
  public typealias Made = NDArray

  /// Applies an operation to arrays. Shapes and types are checked now; values are computed when they are needed.
  ///
  /// - Parameters:
  ///   - operation: its name, or one of its aliases.
  ///   - inputs: nil is an optional one that is left out.
  ///   - attributes: a JSON object.
  ///   - results: how many there will be at least; the library tells.
  public func apply(
    _ operation: String, _ inputs: [NDArray?], attributes: String = "{}", results: Int = 1
  ) throws(CowMLXError) -> [NDArray] {
    defer { withExtendedLifetime(inputs) {} }
    let given = inputs.map { $0?.handle.raw ?? 0 }
    if let closed = inputs.indices.first(where: { inputs[$0] != nil && given[$0] == 0 }) {
      throw .refused(
        Int(COW_MLX_EHANDLE), "NDArray.apply", "unknown_handle", argument: "inputs",
        "input \(closed) of \(operation) is a closed array")
    }
    let name = try CText("NDArray.apply", "operation", operation)
    let attributes = try CText("NDArray.apply", "attributes", attributes)
    let handles = try vector(max(results, 4), of: Int64.self) {
      api.array_apply(name.start, given, given.count, attributes.start, $0, $1, $2)
    }
    return handles.map { NDArray(raw: $0, on: self) }
  }

  /// Applies an operation to arrays. Shapes and types are checked now; values are computed when they are needed.
  ///
  /// - Parameters:
  ///   - operation: its name, or one of its aliases.
  ///   - inputs: nil is an optional one that is left out.
  ///   - attributes: a JSON object.
  ///   - results: how many there will be at least; the library tells.
  public func apply(
    _ operation: String, _ inputs: [NDArray?], attributes: String = "{}", results: Int = 1
  ) async throws(CowMLXError) -> [NDArray] {
    try await blocking { [self] () throws(CowMLXError) in
      try apply(operation, inputs, attributes: attributes, results: results)
    }
  }
}

extension NDArray: Operand {
  public typealias Failure = CowMLXError

  public var maker: Runtime { runtime }

  public func constant<N: ArrayNumber>(_ number: N) throws(CowMLXError) -> NDArray {
    let attributes: Attributes = [
      "shape": [Int](), "vals": Number(number), "dtype": N.dtype(beside: try dtype),
    ]
    return try runtime.apply("full", [], attributes: attributes.json)[0]
  }

  /// The same, in asynchronous code.
  func number(_ number: some ArrayNumber) async throws(CowMLXError) -> NDArray {
    try await blocking { [self] () throws(CowMLXError) in try constant(number) }
  }
}
