import CowMLX

extension LanguageModelSession {
  @discardableResult
  public func respond(
    to prompt: String, options: GenerationOptions = GenerationOptions()
  ) async throws -> Response<String> {
    try await streamResponse(to: prompt, options: options).collect()
  }

  @discardableResult
  public func respond(
    to prompt: Prompt, options: GenerationOptions = GenerationOptions()
  ) async throws -> Response<String> {
    try await streamResponse(to: prompt, options: options).collect()
  }

  @discardableResult
  public func respond(
    options: GenerationOptions = GenerationOptions(), @PromptBuilder prompt: () throws -> Prompt
  ) async throws -> Response<String> {
    try await streamResponse(to: try prompt(), options: options).collect()
  }

  @discardableResult
  public func respond<Content: Generable>(
    to prompt: String, generating type: Content.Type = Content.self,
    includeSchemaInPrompt: Bool = true, options: GenerationOptions = GenerationOptions()
  ) async throws -> Response<Content> {
    try await streamResponse(
      to: prompt, generating: type, includeSchemaInPrompt: includeSchemaInPrompt, options: options
    ).collect()
  }

  @discardableResult
  public func respond<Content: Generable>(
    to prompt: Prompt, generating type: Content.Type = Content.self,
    includeSchemaInPrompt: Bool = true, options: GenerationOptions = GenerationOptions()
  ) async throws -> Response<Content> {
    try await respond(
      to: prompt.text, generating: type, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  @discardableResult
  public func respond<Content: Generable>(
    generating type: Content.Type = Content.self, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions(), @PromptBuilder prompt: () throws -> Prompt
  ) async throws -> Response<Content> {
    try await respond(
      to: try prompt(), generating: type, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  @discardableResult
  public func respond(
    to prompt: String, schema: GenerationSchema, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions()
  ) async throws -> Response<GeneratedContent> {
    try await streamResponse(
      to: prompt, schema: schema, includeSchemaInPrompt: includeSchemaInPrompt, options: options
    ).collect()
  }

  @discardableResult
  public func respond(
    to prompt: Prompt, schema: GenerationSchema, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions()
  ) async throws -> Response<GeneratedContent> {
    try await respond(
      to: prompt.text, schema: schema, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  @discardableResult
  public func respond(
    schema: GenerationSchema, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions(), @PromptBuilder prompt: () throws -> Prompt
  ) async throws -> Response<GeneratedContent> {
    try await respond(
      to: try prompt(), schema: schema, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  public func streamResponse(
    to prompt: String, options: GenerationOptions = GenerationOptions()
  ) -> ResponseStream<String> {
    ResponseStream(
      session: self, prompt: prompt, schema: .success(nil), options: options, includesSchema: false
    ) {
      ($0.value.string ?? "", $0.value.string ?? "")
    }
  }

  public func streamResponse(
    to prompt: Prompt, options: GenerationOptions = GenerationOptions()
  ) -> ResponseStream<String> {
    streamResponse(to: prompt.text, options: options)
  }

  public func streamResponse(
    options: GenerationOptions = GenerationOptions(), @PromptBuilder prompt: () throws -> Prompt
  ) rethrows -> ResponseStream<String> {
    streamResponse(to: try prompt(), options: options)
  }

  public func streamResponse<Content: Generable>(
    to prompt: String, generating type: Content.Type = Content.self,
    includeSchemaInPrompt: Bool = true, options: GenerationOptions = GenerationOptions()
  ) -> ResponseStream<Content> {
    ResponseStream(
      session: self, prompt: prompt, schema: Result { try Content.generationSchema },
      options: options,
      includesSchema: includeSchemaInPrompt
    ) { content in
      (try Content.partial(content), content.isComplete ? try content.value(Content.self) : nil)
    }
  }

  public func streamResponse<Content: Generable>(
    to prompt: Prompt, generating type: Content.Type = Content.self,
    includeSchemaInPrompt: Bool = true, options: GenerationOptions = GenerationOptions()
  ) -> ResponseStream<Content> {
    streamResponse(
      to: prompt.text, generating: type, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  public func streamResponse<Content: Generable>(
    generating type: Content.Type = Content.self, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions(), @PromptBuilder prompt: () throws -> Prompt
  ) rethrows -> ResponseStream<Content> {
    streamResponse(
      to: try prompt(), generating: type, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  public func streamResponse(
    to prompt: Prompt, schema: GenerationSchema, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions()
  ) -> ResponseStream<GeneratedContent> {
    streamResponse(
      to: prompt.text, schema: schema, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  public func streamResponse(
    schema: GenerationSchema, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions(), @PromptBuilder prompt: () throws -> Prompt
  ) rethrows -> ResponseStream<GeneratedContent> {
    streamResponse(
      to: try prompt(), schema: schema, includeSchemaInPrompt: includeSchemaInPrompt,
      options: options)
  }

  public func streamResponse(
    to prompt: String, schema: GenerationSchema, includeSchemaInPrompt: Bool = true,
    options: GenerationOptions = GenerationOptions()
  ) -> ResponseStream<GeneratedContent> {
    ResponseStream(
      session: self, prompt: prompt, schema: .success(schema), options: options,
      includesSchema: includeSchemaInPrompt
    ) { ($0, $0) }
  }
}

extension GeneratedContent: Generable {
  public typealias PartiallyGenerated = GeneratedContent
  public static var generationSchema: GenerationSchema { GenerationSchema(.anything) }
  public init(from decoder: any Decoder) throws { self.init(try JSONValue(from: decoder)) }
  public func encode(to encoder: any Encoder) throws { try value.encode(to: encoder) }
}
