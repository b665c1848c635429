/// What operations take and give: an ``NDArray``, computed when it is needed, or a ``Value`` of a program.
///
/// Each operation of the library is a method; those that take no array, or any number of them, are methods of the
/// ``OperationMaker``.
public protocol Operand {
  /// The error of an operation: none for values of programs, whose builder remembers the first one.
  associatedtype Failure: Error
  /// What makes operands.
  associatedtype Maker: OperationMaker where Maker.Made == Self

  /// What made it.
  var maker: Maker { get }

  /// A number of shape () beside this.
  func constant(_ number: some ArrayNumber) throws(Failure) -> Self
}

/// What makes operands: a ``Runtime`` makes arrays, a ``ProgramBuilder`` values of its program.
public protocol OperationMaker {
  /// Its operands.
  associatedtype Made: Operand where Made.Maker == Self

  /// Applies an operation by its name. `attributes` is a JSON object, nil an input that is left out.
  func apply(
    _ operation: String, _ inputs: [Made?], attributes: String, results: Int
  ) throws(Made.Failure) -> [Made]
}

extension OperationMaker {
  func made(
    _ operation: String, _ inputs: [Made?], _ attributes: Attributes
  ) throws(Made.Failure) -> Made {
    try apply(operation, inputs, attributes: attributes.json, results: 1)[0]
  }

  func made(
    _ operation: String, _ inputs: [Made?], _ attributes: Attributes, results: Int
  ) throws(Made.Failure) -> [Made] {
    try apply(operation, inputs, attributes: attributes.json, results: results)
  }
}
