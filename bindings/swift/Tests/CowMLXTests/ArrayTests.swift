import CowMLX
import Testing

@Suite struct ArrayTests {
  private func through<T: ArrayElement & Equatable>(_ values: [T]) async throws {
    let runtime = try await Runtime.start()
    let array = try NDArray(values, shape: [1, values.count], on: runtime)
    #expect(try array.dtype == T.dtype)
    #expect(try array.shape == [1, values.count])
    #expect(try await array.values(of: T.self) == values)
  }

  @Test func elementsComeBackAsTheyWere() async throws {
    try await through([true, false])
    try await through([UInt8.max, 0])
    try await through([UInt16.max, 1])
    try await through([UInt32.max, 2])
    try await through([UInt64.max, 3])
    try await through([Int8.min, 4])
    try await through([Int16.min, 5])
    try await through([Int32.min, 6])
    try await through([Int64.min, 7])
    try await through([Int.min, 8])
    try await through([Float(0.1), -.infinity])
    try await through([0.1, 1e300])
    #if !(os(macOS) && arch(x86_64))
      try await through([Float16(0.1), .greatestFiniteMagnitude])
    #endif
    try await through([BFloat16(0.1), BFloat16(bitPattern: 0xff80)])
    try await through([Complex64(1.5, -2)])
  }

  @Test func halvesAreRoundedToEven() {
    #expect(BFloat16(1.00390625).float == 1)  // halfway between 1 and the next one
    #expect(BFloat16(1.01171875).float == 1.015625)
    #expect(BFloat16(-.infinity).float == -.infinity)
    #expect(BFloat16(.nan).float.isNaN)
    #expect(BFloat16(.greatestFiniteMagnitude).float == .infinity)
  }

  @Test func operatorsAreOperations() async throws {
    let runtime = try await Runtime.start()
    let a = try NDArray([1, 2, 3, 4] as [Float], shape: [2, 2], on: runtime)
    let b = try await -(a * 2 + 1) / a - 0.5
    #expect(try await b.values(of: Float.self) == [-3.5, -3, -3.5 + 2 / 3 as Float, -2.75])
    let isLarge = try await a .> 2
    #expect(try await isLarge.values(of: Bool.self) == [false, false, true, true])
    let chosen = try await isLarge.where(a, 0)
    #expect(try await chosen.values(of: Float.self) == [0, 0, 3, 4])
    let column = try await a.sum(axis: 1, keepdims: true)
    #expect(try column.shape == [2, 1])
    let (low, high) = try await a.minmax()
    #expect(try await (low.value(of: Float.self), high.value(of: Float.self)) == (1, 4))
  }

  /// Outside of asynchronous code, calls and operators are those that wait on their thread.
  private func norm(_ array: NDArray) throws -> Float {
    let positive: () throws -> NDArray = { try array * array + 0 }
    return try (1 * positive()).sum().sqrt().value(of: Float.self)
  }

  @Test func synchronousCodeHasTheSameOperators() async throws {
    let array = try NDArray([3, 4] as [Float], on: try await Runtime.start())
    let norm: @Sendable (NDArray) throws -> Float = { try ArrayTests().norm($0) }
    #expect(try await onAThread { try norm(array) } == 5)
  }

  @Test func numbersTakeTheTypeOfWhatTheyMeet() async throws {
    let runtime = try await Runtime.start()
    let bytes = try NDArray([1, 2] as [UInt8], on: runtime)
    let sum = try await bytes + 1
    let product = try await 0.5 * bytes
    let isOne = try await bytes .== 1
    let count = try await isOne + 1
    #expect(
      try (sum.dtype, product.dtype, isOne.dtype, count.dtype) == (.uint8, .float32, .bool, .int32))
  }

  @Test func viewsOfMemoryAreStrided() async throws {
    let runtime = try await Runtime.start()
    let numbers: [Int32] = [0, 1, 2, 3, 4, 5]
    let turned = try numbers.withUnsafeBytes {
      try NDArray(bytes: $0, dtype: .int32, shape: [3, 2], strides: [1, 3], on: runtime)
    }
    #expect(try await turned.values(of: Int32.self) == [0, 3, 1, 4, 2, 5])
    let last = try numbers.withUnsafeBytes {
      try NDArray(bytes: $0, dtype: .int32, shape: [2], offset: 20, strides: [-1], on: runtime)
    }
    #expect(try await last.values(of: Int32.self) == [5, 4])
    #expect(try await turned.withElements(of: Int32.self) { [Int32]($0) } == [0, 3, 1, 4, 2, 5])
    let found = await failure {
      _ = try numbers.withUnsafeBytes {
        try NDArray(bytes: $0, dtype: .int32, shape: [7], on: runtime)
      }
    }
    #expect(found?.reason == .outOfBounds)
  }

  @Test func mistakesAreErrors() async throws {
    let runtime = try await Runtime.start()
    let array = try NDArray([1, 2, 3] as [Float], on: runtime)
    #expect(
      await failure { _ = try NDArray([1, 2, 3], shape: [2, 2], on: runtime) }?.reason
        == .shapeMismatch)
    #expect(await failure { _ = try await array.values(of: Double.self) }?.reason == .dtypeMismatch)
    #expect(await failure { _ = try await array.value(of: Float.self) }?.reason == .shapeMismatch)
    await array.close()
    await array.close()
    #expect(await failure { _ = try await array + 1 } != nil)
    #expect(await failure { _ = try await array.values(of: Float.self) } != nil)
  }

  @Test func filesHoldArrays() async throws {
    let (runtime, folder) = (try await Runtime.start(), try Folder())
    let path = folder.path + "/arrays.safetensors"
    let (a, b) = (
      try NDArray([1.5, 2] as [Float], on: runtime), try NDArray(Int32(7), on: runtime)
    )
    try await NDArray.save(["a": a, "b": b], to: path)
    #expect(try await NDArray.info(of: path)["tensors"]?["a"]?["dtype"] == "float32")
    let loaded = try await NDArray.load(path, names: ["b", "a"], on: runtime)
    #expect(try await loaded[0].value(of: Int32.self) == 7)
    #expect(try await loaded[1].values(of: Float.self) == [1.5, 2])
    #expect(await failure { _ = try await NDArray.load(path, names: ["c"], on: runtime) } != nil)
  }

  @Test func dlpackCarriesElements() async throws {
    let runtime = try await Runtime.start()
    let array = try NDArray([1, 2, 3] as [Int64], on: runtime)
    let tensor = try await array.dlpack()
    let other = try NDArray(dlpack: tensor, on: runtime)
    #expect(try await other.values(of: Int64.self) == [1, 2, 3])
  }

  @Test func manyTasksUseOneArray() async throws {
    let runtime = try await Runtime.start()
    let array = try NDArray([Float](repeating: 2, count: 64), on: runtime)
    try await withThrowingTaskGroup(of: Float.self) { group in
      for at in 0..<64 {
        group.addTask { try await (array * Float(at)).sum().value(of: Float.self) }
      }
      var total: Float = 0
      for try await sum in group { total += sum }
      #expect(total == 128 * 63 * 32)
    }
  }
}
