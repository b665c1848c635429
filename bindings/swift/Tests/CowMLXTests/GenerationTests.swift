import CowMLX
import Testing

@Suite struct GenerationTests {
  @Test func aTextIsTheSumOfItsPieces() async throws {
    let generation = try await context().generate(story())
    let pieces = try await pieces(generation)
    #expect(pieces.count > 20)
    #expect(text(pieces).contains("owl"))
    #expect(generation.finish == .stop)
  }
}
