import CowMLX
import Foundation
import Testing

@Suite struct ModelTests {
  @Test(arguments: ["Once upon a time", "ü 🙂 \0 end", "", "e\u{301}"])
  func textSurvivesItsTokens(_ text: String) async throws {
    let model = try await model()
    #expect(try await model.detokenize(model.tokenize(text)) == text)
  }

  @Test func specialTokensAreTreatedAsAsked() async throws {
    let model = try await model()
    let plain = try await model.tokenize("Hello")
    let opened = try await model.tokenize("Hello", special: .add)
    #expect(opened.count > plain.count)
    #expect(try await model.detokenize(opened) != model.detokenize(opened, special: .skip))
    let mark = try await model.detokenize([opened[0]])
    #expect(try await model.tokenize(mark, special: .parse).count == 1)
    #expect(try await model.tokenize(mark).count > 1)
    #expect(try await model.tokenize(mark, special: [.add, .parse]) == [opened[0], opened[0]])
  }

  @Test func aFlagOfTheOtherDirectionIsRefused() async throws {
    let model = try await model()
    let error = await failure { _ = try await model.tokenize("Hello", special: .skip) }
    guard case .invalidArgument? = error else { throw Unexpected(error) }
  }

  @Test func aLongTextFits() async throws {
    let (model, text) = (try await model(), String(repeating: "Once upon a time. ", count: 500))
    #expect(try await model.detokenize(model.tokenize(text)) == text)
  }

  @Test func informationIsJSON() async throws {
    #expect(try await model().info()["architecture"] == "llama")
    let runtime = try await Runtime.start()
    #expect(try await runtime.info()["architectures"]?.array?.count ?? 0 > 10)
    try await runtime.trimMemory()
    let inspected = try await Model.inspect(calf)
    #expect(inspected["loads"] == true)
    #expect(inspected["sampling"]?.object != nil)
  }

  @Test func progressRisesToOne() async throws {
    let heard = Heard<Float>()
    let progress = Progress(totalUnitCount: 1)
    let model = try await Model.load(calf, progress: progress) { fraction, stage in
      #expect(!stage.isEmpty)
      heard.add(fraction)
      return true
    }
    #expect(heard.all == heard.all.sorted())
    #expect(heard.all.last == 1)
    #expect(progress.isFinished)
    #expect(try await !model.isEnd(-1))
  }

  @Test func aFalseCancelsALoad() async throws {
    let error = await failure { _ = try await Model.load(calf) { _, _ in false } }
    guard case .canceled? = error else { throw Unexpected(error) }
    #expect(error?.operation == "Model.load")
  }

  @Test func aCanceledProgressCancelsALoad() async throws {
    let progress = Progress(totalUnitCount: 1)
    progress.cancel()
    let error = await failure { _ = try await Model.load(calf, progress: progress) }
    guard case .canceled? = error else { throw Unexpected(error) }
  }

  @Test func aCanceledTaskCancelsALoad() async throws {
    let started = AsyncStream<Void>.makeStream()
    let load = Task {
      try await Model.load(calf) { _, _ in
        started.continuation.yield()
        return true
      }
    }
    for await _ in started.stream { break }
    load.cancel()
    // The load may have been at its end.
    if case .failure(let error) = await load.result { #expect(error is CancellationError) }
  }

  @Test func parametersOfALoadReachTheLibrary() async throws {
    var params = ModelParams(lazy: true, trustRemoteCode: true, prefixCacheBytes: 0)
    _ = try await Model.load(calf, params: params)
    params.activations = .exact
    _ = try await Model.load(calf, params: params)
    params.activations = .int8
    let packed = params
    let error = await failure { _ = try await Model.load(calf, params: packed) }
    guard case .unsupported? = error else { throw Unexpected(error) }
    let missing = ModelParams(adapterPath: "no such adapter")
    #expect(
      await failure { _ = try await Model.load(calf, params: missing) }?.reason == .fileNotFound)
  }

  @Test func aMissingFolderIsNamed() async throws {
    let error = await failure { _ = try await Model.load("/no/such/folder") }
    guard case .notFound? = error else { throw Unexpected(error) }
    #expect(error?.message.hasPrefix("Model.load: ") == true)
    #expect(error?.message.contains("/no/such/folder") == true)
    #expect(error?.details == ["file": "/no/such/folder"])
    #expect(error?.localizedDescription == error?.message)
  }

