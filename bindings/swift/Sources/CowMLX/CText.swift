import CCowMLX

/// A text in C's form: UTF-8 that ends with NUL.
final class CText: Sendable {
  private nonisolated(unsafe) let bytes: UnsafeMutableBufferPointer<CChar>

  /// - Throws: `CowMLXError.invalidArgument` if the text contains NUL, which would end it.
  init(_ operation: String, _ argument: String, _ text: String) throws(CowMLXError) {
    let utf8 = text.utf8
    guard !utf8.contains(0) else {
      throw .refused(
        COW_MLX_EINVAL, operation, "out_of_range", argument: argument,
        "\(argument) contains a NUL character, must be a text without one")
    }
    bytes = .allocate(capacity: utf8.count + 1)
    _ = bytes.initialize(from: utf8.lazy.map { CChar(bitPattern: $0) })
    bytes[utf8.count] = 0
  }

  var start: UnsafePointer<CChar> { UnsafePointer(bytes.baseAddress!) }
  var count: Int { bytes.count - 1 }

  deinit { bytes.deallocate() }
}
