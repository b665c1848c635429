import CowMLX
import Testing

@Suite struct GenerationTests {
  @Test func aGenerationHasPiecesAndAnEnd() async throws {
    let generation = try await context().generate(story())
    #expect(generation.finish == nil)
    let pieces = try await pieces(generation)
    #expect(pieces.count > 20)
    #expect(text(pieces).contains("owl"))
    #expect(generation.finish == .stop)
    let end = try #require(generation.lastToken)
    #expect(try await model().isEnd(end))
  }

  @Test func thePiecesAreThoseOfBeginAndNext() async throws {
    let (one, other) = (try await context(), try await context())
    let expected = try await pieces(one.generate(story()))
    try await other.begin(story())
    var found: [Piece] = []
    while let piece = try await other.next() { found.append(piece) }
    #expect(found == expected)
  }

  @Test func itEndsOnceAndSaysWhy() async throws {
    let context = try await context()
    let generation = try await context.generate(story(), params: .init(maxTokens: 3))
    var iterator = generation.makeAsyncIterator()
    for _ in 0..<3 { #expect(try await iterator.next() != nil) }
    #expect(try await iterator.next() == nil)
    #expect(try await iterator.next() == nil)
    #expect(generation.finish == .length)
    #expect(try await context.stats().generatedTokens == 3)
  }

  @Test func itIsResumedWhereItWasLeftByAnotherTask() async throws {
    let (one, other, params) = (
      try await context(), try await context(), GenerationParams(maxTokens: 20)
    )
    let expected = try await pieces(one.generate(story(), params: params))
    try await other.begin(story(), params: params)
    var found: [Piece] = []
    for _ in 0..<7 { found.append(try #require(try await other.next())) }
    let rest = Task {
      var pieces: [Piece] = []
      while let piece = try await other.next() { pieces.append(piece) }
      return pieces
    }
    #expect(try await found + rest.value == expected)
  }

  @Test func rowsOfAnotherWidthAreRefused() async throws {
    let context = try await context()
    let rows = try NDArray([0, 1] as [Float], shape: [1, 2], on: context.model.runtime)
    let error = await failure { try await context.beginEmbeddings([-1], embeddings: rows) }
    guard case .invalidArgument? = error else { throw Unexpected(error) }
    #expect(error?.operation == "Context.beginEmbeddings")
  }

  @Test func aTextIsAPrompt() async throws {
    let generation = try await context().generate("Once upon a time", params: .init(maxTokens: 8))
    #expect(try await pieces(generation).count == 8)
  }

  @Test func nothingIsTakenBeforeABegin() async throws {
    let context = try await context()
    let error = await failure { _ = try await context.next() }
    #expect(error?.reason == .nothingBegun)
    #expect(error?.operation == "Context.next")
  }

  @Test func logprobsComeWithEachPiece() async throws {
    let context = try await context()
    let params = GenerationParams(maxTokens: 4, logprobs: 3)
    for try await piece in try await context.generate(story(), params: params) {
      #expect(piece.alternatives.count == 3)
      #expect(piece.alternatives.first?.token == piece.token)
      let logprob = try #require(piece.logprob)
      #expect(abs(logprob - piece.alternatives[0].logprob) < 1e-4)
    }
  }

  @Test func aPromptIsScored() async throws {
    let (context, prompt) = (try await context(), try await story())
    let rows = try await context.promptLogprobs(prompt, top: 2)
    #expect(rows.count == prompt.count && rows[1].count == 3)
    #expect(rows[0][0].logprob.isNaN && rows[1][0].token == prompt[1])
    #expect(try await !context.promptLogits(tokens: prompt, positions: [0, 1]).isEmpty)
    #expect(await failure { _ = try await context.promptLogprobs([]) }?.reason != nil)
    let states = try await context.hiddenStates(tokens: prompt)
    #expect(states.count % prompt.count == 0)
    #expect(try await context.perplexity(text: "Once upon a time", window: 0).scored > 0)
  }

  @Test func manyLogprobsFit() async throws {
    let params = GenerationParams(maxTokens: 1, logprobs: 100)
    let pieces = try await pieces(context().generate(story(), params: params))
    #expect(pieces[0].alternatives.count == 100)
  }

  @Test func withoutLogprobsThereAreNone() async throws {
    let context = try await context()
    let pieces = try await pieces(context.generate(story(), params: .init(maxTokens: 1)))
    #expect(pieces[0].logprob == nil)
    #expect(pieces[0].alternatives.isEmpty)
    #expect(await failure { _ = try await context.logprobs() }?.reason == .nothingThere)
  }

  @Test func logitsPredictTheGreedyToken() async throws {
    let context = try await context()
    try await context.begin(story(), params: .init(maxTokens: 0))
    let logits = try await context.logits()
    let best = logits.indices.max { logits[$0] < logits[$1] }
    let pieces = try await pieces(context.generate(story(), params: .init(maxTokens: 1)))
    #expect(pieces[0].token == best.map(Token.init))
  }

  @Test func stopTextsEndIt() async throws {
    let params = GenerationParams(stop: ["upon", "nonsense"])
    let generation = try await context().generate(story(), params: params)
    #expect(try await text(pieces(generation)) == "Once ")
    #expect(generation.finish == .stopText)
  }

  @Test func aBiasForbidsAToken() async throws {
    let context = try await context()
    let first = try await pieces(context.generate(story(), params: .init(maxTokens: 1)))[0].token
    let params = GenerationParams(maxTokens: 1, bias: [first: -.infinity])
    let other = try await pieces(context.generate(story(), params: params))[0].token
    #expect(other != first)
  }

  @Test(arguments: [
    (Grammar.lark(#"start: "yes" | "no""#), ["yes", "no"]), (.regex("yes|no"), ["yes", "no"]),
    (.gbnf(#"root ::= "yes" | "no""#), ["yes", "no"]),
    (.json(.any(["yes", "no"])), ["\"yes\"", "\"no\""]),
  ])
  func anOutputMatchesItsGrammar(_ grammar: Grammar, _ accepted: [String]) async throws {
    let params = GenerationParams(maxTokens: 16, grammar: grammar)
    let answer = try await text(pieces(context().generate(story(), params: params)))
    #expect(accepted.contains(answer))
  }

  @Test func aSeedGivesTheSameTokens() async throws {
    let params = GenerationParams(maxTokens: 20, temperature: 2, seed: 7)
    let one = try await pieces(context().generate(story(), params: params))
    let other = try await pieces(context().generate(story(), params: params))
    #expect(one == other)
    var changed = params
    changed.seed = 8
    #expect(try await pieces(context().generate(story(), params: changed)) != one)
  }

  @Test func aDraftModelChangesNoToken() async throws {
    let plain = try await pieces(context().generate(story(), params: .init(maxTokens: 20)))
    let context = try await context()
    let params = GenerationParams(maxTokens: 20, draftTokens: 3, draft: try await model())
    #expect(
      try await pieces(context.generate(story(), params: params)).map(\.token) == plain.map(\.token)
    )
    #expect(try await context.stats().acceptedTokens > 0)
  }

  @Test func thePromptsProgressReachesItsEnd() async throws {
    let heard = Heard<(Int, Int)>()
    let prompt = try await story()
    let generation = try await context().generate(prompt, params: .init(maxTokens: 1)) {
      heard.add(($0, $1))
      return true
    }
    _ = try await pieces(generation)
    let last = try #require(heard.all.last)
    #expect(last == (prompt.count, prompt.count))
  }

  @Test func aFalseCancelsAPrompt() async throws {
    let context = try await context()
    let error = await failure { try await context.begin(story()) { _, _ in false } }
    guard case .canceled? = error else { throw Unexpected(error) }
    #expect(error?.operation == "Context.begin")
    // The prompt may have been processed when the task hears of it: then the generation is canceled.
    let generation = try await context.generate(story(), params: unending) { _, _ in false }
    let late = await failure { _ = try await pieces(generation) }
    if late != nil {
      #expect(late?.reason == .callbackRefused)
    } else {
      #expect(generation.finish == .canceled)
    }
  }

  @Test func aTimeoutEndsIt() async throws {
    let context = try await context()
    let error = await failure { try await context.begin(story(), params: .init(timeout: 1e-9)) }
    guard case .timedOut? = error else { throw Unexpected(error) }
  }

  static let refused: [(String, GenerationParams)] = [
    ("temperature", .init(temperature: -1)), ("topP", .init(topP: 2)), ("minP", .init(minP: 2)),
    ("typicalP", .init(typicalP: 2)), ("topK", .init(topK: -1)),
    ("xtcProbability", .init(xtcProbability: 2)),
    ("xtcThreshold", .init(xtcProbability: 0.5, xtcThreshold: 2)),
    ("repetitionPenalty", .init(repetitionPenalty: -1)),
    ("repetitionWindow", .init(repetitionPenalty: 2, repetitionWindow: 0)),
    ("presencePenalty", .init(presencePenalty: .nan)),
    ("presenceWindow", .init(presencePenalty: 1, presenceWindow: 0)),
    ("frequencyPenalty", .init(frequencyPenalty: .nan)),
    ("frequencyWindow", .init(frequencyPenalty: 1, frequencyWindow: 0)),
    ("logprobs", .init(logprobs: -1)), ("draftTokens", .init(draftTokens: 65)),
    ("timeout", .init(timeout: -1)), ("dryMultiplier", .init(dryMultiplier: -1)),
    ("dryBase", .init(dryBase: 0.5)), ("dryAllowedLength", .init(dryAllowedLength: 0)),
    ("dryPenaltyLastN", .init(dryPenaltyLastN: -2)),
    ("drySequenceBreakers[1]", .init(drySequenceBreakers: ["a", ""])),
    ("topNSigma", .init(topNSigma: -1)), ("mirostat", .init(mirostat: 1)),
    ("mirostatTau", .init(mirostatTau: 0)), ("mirostatEta", .init(mirostatEta: 0)),
    ("dynatempRange", .init(dynatempRange: -1)), ("dynatempExponent", .init(dynatempExponent: 0)),
    ("bias", .init(bias: [-1: 0])), ("stop", .init(stop: [""])),
    ("grammar", .init(grammar: .regex("("))),
    ("stop[1]", .init(stop: ["fine", "a\0b"])), ("grammar", .init(grammar: .regex("a\0b"))),
    ("maxTokens", .init(maxTokens: -1)),
  ]

  @Test(arguments: refused.indices)
  func everyParameterReachesTheLibrary(_ index: Int) async throws {
    let (name, params) = Self.refused[index]
    let context = try await context()
    let error = await failure { _ = try await pieces(context.generate(story(), params: params)) }
    guard case .invalidArgument? = error else { throw Unexpected(error) }
    #expect(error?.message.contains(name) == true, "\(String(describing: error))")
    #expect(error?.operation == "Context.generate")
  }

  @Test func anErrorIsTheLastItem() async throws {
    let context = try await context()
    var iterator = context.generate([]).makeAsyncIterator()
    await #expect(throws: CowMLXError.self) { _ = try await iterator.next() }
    #expect(try await iterator.next() == nil)
    #expect(try await pieces(context.generate(story(), params: .init(maxTokens: 1))).count == 1)
  }
}
