import CCowMLX
import Foundation

/// A descriptor of the library that a task waits for, without a separate thread.
///
/// It is a copy of the library's descriptor, which the library closes.
final class Wake: Sendable {
  let descriptor: Int32
  private let raised = Locked(false)

  /// - Throws: `CowMLXError.io` if the process has too many open files.
  init(copying descriptor: Int32) throws(CowMLXError) {
    let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
    guard copy >= 0 else { throw .noDescriptors() }
    self.descriptor = copy
    do {
      try Reader.shared.start()
    } catch {
      close(copy)
      throw error
    }
  }

  /// Returns when the descriptor is readable or closed by the library, or after `raise`.
  func wait() async {
    if raised.withLock({ $0 }) { return }
    await Reader.shared.wait(for: self)
  }

  /// Wakes the waiting task, and all later ones.
  func raise() {
    raised.withLock { $0 = true }
    Reader.shared.wake(self)
  }

  fileprivate var isRaised: Bool { raised.withLock { $0 } }

  deinit { close(descriptor) }
}

extension CowMLXError {
  fileprivate static func noDescriptors() -> CowMLXError {
    let message = "no descriptor can be opened: \(String(cString: strerror(errno)))"
    return .refused(COW_MLX_EIO, "Reader", "no_descriptors", message)
  }
}

/// The one thread that waits for the descriptors of all contexts and models.
final class Reader: Sendable {
  static let shared = Reader()

  private struct Waiting {
    let wake: Wake
    let continuation: UnsafeContinuation<Void, Never>
  }

  private struct State {
    var waiting: [Waiting] = []
    var isPolling = false  // the thread may not know of the last change
    var signal: Int32 = -1  // the end of a pipe that interrupts the thread
  }

  private let state = Locked(State())

  func wait(for wake: Wake) async {
    await withUnsafeContinuation { continuation in
      let isRaised = state.withLock { state in
        if wake.isRaised { return true }
        state.waiting.append(Waiting(wake: wake, continuation: continuation))
        interrupt(&state)
        return false
      }
      if isRaised { continuation.resume() }
    }
  }

  func wake(_ wake: Wake) {
    let woken = state.withLock { state in
      let woken = state.waiting.filter { $0.wake === wake }
      state.waiting.removeAll { $0.wake === wake }
      return woken
    }
    for waiting in woken { waiting.continuation.resume() }
  }

  func start() throws(CowMLXError) {
    try state.withLock { (state) throws(CowMLXError) in
      guard state.signal < 0 else { return }
      var ends: [Int32] = [-1, -1]
      guard pipe(&ends) == 0 else { throw .noDescriptors() }
      for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
      state.signal = ends[1]
      let interrupted = ends[0]
      let thread = Thread { self.run(interrupted) }
      thread.name = "cowmlx.reader"
      thread.start()
    }
  }

  private func interrupt(_ state: inout State) {
    guard state.isPolling else { return }
    state.isPolling = false
    var byte: UInt8 = 1
    while write(state.signal, &byte, 1) < 0 && errno == EINTR {}
  }

  private func run(_ interrupted: Int32) {
    while true {
      let waited = state.withLock { state in
        state.isPolling = true
        return state.waiting.map(\.wake)  // keeps their descriptors open
      }
      var descriptors = [pollfd(fd: interrupted, events: Int16(POLLIN), revents: 0)]
      descriptors += waited.map { pollfd(fd: $0.descriptor, events: Int16(POLLIN), revents: 0) }
      guard poll(&descriptors, nfds_t(descriptors.count), -1) > 0 else { continue }
      if descriptors[0].revents != 0 {
        var bytes = [UInt8](repeating: 0, count: 64)
        _ = read(interrupted, &bytes, bytes.count)
      }
      for (wake, descriptor) in zip(waited, descriptors.dropFirst()) where descriptor.revents != 0 {
        self.wake(wake)
      }
    }
  }
}
