import CCowMLX

/// Writes a program: its inputs, then operations on them, and at last its outputs.
///
/// The operations of the library are methods and operators of ``Value``, and of the builder those that take no value or
/// any number of them. Bodies of control flow are closures, which may use any value around them. The first thing that
/// is wrong is the error of ``build()``. The library says what is wrong with an operation then, or where it is asked for
/// a type: for a number beside a value, and for what bodies take.
///
/// In asynchronous code let `Program.init(on:_:)` make the builder, and write the program in its closure.
public final class ProgramBuilder: OperationMaker {
  public typealias Made = Value

  let runtime: Runtime
  private var graph = Graph()
  private var error: CowMLXError?

  /// A builder whose programs belong to a runtime.
  @available(*, noasync, message: "use Program(on:) { builder in … }")
  public convenience init(on runtime: Runtime) { self.init(of: runtime) }

  init(of runtime: Runtime) { self.runtime = runtime }

  /// Declares an input.
  public func input(_ name: String, _ dtype: DType, _ shape: Shape) -> Value {
    made { (graph) throws(Refused) in
      try graph.declare(name, ValueType(dtype, shape), isParameter: false)
    }
  }

  /// Declares a parameter: an input after all inputs, which a training may change.
  ///
  /// - Parameter initial: how it begins, such as `"glorot_uniform"`; nil if it gets an array.
  public func parameter(
    _ name: String, _ dtype: DType, _ shape: Shape, initial: JSONValue? = nil
  ) -> Value {
    made { (graph) throws(Refused) in
      try graph.declare(
        name, ValueType(dtype, shape), isParameter: true, initial: initial?.description)
    }
  }

  /// A number as a constant of shape ().
  public func constant<T: ArrayElement>(_ value: T) -> Value {
    constant(ValueType(T.dtype), value.json)
  }

  /// Elements in row-major order as a constant: exactly as many as the shape has. Large arrays are inputs rather than
  /// constants.
  public func constant<T: ArrayElement>(_ values: [T], shape: [Int]? = nil) -> Value {
    let shape = shape ?? [values.count]
    do throws(CowMLXError) {
      try checkCount("ProgramBuilder.constant", values.count, shape)
    } catch {
      return failed(error)
    }
    // Lists of JSON cannot say a shape without elements.
    if values.isEmpty { return zeros(Shape(shape), dtype: T.dtype) }
    return constant(ValueType(T.dtype, Shape(shape)), nested(values[...], shape[...]))
  }

  func constant(_ type: ValueType, _ json: String) -> Value {
    Value(maker: self, id: graph.constant(type, json))
  }

  /// Makes a value the program's next output.
  public func output(_ name: String, _ value: Value) {
    let id = own(value)
    know([id])
    record { (graph) throws(Refused) in try graph.output(name, id) }
  }

  /// The program as JSON.
  ///
  /// - Throws: the first thing that was wrong, or that the program has no output.
  public func json() throws(CowMLXError) -> String {
    if let error { throw error }
    do throws(Refused) { return try graph.json() } catch { throw conflict(error) }
  }

  /// Makes the program.
  ///
  /// - Throws: the first thing that was wrong; else what the library finds.
  @available(*, noasync, message: "use Program(on:) { builder in … }")
  public func build() throws(CowMLXError) -> Program { try Program(json: json(), on: runtime) }

  // MARK: - Control flow

  /// A function of a program, which may be called any number of times.
  public struct Function {
    let builder: ProgramBuilder
    let name: String
    let captured: [Int]
    let results: Int
  }

  /// Writes a function of values of the types that these have.
  public func function(like inputs: [Value], _ body: ([Value]) -> [Value]) -> Function {
    let written = self.body(typesOrAny(inputs), body)
    let captured = graph.captured(by: [written])
    let name = graph.function(written, captured)
    return Function(builder: self, name: name, captured: captured, results: written.outputs.count)
  }

  /// The results of a function.
  public func call(_ function: Function, _ inputs: [Value]) -> [Value] {
    guard function.builder === self else {
      let value = failed(conflict(Refused("a function is of another program")))
      return [Value](repeating: value, count: function.results)
    }
    let attributes: Attributes = ["function": function.name]
    return control("call", inputs, function.captured, attributes, function.results)
  }

  /// The results of `then` where a bool of shape () is true, or else of `otherwise`, of the same types.
  public func cond(
    _ predicate: Value, then: () -> [Value], otherwise: () -> [Value]
  ) -> [Value] {
    let one = body([]) { _ in then() }
    let other = body([]) { _ in otherwise() }
    let captured = graph.captured(by: [one, other])
    let attributes: Attributes = [
      "then": graph.function(one, captured), "else": graph.function(other, captured),
    ]
    return control("cond", [predicate], captured, attributes, one.outputs.count)
  }

  /// The state for which `condition`, a bool of shape (), is false; `body` gives the next. A run that takes more rounds
  /// than `maxIterations` fails.
  public func whileLoop(
    _ state: [Value], maxIterations: Int, while condition: ([Value]) -> Value,
    _ body: ([Value]) -> [Value]
  ) -> [Value] {
    let types = typesOrAny(state)
    let test = self.body(types) { [condition($0)] }
    let next = self.body(types, body)
    let captured = graph.captured(by: [test, next])
    let attributes: Attributes = [
      "condition": graph.function(test, captured),
      "body": graph.function(next, captured, isState: true), "max_iterations": maxIterations,
    ]
    let count = state.count + captured.count
    return [Value](control("while", state, captured, attributes, count).prefix(state.count))
  }

