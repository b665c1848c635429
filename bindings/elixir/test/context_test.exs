defmodule CowMLX.ContextTest do
  use CowMLX.Case, async: true

  setup do
    %{context: Context.create!(model())}
  end

  test "a stream of pieces is what complete/3 returns", %{context: context} do
    pieces = Enum.to_list(Context.generate(context, "Once upon a time", max_tokens: 12))
    text = Enum.map_join(pieces, & &1.text)
    assert text != ""
    assert List.last(pieces).finish == :length

    other = Context.create!(model())

    assert {:ok, %{text: ^text, finish: :length, stats: stats}} =
             Context.complete(other, "Once upon a time", max_tokens: 12)

    assert stats.generated_tokens == 12
  end

  test "a chat answers, and a second turn reuses the first", %{context: context} do
    assert {:ok, %{text: "3 + 4 = 7.", finish: :stop}} = Chat.answer(context, question())

    more =
      question() ++
        [%{role: "assistant", content: "3 + 4 = 7."}, %{role: "user", content: "What is 2 + 2?"}]

    assert {:ok, %{stats: stats}} = Chat.answer(context, more)
    assert stats.reused_tokens > 0
  end

  test "events come in order, and the last is the end", %{context: context} do
    events = Enum.to_list(Chat.stream(context, question()))
    assert Enum.map_join(events, & &1.text) == "3 + 4 = 7."
    assert %{kind: :end, finish: :stop} = List.last(events)
    assert Enum.all?(Enum.drop(events, -1), &(&1.kind == :text))
  end

  test "a grammar given as a map is JSON", %{context: context} do
    schema = %{const: 7}

    {:ok, answer} =
      Chat.answer(context, question(),
        grammar: schema,
        grammar_kind: :json_schema,
        max_tokens: 64
      )

    assert answer.text == "7"
  end

  test "log probabilities are numbers only when they are asked for", %{context: context} do
    [piece] = Enum.take(Context.generate(context, "Hello", max_tokens: 1), 1)
    assert piece.logprob == nil
    [piece] = Enum.take(Context.generate(context, "Hello", max_tokens: 4, logprobs: 2), 1)
    assert piece.logprob <= 0
  end

  test "a prompt is scored", %{context: context} do
    {:ok, tokens} = CowMLX.Model.tokenize(model(), "Once upon a time")
    assert {:ok, {_, _}} = Context.prompt_logprobs(context, tokens, 2)
    assert {:ok, {perplexity, _, scored}} = Context.perplexity(context, "Once upon a time", 0)
    assert perplexity > 1 and scored > 0
  end

  test "a stream that is left early frees the context for the next call", %{context: context} do
    assert [_, _] = context |> Context.generate("Once", max_tokens: 400) |> Enum.take(2)
    assert {:ok, _} = Context.complete(context, "Once", max_tokens: 2)
  end

  test "progress of a long prompt is reported", %{context: context} do
    me = self()
    text = String.duplicate("A fox and a calf. ", 60)
    report = fn done, total -> send(me, {:progress, done, total}) end
    Enum.to_list(Context.generate(context, text, max_tokens: 1, on_progress: report))
    assert_received {:progress, done, total} when done <= total
  end

  test "pieces come as messages", %{context: context} do
    {ref, _pid} = Context.generate_async(context, "Once", max_tokens: 3)
    assert_receive {^ref, {:piece, %CowMLX.Piece{}}}, 10_000
    assert_receive {^ref, :done}, 10_000
  end

  test "a failed begin raises in a stream, and is an error of complete/3", %{context: context} do
    assert {:error, %Error{op: :context_begin_async, reason: :out_of_range} = error} =
             Context.complete(context, "Hello", top_p: 1.5)

    assert error.details == %{argument: "top_p", value: 1.5, accepted: "above 0 and at most 1"}
    assert error.status == :einval

    assert_raise Error, ~r/top_p is 1.5/, fn ->
      Enum.to_list(Context.generate(context, "a", top_p: 1.5))
    end
  end

  test "a begin with long arguments fails like others", %{context: context} do
    long = [%{role: "user", content: String.duplicate("word ", 60_000)}]
    assert {:error, %Error{reason: :context_full}} = Chat.answer(context, long)
    assert {:ok, %{text: "3 + 4 = 7."}} = Chat.answer(context, question())
  end

  test "unknown options and wrong types are refused with what is accepted", %{context: context} do
    assert {:error, %Error{reason: :unknown_option, details: %{argument: "temprature"}}} =
             Context.complete(context, "Hello", temprature: 1)

    assert {:error, %Error{reason: :wrong_type, details: %{argument: "max_tokens"}}} =
             Context.complete(context, "Hello", max_tokens: "many")

    assert {:error, %Error{reason: :out_of_range, details: %{argument: "grammar_kind"}}} =
             Context.complete(context, "Hello", grammar_kind: :poem)

    assert {:error, %Error{reason: :wrong_type}} = Context.complete(context, [1, :two])
  end

  test "tokens and values of a bias have one length", %{context: context} do
    for {tokens, values} <- [{[], List.duplicate(0.0, 1000)}, {[1], []}, {[1, 2], [0.0]}] do
      options = [bias_tokens: tokens, bias_values: values]
      assert {:error, %Error{details: details}} = Context.complete(context, "Once", options)
      assert details.argument == "bias_values"
    end

    options = [bias_tokens: [1], bias_values: [0.0], max_tokens: 1]
    assert {:ok, _} = Context.complete(context, "Once", options)
  end

  test "generated methods: tokens, trim_end, fork, checkpoint, rewind, info", %{context: context} do
    Context.complete!(context, "Once upon a time", max_tokens: 4)
    tokens = Context.tokens!(context)
    assert length(tokens) > 4
    fork = Context.fork!(context)
    assert Context.tokens!(fork) == tokens
    assert fork.model == context.model
    checkpoint = Context.checkpoint!(context)
    assert {:ok, 2} = Context.trim_end(context, 2)
    assert Context.tokens!(context) == Enum.drop(tokens, -2)
    assert :ok = Context.rewind(context, checkpoint)
    assert Context.tokens!(context) == tokens
    assert {:ok, %{"tokens" => count}} = Context.info(context)
    assert count == length(tokens)
    assert :ok = Context.reset(context)
    assert Context.tokens!(context) == []
  end

  test "a context is saved and loaded", %{context: context} do
    path =
      Path.join(System.tmp_dir!(), "cowmlx-#{System.unique_integer([:positive])}.safetensors")

    Context.complete!(context, "Once upon a time", max_tokens: 3)
    assert :ok = Context.save(context, path)
    other = Context.create!(model())
    assert :ok = Context.load(other, path)
    assert Context.tokens!(other) == Context.tokens!(context)
    File.rm!(path)
  end

  test "a freed context is refused", %{context: context} do
    assert :ok = Context.free(context)
    assert :ok = Context.free(context)
    assert {:error, %Error{status: :ehandle}} = Context.tokens(context)
    assert {:error, %Error{status: :ehandle}} = Context.complete(context, [1, 2])
    assert {:error, %Error{op: :context_cancel} = error} = Context.cancel(context)
    assert {error.status, error.reason} == {:ehandle, :unknown_handle}
    assert error.message == "context_cancel: the context is closed"
  end
end
