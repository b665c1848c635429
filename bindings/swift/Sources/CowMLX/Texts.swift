import CCowMLX

/// Texts in C's form, where a call takes several.
final class CTexts: Sendable {
  private nonisolated(unsafe) let bytes: UnsafeMutableBufferPointer<CChar>
  private nonisolated(unsafe) let texts: UnsafeMutableBufferPointer<cow_mlx_text>

  init(_ texts: [String]) {
    bytes = .allocate(capacity: texts.reduce(1) { $0 + $1.utf8.count })
    self.texts = .allocate(capacity: max(texts.count, 1))
    var end = 0
    for (index, text) in texts.enumerated() {
      let start = end
      for byte in text.utf8 {
        bytes[end] = CChar(bitPattern: byte)
        end += 1
      }
      self.texts[index] = cow_mlx_text(data: bytes.baseAddress! + start, length: end - start)
    }
  }

  var start: UnsafePointer<cow_mlx_text> { UnsafePointer(texts.baseAddress!) }

  deinit {
    bytes.deallocate()
    texts.deallocate()
  }
}

/// The numbers of several texts, a row each.
public struct Rows: RandomAccessCollection, Hashable, Sendable {
  /// The numbers of a row.
  public let width: Int
  /// All numbers, row by row.
  public let values: [Float]
  /// The number of rows.
  public let count: Int

  public var startIndex: Int { 0 }
  public var endIndex: Int { count }
  public subscript(row: Int) -> ArraySlice<Float> { values[row * width..<(row + 1) * width] }
}

extension Model {
  /// Computes the embeddings of texts: pooled hidden states of the model's last layer, a row for each text.
  public func embed(
    _ texts: [String], params: EmbedParams = EmbedParams()
  ) async throws -> Rows {
    let raw = CTexts(texts)
    return try await call { (model) throws(CowMLXError) in
      try params.withRaw { (params) throws(CowMLXError) in
        try rows(texts.count) {
          api.model_embed(model, raw.start, texts.count, &params, $0, $1, $2)
        }
      }
    }
  }

  /// Scores how well documents fit a query, a row for each document: the higher a score, the better.
  public func rank(
    _ query: String, documents: [String], params: RankParams = RankParams()
  ) async throws -> Rows {
    let (query, raw) = (try CText("Model.rank", "query", query), CTexts(documents))
    return try await call { (model) throws(CowMLXError) in
      try params.withRaw { (params) throws(CowMLXError) in
        try rows(documents.count) {
          api.model_rank(model, query.start, raw.start, documents.count, &params, $0, $1, $2)
        }
      }
    }
  }
}

/// The rows that a call gives; their width is known after a first call.
private func rows(_ count: Int, _ fill: Fill<Float>) throws(CowMLXError) -> Rows {
  var (values, width, capacity) = ([Float](), 0, count)
  while true {
    var status = cow_mlx_status(0)
    values = [Float](unsafeUninitializedCapacity: max(capacity, 1)) { buffer, filled in
      status = fill(buffer.baseAddress!, capacity, &width)
      filled = status == COW_MLX_OK ? count * width : 0
    }
    if status != COW_MLX_EBUFFER || count * width <= capacity {
      try check(status)
      return Rows(width: width, values: values, count: count)
    }
    capacity = count * width
  }
}
