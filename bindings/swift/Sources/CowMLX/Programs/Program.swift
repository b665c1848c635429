import CCowMLX

/// A computation on arrays: checked once, run many times, by any number of tasks at once.
///
/// ```swift
/// let program = try await Program(on: runtime) { builder in
///   let x = builder.input("x", .float32, ["rows", 3])
///   builder.output("norm", (x * x).sum(axis: 1).sqrt())
/// }
/// let norms = try await program.run([array])[0]
/// ```
///
/// Each call that waits is there twice: Swift takes the `async` one in asynchronous code.
public final class Program: Sendable {
  let handle: Handle<Int32>
  /// The runtime that the program belongs to.
  public let runtime: Runtime
  private let canceler: Canceler

  private init(raw: Int32, on runtime: Runtime) {
    self.runtime = runtime
    handle = Handle(raw, parent: runtime) { api.program_free($0) }
    canceler = Canceler { [handle] in _ = api.program_cancel(handle.raw) }
  }

  /// Creates a program from JSON, and reports all its faults.
  public convenience init(json: String, on runtime: Runtime) throws(CowMLXError) {
    self.init(raw: try created(json), on: runtime)
  }

  /// Creates a program from JSON, and reports all its faults.
  public convenience init(json: String, on runtime: Runtime) async throws(CowMLXError) {
    let raw = try await blocking { () throws(CowMLXError) in try created(json) }
    self.init(raw: raw, on: runtime)
  }

  /// Loads the program of a file; `fixed` has values of inputs and sizes of dimensions of an ONNX file.
  public static func load(
    _ path: String, fixed: JSONValue = [:], on runtime: Runtime
  ) throws(CowMLXError) -> Program {
    Program(raw: try loaded(path, fixed), on: runtime)
  }

  /// Loads the program of a file, on another thread.
  public static func load(
    _ path: String, fixed: JSONValue = [:], on runtime: Runtime
  ) async throws(CowMLXError) -> Program {
    let raw = try await blocking { () throws(CowMLXError) in try loaded(path, fixed) }
    return Program(raw: raw, on: runtime)
  }

  /// Creates the program that a closure writes.
  public convenience init(
    on runtime: Runtime, _ write: (ProgramBuilder) -> Void
  ) throws(CowMLXError) {
    let builder = ProgramBuilder(of: runtime)
    write(builder)
    try self.init(json: builder.json(), on: runtime)
  }

  /// Creates the program that a closure writes, on another thread.
  public convenience init(
    on runtime: Runtime, _ write: @escaping @Sendable (ProgramBuilder) -> Void
  ) async throws(CowMLXError) {
    let raw = try await blocking { () throws(CowMLXError) in
      let builder = ProgramBuilder(of: runtime)
      write(builder)
      return try created(try builder.json())
    }
    self.init(raw: raw, on: runtime)
  }

  /// Frees the program now. Its runs continue.
  public func close() async { await handle.close() }

  /// Cancels the running and waiting runs, submitted ones too. Never waits.
  public func cancel() throws(CowMLXError) {
    try checkCancel(api.program_cancel(handle.raw), "Program.cancel", "program")
  }

  /// Describes the program, as a JSON object: inputs, parameters, outputs, nodes and functions with types and shapes.
  ///
  /// - Parameter dimensions: the sizes of dimensions by name; then the description has `"run"`, with bytes and
  ///   multiplications.
  public func info(dimensions: [String: Int]? = nil) throws(CowMLXError) -> JSONValue {
    let sizes = dimensions.map { JSONValue.object($0.mapValues { .int($0) }).description }
    return try json(8192) { api.program_info(handle.raw, sizes, $0, $1, $2) }
  }

  /// Describes the program, as a JSON object: inputs, parameters, outputs, nodes and functions with types and shapes.
  ///
  /// - Parameter dimensions: the sizes of dimensions by name; then the description has `"run"`, with bytes and
  ///   multiplications.
  public func info(dimensions: [String: Int]? = nil) async throws(CowMLXError) -> JSONValue {
    try await blocking { [self] () throws(CowMLXError) in try info(dimensions: dimensions) }
  }

