import CCowMLX
import Foundation

/// Why a call failed: a case for each status of the library.
public enum CowMLXError: Error, Hashable, Sendable {
  /// `EINVAL`: an argument is out of range or malformed.
  case invalidArgument(Failure)
  /// `EHANDLE`: an object was closed, or freed with the runtime.
  case invalidHandle(Failure)
  /// `ESTATE`: not valid now.
  case invalidState(Failure)
  /// `ENOENT`: no such file or folder.
  case notFound(Failure)
  /// `EFORMAT`: a malformed or mismatched file.
  case malformed(Failure)
  /// `EUNSUPPORTED`: this model, cache or build cannot do that.
  case unsupported(Failure)
  /// `EBUFFER`: a buffer is too small. The buffers of this package grow.
  case bufferTooSmall(Failure)
  /// `ECONTEXT`: the context window is full.
  case contextFull(Failure)
  /// `ECANCELED`: the call was canceled, but not by its task, which is `CancellationError`.
  case canceled(Failure)
  /// `ENOMEM`: out of memory.
  case outOfMemory(Failure)
  /// `EIO`: input or output failed.
  case io(Failure)
  /// `ETIMEDOUT`: the timeout has passed.
  case timedOut(Failure)
  /// `EFORK`: called in a forked child.
  case forked(Failure)
  /// `ELOST`: a machine that the model runs on is lost.
  case lost(Failure)
  /// `EINTERNAL`: a bug of the library.
  case internalError(Failure)
  /// A status that this package does not know.
  case other(status: Int32, Failure)

  /// What the library says of a failure.
  public struct Failure: Hashable, Sendable {
    /// The call, such as `"Context.generate"`.
    public var operation: String
    /// The reason, for programs.
    public var reason: Reason
    /// For people: the operation, the value, and what would be accepted.
    public var message: String
    /// Texts and numbers, such as `["argument": "topP", "value": 1.5]`.
    public var details: [String: JSONValue]
  }

  /// A reason of the header's `COW_MLX_REASONS`, such as `.outOfRange`. Later versions of the library add more.
  public struct Reason: RawRepresentable, Hashable, Sendable {
    /// The name in the header, such as `"out_of_range"`; `""` if there is none.
    public let rawValue: String

    public init(rawValue: String) { self.rawValue = rawValue }
  }

  /// What the library says.
  public var failure: Failure { parts.1 }
  /// The value in C, such as -1 for `EINVAL`.
  public var status: Int32 { parts.0 }
  /// The call, such as `"Context.generate"`.
  public var operation: String { failure.operation }
  /// The reason, for programs.
  public var reason: Reason { failure.reason }
  /// For people: the operation, the value, and what would be accepted.
  public var message: String { failure.message }
  /// Texts and numbers, such as `["argument": "topP", "value": 1.5]`.
  public var details: [String: JSONValue] { failure.details }

  private var parts: (Int32, Failure) {
    switch self {
    case .invalidArgument(let failure): (Int32(COW_MLX_EINVAL), failure)
    case .invalidHandle(let failure): (Int32(COW_MLX_EHANDLE), failure)
    case .invalidState(let failure): (Int32(COW_MLX_ESTATE), failure)
    case .notFound(let failure): (Int32(COW_MLX_ENOENT), failure)
    case .malformed(let failure): (Int32(COW_MLX_EFORMAT), failure)
    case .unsupported(let failure): (Int32(COW_MLX_EUNSUPPORTED), failure)
    case .bufferTooSmall(let failure): (Int32(COW_MLX_EBUFFER), failure)
    case .contextFull(let failure): (Int32(COW_MLX_ECONTEXT), failure)
    case .canceled(let failure): (Int32(COW_MLX_ECANCELED), failure)
    case .outOfMemory(let failure): (Int32(COW_MLX_ENOMEM), failure)
    case .io(let failure): (Int32(COW_MLX_EIO), failure)
    case .timedOut(let failure): (Int32(COW_MLX_ETIMEDOUT), failure)
    case .forked(let failure): (Int32(COW_MLX_EFORK), failure)
    case .lost(let failure): (Int32(COW_MLX_ELOST), failure)
    case .internalError(let failure): (Int32(COW_MLX_EINTERNAL), failure)
    case .other(let status, let failure): (status, failure)
    }
  }

  init(status: Int32, _ failure: Failure) {
    switch Int(status) {
    case COW_MLX_EINVAL: self = .invalidArgument(failure)
    case COW_MLX_EHANDLE: self = .invalidHandle(failure)
    case COW_MLX_ESTATE: self = .invalidState(failure)
    case COW_MLX_ENOENT: self = .notFound(failure)
    case COW_MLX_EFORMAT: self = .malformed(failure)
    case COW_MLX_EUNSUPPORTED: self = .unsupported(failure)
    case COW_MLX_EBUFFER: self = .bufferTooSmall(failure)
    case COW_MLX_ECONTEXT: self = .contextFull(failure)
    case COW_MLX_ECANCELED: self = .canceled(failure)
    case COW_MLX_ENOMEM: self = .outOfMemory(failure)
    case COW_MLX_EIO: self = .io(failure)
    case COW_MLX_ETIMEDOUT: self = .timedOut(failure)
    case COW_MLX_EFORK: self = .forked(failure)
    case COW_MLX_ELOST: self = .lost(failure)
    case COW_MLX_EINTERNAL: self = .internalError(failure)
    default: self = .other(status: status, failure)
    }
  }
}

extension CowMLXError: CustomStringConvertible, LocalizedError {
  public var description: String { message }
  public var errorDescription: String? { message }
}