  @Test func eachTaskGetsTheMessageOfItsOwnFailure() async throws {
    await withTaskGroup(of: Void.self) { group in
      for number in 0..<80 {
        group.addTask {
          let error = await failure { _ = try await Model.load("/no/folder/\(number)/") }
          #expect(error?.message.contains("/no/folder/\(number)/") == true)
        }
      }
    }
  }

  @Test func aPathThatCCannotHaveIsRefused() async throws {
    let error = await failure { _ = try await Model.load("a\0b") }
    #expect(
      error?.message == "Model.load: path contains a NUL character, must be a text without one")
    #expect(error?.details == ["argument": "path"])
  }

  @Test func anUnknownTokenIsRefused() async throws {
    let model = try await model()
    let error = await failure { _ = try await model.detokenize([1_000_000]) }
    guard case .invalidArgument? = error else { throw Unexpected(error) }
    #expect(error?.message.contains("1000000") == true)
  }

  @Test func eachTextHasAVectorOfLengthOne() async throws {
    let rows = try await model().embed(["a fox", "an owl", "a fox"])
    #expect(rows.count == 3)
    #expect(rows.width == 128)
    let likeness = { (a: ArraySlice<Float>, b: ArraySlice<Float>) in
      zip(a, b).reduce(0) { $0 + $1.0 * $1.1 }
    }
    #expect(abs(likeness(rows[0], rows[2]) - 1) < 1e-4)
    #expect(likeness(rows[0], rows[1]) < 0.999)
    for row in rows { #expect(abs(likeness(row, row) - 1) < 1e-4) }
    #expect(try await model().embed([]).isEmpty)
  }

  @Test func parametersChangeTheVectors() async throws {
    let model = try await model()
    let plain = try await model.embed(["a red fox"])
    for params in [
      EmbedParams(pooling: .last), .init(pooling: .cls), .init(normalize: false),
      .init(addSpecial: false),
    ] {
      #expect(try await model.embed(["a red fox"], params: params) != plain)
    }
    let error = await failure { _ = try await model.embed(["a"], params: .init(batchTokens: 0)) }
    #expect(error?.details["argument"] == "batchTokens")
  }

  @Test func eachDocumentHasAScore() async throws {
    let model = try await model()
    let params = RankParams(prompt: "{instruction} {query} {document}", yes: "a", no: "b")
    let rows = try await model.rank(
      "a red fox", documents: ["a fox", "an owl", "a fox"], params: params)
    #expect(rows.count == 3)
    #expect(rows.width == 1)
    #expect(rows.values.allSatisfy { (0...1).contains($0) })
    #expect(abs(rows.values[0] - rows.values[2]) < 1e-4)
    #expect(rows.values[0] != rows.values[1])
  }

  @Test func everyParameterOfRankingReachesTheLibrary() async throws {
    let model = try await model()
    let asked = RankParams(prompt: "{instruction} {query} {document}", yes: "a", no: "b")
    func rank(_ change: (inout RankParams) -> Void) async throws -> Rows {
      var params = asked
      change(&params)
      return try await model.rank("a red fox", documents: ["a fox"], params: params)
    }
    let plain = try await rank { _ in }
    #expect(try await rank { $0.normalize = false } != plain)
    #expect(try await rank { $0.instruction = "Find." } != plain)
    #expect(try await rank { ($0.yes, $0.no) = ("b", "a") } != plain)
    let refused: [(String, (inout RankParams) -> Void)] = [
      ("prompt", { $0.prompt = "{query}" }), ("yes", { $0.yes = "" }),
      ("batchTokens", { $0.batchTokens = 0 }), ("maxTokens", { $0.maxTokens = .max }),
      ("instruction", { $0.instruction = "a\0b" }),
    ]
    for (name, change) in refused {
      let error = await failure { _ = try await rank(change) }
      guard case .invalidArgument? = error else { throw Unexpected(error) }
      #expect(error?.message.contains(name) == true)
    }
    let full = await failure { _ = try await rank { $0.maxTokens = 2 } }
    guard case .contextFull? = full else { throw Unexpected(full) }
    var cut = RankParams(prompt: "{query}{document}", yes: "a", no: "b")
    (cut.maxTokens, cut.truncate) = (8, true)
    let long = String(repeating: "a fox ", count: 99)
    #expect(try await model.rank("a", documents: [long], params: cut).count == 1)
  }
}
