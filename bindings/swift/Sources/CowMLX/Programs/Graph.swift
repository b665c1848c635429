/// What is known of a value: a type's name, and a shape as JSON.
struct ValueType: Hashable {
  var dtype: String
  var shape: String

  init(_ dtype: DType, _ shape: Shape = []) {
    (self.dtype, self.shape) = (dtype.name, shape.attribute)
  }

  init(dtype: String, shape: String) { (self.dtype, self.shape) = (dtype, shape) }
}

/// What is wrong with a program: a sentence.
struct Refused: Error {
  let sentence: String

  init(_ sentence: String) { self.sentence = sentence }
}

/// What a builder has gathered: graphs within graphs. Ids are indices of `values`.
struct Graph {
  /// Nodes and results that the library takes.
  static let maxResults = 50_000

  private struct Value {
    var scope: Int
    /// Empty: the builder makes one.
    var name: String
    /// nil: not known yet.
    var type: ValueType?
    /// The node of its scope that makes it.
    var node: Int?
  }

  private struct Node {
    var operation: String
    var inputs: [Int?]
    var attributes: String
    var outputs: [Int]
  }

  /// Scope 0 is the program, each other one the body of a function.
  private struct Scope {
    var parent = 0
    var declared: [Int] = []
    var constants: [(id: Int, value: String)] = []
    /// Constants that are numbers, by type and JSON.
    var numbers: [[String]: Int] = [:]
    var nodes: [Node] = []
    /// Values of the parent, and as inputs here.
    var captures: [(outer: Int, inner: Int)] = []
  }

  /// A function's body, written.
  struct Body {
    var scope: Int
    var inputs: [Int]
    var outputs: [Int] = []
  }

  private var values: [Value] = []
  private var scopes = [Scope()]
  private(set) var scope = 0
  private var inputs: [String] = []
  private var parameters: [String] = []
  private var functions: [String] = []
  private var outputs: [Int] = []

  /// An input, or a parameter with how it begins.
  mutating func declare(
    _ name: String, _ type: ValueType, isParameter: Bool, initial: String? = nil
  ) throws(Refused) -> Int {
    try requireName(name, isParameter ? "a parameter" : "an input")
    let id = add(0, name, type)
    var entry = declaration(id)
    if let initial { entry = entry.dropLast() + ", \"init\": \(initial)}" }
    if isParameter { parameters.append(entry) } else { inputs.append(entry) }
    scopes[0].declared.append(id)
    return id
  }

  mutating func constant(_ type: ValueType, _ value: String) -> Int {
    let key = [type.dtype, value]
    if type.shape == "[]", let known = scopes[scope].numbers[key] { return known }
    let id = add(scope, "", type)
    scopes[scope].constants.append((id, value))
    if type.shape == "[]" { scopes[scope].numbers[key] = id }
    return id
  }

  /// Adds a node; an input of nil is left out.
  mutating func node(
    _ operation: String, _ inputs: [Int?], _ attributes: String, results: Int
  ) throws(Refused) -> [Int] {
    if results > Self.maxResults {
      throw Refused("\(operation) has \(results) results, must have at most \(Self.maxResults)")
    }
    var here: [Int?] = []
    for id in inputs { here.append(try id.map { (id) throws(Refused) in try self.here(id) }) }
    let at = scopes[scope].nodes.count
    let outputs = (0..<max(results, 0)).map { _ in add(scope, "", nil) }
    for id in outputs { values[id].node = at }
    scopes[scope].nodes.append(
      Node(operation: operation, inputs: here, attributes: attributes, outputs: outputs))
    return outputs
  }

  /// The same value under a name that no other has.
  private mutating func copy(_ id: Int) throws(Refused) -> Int {
    try node("contiguous", [id], "{}", results: 1)[0]
  }

  /// Gives a result of the program its name.
  mutating func output(_ name: String, _ value: Int) throws(Refused) {
    try requireName(name, "an output")
    var value = try here(value)
    if !values[value].name.isEmpty || isConstant(value) { value = try copy(value) }
    values[value].name = name
    outputs.append(value)
  }

  func type(of id: Int) -> ValueType? { values[id].type }

  // MARK: - Bodies

  /// Begins a body whose inputs have these types.
  mutating func enter(_ types: [ValueType]) -> Body {
    scopes.append(Scope(parent: scope))
    scope = scopes.count - 1
    let inputs = types.map { add(scope, "", $0) }
    scopes[scope].declared = inputs
    return Body(scope: scope, inputs: inputs)
  }

  /// Ends a body with its results, each under a separate name.
  mutating func results(of body: inout Body, _ results: [Int]) throws(Refused) {
    for id in results {
      let id = try here(id)
      let isTaken = body.outputs.contains(id) || isConstant(id)
      body.outputs.append(isTaken ? try copy(id) : id)
    }
  }

  /// Continues in the scope around a body.
  mutating func leave(_ scope: Int) { self.scope = scopes[scope].parent }

  /// What bodies use of the scope around them, each once, in order.
  func captured(by bodies: [Body]) -> [Int] {
    var found: [Int] = []
    for each in bodies.flatMap({ scopes[$0.scope].captures }) where !found.contains(each.outer) {
      found.append(each.outer)
    }
    return found
  }

  /// A function of a body's inputs, then of what is captured, which a state passes on.
  mutating func function(_ body: Body, _ captured: [Int], isState: Bool = false) -> String {
    var (inputs, outputs) = (body.inputs, body.outputs)
    for outer in captured {
      let inner = capture(outer, in: body.scope)
      inputs.append(inner)
      if isState && outputs.contains(inner) {
        let copy = add(body.scope, "", nil)
        scopes[body.scope].nodes.append(
          Node(operation: "contiguous", inputs: [inner], attributes: "{}", outputs: [copy]))
        outputs.append(copy)
      } else if isState {
        outputs.append(inner)
      }
    }
    let name = "%f\(functions.count)"
    let declared = list(inputs.map(declaration))
    functions.append(
      "{\"name\": \"\(name)\", \"inputs\": \(declared), \(inside(body.scope, outputs))}")
    return name
  }

