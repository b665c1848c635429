import CCowMLX

/// A handle of the library. It is freed with the last reference, or earlier by `close`.
///
/// `Raw` is `Int32`, or `Int64` for arrays. A handle that is closed is 0, which every call refuses.
final class Handle<Raw: FixedWidthInteger & Sendable>: Sendable {
  private let current: Locked<Raw>
  private let parent: (any Sendable)?
  private let free: @Sendable (Raw) -> cow_mlx_status

  /// - Parameters:
  ///   - parent: an object that must live longer, such as a context's model.
  ///   - free: the call that frees a handle.
  init(
    _ raw: Raw, parent: (any Sendable)?, free: @escaping @Sendable (Raw) -> cow_mlx_status
  ) {
    (current, self.parent, self.free) = (Locked(raw), parent, free)
  }

  var raw: Raw { current.withLock { $0 } }

  /// The raw handle, which is no longer freed here.
  func take() -> Raw {
    current.withLock { raw in
      defer { raw = 0 }
      return raw
    }
  }

  /// Frees the handle; a second time does nothing.
  func close() async {
    let raw = take()
    guard raw != 0 else { return }
    // A handle that a stop of the runtime has freed is no fault of the host.
    try? await blocking(on: .frees) { [free] in _ = free(raw) }
  }

  deinit {
    let raw = take()
    guard raw != 0 else { return }
    Workers.frees.run { [free, parent] in
      withExtendedLifetime(parent) { _ = free(raw) }
    }
  }
}
