import CCowMLX
import Foundation

/// The runtime, as long as it lives: it stops after the last `Runtime` of the process, and the last
/// object that was made with it, are gone.
///
/// Starts are counted, so parts of a program that do not know each other may each have one.
/// `Model.load` starts one itself unless it is given one.
public final class Runtime: Sendable {
  private let log: Log?
  private let isStopped = Locked(false)

  private init(log: Log?) { self.log = log }

  /// Starts the runtime, or shares it as it runs.
  ///
  /// - Parameters:
  ///   - params: nil for the defaults, or for a runtime as it runs.
  ///   - log: receives messages, on the thread of the call that caused them. It must not call the library.
  /// - Throws: `CowMLXError.notFound` if no usable Python was found, `.invalidState` if the runtime runs with other
  ///   parameters.
  public static func start(
    _ params: RuntimeParams? = nil, log: (@Sendable (LogLevel, String) -> Void)? = nil
  ) async throws -> Runtime {
    let log = log.map(Log.init)
    guard params != nil || log != nil else {
      try await blocking { () throws(CowMLXError) in try check(api.runtime_start(nil)) }
      return Runtime(log: nil)
    }
    try await blocking { () throws(CowMLXError) in
      try (params ?? RuntimeParams()).withRaw { (raw) throws(CowMLXError) in
        if let log {
          raw.log = hear
          raw.log_user_data = log.userData
        }
        try check(api.runtime_start(&raw))
      }
    }
    return Runtime(log: log)
  }

  /// Undoes this start; a second time does nothing. The last stop of the process ends all calls with
  /// `CowMLXError.canceled` and frees all objects.
  public func stop() async throws {
    guard takeStart() else { return }
    try await blocking(on: .frees) { () throws(CowMLXError) in try check(api.runtime_stop()) }
  }

  private func takeStart() -> Bool {
    isStopped.withLock { isStopped in
      defer { isStopped = true }
      return !isStopped
    }
  }

  deinit {
    guard takeStart() else { return }
    Workers.frees.run { [log] in withExtendedLifetime(log) { _ = api.runtime_stop() } }
  }

  /// Versions, device, memory and open handles, as a JSON object.
  public func info() async throws -> JSONValue {
    try await blocking { () throws(CowMLXError) in try json { api.runtime_info($0, $1, $2) } }
  }

  /// Returns memory to the system: buffers that mlx keeps for reuse, and prompts that models keep for
  /// new contexts.
  public func trimMemory() async throws {
    try await blocking { () throws(CowMLXError) in try check(api.memory_trim()) }
  }
}

/// A log function. C has its number instead of a pointer, since it may log after a `Runtime` is gone.
private final class Log: Sendable {
  private static let all = Locked((next: 1, logs: [Int: Receiver]()))
  typealias Receiver = @Sendable (LogLevel, String) -> Void

  private let key: Int

  init(_ receiver: @escaping Receiver) {
    key = Self.all.withLock { all in
      defer { all.next += 1 }
      all.logs[all.next] = receiver
      return all.next
    }
  }

  deinit {
    let key = key
    let removed = Self.all.withLock { $0.logs.removeValue(forKey: key) }
    withExtendedLifetime(removed) {}  // dropped without the lock: what it captured may log
  }

  var userData: UnsafeMutableRawPointer? { UnsafeMutableRawPointer(bitPattern: key) }

  static func receiver(_ userData: UnsafeMutableRawPointer?) -> Receiver? {
    all.withLock { $0.logs[Int(bitPattern: userData)] }
  }
}

private func hear(level: Int32, message: UnsafePointer<CChar>?, key: UnsafeMutableRawPointer?) {
  guard let receiver = Log.receiver(key), let message else { return }
  receiver(LogLevel(rawValue: level) ?? .info, String(cString: message))
}
