import CowMLX
import Foundation
import Testing

@Suite struct AdapterTests {
  static let name = "model.layers.0.self_attn.q_proj"
  static let rank = 2

  /// Writes a LoRA adapter for the first layer of models/calf, as mlx-lm's trainer does.
  func write(_ folder: String) throws {
    let config = """
      {"fine_tune_type": "lora", "num_layers": 0, "lora_parameters":
        {"rank": \(Self.rank), "scale": 10.0, "dropout": 0.0, "keys": ["\(Self.name)"]}}
      """
    try config.write(toFile: folder + "/adapter_config.json", atomically: true, encoding: .utf8)
    let size = 128 * Self.rank * 4
    let header = """
      {"\(Self.name).lora_a": {"dtype": "F32", "shape": [128, \(Self.rank)], "data_offsets": [0, \(size)]},
       "\(Self.name).lora_b": {"dtype": "F32", "shape": [\(Self.rank), 128], "data_offsets": [\(size), \(2 * size)]}}
      """
    var file = Data()
    withUnsafeBytes(of: UInt64(header.utf8.count).littleEndian) { file.append(contentsOf: $0) }
    file.append(contentsOf: header.utf8)
    for value in 0..<2 * 128 * Self.rank {
      let weight = sin(Float(value) * 0.7) * 0.3
      withUnsafeBytes(of: weight.bitPattern.littleEndian) { file.append(contentsOf: $0) }
    }
    try file.write(to: URL(fileURLWithPath: folder + "/adapters.safetensors"))
  }

  @Test func anAdapterChangesAContextUntilItIsTakenAway() async throws {
    let folder = try Folder()
    try write(folder.path)
    let context = try await context()
    let params = GenerationParams(maxTokens: 30)
    let plain = try await pieces(context.generate(story(), params: params)).map(\.token)

    var adapter: Adapter? = try await model().adapter(folder.path)
    try await context.setAdapter(adapter)
    adapter = nil  // the context keeps it
    #expect(try await context.info()["adapter"]?.int != nil)
    #expect(try await pieces(context.generate(story(), params: params)).map(\.token) != plain)

    try await context.setAdapter(adapter)
    #expect(try await pieces(context.generate(story(), params: params)).map(\.token) == plain)
  }

  @Test func aClosedAdapterIsNotNone() async throws {
    let folder = try Folder()
    try write(folder.path)
    let (context, adapter) = (try await context(), try await model().adapter(folder.path))
    await adapter.close()
    let error = await failure { try await context.setAdapter(adapter) }
    #expect(error?.details == ["argument": "adapter"])
  }

  @Test func aMissingAdapterIsRefused() async throws {
    let model = try await model()
    let error = await failure { _ = try await model.adapter("no such folder") }
    #expect(error?.reason == .fileNotFound)
    #expect(error?.operation == "Model.adapter")
  }
}
