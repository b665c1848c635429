import CowMLX
import Foundation

/// The model of a session: a folder, which is loaded when it is first needed, or a loaded model.
public final class SystemLanguageModel: Sendable {
  private enum Source: Sendable {
    case model(Model)
    case folder(String)
    case none
  }

  private let source: Source
  private let loading = Locked<Task<Model, any Error>?>(nil)

  /// A model that is loaded.
  public init(_ model: Model) { source = .model(model) }

  /// A model folder, or the name of a model in Hugging Face's cache.
  public init(folder: String) { source = .folder(folder) }

  private init() { source = .none }

  private static let chosen = Locked<SystemLanguageModel?>(nil)

  /// The model of sessions that are given none: what was set here, or the folder in
  /// the environment variable `COWMLX_MODEL`.
  public static var `default`: SystemLanguageModel {
    get {
      chosen.withLock { chosen in
        if let chosen { return chosen }
        let folder = ProcessInfo.processInfo.environment["COWMLX_MODEL"]
        let model = folder.map { SystemLanguageModel(folder: $0) }
        chosen = model
        return model ?? SystemLanguageModel()
      }
    }
    set { chosen.withLock { $0 = newValue } }
  }

  /// Whether a session can use the model, as far as is known without loading it.
  public enum Availability: Hashable, Sendable {
    case available
    case unavailable(UnavailableReason)

    /// The last two never occur; programs for the framework name them.
    public enum UnavailableReason: Hashable, Sendable {
      /// There is no model: set `SystemLanguageModel.default`.
      case modelNotReady
      case deviceNotEligible
      case appleIntelligenceNotEnabled
    }
  }

  public var availability: Availability {
    switch source {
    case .model: .available
    case .none: .unavailable(.modelNotReady)
    case .folder(let path):
      // Other names are those of Hugging Face's cache, which the load looks up.
      FileManager.default.fileExists(atPath: path + "/config.json") || !path.hasPrefix("/")
        ? .available : .unavailable(.modelNotReady)
    }
  }

  public var isAvailable: Bool { availability == .available }

  /// The model, which is loaded once.
  func model() async throws -> Model {
    switch source {
    case .model(let model): return model
    case .none:
      throw LanguageModelSession.GenerationError.assetsUnavailable(
        .init(
          debugDescription:
            "there is no model: set SystemLanguageModel.default or the variable COWMLX_MODEL"))
    case .folder(let path):
      let task = loading.withLock { loading in
        let task = loading ?? Task { try await Model.load(path) }
        loading = task
        return task
      }
      do {
        return try await task.value
      } catch {
        loading.withLock { $0 = nil }  // a later response tries again
        throw error
      }
    }
  }
}
