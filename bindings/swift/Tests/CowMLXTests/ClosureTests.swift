import CowMLX
import Testing

/// Closures that the library calls.
@Suite struct ClosureTests {
  @Test func aClosureChangesLogits() async throws {
    let (context, prompt) = (try await context(), try await story())
    let change: LogitsFunction = { tokens, logits in
      logits.update(repeating: -.infinity)
      logits[40 + tokens.count - prompt.count] = 0
      return true
    }
    let params = GenerationParams(maxTokens: 2)
    let generation = context.generate(prompt, params: params, onLogits: change)
    #expect(try await pieces(generation).map(\.token) == [40, 41])
  }

  @Test func aFalseOfALogitsClosureCancels() async throws {
    let (context, prompt) = (try await context(), try await story())
    let generation = context.generate(prompt) { _, _ in
      true
    } onLogits: { _, _ in
      false
    }
    let error = await failure { _ = try await pieces(generation) }
    #expect(error?.reason == .callbackRefused || generation.finish == .canceled)
    #expect(try await pieces(context.generate(prompt)).count > 20)
  }

  @Test func aClosureMayCallTheLibraryAndFailThere() async throws {
    let (context, runtime, heard) = (
      try await context(), try await model().runtime, Heard<String>()
    )
    let prompt = try await story()
    let generation = context.generate(prompt, params: .init(maxTokens: 1)) { _, _ in
      let sum = try? NDArray([1, 2] as [Float], on: runtime).sum().value(of: Float.self)
      let error = refusal { try NDArray.info(of: "/no/such/file") }
      heard.add("\(sum ?? 0) \(error?.operation ?? "")")
      return false
    }
    let error = await failure { _ = try await pieces(generation) }
    #expect(error?.operation == "Context.generate" || generation.finish == .canceled)
    #expect(heard.all.first == "3.0 NDArray.info")
  }
}
