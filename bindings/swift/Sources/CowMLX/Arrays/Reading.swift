import CCowMLX

extension NDArray {
  /// The elements in row-major order, once they are computed. An array of another type is refused.
  public func values<T: ArrayElement>(of type: T.Type = T.self) throws(CowMLXError) -> [T] {
    let (dtype, shape) = try kind()
    if dtype != T.dtype {
      throw .refused(
        Int(COW_MLX_EINVAL), "NDArray.values", "dtype_mismatch", argument: "of",
        "the array is of \(dtype.name), not of \(T.dtype.name)")
    }
    let count = shape.reduce(1, *)
    var failure: CowMLXError?
    let values = [T](unsafeUninitializedCapacity: count) { buffer, initialized in
      do throws(CowMLXError) {
        try read(into: UnsafeMutableRawBufferPointer(buffer), Tensor(dtype: dtype, shape: shape))
        initialized = count
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
    return values
  }

  /// The elements in row-major order, once they are computed. An array of another type is refused.
  public func values<T: ArrayElement>(of type: T.Type = T.self) async throws(CowMLXError) -> [T] {
    try await blocking(on: .long) { [self] () throws(CowMLXError) in try values(of: type) }
  }

  /// The element of an array that has one.
  public func value<T: ArrayElement>(of type: T.Type = T.self) throws(CowMLXError) -> T {
    try one(values(of: type))
  }

  /// The element of an array that has one.
  public func value<T: ArrayElement>(of type: T.Type = T.self) async throws(CowMLXError) -> T {
    try one(await values(of: type))
  }

  private func one<T>(_ values: [T]) throws(CowMLXError) -> T {
    guard values.count == 1 else {
      throw .refused(
        Int(COW_MLX_EINVAL), "NDArray.value", "shape_mismatch",
        "the array has \(values.count) elements, must have 1")
    }
    return values[0]
  }

  /// Copies the elements to a strided view of memory, of which no two elements share bytes, once they are computed.
  public func read(
    into bytes: UnsafeMutableRawBufferPointer, offset: Int = 0, strides: [Int]? = nil
  ) throws(CowMLXError) {
    let (dtype, shape) = try kind()
    try read(into: bytes, Tensor(dtype: dtype, shape: shape, offset: offset, strides: strides))
  }

  private func read(
    into bytes: UnsafeMutableRawBufferPointer, _ tensor: Tensor
  ) throws(CowMLXError) {
    try tensor.withRaw("NDArray.read", bytes.baseAddress, bytes: bytes.count) {
      (raw) throws(CowMLXError) in try check(api.array_read(handle.raw, raw))
    }
  }

  /// Calls `body` with the elements where they are, in row-major order and read-only, once they are computed.
  public func withElements<T: ArrayElement, R>(
    of type: T.Type = T.self, _ body: (UnsafeBufferPointer<T>) throws -> R
  ) throws -> R {
    let (dtype, shape) = try kind()
    if dtype != T.dtype {
      throw CowMLXError.refused(
        Int(COW_MLX_EINVAL), "NDArray.withElements", "dtype_mismatch", argument: "of",
        "the array is of \(dtype.name), not of \(T.dtype.name)")
    }
    var data: UnsafeRawPointer?
    try check(api.array_view(handle.raw, &data, nil))
    let start = data?.assumingMemoryBound(to: T.self)
    let count = start == nil ? 0 : shape.reduce(1, *)
    return try withExtendedLifetime(self) {
      try body(UnsafeBufferPointer(start: start, count: count))
    }
  }

  /// Calls `body` with the elements where they are, in row-major order and read-only, once they are computed.
  public func withElements<T: ArrayElement, R>(
    of type: T.Type = T.self, _ body: (UnsafeBufferPointer<T>) throws -> R
  ) async throws -> R {
    _ = try await wait()
    let inPlace: (T.Type, (UnsafeBufferPointer<T>) throws -> R) throws -> R = withElements
    return try inPlace(type, body)  // which no longer waits
  }

  /// Waits until the elements are computed.
  ///
  /// - Parameter milliseconds: the longest wait for a run; nil is no limit.
  /// - Returns: false if a run has not brought them in time; it continues.
  /// - Throws: the error of the run that computes them.
  public func wait(milliseconds: UInt32? = nil) throws(CowMLXError) -> Bool {
    let limit = milliseconds.map { Swift.min($0, .max - 1) } ?? .max
    let status = api.array_wait(handle.raw, limit)
    if status == COW_MLX_ETIMEDOUT { return false }
    try check(status)
    return true
  }

  /// Waits until the elements are computed.
  ///
  /// - Parameter milliseconds: the longest wait for a run; nil is no limit.
  /// - Returns: false if a run has not brought them in time; it continues.
  /// - Throws: the error of the run that computes them.
  public func wait(milliseconds: UInt32? = nil) async throws(CowMLXError) -> Bool {
    try await blocking(on: .long) { [self] () throws(CowMLXError) in
      try wait(milliseconds: milliseconds)
    }
  }

  /// A DLPack tensor of the elements, read-only, which the receiver frees by its deleter. It outlives the array.
  public func dlpack() async throws(CowMLXError) -> OpaquePointer {
    _ = try await wait()
    let now: () throws(CowMLXError) -> OpaquePointer = dlpack
    return try now()
  }

  /// What a safetensors file holds: arrays by name, with dtype and shape, and texts.
  public static func info(of path: String) async throws(CowMLXError) -> JSONValue {
    try await blocking { () throws(CowMLXError) in try info(of: path) }
  }

  /// Loads arrays of a safetensors file by their names, all or none.
  public static func load(
    _ path: String, names: [String], on runtime: Runtime
  ) async throws(CowMLXError) -> [NDArray] {
    try await blocking { () throws(CowMLXError) in try load(path, names: names, on: runtime) }
  }

  /// Saves arrays under names as a safetensors file, completely or not at all.
  public static func save(_ arrays: [String: NDArray], to path: String) async throws(CowMLXError) {
    try await blocking { () throws(CowMLXError) in try save(arrays, to: path) }
  }
}

extension NDArray: CustomStringConvertible {
  /// The type and the shape, such as `float32[2, 3]`.
  public var description: String {
    guard let (dtype, shape) = try? kind() else { return "closed array" }
    return "\(dtype.name)\(shape)"
  }
}
