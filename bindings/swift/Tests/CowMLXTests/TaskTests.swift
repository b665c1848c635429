import CowMLX
import Foundation
import Testing

/// Tasks, their cancellation, and how many there may be.
@Suite struct TaskTests {
  @Test func aLoopThatEndsEarlyLeavesAContextThatCanBeUsed() async throws {
    let context = try await context()
    for taken in 1...3 {
      var count = 0
      for try await _ in try await context.generate(story()) {
        count += 1
        if count == taken { break }
      }
      #expect(count == taken)
      #expect(try await context.tokens().count >= story().count)
    }
    #expect(try await pieces(context.generate(story())).count > 20)
  }

  @Test func aSequenceThatIsNeverIteratedBeginsNothing() async throws {
    let context = try await context()
    _ = try await context.generate(story())
    #expect(try await context.tokens().isEmpty)
  }

  @Test func aCanceledTaskThrowsAndTheContextGoesOn() async throws {
    let context = try await context()
    let prompt = try await story()
    let begun = AsyncStream<Void>.makeStream()
    let task = Task {
      for try await _ in context.generate(prompt, params: unending) {
        begun.continuation.yield()
      }
    }
    for await _ in begun.stream { break }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try await pieces(context.generate(prompt)).count > 20)
  }

  @Test func aTaskThatIsCanceledBeforeBeginsNothing() async throws {
    let context = try await context()
    let prompt = try await story()
    let task = Task {
      while !Task.isCancelled { await Task.yield() }
      _ = try await pieces(context.generate(prompt))
    }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try await context.tokens().isEmpty)
  }

  @Test func aCancelEndsAGenerationWithItsReason() async throws {
    let context = try await context()
    let generation = try await context.generate(story())
    var iterator = generation.makeAsyncIterator()
    #expect(try await iterator.next() != nil)
    context.cancel()
    var rest = 0
    while try await iterator.next() != nil { rest += 1 }
    #expect(rest <= 5)
    #expect(generation.finish == .canceled)
  }

  @Test func aClosedContextEndsItsGeneration() async throws {
    let context = try await context()
    var iterator = try await context.generate(story()).makeAsyncIterator()
    #expect(try await iterator.next() != nil)
    await context.close()
    let error = await failure { while try await iterator.next() != nil {} }
    #expect(error?.operation == "Context.generate")
  }

  @Test func aSecondCallEndsAGenerationOrIsRefused() async throws {
    let context = try await context()
    var first = try await context.generate(story()).makeAsyncIterator()
    #expect(try await first.next() != nil)
    _ = try await pieces(context.generate(story(), params: .init(maxTokens: 3)))
    // The first loop has lost its generation; it ends and does not hang.
    _ = await failure { while try await first.next() != nil {} }
    #expect(try await pieces(context.generate(story())).count > 20)
  }

  @Test func tasksGiveWhatOneGives() async throws {
    let prompt = try await story()
    let expected = try await text(pieces(context().generate(prompt)))
    try await withThrowingTaskGroup(of: String.self) { group in
      for _ in 0..<4 {
        group.addTask { try await text(pieces(context().generate(prompt))) }
      }
      for try await text in group { #expect(text == expected) }
    }
  }

  @Test func sixtyFourTasksGenerateAtOnce() async throws {
    let prompt = try await story()
    let params = GenerationParams(maxTokens: 12)
    let expected = try await pieces(context().generate(prompt, params: params)).map(\.token)
    let texts = try await withThrowingTaskGroup(of: [Token].self) { group in
      for _ in 0..<64 {
        group.addTask { try await pieces(context().generate(prompt, params: params)).map(\.token) }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    #expect(texts.count == 64)
    #expect(texts.allSatisfy { $0 == expected })
  }

  /// While more generations run than there are processors, another task gets turns. Generations that
  /// kept the threads of tasks would all end before that task goes on.
  @Test func nothingBlocksTheCooperativePool() async throws {
    let prompt = try await story()
    let count = ProcessInfo.processInfo.activeProcessorCount * 4 + 8
    let counter = Counter()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<count {
        group.addTask {
          var pieces = try await context().generate(prompt, params: .init(maxTokens: 40))
            .makeAsyncIterator()
          _ = try await pieces.next()
          await counter.begin()
          while try await pieces.next() != nil {}
          await counter.end()
        }
      }
      await counter.begun(count)
      for _ in 0..<100 { await Task.yield() }
      #expect(await counter.ended < count)
      try await group.waitForAll()
    }
    #expect(await counter.ended == count)
  }

  /// More calls wait than there are threads for tasks; other tasks go on, and so do their calls.
  @Test func callsThatWaitLeaveTheCooperativePool() async throws {
    let (runtime, prompt) = (try await model().runtime, try await story())
    let endless = try await endlessProgram(on: runtime)
    let x = try NDArray(Float(0), on: runtime)
    let submitted = try await endless.submit([x])
    let count = ProcessInfo.processInfo.activeProcessorCount * 4 + 70
    let counter = Counter()
    await withTaskGroup(of: Void.self) { group in
      for number in 0..<count {
        group.addTask {
          await counter.begin()
          let error = await failure {
            if number % 2 == 0 {
              _ = try await submitted[0].wait()
            } else {
              _ = try await endless.run([x])
            }
          }
          if case .canceled? = error { await counter.end() }
        }
      }
      await counter.begun(count)
      let answer = await failure {
        let params = GenerationParams(maxTokens: 4)
        #expect(try await pieces(context().generate(prompt, params: params)).count == 4)
        _ = try await model().info()
      }
      #expect(answer == nil)
      #expect(await counter.ended == 0)
      while await counter.ended < count {  // a run may not have begun yet
        try? endless.cancel()
        await Task.yield()
      }
    }
  }

  @Test func aStormOfCancelsHarmsNothing() async throws {
    let prompt = try await story()
    let expected = try await text(pieces(context().generate(prompt)))
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<16 {
        group.addTask {
          let context = try await context()
          for turn in 0..<6 {
            let begun = AsyncStream<Void>.makeStream()
            let task = Task {
              for try await _ in context.generate(prompt) { begun.continuation.yield() }
              begun.continuation.finish()
            }
            if (number + turn) % 3 != 0 { for await _ in begun.stream { break } }
            task.cancel()
            _ = await task.result
          }
          #expect(try await text(pieces(context.generate(prompt))) == expected)
        }
      }
      try await group.waitForAll()
    }
  }

  @Test func publicTypesAreSendable() {
    func isSendable<T: Sendable>(_: T.Type) {}
    isSendable(Runtime.self)
    isSendable(Model.self)
    isSendable(Context.self)
    isSendable(Checkpoint.self)
    isSendable(Adapter.self)
    isSendable(Generation.self)
    isSendable(ChatEvents.self)
    isSendable(Chat.self)
    isSendable(GenerationParams.self)
    isSendable(CowMLXError.self)
  }
}

/// Counts tasks that have begun and ended.
actor Counter {
  private var begunCount = 0
  private(set) var ended = 0
  private var waiting: (Int, CheckedContinuation<Void, Never>)?

  func begin() {
    begunCount += 1
    if let (count, continuation) = waiting, begunCount == count { continuation.resume() }
  }

  func end() { ended += 1 }

  /// Returns when so many tasks have begun.
  func begun(_ count: Int) async {
    guard begunCount < count else { return }
    await withCheckedContinuation { waiting = (count, $0) }
  }
}
