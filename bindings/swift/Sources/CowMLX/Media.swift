import CCowMLX

/// An image: a value, which nothing changes.
public final class Media: Sendable {
  let handle: Handle<Int32>

  /// The handle, for content parts of messages.
  public var id: Int32 { handle.raw }

  private init(_ raw: Int32, of runtime: Runtime) {
    handle = Handle(raw, parent: runtime) { api.media_free($0) }
  }

  /// Creates an image from pixels, row by row, which are copied.
  ///
  /// - Parameter channels: bytes of a pixel: 1 (grey), 3 (RGB) or 4 (RGBA).
  public convenience init(
    _ runtime: Runtime, pixels: [UInt8], width: Int, height: Int, channels: Int
  ) async throws {
    let lowering = Lowering("Media.fromPixels")
    let w: Int32 = try lowering.number("width", width)
    let h: Int32 = try lowering.number("height", height)
    let c: Int32 = try lowering.number("channels", channels)
    let (row, overflow) = width.multipliedReportingOverflow(by: channels)
    if overflow || width > 0 && height > 0 && channels > 0 && pixels.count / height < row {
      throw CowMLXError.refused(
        Int(COW_MLX_EINVAL), "Media.fromPixels", "shape_mismatch", argument: "pixels",
        "pixels has \(pixels.count) bytes, too few for \(width) x \(height) x \(channels)")
    }
    let raw = try await blocking { () throws(CowMLXError) in
      try made(pixels) { api.media_from_pixels($0, w, h, c, max(row, 0), $1) }
    }
    self.init(raw, of: runtime)
  }

  /// Creates an image from a file: PNG, JPEG, WebP, BMP or GIF.
  public convenience init(_ runtime: Runtime, file bytes: [UInt8]) async throws {
    let raw = try await blocking { () throws(CowMLXError) in
      try made(bytes) { api.media_from_file($0, bytes.count, $1) }
    }
    self.init(raw, of: runtime)
  }

  /// Describes the image: width, height, channels and hash.
  public func info() async throws -> JSONValue {
    try await blocking { [handle] () throws(CowMLXError) in
      try json(256) { api.media_info(handle.raw, $0, $1, $2) }
    }
  }

  /// Frees the image now instead of with its last reference.
  public func close() async { await handle.close() }
}

private func made(
  _ bytes: [UInt8], _ call: (UnsafeRawPointer?, UnsafeMutablePointer<Int32>) -> cow_mlx_status
) throws(CowMLXError) -> Int32 {
  var raw: Int32 = 0
  try check(bytes.withUnsafeBytes { call($0.baseAddress, &raw) })
  return raw
}
