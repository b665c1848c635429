import CowMLX
import Testing

/// The code of docs/getting-started/swift.md and of the DocC pages, which tests compare with this file.
@Suite struct PageTests {
  @Test func tokens() async throws {
    let (model, context) = (try await model(), try await context())
    let tokens = try await model.chatPrompt([.user("What is 3 + 4?")])
    var params = GenerationParams(maxTokens: 40, temperature: 0.7)
    params.seed = 7
    let generation = context.generate(tokens, params: params)
    for try await piece in generation { print(piece.text, terminator: "") }
    let why = generation.finish
    #expect(why == .stop)
  }

  @Test func cancelling() async throws {
    let (context, tokens) = (try await context(), try await story())
    let task = Task {
      for try await piece in context.generate(tokens) { print(piece.text, terminator: "") }
    }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
  }

  @Test func manyAtOnce() async throws {
    let model = try await model()
    let questions = ["What is 3 + 4?", "What is a fox?", "What is 2 + 2?"]
    let answers = try await withThrowingTaskGroup(of: (Int, String).self) { group in
      for (index, question) in questions.enumerated() {
        group.addTask {
          let chat = Chat(try await model.context())
          return (index, try await chat.respond(to: question))
        }
      }
      return try await group.reduce(into: [Int: String]()) { $0[$1.0] = $1.1 }
    }
    #expect(answers[0] == "3 + 4 = 7.")
  }

  @Test func errors() async throws {
    let (context, tokens) = (try await context(), try await story())
    do {
      for try await _ in context.generate(tokens, params: GenerationParams(topP: 1.5)) {}
    } catch let error as CowMLXError where error.reason == .outOfRange {
      print(error.message)  // Context.generate: topP is 1.5, must be above 0 and at most 1
      #expect(error.message == "Context.generate: topP is 1.5, must be above 0 and at most 1")
    }
  }

  @Test func values() async throws {
    let context = try await context()
    struct Animal: Codable {
      let name: String
      let legs: Int
    }
    let animal = try await context.respond(to: [.user("Name an animal.")], as: Animal.self)
    #expect(animal.legs >= Int.min)
  }

  @Test func arrays() async throws {
    let runtime = try await Runtime.start()
    let a = try NDArray([1, 2, 3, 4] as [Float], shape: [2, 2], on: runtime)
    let b = try await (a * 2 + 1).sum(axis: 0)
    let sums = try await b.values(of: Float.self)  // [10, 14]
    #expect(sums == [10, 14])
  }

  @Test func programs() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      let x = builder.input("x", .float32, ["rows", 3])
      let w = builder.parameter("w", .float32, [3], initial: "normal")
      builder.output("loss", x.matmul(w).square().mean())
    }
    let slope = try await program.gradient(of: "loss", withRespectTo: ["w"], value: true)
    let x = try NDArray([Float](repeating: 1, count: 6), shape: [2, 3], on: runtime)
    let w = try NDArray([1, 2, 3] as [Float], on: runtime)
    let results = try await slope.run([x, w])
    let loss = try await results[0].value(of: Float.self)  // 36
    #expect(loss == 36)
  }

  @Test func trainings() async throws {
    let runtime = try await Runtime.start()
    let program = try await Program(on: runtime) { builder in
      let x = builder.input("x", .float32, ["rows", 3])
      let w = builder.parameter("w", .float32, [3], initial: "normal")
      builder.output("loss", x.matmul(w).square().mean())
    }
    let x = try NDArray([Float](repeating: 1, count: 6), shape: [2, 3], on: runtime)
    let training = try await Training(of: program, TrainingParams(seed: 1))
    for try await event in training.fit(FitParams(steps: 100, inputs: [x])) {
      if event.kind == .step { print(event.step, event.loss) }
    }
    try await #expect(training.info()["step"]?.int == 100)
  }
}
