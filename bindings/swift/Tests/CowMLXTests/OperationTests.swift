import CowMLX
import Foundation
import Testing

/// Makes operands as texts say, such as `"float32[2,3] 0.5..2"`, and gathers results.
protocol Examples {
  associatedtype Maker: OperationMaker
  var maker: Maker { get }
  mutating func operand(_ text: String) throws -> Maker.Made
  mutating func add(_ operation: String, _ results: [Maker.Made])
}

/// Numbers of a text, and how they become an array.
struct Given {
  let dtype: DType
  let shape: [Int]
  let array: NDArray

  init(_ text: String, on runtime: Runtime) throws {
    let words = text.split(separator: " ")
    let parts = words[0].split(whereSeparator: { "[]".contains($0) })
    let named = try #require(DType(name: String(parts[0])))
    let sizes = parts.count > 1 ? parts[1].split(separator: ",").map { Int($0)! } : []
    let bounds = words.last!.split(separator: "..", omittingEmptySubsequences: true)
    let range = bounds.count == 2 ? (Double(bounds[0])!, Double(bounds[1])!) : nil
    let count = sizes.reduce(1, *)
    (dtype, shape) = (named, sizes)
    if [.float32, .complex64].contains(named) {
      let (low, high) = range ?? (-2, 2)
      // Neighbors differ by much: no order is needed where none is asked for.
      let places = words.contains("sorted") ? [Int](0..<count) : Given.mixed(count)
      var values = places.map { Float(low + (Double($0) + 0.5) * (high - low) / Double(count)) }
      if words.contains(where: { ["regular", "definite", "lower"].contains($0) }) {
        values = Given.matrix(sizes.last!, isLower: words.contains("lower"))
      }
      array =
        named == .float32
        ? try NDArray(values, shape: sizes, on: runtime)
        : try NDArray(values.map { Complex64($0, -$0 / 2) }, shape: sizes, on: runtime)
    } else {
      let (low, high) = range ?? (0, 4)
      let values = (0..<count).map { Int(low) + $0 % (Int(high - low) + 1) }
      switch named {
      case .bool: array = try NDArray(values.map { $0 % 2 == 0 }, shape: sizes, on: runtime)
      case .uint8: array = try NDArray(values.map { UInt8($0) }, shape: sizes, on: runtime)
      case .uint32: array = try NDArray(values.map { UInt32($0) }, shape: sizes, on: runtime)
      default: array = try NDArray(values.map { Int32($0) }, shape: sizes, on: runtime)
      }
    }
  }

  private static func mixed(_ count: Int) -> [Int] {
    (0..<count).sorted { ($0 * 7919 % 101, $0) < ($1 * 7919 % 101, $1) }
  }

  /// Symmetric and positive definite, or its lower half.
  private static func matrix(_ size: Int, isLower: Bool) -> [Float] {
    (0..<size * size).map { at in
      let (row, column) = (at / size, at % size)
      if isLower && column > row { return 0 }
      return row == column ? 3 + Float(row) : 0.5
    }
  }
}

struct ArrayExamples: Examples {
  let maker: Runtime
  var results: [(operation: String, results: [NDArray])] = []

  func operand(_ text: String) throws -> NDArray { try Given(text, on: maker).array }

  mutating func add(_ operation: String, _ made: [NDArray]) { results.append((operation, made)) }
}

struct ValueExamples: Examples {
  let maker: ProgramBuilder
  let runtime: Runtime
  var inputs: [NDArray] = []
  var results: [(operation: String, count: Int)] = []

  mutating func operand(_ text: String) throws -> Value {
    let given = try Given(text, on: runtime)
    inputs.append(given.array)
    return maker.input("input\(inputs.count)", given.dtype, Shape(given.shape))
  }

  mutating func add(_ operation: String, _ made: [Value]) {
    for (at, value) in made.enumerated() { maker.output("\(operation).\(at)", value) }
    results.append((operation, made.count))
  }
}

@Suite struct OperationTests {
  /// Names of the table, except those that have a whole program.
  private func names() async throws -> Set<String> {
    let all = try #require(try await Program.operations().array)
    return Set(
      all.filter { $0["program"] == nil || $0["program"] == .null }.map { $0["name"]!.string! })
  }

  @Test func everyOperationIsAMethodOfArrays() async throws {
    let runtime = try await Runtime.start()
    var examples = ArrayExamples(maker: runtime)
    try await applyAllAsync(&examples)
    for (operation, results) in examples.results {
      #expect(!results.isEmpty, "\(operation)")
      for array in results { #expect(try await array.wait(), "\(operation)") }
    }
    let missing = try await names().subtracting(examples.results.map(\.operation))
    #expect(missing.subtracting(["call", "cond", "while", "scan"]).isEmpty)
  }

  @Test func valuesAreWhatArraysAre() async throws {
    let runtime = try await Runtime.start()
    let (program, inputs, operations) = try await onAThread { () throws in
      let builder = ProgramBuilder(on: runtime)
      var examples = ValueExamples(maker: builder, runtime: runtime)
      try applyAll(&examples)
      return (try builder.build(), examples.inputs, examples.results)
    }
    let eager = try await onAThread { () throws in
      var examples = ArrayExamples(maker: runtime)
      try applyAll(&examples)
      return examples.results
    }
    let outputs = try await program.run(inputs)
    #expect(operations.map(\.count).reduce(0, +) == outputs.count)
    var rest = outputs[...]
    for (operation, arrays) in eager {
      for array in arrays {
        let output = rest.removeFirst()
        #expect(try output.dtype == array.dtype, "\(operation)")
        #expect(try output.shape == array.shape, "\(operation)")
        let close = try await output.allclose(array, rtol: 1e-4, atol: 1e-4, equalNan: true)
        let isEqual = try await close.value(of: Bool.self)
        // Eigenvalues come in any order, with vectors of any sign.
        let isFree = ["eig", "eigvals", "eigh", "svd", "qr"].contains(operation)
        #expect(isFree || isEqual, "\(operation)")
      }
    }
    #expect(rest.isEmpty)
  }

  @Test func anOperationSaysWhatItDoesNotTake() async throws {
    let runtime = try await Runtime.start()
    let a = try NDArray([Float](repeating: 1, count: 6), shape: [2, 3], on: runtime)
    let error = await failure { _ = try await a.matmul(a) }
    #expect(error?.reason == .conflict)
    #expect(error?.message.contains("matmul") == true)
    #expect(await failure { _ = try await runtime.apply("sing", [a]) } != nil)
  }
}
