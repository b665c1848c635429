import CowMLX
import Testing

@Suite struct ContextTests {
  /// A context that holds a whole answer.
  func answered() async throws -> Context {
    let context = try await context()
    _ = try await pieces(context.generate(story()))
    return context
  }

  @Test func theParametersAreThoseThatWereGiven() async throws {
    let info = try await context(
      .init(
        maxTokens: 512, kvBits: 8, kvGroupSize: 32, solo: true, priority: -1, overflow: .roll,
        keepTokens: 3, sharePrefix: false)
    ).info()
    #expect(info["max_tokens"] == 512)
    #expect(info["kv_bits"] == 8)
    #expect(info["kv_group_size"] == 32)
    #expect(info["solo"] == true)
    #expect(info["priority"] == -1)
    #expect(info["keep_tokens"] == 3)
    #expect(info["share_prefix"] == false)
    #expect(try await info["overflow"] != context().info()["overflow"])
  }

  @Test func itHoldsItsPromptAndAnswer() async throws {
    let (held, prompt) = (try await answered().tokens(), try await story())
    #expect(held.starts(with: prompt))
    #expect(held.count > prompt.count + 20)
    #expect(try await context().tokens().isEmpty)
  }

  @Test func moreTokensAreHeldThanTheFirstBufferTakes() async throws {
    let context = try await context()
    let long = try await model().tokenize(String(repeating: "a b ", count: 800))
    #expect(long.count > 1024)
    try await context.begin(long, params: .init(maxTokens: 0))
    #expect(try await context.tokens() == long)
  }

  @Test func aForkGoesItsOwnWay() async throws {
    let one = try await answered()
    let other = try await one.fork()
    try await one.reset()
    #expect(try await one.tokens().isEmpty)
    let held = try await other.tokens()
    try await other.begin(held, params: .init(maxTokens: 1))
    #expect(try await other.stats().reusedTokens == held.count - 1)
  }

  @Test func tokensAreTrimmedAtBothEnds() async throws {
    let context = try await answered()
    let held = try await context.tokens()
    #expect(try await context.trimEnd(5) == 5)
    #expect(try await context.trimFront(2) == 2)
    #expect(try await context.tokens() == [Token](held[2..<held.count - 5]))
    #expect(try await context.trimEnd(.max) == held.count - 7)
    let error = await failure { try await context.trimEnd(-1) }
    #expect(error?.message == "Context.trimEnd: count is -1, must be at least 0")
  }

  @Test func aCheckpointIsComeBackTo() async throws {
    let context = try await context()
    try await context.begin(story(), params: .init(maxTokens: 0))
    let checkpoint = try await context.checkpoint()
    for _ in 0..<2 {
      _ = try await pieces(context.generate(story()))
      try await context.rewind(to: checkpoint)
      #expect(try await context.tokens() == story())
    }
  }

  @Test func aCheckpointOfAClosedContextIsOfNoUse() async throws {
    let first = try await answered()
    let checkpoint = try await first.checkpoint()
    await first.close()
    let other = try await context()
    let error = await failure { try await other.rewind(to: checkpoint) }
    guard case .invalidHandle? = error else { throw Unexpected(error) }
  }

  @Test func aContextIsSavedAndLoaded() async throws {
    let folder = try Folder()
    let path = folder.path + "/context.safetensors"
    let saved = try await answered()
    try await saved.save(to: path)
    let loaded = try await context()
    try await loaded.load(from: path)
    #expect(try await loaded.tokens() == saved.tokens())
    let error = await failure { try await loaded.load(from: folder.path + "/none") }
    guard case .notFound? = error else { throw Unexpected(error) }
    #expect(error?.reason == .fileNotFound)
  }

  @Test func aFullContextRefusesALongerPrompt() async throws {
    let context = try await context(.init(maxTokens: 4))
    let error = await failure { try await context.begin(story()) }
    guard case .contextFull? = error else { throw Unexpected(error) }
  }

  @Test func tokensOfAPromptAreReused() async throws {
    let context = try await answered()
    let again = try await pieces(context.generate(story()))
    #expect(again.count > 20)
    #expect(try await context.stats().reusedTokens == story().count - 1)
  }

  @Test func aClosedContextIsRefused() async throws {
    let context = try await context()
    await context.close()
    await context.close()
    context.cancel()
    let error = await failure { _ = try await context.tokens() }
    #expect(error?.reason == .unknownHandle)
    #expect(
      await failure { _ = try await pieces(context.generate(story())) }?.reason == .unknownHandle)
  }

  @Test func itKeepsItsModelAndTheRuntime() async throws {
    var context: Context? = try await Model.load(calf).context()
    var model: Model? = context?.model
    let held = try #require(context)
    (context, model) = (nil, nil)
    _ = model
    #expect(try await pieces(held.generate(story())).count > 20)
  }
}