  /// Goes through the first axis of sequences: `body(carries, elements)` gives the next carries, then what is stacked.
  /// Returns the last carries and the stacks.
  public func scan(
    _ carries: [Value], _ sequences: [Value], reverse: Bool = false,
    _ body: ([Value], [Value]) -> [Value]
  ) -> [Value] {
    let elements = typesOrAny(sequences).map { type in
      // No dimension has a comma.
      let comma = type.shape.firstIndex(of: ",").map { type.shape.index(after: $0) }
      return ValueType(dtype: type.dtype, shape: "[" + (comma.map { type.shape[$0...] } ?? "]"))
    }
    let step = self.body(typesOrAny(carries) + elements) { inputs in
      body([Value](inputs.prefix(carries.count)), [Value](inputs.dropFirst(carries.count)))
    }
    let captured = graph.captured(by: [step])
    let attributes: Attributes = [
      "body": graph.function(step, captured), "carries": carries.count,
      "sequences": sequences.count, "reverse": reverse,
    ]
    return control("scan", carries + sequences, captured, attributes, step.outputs.count)
  }

  private func control(
    _ operation: String, _ inputs: [Value], _ captured: [Int], _ attributes: Attributes,
    _ results: Int
  ) -> [Value] {
    node(operation, inputs.map(own) + captured, attributes.json, results)
  }

  /// Writes a body, whatever goes wrong in it.
  private func body(_ types: [ValueType], _ write: ([Value]) -> [Value]) -> Graph.Body {
    var body = graph.enter(types)
    let results = write(body.inputs.map { Value(maker: self, id: $0) }).map(own)
    know(results)
    record { (graph) throws(Refused) in try graph.results(of: &body, results) }
    graph.leave(body.scope)
    return body
  }

  // MARK: - Nodes

  /// Adds an operation by its name; `attributes` is a JSON object. Returns its results.
  public func apply(
    _ operation: String, _ inputs: [Value?], attributes: String = "{}", results: Int = 1
  ) -> [Value] {
    node(operation, inputs.map { $0.map(own) }, attributes, results)
  }

  private func node(
    _ operation: String, _ inputs: [Int?], _ attributes: String, _ results: Int
  ) -> [Value] {
    know(inputs.compactMap { $0 })
    do throws(Refused) {
      let ids = try graph.node(operation, inputs, attributes, results: results)
      return ids.map { Value(maker: self, id: $0) }
    } catch {
      let count = min(max(results, 0), Graph.maxResults)
      return [Value](repeating: failed(conflict(error)), count: count)
    }
  }

  /// A value's id; that of another one if the value is of another builder.
  private func own(_ value: Value) -> Int {
    if value.maker === self { return value.id }
    return failed(conflict(Refused("a value is of another program"))).id
  }

  private func made(_ make: (inout Graph) throws(Refused) -> Int) -> Value {
    do throws(Refused) {
      return Value(maker: self, id: try make(&graph))
    } catch {
      return failed(conflict(error))
    }
  }

  private func record(_ change: (inout Graph) throws(Refused) -> Void) {
    do throws(Refused) { try change(&graph) } catch { _ = failed(conflict(error)) }
  }

  private func conflict(_ refused: Refused) -> CowMLXError {
    .refused(Int(COW_MLX_EINVAL), "ProgramBuilder", "conflict", refused.sentence)
  }

  /// Remembers the first error; what stands for the value that there is not.
  func failed(_ error: CowMLXError) -> Value {
    self.error = self.error ?? error
    return constant(ValueType(.float32), "0")
  }

  // MARK: - Types

  /// The types of values; what is not known yet, the library infers.
  func types(_ ids: [Int]) throws(CowMLXError) -> [ValueType] {
    try askForCaptures(ids)
    var here: [Int] = []
    do throws(Refused) {
      for id in ids { here.append(try graph.here(id)) }
    } catch {
      throw conflict(error)
    }
    try ask(graph.scope, here)
    return here.map { graph.type(of: $0) ?? ValueType(.float32) }
  }

  private func typesOrAny(_ values: [Value]) -> [ValueType] {
    do throws(CowMLXError) {
      return try types(values.map(own))
    } catch {
      _ = failed(error)
      return [ValueType](repeating: ValueType(.float32), count: values.count)
    }
  }

  /// Finds out the types of values of scopes around this one, which become inputs of it.
  private func know(_ ids: [Int]) {
    do throws(CowMLXError) { try askForCaptures(ids) } catch { _ = failed(error) }
  }

  private func askForCaptures(_ ids: [Int]) throws(CowMLXError) {
    for id in ids {
      if let unknown = graph.unknownCapture(id) { try ask(unknown.scope, [unknown.id]) }
    }
  }

  private func ask(_ scope: Int, _ ids: [Int]) throws(CowMLXError) {
    guard let question = graph.question(scope, ids) else { return }
    let outputs = try Program(json: question.program, on: runtime).info()["outputs"]?.array ?? []
    graph.answer(
      question,
      outputs.map { output in
        ValueType(
          dtype: output["dtype"]?.string ?? "", shape: output["shape"]?.description ?? "[]")
      })
  }
}

@available(*, unavailable)
extension ProgramBuilder: Sendable {}

/// Lists within lists, of as many values as the shape has.
private func nested<T: ArrayElement>(_ values: ArraySlice<T>, _ shape: ArraySlice<Int>) -> String {
  guard let side = shape.first else { return values.first!.json }
  let size = values.count / max(side, 1)
  let parts = (0..<side).map { at in
    nested(values.dropFirst(at * size).prefix(size), shape.dropFirst())
  }
  return "[" + parts.joined(separator: ", ") + "]"
}
