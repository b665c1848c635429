import CCowMLX

/// Numbers in up to eight dimensions: a value, which nothing changes.
///
/// Any number of tasks and threads may use it at once. Each call that may wait is there twice: Swift takes the `async`
/// one in asynchronous code, where no thread of tasks waits, and the other one elsewhere.
///
/// ```swift
/// let a = try NDArray([1, 2, 3, 4], shape: [2, 2], on: runtime)
/// let b = try await (a * 2 + 1).sqrt()
/// print(try await b.values(of: Double.self))
/// ```
public final class NDArray: Sendable {
  let handle: Handle<Int64>
  /// The runtime that the array belongs to.
  public let runtime: Runtime

  init(raw: Int64, on runtime: Runtime) {
    self.runtime = runtime
    handle = Handle(raw, parent: runtime) { api.array_free($0) }
  }

  /// Copies elements in row-major order: exactly as many as the shape has. Without a shape it is their count.
  public convenience init<T: ArrayElement>(
    _ values: [T], shape: [Int]? = nil, on runtime: Runtime
  ) throws(CowMLXError) {
    let shape = shape ?? [values.count]
    try checkCount("NDArray.init", values.count, shape)
    let raw = values.withUnsafeBytes { bytes in
      Result { () throws(CowMLXError) in
        try created(Tensor(dtype: T.dtype, shape: shape), bytes)
      }
    }
    self.init(raw: try raw.get(), on: runtime)
  }

  /// Copies one number, of shape ().
  public convenience init(_ value: some ArrayElement, on runtime: Runtime) throws(CowMLXError) {
    try self.init([value], shape: [], on: runtime)
  }

  /// Copies a strided view of memory.
  ///
  /// - Parameters:
  ///   - bytes: the memory, which every element must lie in.
  ///   - offset: bytes before the element at index 0 of every dimension.
  ///   - strides: steps in elements, which may be negative or 0; nil is row-major.
  public convenience init(
    bytes: UnsafeRawBufferPointer, dtype: DType, shape: [Int], offset: Int = 0,
    strides: [Int]? = nil, on runtime: Runtime
  ) throws(CowMLXError) {
    let tensor = Tensor(dtype: dtype, shape: shape, offset: offset, strides: strides)
    self.init(raw: try created(tensor, bytes), on: runtime)
  }

  /// Frees the array now. Running calls on it, and arrays made from it, continue.
  public func close() async { await handle.close() }

  /// The type of the elements. Never waits.
  public var dtype: DType { get throws(CowMLXError) { try kind().0 } }

  /// The sizes of the dimensions, the outermost first. Never waits.
  public var shape: [Int] { get throws(CowMLXError) { try kind().1 } }

  /// The number of elements. Never waits.
  public var count: Int { get throws(CowMLXError) { try kind().1.reduce(1, *) } }

  func kind() throws(CowMLXError) -> (DType, [Int]) {
    var (code, rank) = (Int32(0), 0)
    var sizes = [Int64](repeating: 0, count: Self.maxRank)
    try check(api.array_type(handle.raw, &code, &sizes, sizes.count, &rank))
    guard let dtype = DType(rawValue: code) else {
      throw .refused(
        Int(COW_MLX_EUNSUPPORTED), "NDArray.dtype", "unsupported",
        "this package knows no type \(code)")
    }
    return (dtype, sizes.prefix(rank).map(Int.init))
  }

  /// Creates an array from a DLPack tensor (`DLManagedTensorVersioned*`), which is copied and deleted. After an error
  /// the caller still owns it.
  public convenience init(dlpack managed: OpaquePointer, on runtime: Runtime) throws(CowMLXError) {
    var raw: Int64 = 0
    try check(api.array_from_dlpack(managed, &raw))
    self.init(raw: raw, on: runtime)
  }

  /// A DLPack tensor of the elements, read-only, which the receiver frees by its deleter. It outlives the array.
  public func dlpack() throws(CowMLXError) -> OpaquePointer {
    var managed: OpaquePointer?
    try check(api.array_to_dlpack(handle.raw, &managed))
    return managed!
  }