  /// Describes all operations, as a JSON array.
  public static func operations() throws(CowMLXError) -> JSONValue {
    try json(1 << 18) { api.operations_info($0, $1, $2) }
  }

  /// Describes all operations, as a JSON array.
  public static func operations() async throws(CowMLXError) -> JSONValue {
    try await blocking { () throws(CowMLXError) in try operations() }
  }

  /// Runs the program on arrays: its inputs, then its parameters, in their order. Returns its outputs.
  ///
  /// - Parameter donate: indices of inputs to give up: they are closed when the run begins, and it reuses their memory.
  public func run(
    _ inputs: [NDArray], params: RunParams = RunParams(), donate: [Int] = []
  ) throws(CowMLXError) -> [NDArray] {
    try canceler.call().run { () throws(CowMLXError) in
      try run(inputs, params, donate, isSubmitted: false)
    }
  }

  /// Runs the program on arrays: its inputs, then its parameters, in their order. Returns its outputs.
  ///
  /// A cancelled task cancels the run, unless the program has other ones.
  ///
  /// - Parameter donate: indices of inputs to give up: they are closed when the run begins, and it reuses their memory.
  public func run(
    _ inputs: [NDArray], params: RunParams = RunParams(), donate: [Int] = []
  ) async throws -> [NDArray] {
    try await canceler.run { [self] () throws(CowMLXError) in
      try run(inputs, params, donate, isSubmitted: false)
    }
  }

  /// Begins a run and returns its outputs at once: they can be inputs of other runs. `NDArray.wait(milliseconds:)`
  /// throws its error.
  ///
  /// - Parameter donate: indices of inputs to give up: they are closed when the run begins, and it reuses their memory.
  public func submit(
    _ inputs: [NDArray], params: RunParams = RunParams(), donate: [Int] = []
  ) throws(CowMLXError) -> [NDArray] {
    try run(inputs, params, donate, isSubmitted: true)
  }

  /// Begins a run and returns its outputs at once: they can be inputs of other runs. `NDArray.wait(milliseconds:)`
  /// throws its error.
  ///
  /// - Parameter donate: indices of inputs to give up: they are closed when the run begins, and it reuses their memory.
  public func submit(
    _ inputs: [NDArray], params: RunParams = RunParams(), donate: [Int] = []
  ) async throws(CowMLXError) -> [NDArray] {
    try await blocking { [self] () throws(CowMLXError) in
      try run(inputs, params, donate, isSubmitted: true)
    }
  }

  private func run(
    _ inputs: [NDArray], _ params: RunParams, _ donate: [Int], isSubmitted: Bool
  ) throws(CowMLXError) -> [NDArray] {
    defer { withExtendedLifetime(inputs) {} }
    let count = try outputCount()
    let given = inputs.map { cow_mlx_value(array: $0.handle.raw, host: nil) }
    if let closed = given.firstIndex(where: { $0.array == 0 }) {
      throw .refused(
        Int(COW_MLX_EHANDLE), "Program.run", "unknown_handle", argument: "inputs",
        "input \(closed) is a closed array")
    }
    let lowering = Lowering("Program.run")
    var places: [Int32] = []
    for place in donate { places.append(try lowering.number("donate", place)) }
    var outputs = [cow_mlx_value](repeating: cow_mlx_value(), count: count)
    defer { forget(donate.compactMap { inputs.indices.contains($0) ? inputs[$0] : nil }) }
    try params.withRaw { (raw) throws(CowMLXError) in
      raw.submit = isSubmitted
      (raw.donate, raw.donate_count) = (lowering.numbers(places), places.count)
      defer { withExtendedLifetime(lowering) {} }
      try check(api.program_run(handle.raw, given, given.count, &outputs, count, &raw))
    }
    return outputs.map { NDArray(raw: $0.array, on: runtime) }
  }

  private func outputCount() throws(CowMLXError) -> Int {
    try known.withLock { (known) throws(CowMLXError) in
      if let known { return known }
      let count = try info()["outputs"]?.array?.count ?? 0
      known = count
      return count
    }
  }

  private let known = Locked<Int?>(nil)

