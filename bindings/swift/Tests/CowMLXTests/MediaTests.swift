import CowMLX
import Testing

@Suite struct MediaTests {
  @Test func imagesHaveASizeAndAHash() async throws {
    let image = try await Media(
      model().runtime, pixels: [1, 2, 3, 4, 5, 6], width: 2, height: 1, channels: 3)
    let about = try await image.info()
    #expect(about["width"] == 2 && about["height"] == 1)
    #expect(about["hash"]?.string?.count == 32)
    #expect(image.id > 0)
  }

  @Test(arguments: [(3, 3), (Int(Int32.max), Int(Int32.max)), (0, 3), (-1, 3), (.max, 2)])
  func tooFewPixelsAreRefused(_ width: Int, _ channels: Int) async throws {
    let runtime = try await model().runtime
    let error = await failure {
      _ = try await Media(
        runtime, pixels: .init(repeating: 0, count: 6), width: width, height: 1,
        channels: channels)
    }
    guard case .invalidArgument? = error else { throw Unexpected(error) }
  }

  @Test(arguments: [Array("no image".utf8), []])
  func filesThatAreNoneAreRefused(_ bytes: [UInt8]) async throws {
    let runtime = try await model().runtime
    #expect(await failure { _ = try await Media(runtime, file: bytes) } != nil)
  }
}
