import CCowMLX
import Foundation
import Testing

@testable import CowMLX

/// Texts that C cannot have, empty ones, and the names of statuses.
@Suite struct TextTests {
  private typealias Call = @Sendable () async throws -> Void
  private static let bad = "a\0b"

  /// The calls with a text that C ends at NUL, and the argument's name.
  private func calls() async throws -> [(String, Call)] {
    let (model, context, bad) = (try await model(), try await context(), Self.bad)
    let runtime = model.runtime
    let array = try NDArray([1] as [Float], on: runtime)
    let params = RankParams(prompt: "{query} {document}", yes: "a", no: "b")
    return [
      ("path", { _ = try await Model.load(bad) }),
      ("path", { _ = try await Model.inspect(bad) }),
      ("path", { _ = try await model.adapter(bad) }),
      ("query", { _ = try await model.rank(bad, documents: ["a"], params: params) }),
      ("suffix", { _ = try await model.infillPrompt(prefix: "a", suffix: bad) }),
      ("path", { try await context.save(to: bad) }),
      ("path", { try await context.load(from: bad) }),
      ("stop[0]", { try await context.begin([1], params: .init(stop: [bad])) }),
      ("grammar", { try await context.begin([1], params: .init(grammar: .lark(bad))) }),
      ("path", { _ = try await NDArray.info(of: bad) }),
      ("path", { _ = try await NDArray.load(bad, names: [], on: runtime) }),
      ("names[0]", { _ = try await NDArray.load("a", names: [bad], on: runtime) }),
      ("path", { try await NDArray.save(["a": array], to: bad) }),
      ("names[0]", { try await NDArray.save([bad: array], to: "a") }),
      ("operation", { _ = try await runtime.apply("abs\0b", [array]) }),
      ("attributes", { _ = try await runtime.apply("abs", [array], attributes: "{}\0b") }),
      ("path", { _ = try await Program.load(bad, on: runtime) }),
      ("optimizer", { _ = try await Training(of: model, .init(optimizer: bad)) }),
      ("path", { try Library.use(bad) }),
      ("pythonHome", { _ = try await Runtime.start(.init(pythonHome: bad)) }),
    ]
  }

  private func trainingCalls() async throws -> [(String, Call)] {
    let bad = Self.bad
    let training = try await Training(of: model(), .init(fineTune: #"{"rank": 1}"#))
    return [
      ("name", { _ = try await training.parameter(bad) }),
      ("folder", { try await training.save(to: bad) }),
      ("folder", { try await training.load(bad) }),
      ("folder", { try await training.export(to: bad) }),
      ("lines", { for try await _ in training.fit(.init(steps: 1, lines: bad)) {} }),
    ]
  }

  @Test func aTextThatCCannotHaveIsRefusedByEveryCall() async throws {
    for (argument, call) in try await calls() + trainingCalls() {
      let error = await failure(call)
      #expect(error?.details["argument"] == .string(argument), "\(String(describing: error))")
      #expect(error?.message.contains("NUL") == true, "\(String(describing: error))")
    }
  }

  @Test func textsWithALengthKeepTheirNUL() async throws {
    let model = try await model()
    #expect(try await model.detokenize(model.tokenize(Self.bad)) == Self.bad)
    #expect(
      try await model.chatPrompt([.user(Self.bad)]).count > model.chatPrompt([.user("a")]).count)
  }

  @Test func whatIsEmptyComesBackEmpty() async throws {
    #expect(try await context().tokens().isEmpty)
    #expect(try await model().tokenize("").isEmpty)
    #expect(try await model().detokenize([]) == "")
  }

  @Test func everyStatusHasACase() {
    for status in Int32(COW_MLX_EINTERNAL)..<0 {
      let name = String(cString: api.status_name(status)!)
      let error = CowMLXError(
        status: status, .init(operation: "", reason: .canceled, message: "", details: [:]))
      var isOther = false
      if case .other = error { isOther = true }
      #expect(error.status == status)
      #expect(isOther == (name == "UNKNOWN"), "\(name)")
    }
  }

  @Test func theTokensAreThoseOfACHost() async throws {
    let (prompt, context) = (try await story(), try await context())
    let expected = try await pieces(context.generate(prompt)).map(\.token)
    let handle = context.handle
    let found = try await blocking { () throws(CowMLXError) in
      var tokens: [Token] = []
      try check(api.context_begin(handle.raw, prompt, prompt.count, nil))
      var (piece, length) = (cow_mlx_piece(), 0)
      var text = [CChar](repeating: 0, count: 256)
      piece.struct_size = MemoryLayout<cow_mlx_piece>.size
      while api.context_next(handle.raw, &text, text.count, &length, &piece) == COW_MLX_OK {
        tokens.append(piece.token)
      }
      return tokens
    }
    #expect(found == expected)
  }
}