  /// What a safetensors file holds: arrays by name, with dtype and shape, and texts.
  public static func info(of path: String) throws(CowMLXError) -> JSONValue {
    let path = try CText("NDArray.info", "path", path)
    return try json { api.arrays_info(path.start, $0, $1, $2) }
  }

  /// Loads arrays of a safetensors file by their names, all or none.
  public static func load(
    _ path: String, names: [String], on runtime: Runtime
  ) throws(CowMLXError) -> [NDArray] {
    let lowering = Lowering("NDArray.load")
    defer { withExtendedLifetime(lowering) {} }
    var raws = [Int64](repeating: 0, count: names.count)
    let (texts, count) = try lowering.texts("names", names)
    let path = try CText("NDArray.load", "path", path)
    try check(api.arrays_load(path.start, texts, count, &raws))
    return raws.map { NDArray(raw: $0, on: runtime) }
  }

  /// Saves arrays under names as a safetensors file, completely or not at all.
  public static func save(_ arrays: [String: NDArray], to path: String) throws(CowMLXError) {
    let lowering = Lowering("NDArray.save")
    defer { withExtendedLifetime((lowering, arrays)) {} }
    let sorted = arrays.sorted { $0.key < $1.key }
    let (texts, count) = try lowering.texts("names", sorted.map(\.key))
    let path = try CText("NDArray.save", "path", path)
    try check(api.arrays_save(path.start, texts, lowering.handles(sorted.map(\.value)), count))
  }
}

/// Whether a shape has so many elements.
func checkCount(_ operation: String, _ given: Int, _ shape: [Int]) throws(CowMLXError) {
  var wanted: Int? = 1
  for size in shape {
    let (product, overflow) = (wanted ?? 0).multipliedReportingOverflow(by: size)
    wanted = size < 0 || overflow ? nil : product
    if wanted == nil { break }
  }
  if wanted != given {
    throw .refused(
      Int(COW_MLX_EINVAL), operation, "shape_mismatch", argument: "shape",
      "\(given) values are no array of the shape \(shape)")
  }
}

/// How elements lie in memory.
struct Tensor: Sendable {
  var dtype: DType
  var shape: [Int]
  var offset = 0
  var strides: [Int]?

  /// Makes a call with C's struct, which lives as long as the call.
  func withRaw<R>(
    _ operation: String, _ data: UnsafeMutableRawPointer?, bytes: Int,
    _ body: (UnsafePointer<cow_mlx_tensor>) throws(CowMLXError) -> R
  ) throws(CowMLXError) -> R {
    if let strides, strides.count != shape.count {
      throw .refused(
        Int(COW_MLX_EINVAL), operation, "shape_mismatch", argument: "strides",
        "there are \(strides.count) strides, must be \(shape.count), one for each dimension")
    }
    let lowering = Lowering(operation)
    defer { withExtendedLifetime(lowering) {} }
    var raw = cow_mlx_tensor()
    raw.struct_size = MemoryLayout<cow_mlx_tensor>.size
    (raw.data, raw.bytes) = (data, bytes)
    raw.offset = try lowering.size("offset", offset)
    (raw.dtype, raw.rank) = (dtype.rawValue, try lowering.number("shape", shape.count))
    raw.shape = lowering.numbers(shape.map(Int64.init))
    raw.strides = strides.map { lowering.numbers($0.map(Int64.init)) }
    return try body(&raw)
  }
}

private func created(
  _ tensor: Tensor, _ bytes: UnsafeRawBufferPointer
) throws(CowMLXError) -> Int64 {
  let data = UnsafeMutableRawPointer(mutating: bytes.baseAddress)
  return try tensor.withRaw("NDArray.init", data, bytes: bytes.count) { (raw) throws(CowMLXError) in
    var handle: Int64 = 0
    try check(api.array_create(raw, &handle))
    return handle
  }
}
