import Foundation
import Testing

@testable import CowMLX

/// Starts, stops and what is freed: alone in a process, since the runtime is the process's.
@Suite(
  .serialized, .enabled(if: ProcessInfo.processInfo.environment["COWMLX_TEST_LIFECYCLE"] != nil))
struct LifecycleTests {
  /// Whether the runtime runs.
  func runs() async -> Bool {
    await freed()
    return await failure {
      try await blocking { () throws(CowMLXError) in try check(api.memory_trim()) }
    } == nil
  }

  /// Waits until all that has gone is freed.
  func freed() async {
    // A last reference may go with an earlier free, so objects that keep each other need several.
    for _ in 0..<4 {
      await withCheckedContinuation { continuation in
        Workers.frees.run { continuation.resume() }
      }
    }
  }

  /// Whether something becomes true soon: a call keeps its objects a little longer than its task waits for it.
  func soon(_ isTrue: () async throws -> Bool) async rethrows -> Bool {
    let end = ContinuousClock.now + .seconds(20)
    while ContinuousClock.now < end {
      if try await isTrue() { return true }
      await Task.yield()
    }
    return false
  }

  @Test func theVersionIsKnownBeforeAStart() throws {
    #expect(try Library.version.split(separator: ".").count == 3)
    #expect(refusal { try Library.use("elsewhere") }?.reason == .conflict)
    #expect(FileManager.default.fileExists(atPath: try Library.path))
  }

  @Test func theLastRuntimeStopsIt() async throws {
    var first: Runtime? = try await Runtime.start()
    let second = try await Runtime.start()
    #expect(first != nil)
    first = nil
    #expect(await runs())
    try await second.stop()
    try await second.stop()
    #expect(await soon { await !runs() })
  }

  @Test func aModelKeepsTheRuntimeThatItWasGiven() async throws {
    var model: Model? = try await Model.load(calf, runtime: Runtime.start())
    #expect(await runs())
    var context = try await model?.context()
    #expect(context != nil)
    model = nil
    #expect(await runs())
    context = nil
    #expect(await soon { await !runs() })
  }

  @Test func everyKindOfHandleIsFreed() async throws {
    let runtime = try await Runtime.start()
    let before = try await runtime.info()["handles"]
    func use() async throws {
      let model = try await Model.load(calf, runtime: runtime)
      let context = try await model.context()
      try await context.begin([1], params: .init(maxTokens: 0))
      let fork = try await context.fork()
      let checkpoint = try await fork.checkpoint()
      let open = try await runtime.info()["handles"]
      #expect(open?["model"] == 1)
      #expect(open?["context"] == 2)
      #expect(open?["checkpoint"] == 1)
      withExtendedLifetime(checkpoint) {}
    }
    try await use()
    #expect(try await soon { try await runtime.info()["handles"] == before })
    try await runtime.stop()
  }

  @Test func loopsThatAreLeftLeakNothing() async throws {
    let runtime = try await Runtime.start()
    let model = try await Model.load(calf, runtime: runtime)
    let prompt = try await model.chatPrompt([.user("Tell me a story about an owl.")])
    func use() async throws {
      try await withThrowingTaskGroup(of: Void.self) { group in
        for turn in 0..<24 {
          group.addTask {
            let context = try await model.context()
            for try await _ in context.generate(prompt) where turn % 2 == 0 { break }
            if turn % 3 == 0 { for try await _ in context.chat([.user("Hello")]) { break } }
            let canceled = Task { for try await _ in context.generate(prompt) {} }
            canceled.cancel()
            _ = await canceled.result
          }
        }
        try await group.waitForAll()
      }
    }
    let handles = try await runtime.info()["handles"]
    func isAsBefore() async throws -> Bool { try await runtime.info()["handles"] == handles }
    for _ in 0..<2 { try await use() }
    #expect(try await soon(isAsBefore))
    let descriptors = try descriptorCount()
    // The allocator's arenas grow for a while. A leak grows in every round.
    var grown: [Int] = []
    for _ in 0..<6 where grown.min() ?? .max >= 2 << 20 {
      let memory = try await usedMemory(runtime)
      for _ in 0..<3 { try await use() }
      #expect(try await soon(isAsBefore))
      grown.append(try await usedMemory(runtime) - memory)
    }
    #expect(grown.contains { $0 < 2 << 20 }, "each round left bytes: \(grown)")
    #expect(try descriptorCount() <= descriptors)
    await model.close()
    try await runtime.stop()
  }

  @Test func theLogIsHeardAndThenDropped() async throws {
    let heard = Heard<(LogLevel, String)>()
    let runtime = try await Runtime.start { heard.add(($0, $1)) }
    #expect(heard.all.contains { $0.0 == .info && $0.1.contains("mlx") })
    try await runtime.stop()
  }

  @Test func aLogLevelIsKeptTo() async throws {
    let heard = Heard<String>()
    let runtime = try await Runtime.start(.init(logLevel: .off)) { heard.add($1) }
    _ = try await Model.load(calf, runtime: runtime)
    await freed()
    try await runtime.stop()
    #expect(heard.all.isEmpty)
  }

  @Test func otherParametersAreRefusedWhileItRuns() async throws {
    let quiet = RuntimeParams(memoryLimit: 1 << 33, cacheLimit: 1 << 20, threads: 2)
    let runtime = try await Runtime.start(quiet)
    try await Runtime.start(quiet).stop()
    try await Runtime.start().stop()
    var other = quiet
    other.cacheLimit = 2 << 20
    let changed = other
    #expect(await failure { _ = try await Runtime.start(changed) }?.reason == .otherParameters)
    #expect(
      await failure { _ = try await Runtime.start(quiet) { _, _ in } }?.reason == .otherParameters)
    #expect(try await runtime.info()["memory"]?["limit"] == .int(1 << 33))
    try await runtime.stop()
  }

  @Test func devicesAndFoldersThatAreNotThereAreRefused() async throws {
    let device = await failure { _ = try await Runtime.start(.init(device: "abacus")) }
    #expect(device?.message.contains("abacus") == true)
    let folder = await failure { _ = try await Runtime.start(.init(pythonHome: "a\0b")) }
    #expect(folder?.message.contains("pythonHome") == true)
    #expect(await soon { await !runs() })
  }

  @Test func aStopEndsWhatRuns() async throws {
    let runtime = try await Runtime.start()
    let context = try await Model.load(calf, runtime: runtime).context()
    let prompt = try await context.model.tokenize("Once upon a time", special: .add)
    var pieces = context.generate(prompt, params: .init(maxTokens: .max)).makeAsyncIterator()
    #expect(try await pieces.next() != nil)
    try await runtime.stop()
    _ = await failure { while try await pieces.next() != nil {} }
    let error = await failure { _ = try await context.tokens() }
    #expect(error != nil)
    #expect(await soon { await !runs() })
  }
}

/// The open files of this process.
func descriptorCount() throws -> Int {
  #if os(Linux)
    try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count
  #else
    0
  #endif
}

/// The bytes that this process has in memory, once mlx has given back what it keeps.
func usedMemory(_ runtime: Runtime) async throws -> Int {
  try await runtime.trimMemory()
  #if os(Linux)
    let pages = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(
      separator: " ")
    return Int(pages[1])! * 4096
  #else
    return 0
  #endif
}
