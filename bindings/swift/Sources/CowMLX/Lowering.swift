import CCowMLX
import Foundation

/// C's form of the options of one call: texts and numbers that live as long as this.
final class Lowering {
  private let owner: String
  private var kept: [UnsafeMutableRawPointer] = []

  /// - Parameter owner: the struct of options, for messages.
  init(_ owner: String) { self.owner = owner }

  deinit { for memory in kept { memory.deallocate() } }

  private func refuse(_ name: String, _ message: String) -> CowMLXError {
    .refused(Int(COW_MLX_EINVAL), owner, "out_of_range", argument: name, "\(name) \(message)")
  }

  private func allocated<T>(_ values: [T]) -> UnsafeMutablePointer<T> {
    let memory = UnsafeMutablePointer<T>.allocate(capacity: max(values.count, 1))
    memory.initialize(from: values, count: values.count)
    kept.append(UnsafeMutableRawPointer(memory))
    return memory
  }

  /// A text that ends at a NUL; nil is NULL.
  func text(_ name: String, _ value: String?) throws(CowMLXError) -> UnsafePointer<CChar>? {
    guard let value else { return nil }
    if value.utf8.contains(0) { throw refuse(name, "has a NUL byte, must have none") }
    return UnsafePointer(allocated(value.utf8CString.map { $0 }))
  }

  /// Texts and their count; nil is NULL, which no texts are not.
  func texts(
    _ name: String, _ values: [String]?
  ) throws(CowMLXError) -> (UnsafePointer<UnsafePointer<CChar>?>?, Int) {
    guard let values else { return (nil, 0) }
    var pointers: [UnsafePointer<CChar>?] = []
    for (index, value) in values.enumerated() {
      pointers.append(try text("\(name)[\(index)]", value))
    }
    return (UnsafePointer(allocated(pointers)), values.count)
  }

  /// A copy of numbers.
  func numbers<T: BitwiseCopyable>(_ values: [T]) -> UnsafePointer<T> {
    UnsafePointer(allocated(values))
  }

  /// A number in the type that C has.
  func number<T: FixedWidthInteger>(_ name: String, _ value: Int) throws(CowMLXError) -> T {
    guard let number = T(exactly: value) else {
      throw refuse(name, "is \(value), must be from \(T.min) to \(T.max)")
    }
    return number
  }

  /// A size; `Int.max` is C's largest.
  func size(_ name: String, _ value: Int) throws(CowMLXError) -> Int {
    if value < 0 { throw refuse(name, "is \(value), must be at least 0") }
    return value == .max ? Int(bitPattern: UInt.max) : value
  }

  /// The handles of arrays.
  func handles(_ arrays: [NDArray]) -> UnsafePointer<Int64>? {
    arrays.isEmpty ? nil : numbers(arrays.map(\.handle.raw))
  }
}

extension GenerationParams {
  func lowerOwn(
    _ raw: inout cow_mlx_generation_params, _ lowering: Lowering
  ) throws(CowMLXError) {
    let sorted = bias.sorted { $0.key < $1.key }
    if !sorted.isEmpty {
      raw.bias_tokens = lowering.numbers(sorted.map(\.key))
      raw.bias_values = lowering.numbers(sorted.map(\.value))
      raw.bias_count = sorted.count
    }
    if let draft { raw.draft = draft.handle.raw }
    switch grammar {
    case .jsonSchema(let source):
      (raw.grammar, raw.grammar_kind) = (
        try lowering.text("grammar", source), Int32(COW_MLX_GRAMMAR_JSON_SCHEMA)
      )
    case .regex(let source):
      (raw.grammar, raw.grammar_kind) = (
        try lowering.text("grammar", source), Int32(COW_MLX_GRAMMAR_REGEX)
      )
    case .lark(let source):
      (raw.grammar, raw.grammar_kind) = (
        try lowering.text("grammar", source), Int32(COW_MLX_GRAMMAR_LARK)
      )
    case .gbnf(let source):
      (raw.grammar, raw.grammar_kind) = (
        try lowering.text("grammar", source), Int32(COW_MLX_GRAMMAR_GBNF)
      )
    case nil: break
    }
  }
}

extension TrainingParams {
  func lowerOwn(_ raw: inout cow_mlx_training_params, _ lowering: Lowering) throws(CowMLXError) {
    let sorted = initial.sorted { $0.key < $1.key }
    let names = try lowering.texts("initial", sorted.map(\.key))
    (raw.initial_names, raw.initial_count) = names
    raw.initial_arrays = lowering.handles(sorted.map(\.value))
  }
}

extension FitParams {
  func lowerOwn(_ raw: inout cow_mlx_fit_params, _ lowering: Lowering) throws(CowMLXError) {
    (raw.inputs, raw.inputs_count) = (lowering.handles(inputs), inputs.count)
    (raw.validation, raw.validation_count) = (lowering.handles(validation), validation.count)
  }
}
