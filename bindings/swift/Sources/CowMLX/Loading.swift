import CCowMLX
import Foundation

extension Model {
  /// Loads a model folder in the Hugging Face layout; never uses the network. No thread waits for it.
  ///
  /// A load ends early with its task, or where `onProgress` returns false.
  ///
  /// - Parameters:
  ///   - path: the folder, or the name of a model in Hugging Face's cache.
  ///   - runtime: nil: the load starts it.
  ///   - progress: receives the fraction, and the stage as `"stage"` of its user info; its `cancel()` ends
  ///     the load at its next step.
  ///   - onProgress: receives the fraction, from 0 to 1, and the stage, such as "weights"; false ends the load.
  public static func load(
    _ path: String, params: ModelParams = ModelParams(), runtime: Runtime? = nil,
    progress: Progress? = nil, onProgress: (@Sendable (Float, String) -> Bool)? = nil
  ) async throws -> Model {
    try Task.checkCancellation()
    let runtime = try await running(runtime)
    let listener = Listener(progress, onProgress)
    let text = try CText("Model.load", "path", path)
    var raw: Int32 = 0
    try params.withRaw { (params) throws(CowMLXError) in
      if let listener {
        params.progress = hear
        params.user_data = Unmanaged.passUnretained(listener).toOpaque()
      }
      try check(api.model_load_async(text.start, &params, &raw))
    }
    let model = Model(raw, runtime: runtime)
    do {
      try await model.loaded()
      // The load may have ended before the listener heard of it.
      if listener?.hasRefused == true { throw CowMLXError.callbackRefused("Model.load") }
    } catch {
      await model.close()
      throw error
    }
    return withExtendedLifetime(listener) { model }
  }

  /// Waits for the end of the load. Polls call the listener, on this task's threads.
  private func loaded() async throws {
    var descriptor: Int32 = -1
    try check(api.model_wake_fd(handle.raw, &descriptor))
    let wake = try Wake(copying: descriptor)
    try await withTaskCancellationHandler {
      while true {
        try Task.checkCancellation()
        let status = api.model_poll(handle.raw, 0)
        if status != COW_MLX_ETIMEDOUT { return try check(status) }
        await wake.wait()
      }
    } onCancel: {
      wake.raise()
    }
  }
}

/// Hears of the progress of a load.
private final class Listener: @unchecked Sendable {
  private let progress: Progress?
  private let onProgress: (@Sendable (Float, String) -> Bool)?
  private let refused = Locked(false)
  private static let units: Int64 = 1000

  init?(_ progress: Progress?, _ onProgress: (@Sendable (Float, String) -> Bool)?) {
    guard progress != nil || onProgress != nil else { return nil }
    (self.progress, self.onProgress) = (progress, onProgress)
    progress?.totalUnitCount = Self.units
  }

  /// Whether an answer was false.
  var hasRefused: Bool { refused.withLock { $0 } }

  func hear(_ fraction: Float, _ stage: String) -> Bool {
    let goesOn = answer(fraction, stage)
    if !goesOn { refused.withLock { $0 = true } }
    return goesOn
  }

  private func answer(_ fraction: Float, _ stage: String) -> Bool {
    progress?.completedUnitCount = Int64(fraction * Float(Self.units))
    progress?.setUserInfoObject(stage, forKey: ProgressUserInfoKey("stage"))
    if progress?.isCancelled == true { return false }
    return onProgress?(fraction, stage) ?? true
  }
}

private func hear(
  fraction: Float, stage: UnsafePointer<CChar>?, listener: UnsafeMutableRawPointer?
) -> Bool {
  guard let stage, let listener else { return true }
  return Unmanaged<Listener>.fromOpaque(listener).takeUnretainedValue()
    .hear(fraction, String(cString: stage))
}

extension CowMLXError {
  fileprivate static func callbackRefused(_ operation: String) -> CowMLXError {
    .refused(
      COW_MLX_ECANCELED, operation, "callback_refused", "the progress callback returned false")
  }
}