  /// Gives up handles that a run has freed.
  private func forget(_ arrays: [NDArray]) {
    for array in arrays {
      let status = api.array_type(array.handle.raw, nil, nil, 0, nil)
      if status == COW_MLX_EHANDLE { _ = array.handle.take() }
    }
  }

  /// Makes a call that waits.
  func call<R: Sendable>(
    _ body: @escaping @Sendable (Int32) throws(CowMLXError) -> R
  ) async throws(CowMLXError) -> R {
    try await blocking { [self] () throws(CowMLXError) in try body(handle.raw) }
  }

  // MARK: - Derived programs

  /// The gradient of an output with respect to inputs. Its outputs are the output's value, if `value` is true, and a
  /// gradient for each input.
  public func gradient(
    of output: String, withRespectTo inputs: [String], value: Bool = false
  ) throws(CowMLXError) -> Program {
    try derive(gradientSpec(output, inputs, value))
  }

  /// The gradient of an output with respect to inputs. Its outputs are the output's value, if `value` is true, and a
  /// gradient for each input.
  public func gradient(
    of output: String, withRespectTo inputs: [String], value: Bool = false
  ) async throws(CowMLXError) -> Program {
    try await derive(gradientSpec(output, inputs, value))
  }

  /// The program for many rows at a time: the inputs have their rows along these axes, outputs along the first.
  ///
  /// - Parameter dimension: the name of the number of rows.
  public func vectorize(
    _ axes: [String: Int], dimension: String
  ) throws(CowMLXError) -> Program {
    try derive(vectorSpec(axes, dimension))
  }

  /// The program for many rows at a time: the inputs have their rows along these axes, outputs along the first.
  ///
  /// - Parameter dimension: the name of the number of rows.
  public func vectorize(
    _ axes: [String: Int], dimension: String
  ) async throws(CowMLXError) -> Program {
    try await derive(vectorSpec(axes, dimension))
  }

  /// The program with inputs bound to arrays, which may be closed afterwards.
  public func bind(_ arrays: [String: NDArray]) throws(CowMLXError) -> Program {
    defer { withExtendedLifetime(arrays) {} }
    let handles = arrays.mapValues { JSONValue.int(Int($0.handle.raw)) }
    return try derive(["bind": .object(handles)])
  }

  /// The program with inputs bound to arrays, which may be closed afterwards.
  public func bind(_ arrays: [String: NDArray]) async throws(CowMLXError) -> Program {
    try await blocking { [self] () throws(CowMLXError) in try bind(arrays) }
  }

  /// The program that a JSON object describes, as the manual says of `cow_mlx_program_derive()`.
  public func derive(_ spec: JSONValue) throws(CowMLXError) -> Program {
    var raw: Int32 = 0
    let text = spec.description
    try check(api.program_derive(handle.raw, text, text.utf8.count, &raw))
    return Program(raw: raw, on: runtime)
  }

  /// The program that a JSON object describes, as the manual says of `cow_mlx_program_derive()`.
  public func derive(_ spec: JSONValue) async throws(CowMLXError) -> Program {
    try await blocking { [self] () throws(CowMLXError) in try derive(spec) }
  }
}

private func created(_ json: String) throws(CowMLXError) -> Int32 {
  var raw: Int32 = 0
  try check(api.program_create(json, json.utf8.count, nil, &raw))
  return raw
}

private func loaded(_ path: String, _ fixed: JSONValue) throws(CowMLXError) -> Int32 {
  var raw: Int32 = 0
  let path = try CText("Program.load", "path", path)
  try ProgramParams(fixed: fixed.description).withRaw { (params) throws(CowMLXError) in
    try check(api.program_load(path.start, &params, &raw))
  }
  return raw
}

private func gradientSpec(_ output: String, _ inputs: [String], _ value: Bool) -> JSONValue {
  let names = JSONValue.array(inputs.map { .string($0) })
  return ["gradient": ["of": .string(output), "with_respect_to": names, "value": .bool(value)]]
}

private func vectorSpec(_ axes: [String: Int], _ dimension: String) -> JSONValue {
  ["vectorize": .object(axes.mapValues { .int($0) }), "dimension": .string(dimension)]
}