  // MARK: - JSON

  func json() throws(Refused) -> String {
    if outputs.isEmpty { throw Refused("the program has no output") }
    return "{\"inputs\": \(list(inputs)), \"parameters\": \(list(parameters)), "
      + "\"functions\": \(list(functions)), \(inside(0, outputs))}"
  }

  private func list(_ entries: [String]) -> String { "[" + entries.joined(separator: ", ") + "]" }

  /// Names that begin with % are those of values that have none.
  private func requireName(_ name: String, _ kind: String) throws(Refused) {
    if scope != 0 { throw Refused("\(kind) is declared in a body, must be outside of all") }
    if name.isEmpty || name.hasPrefix("%") {
      throw Refused(
        "the name of \(kind) is \(jsonText(name)), must be one that does not begin with %")
    }
  }

  private mutating func add(_ scope: Int, _ name: String, _ type: ValueType?) -> Int {
    values.append(Value(scope: scope, name: name, type: type))
    return values.count - 1
  }

  private func isConstant(_ id: Int) -> Bool {
    scopes[values[id].scope].constants.contains { $0.id == id }
  }

  /// The value as this scope has it.
  mutating func here(_ id: Int) throws(Refused) -> Int { try within(scope, id) }

  private mutating func within(_ scope: Int, _ id: Int) throws(Refused) -> Int {
    if values[id].scope == scope { return id }
    if scope == 0 { throw Refused("a value of a body is used outside of it") }
    return capture(try within(scopes[scope].parent, id), in: scope)
  }

  /// The input that a value of the scope around a body is in it.
  private mutating func capture(_ outer: Int, in scope: Int) -> Int {
    if let known = scopes[scope].captures.first(where: { $0.outer == outer }) { return known.inner }
    let inner = add(scope, "", values[outer].type)
    scopes[scope].captures.append((outer, inner))
    scopes[scope].declared.append(inner)
    return inner
  }

  private func name(_ id: Int) -> String {
    values[id].name.isEmpty ? "\"%\(id)\"" : jsonText(values[id].name)
  }

  private func declaration(_ id: Int) -> String {
    guard let type = values[id].type else { return "{\"name\": \(name(id))}" }
    return "{\"name\": \(name(id)), \"dtype\": \"\(type.dtype)\", \"shape\": \(type.shape)}"
  }

  /// What a program or a function has besides what is declared.
  private func inside(_ scope: Int, _ outputs: [Int]) -> String {
    let constants = scopes[scope].constants.map { id, value in
      "{\"name\": \(name(id)), \"dtype\": \"\(values[id].type!.dtype)\", \"value\": \(value)}"
    }
    return "\"constants\": \(list(constants)), \(computed(scopes[scope].nodes, outputs))"
  }

  private func computed(_ nodes: [Node], _ outputs: [Int]) -> String {
    let nodes = nodes.map { node in
      let inputs = list(node.inputs.map { $0.map(name) ?? "null" })
      return "{\"outputs\": \(list(node.outputs.map(name))), \"op\": \(jsonText(node.operation)), "
        + "\"inputs\": \(inputs), \"attributes\": \(node.attributes)}"
    }
    return "\"nodes\": \(list(nodes)), \"outputs\": \(list(outputs.map(name)))"
  }

  // MARK: - Types, which the library infers

  /// A program whose types answer a question, and the values that are its outputs.
  struct Question {
    let program: String
    let results: [Int]
  }

  /// The program that infers types of values of a scope which are not known yet: of the nodes that
  /// make them.
  func question(_ scope: Int, _ ids: [Int]) -> Question? {
    if ids.allSatisfy({ values[$0].type != nil }) { return nil }
    let nodes = scopes[scope].nodes
    var given = scopes[0].declared  // their dimensions have values
    var (seen, needed, waiting) = (Set(given), Set<Int>(), ids)
    while let id = waiting.popLast() {
      guard seen.insert(id).inserted else { continue }
      if let node = values[id].node, values[id].type == nil {
        if needed.insert(node).inserted { waiting += nodes[node].inputs.compactMap { $0 } }
      } else {
        given.append(id)
      }
    }
    let makers = needed.sorted().map { nodes[$0] }
    // All are remembered, if they are not too many.
    let isFew = makers.count <= 1000
    let asked = makers.filter { isFew || !Set($0.outputs).isDisjoint(with: ids) }
    let results = asked.flatMap(\.outputs)
    let program =
      "{\"inputs\": \(list(given.map(declaration))), \"functions\": \(list(functions)), "
      + "\(computed(makers, results))}"
    return Question(program: program, results: results)
  }

  /// The question of what a body would capture in its parent, for a value of an outer scope: the
  /// scope that has to answer first, and the value there.
  func unknownCapture(_ id: Int) -> (scope: Int, id: Int)? {
    var scope = scope
    while values[id].scope != scope && scope != 0 { scope = scopes[scope].parent }
    let isUnknown = values[id].scope == scope && values[id].type == nil
    return isUnknown && scope != self.scope ? (scope, id) : nil
  }

  /// Remembers what the library says in "outputs" of a program's info.
  mutating func answer(_ question: Question, _ types: [ValueType]) {
    for (id, type) in zip(question.results, types) { values[id].type = type }
  }
}
