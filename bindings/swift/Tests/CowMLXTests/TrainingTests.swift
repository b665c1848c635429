import CowMLX
import Testing

@Suite struct TrainingTests {
  /// y = w x + b, whose loss is the mean square of the error.
  private func line(on runtime: Runtime) async throws -> Program {
    try await Program(on: runtime) { builder in
      let (x, y) = (builder.input("x", .float32, ["n"]), builder.input("y", .float32, ["n"]))
      let w = builder.parameter("w", .float32, [], initial: "zeros")
      let b = builder.parameter("b", .float32, [], initial: "zeros")
      builder.output("loss", (w * x + b - y).square().mean())
    }
  }

  private func data(on runtime: Runtime) throws -> [NDArray] {
    let x = (0..<32).map { Float($0) / 16 - 1 }
    return [try NDArray(x, on: runtime), try NDArray(x.map { 3 * $0 - 1 }, on: runtime)]
  }

  private func endless(_ runtime: Runtime) throws -> FitParams {
    FitParams(steps: .max, batchSize: 1, inputs: try data(on: runtime))
  }

  private let quick = TrainingParams(optimizer: #"{"name": "adam", "learning_rate": 0.1}"#)

  @Test func aFitIsASequenceOfEvents() async throws {
    let runtime = try await Runtime.start()
    let training = try await Training(of: line(on: runtime), quick)
    var (steps, losses): ([Int], [Double]) = ([], [])
    var end: FitEnd?
    let params = FitParams(steps: 200, eventEvery: 50, inputs: try data(on: runtime))
    for try await event in training.fit(params) {
      if event.kind == .step { (steps, losses) = (steps + [event.step], losses + [event.loss]) }
      if event.kind == .end { end = event.finish }
    }
    #expect(steps == [50, 100, 150, 200])
    #expect(losses.last! < 0.01 && losses.first! > losses.last!)
    #expect(end == .steps)
    let w = try await training.parameter("w").value(of: Float.self)
    #expect(abs(w - 3) < 0.2)
    let result = try await training.evaluate(FitParams(inputs: data(on: runtime)))
    #expect(result.validationLoss < 0.01 || result.loss < 0.01)
  }

  @Test func batchesComeFromAClosure() async throws {
    let runtime = try await Runtime.start()
    let training = try await Training(of: line(on: runtime), quick)
    let fit = training.fit(FitParams()) { step in step < 5 ? try? data(on: runtime) : nil }
    var last: TrainingEvent?
    for try await event in fit { last = event }
    #expect(last?.finish == .data)
    #expect(last?.step == 5)
    let wrong = training.fit(FitParams()) { _ in [] }
    let error = await failure { for try await _ in wrong {} }
    #expect(error?.message.contains("0 arrays, must have 2") == true)
  }

  @Test func leavingTheLoopCancelsTheFit() async throws {
    let runtime = try await Runtime.start()
    let training = try await Training(of: line(on: runtime))
    for try await event in training.fit(try endless(runtime)) where event.step >= 3 {
      break
    }
    // A call waits for the end of the fit, which was at most one step ahead.
    let next = try await training.step(data(on: runtime)).step
    #expect((4...5).contains(next))
  }

  @Test func theEndOfAFitCancelsNoLaterCall() async throws {
    let runtime = try await Runtime.start()
    let (training, inputs) = (try await Training(of: line(on: runtime)), try data(on: runtime))
    for done in 0..<30 {
      for try await _ in training.fit(FitParams(steps: 2 * done + 1, inputs: inputs)) {}
      _ = try await training.step(inputs)
    }
    #expect(try await training.info()["step"]?.int == 60)
  }

  @Test func aCancelEndsNoCallButItsOwn() async throws {
    let runtime = try await Runtime.start()
    let (training, inputs) = (try await Training(of: line(on: runtime)), try data(on: runtime))
    for _ in 0..<30 {
      let task = Task { try await training.step(inputs) }
      task.cancel()
      _ = await task.result
      _ = try await training.step(inputs)
    }
  }

  @Test func aCancelledTaskEndsItsFit() async throws {
    let runtime = try await Runtime.start()
    let training = try await Training(of: line(on: runtime))
    let params = try endless(runtime)
    let (stream, began) = AsyncStream<Void>.makeStream()
    let task = Task {
      defer { began.finish() }
      for try await _ in training.fit(params) { began.yield() }
    }
    for await _ in stream { break }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
  }

  @Test func aCheckpointContinues() async throws {
    let (runtime, folder) = (try await Runtime.start(), try Folder())
    let (one, other) = (
      try await Training(of: line(on: runtime), quick),
      try await Training(of: line(on: runtime), quick)
    )
    for _ in 0..<3 { _ = try await one.step(data(on: runtime)) }
    try await one.save(to: folder.path + "/saved")
    try await other.load(folder.path + "/saved")
    let (a, b) = (try await one.step(data(on: runtime)), try await other.step(data(on: runtime)))
    #expect(a.step == 4 && b.step == 4)
    #expect(a.loss == b.loss)
    #expect(await failure { try await other.load(folder.path + "/none") } != nil)
    #expect(await failure { _ = try await one.adapter() } != nil)
  }

  @Test func calfLearnsALine() async throws {
    let (model, folder) = (try await model(), try Folder())
    let lines = #"{"prompt": "What is your name?", "completion": " Berta."}"#
    let training = try await Training(
      of: model,
      TrainingParams(
        optimizer: #"{"name": "adam", "learning_rate": 0.001}"#,
        fineTune: #"{"rank": 4, "num_layers": -1}"#))
    var losses: [Double] = []
    let params = FitParams(steps: 8, batchSize: 1, lines: lines)
    for try await event in training.fit(params) where event.kind == .step {
      losses.append(event.loss)
    }
    #expect(losses.count == 8)
    #expect(losses.last! < losses.first!)
    try await training.export(to: folder.path + "/adapter")
    let adapter = try await training.adapter()
    let context = try await model.context()
    try await context.setAdapter(adapter)
    let loaded = try await model.adapter(folder.path + "/adapter")
    try await context.setAdapter(loaded)
    #expect(
      try await !context.generate(
        story(), params: .init(maxTokens: 4, bias: [2: -.infinity])
      ).reduce("") { $0 + $1.text }.isEmpty)
  }
}
