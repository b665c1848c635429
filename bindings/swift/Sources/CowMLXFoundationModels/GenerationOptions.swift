import CowMLX

/// Options of a response.
public struct GenerationOptions: Hashable, Sendable {
  /// nil: the model's default, which is greedy without a temperature.
  public var sampling: SamplingMode?
  /// 0: greedy; nil: 0, or 1 where `sampling` is random.
  public var temperature: Double?
  /// nil: until the model ends, or the context is full.
  public var maximumResponseTokens: Int?

  public init(
    sampling: SamplingMode? = nil, temperature: Double? = nil, maximumResponseTokens: Int? = nil
  ) {
    (self.sampling, self.temperature) = (sampling, temperature)
    self.maximumResponseTokens = maximumResponseTokens
  }

  /// How tokens are chosen.
  public struct SamplingMode: Hashable, Sendable {
    fileprivate enum Kind: Hashable, Sendable {
      case greedy
      case top(Int, seed: UInt64?)
      case threshold(Double, seed: UInt64?)
    }

    fileprivate let kind: Kind

    /// The most probable token.
    public static var greedy: SamplingMode { SamplingMode(kind: .greedy) }

    /// One of the `k` most probable tokens.
    public static func random(top k: Int, seed: UInt64? = nil) -> SamplingMode {
      SamplingMode(kind: .top(k, seed: seed))
    }

    /// One of the most probable tokens, whose probabilities have this sum.
    public static func random(
      probabilityThreshold: Double, seed: UInt64? = nil
    ) -> SamplingMode {
      SamplingMode(kind: .threshold(probabilityThreshold, seed: seed))
    }
  }

  var params: GenerationParams {
    var params = GenerationParams(maxTokens: maximumResponseTokens ?? .max)
    params.temperature = Float(temperature ?? 0)
    switch sampling?.kind {
    case nil: break
    case .greedy: params.temperature = 0
    case .top(let k, let seed):
      params.topK = k
      random(&params, seed)
    case .threshold(let sum, let seed):
      params.topP = Float(sum)
      random(&params, seed)
    }
    return params
  }

  private func random(_ params: inout GenerationParams, _ seed: UInt64?) {
    params.temperature = Float(temperature ?? 1)
    // The library takes seeds as they are, so a response without one gets a random one.
    params.seed = seed ?? .random(in: 0...(.max))
  }
}
