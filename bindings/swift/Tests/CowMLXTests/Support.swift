import CowMLX
import Foundation

/// One model for all tests of the process.
private let loaded = Task { try await Model.load(calf) }

func model() async throws -> Model { try await loaded.value }

func context(_ params: ContextParams = ContextParams()) async throws -> Context {
  try await model().context(params)
}

/// The bundled model.
let calf = ProcessInfo.processInfo.environment["COWMLX_TEST_MODEL"] ?? "models/calf"

func prompt(_ text: String) async throws -> [Token] {
  try await model().chatPrompt([.user(text)])
}

/// A prompt whose answer is long.
func story() async throws -> [Token] { try await prompt("Tell me a story about an owl.") }

/// A generation that continues until the context is full: the token that ends a text is forbidden.
let unending = GenerationParams(maxTokens: .max, bias: [2: -.infinity])

func pieces(_ generation: Generation) async throws -> [Piece] {
  try await generation.reduce(into: []) { $0.append($1) }
}

func text(_ pieces: [Piece]) -> String { pieces.map(\.text).joined() }

/// The text of an answer.
func said(_ events: [ChatEvent]) -> String {
  events.map { if case .text(let text) = $0 { text } else { "" } }.joined()
}

/// What a call throws.
func failure(_ call: () async throws -> Void) async -> CowMLXError? {
  do {
    try await call()
    return nil
  } catch {
    return error as? CowMLXError
  }
}

/// What a call throws.
func refusal<R>(_ call: () throws -> R) -> CowMLXError? {
  do {
    _ = try call()
    return nil
  } catch {
    return error as? CowMLXError
  }
}

/// Runs `body` outside of tasks, where calls may wait.
func onAThread<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
  try await withCheckedThrowingContinuation { continuation in
    Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
  }
}

/// A folder that is removed in the end.
final class Folder: Sendable {
  let path: String

  init() throws {
    path = NSTemporaryDirectory() + "/cowmlx-\(UUID())"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }
}

/// What callbacks have heard.
final class Heard<Element: Sendable>: @unchecked Sendable {
  private let lock = NSLock()
  private var elements: [Element] = []

  func add(_ element: Element) { lock.withLock { elements.append(element) } }
  var all: [Element] { lock.withLock { elements } }
}

/// Another error than was expected.
struct Unexpected: Error, CustomStringConvertible {
  let description: String

  init(_ error: (any Error)?) { description = error.map { "\($0)" } ?? "no error" }
}
