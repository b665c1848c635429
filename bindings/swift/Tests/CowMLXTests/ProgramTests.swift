import CowMLX
import Testing

@Suite struct ProgramTests {
  @Test func aProgramIsWrittenWithOperators() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      let x = builder.input("x", .float32, ["rows", 3])
      let w = builder.parameter("w", .float32, [3], initial: "normal")
      let y = x.matmul(w)
      builder.output("y", -(y + 1) / 2 - 3 * y)
      builder.output("loss", y.square().mean(axis: 0, keepdims: true))
      builder.output("above", (y .> 5).where(1.0, 0.5))
      builder.output("total", y.sum())
    }
    let x = try NDArray([1, 2, 3, 4, 5, 6] as [Float], shape: [2, 3], on: runtime)
    let w = try NDArray([1, 0, 1] as [Float], on: runtime)
    var found: [[Float]] = []
    for output in try await program.run([x, w]) { found.append(try await output.values()) }
    #expect(found == [[-14.5, -35.5], [58], [0.5, 1], [14]])
    let gradient = try await program.gradient(of: "total", withRespectTo: ["w"], value: true)
    let slopes = try await gradient.run([x, w])
    #expect(try await slopes[0].value(of: Float.self) == 14)
    #expect(try await slopes[1].values(of: Float.self) == [5, 7, 9])
    #expect(try await program.info()["parameters"]?[0]?["init"]?["name"] == "normal")
  }

  @Test func aProgramForARowIsOneForMany() async throws {
    let runtime = try await Runtime.start()
    let row = try await Program(on: runtime) { builder in
      let (x, y) = (builder.input("x", .float32, [2]), builder.input("y", .float32, [2]))
      builder.output("dot", (x * y).sum())
    }
    let x = try NDArray([1, 2, 3, 4] as [Float], shape: [2, 2], on: runtime)
    let y = try NDArray([10, 1] as [Float], on: runtime)
    let rows = try await row.vectorize(["x": 0], dimension: "n")
    #expect(try await rows.run([x, y])[0].values(of: Float.self) == [12, 34])
    let bound = try await rows.bind(["y": y])
    #expect(try await bound.run([x])[0].values(of: Float.self) == [12, 34])
  }

  @Test func bodiesUseWhatIsAroundThem() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      let x = builder.input("x", .float32, ["n"])
      let (twice, half) = (x + x, builder.constant(Float(0.5)))
      // A loop within a branch within a loop, which all use values from outside.
      let state = builder.whileLoop([x, builder.constant(Int32(0))], maxIterations: 100) {
        $0[1] .< 3
      } _: { state in
        let inner = builder.cond(state[0].sum() .< twice.sum() * 10) {
          let turned = builder.whileLoop(state, maxIterations: 9) {
            $0[1] .< 3
          } _: {
            [$0[0] + twice * half, $0[1] + 1]
          }
          return [turned[0]]
        } otherwise: {
          [twice]
        }
        return [inner[0], state[1] + 1]
      }
      builder.output("y", state[0])
    }
    let x = try NDArray([1, 2] as [Float], on: runtime)
    #expect(try await program.run([x])[0].values(of: Float.self) == [7, 14])
  }

  @Test func aBodyMayGiveAValueTwiceOrAsItCame() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      let (x, y) = (builder.input("x", .float32, [2]), builder.input("y", .float32, [2]))
      let turned = builder.whileLoop([x, y, x], maxIterations: 2) {
        $0[0].max() .< 5
      } _: {
        [y, $0[0], y]
      }
      let chosen = builder.cond(x.max() .< 5) {
        [x, x]
      } otherwise: {
        [y, x]
      }
      for (index, value) in [turned[0], turned[1], x, x, chosen[0], chosen[1]].enumerated() {
        builder.output("o\(index)", value)
      }
    }
    let (x, y) = (
      try NDArray([1, 2] as [Float], on: runtime), try NDArray([7, 8] as [Float], on: runtime)
    )
    let outputs = try await program.run([x, y])
    #expect(try await outputs[0].values(of: Float.self) == [7, 8])
    for output in outputs.dropFirst() {
      #expect(try await output.values(of: Float.self) == [1, 2])
    }
  }

  @Test func aProgramIsDescribedAndRefusesWhatDoesNotFit() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      let x = builder.input("x", .float32, ["n"])
      builder.output("y", x + x)
    }
    #expect(try await program.info(dimensions: ["n": 3])["run"]?["output_bytes"] != nil)
    #expect(await failure { _ = try await program.info(dimensions: ["m": 3]) } != nil)
    #expect(await failure { _ = try await program.run([]) } != nil)
    let high = try NDArray([3e38] as [Float], on: runtime)
    let infinite = await failure {
      _ = try await program.run([high], params: .init(checkFinite: true))
    }
    guard case .invalidArgument? = infinite else { throw Unexpected(infinite) }
    #expect(try await Program.operations().description.contains("matmul"))
  }

  @Test func scansAndFunctionsRepeatABody() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      let xs = builder.input("xs", .float32, ["n", 2])
      let start = builder.constant([0, 0] as [Float])
      let sums = builder.scan([start], [xs]) { carries, elements in
        let next = carries[0] + elements[0]
        return [next, next * 2]
      }
      let twice = builder.function(like: [start]) { [$0[0] * 2] }
      builder.output("last", builder.call(twice, builder.call(twice, [sums[0]]))[0])
      builder.output("all", sums[1])
    }
    let xs = try NDArray([1, 2, 3, 4, 5, 6] as [Float], shape: [3, 2], on: runtime)
    let found = try await program.run([xs])
    #expect(try await found[0].values(of: Float.self) == [36, 48])
    #expect(try await found[1].values(of: Float.self) == [2, 4, 8, 12, 18, 24])
  }

  @Test func constantsAreWhatTheyWere() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      builder.output(
        "floats", builder.constant([0.1, -1e-30, .greatestFiniteMagnitude, .infinity] as [Float]))
      builder.output("longs", builder.constant([Int64.min, .max], shape: [2, 1]))
      builder.output("nothing", builder.constant([Float](), shape: [0, 3]))
      builder.output("complex", builder.constant(Complex64(1.5, -2)))
      builder.output("half", builder.constant(BFloat16(0.1)))
    }
    let found = try await program.run([])
    #expect(
      try await found[0].values() == [0.1, -1e-30, .greatestFiniteMagnitude, .infinity] as [Float])
    #expect(try await found[1].values() == [Int64.min, .max])
    #expect(try found[2].shape == [0, 3])
    #expect(try await found[3].value() == Complex64(1.5, -2))
    #expect(try await found[4].value() == BFloat16(0.1))
  }

  @Test func theFirstMistakeIsTheError() async throws {
    let runtime = try await Runtime.start()
    let other = try await onAThread { () throws in
      let (one, two) = (ProgramBuilder(on: runtime), ProgramBuilder(on: runtime))
      let (x, y) = (one.input("x", .float32, [2]), two.input("y", .float32, [2]))
      one.output("sum", x + y)
      return refusal { try one.build() }
    }
    #expect(other?.message.contains("another program") == true)
    let shapes = await failure {
      _ = try await Program(on: runtime) { builder in
        let x = builder.input("x", .float32, [2, 3])
        builder.output("y", x.matmul(x))
      }
    }
    #expect(shapes?.reason == .conflict)
    #expect(await failure { _ = try await Program(on: runtime) { _ in } }?.reason == .conflict)
    #expect(await failure { _ = try await Program(json: "{", on: runtime) }?.reason == .invalidJson)
  }

  @Test func aSubmittedRunComesLater() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      builder.output("y", builder.input("x", .float32, ["n"]) * 2)
    }
    let x = try NDArray([1, 2] as [Float], on: runtime)
    let first = try await program.submit([x], donate: [0])
    let second = try await program.submit(first)
    #expect(try await second[0].wait())
    #expect(try await second[0].values(of: Float.self) == [4, 8])
    #expect(await failure { _ = try await x.values(of: Float.self) } != nil)  // it was given up
    #expect(try await first[0].values(of: Float.self) == [2, 4])
  }

  @Test func aCancelledTaskCancelsItsRun() async throws {
    let runtime = try await Runtime.start()
    let endless = try await endlessProgram(on: runtime)
    let x = try NDArray(Float(0), on: runtime)
    let submitted = try await endless.submit([x])
    let run = Task { try await endless.run([x]) }
    #expect(try await submitted[0].wait(milliseconds: 1) == false)
    run.cancel()
    await #expect(throws: CancellationError.self) { try await run.value }
    try endless.cancel()
    guard case .canceled = await failure({ _ = try await submitted[0].wait() }) else {
      Issue.record("the submitted run was not cancelled")
      return
    }
    await endless.close()
    #expect(refusal { try endless.cancel() }?.reason == .unknownHandle)
  }
}

/// A program whose runs end when they are cancelled.
func endlessProgram(on runtime: Runtime) async throws -> Program {
  try await Program(on: runtime) { builder in
    let state = builder.whileLoop([builder.input("x", .float32, [])], maxIterations: Int(Int32.max))
    { _ in
      builder.constant(true)
    } _: {
      [$0[0] + 1]
    }
    builder.output("y", state[0])
  }
}
