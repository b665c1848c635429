defmodule CowMLX.LogitsTest do
  use CowMLX.Case, async: true

  setup do
    %{context: Context.create!(model())}
  end

  # The last piece is the end.
  defp tokens(context, options) do
    pieces = Enum.to_list(Context.generate(context, "Once upon a time", options))
    for piece <- Enum.drop(pieces, -1), do: piece.token
  end

  defp only(token) do
    fn _tokens, logits ->
      Map.new(
        0..(div(byte_size(logits), 4) - 1),
        &{&1, if(&1 == token, do: 0, else: :neg_infinity)}
      )
    end
  end

  test "a function that changes nothing changes no token", %{context: context} do
    options = [max_tokens: 12, temperature: 0.9, seed: 7]
    plain = tokens(Context.create!(model()), options)

    for same <- [%{}, [], :all] do
      function = fn _, logits -> if same == :all, do: logits, else: same end
      assert tokens(context, [{:on_logits, function} | options]) == plain
    end
  end

  test "it gets all tokens and the logits, in the process that reads", %{context: context} do
    me = self()
    note = fn tokens, logits -> send(me, {:asked, self(), tokens, logits}) && %{} end
    {:ok, prompt} = CowMLX.Model.tokenize(model(), "Once upon a time", [:add_special])
    made = tokens(context, max_tokens: 3, on_logits: note)
    assert length(made) == 3

    for place <- 0..2 do
      seen = prompt ++ Enum.take(made, place)
      assert_received {:asked, ^me, ^seen, logits}
      other = Context.create!(model())
      Context.complete!(other, seen, max_tokens: 0)
      expected = Context.logits!(other)
      given = for <<logit::native-float-32 <- logits>>, do: logit
      assert length(given) == length(expected)
      assert Enum.zip_with(given, expected, &abs(&1 - &2)) |> Enum.max() < 1.0e-2
    end

    refute_received {:asked, _, _, _}
  end

  test "it decides about tokens, as changes or as all logits", %{context: context} do
    assert tokens(context, max_tokens: 3, on_logits: only(200)) == [200, 200, 200]

    all = fn _, logits ->
      count = div(byte_size(logits), 4)
      for token <- 0..(count - 1), into: <<>>, do: <<token / count::native-float-32>>
    end

    [first, second] = tokens(context, max_tokens: 2, on_logits: all)
    assert first == second and first > 200
  end

  test "chats have it, and progress comes while it is there", %{context: context} do
    me = self()
    plain = Chat.answer!(Context.create!(model()), question()).text
    counted = fn tokens, _ -> send(me, {:asked, length(tokens)}) && %{} end
    report = fn done, total -> send(me, {:progress, done, total}) end
    answer = Chat.answer!(context, question(), on_logits: counted, on_progress: report)
    assert answer.text == plain
    assert_received {:asked, _}
    assert_received {:progress, done, total} when done <= total
  end

  test "it ends a generation with :halt, and the context goes on", %{context: context} do
    second = fn tokens, _ -> if rem(length(tokens), 2) == 0, do: :halt, else: %{} end
    pieces = Enum.to_list(Context.generate(context, "Once", max_tokens: 9, on_logits: second))
    assert List.last(pieces).finish == :canceled
    assert length(pieces) < 4
    assert {:ok, %{finish: :length}} = Context.complete(context, "Once", max_tokens: 2)
  end

  test "what it raises, throws or exits with is raised, and leaves no message", %{
    context: context
  } do
    for fail <- [fn -> raise "no disk" end, fn -> throw(:ball) end, fn -> exit(:gone) end] do
      options = [max_tokens: 9, on_logits: fn _, _ -> fail.() end]
      caught = catch_any(fn -> Enum.to_list(Context.generate(context, "Once", options)) end)

      assert caught in [
               {:error, %RuntimeError{message: "no disk"}},
               {:throw, :ball},
               {:exit, :gone}
             ]
    end

    options = [
      max_tokens: 2,
      on_logits: fn _, _ -> %{} end,
      on_progress: fn _, _ -> raise "no" end
    ]

    assert_raise RuntimeError, "no", fn -> Context.complete(context, "Twice as much", options) end
    assert Process.info(self(), :message_queue_len) == {:message_queue_len, 0}
    assert {:ok, _} = Context.complete(context, "Once", max_tokens: 2)
  end

  defp catch_any(function) do
    function.()
  catch
    kind, reason -> {kind, reason}
  end

  test "results that are none are refused with what is accepted", %{context: context} do
    wrong = [nil, <<0, 0>>, %{-1 => 0.0}, %{1_000_000 => 1}, [{1, :high}], [1 | 2]]

    for given <- wrong do
      options = [max_tokens: 2, on_logits: fn _, _ -> given end]
      assert {:error, %Error{} = error} = Context.complete(context, "Once", options)
      assert error.message =~ ~r/^on_logits: the result of :on_logits is .*, must be a /
      assert error.details.accepted != nil
    end

    nan = fn _, logits ->
      binary_part(logits, 0, byte_size(logits) - 4) <> <<0x7FC00000::native-32>>
    end

    assert {:error, error} = Context.complete(context, "Once", max_tokens: 2, on_logits: nan)
    assert error.status == :einval and error.message =~ "logits_fn wrote nan"

    for value <- [1, fn -> 1 end] do
      assert {:error, error} = Context.complete(context, "Once", on_logits: value)
      assert error.message =~ "on_logits is" and error.message =~ "a function of two arguments"
    end
  end

  test "drafts are refused", %{context: context} do
    options = [draft_tokens: 4, on_logits: fn _, _ -> %{} end]
    assert {:error, %Error{status: :eunsupported}} = Context.complete(context, "Once", options)
  end

  test "a stream that is left early asks no more, and frees the context", %{context: context} do
    me = self()
    note = fn _, _ -> send(me, :asked) && %{} end
    stream = Context.generate(context, "Once", max_tokens: 400, on_logits: note)
    assert [_, _] = Enum.take(stream, 2)
    assert_received :asked
    assert_received :asked
    assert {:ok, _} = Context.complete(context, "Once", max_tokens: 2)
    refute_received _
  end

  test "the library is there for it", %{context: context} do
    other = Context.create!(model())
    plain = tokens(Context.create!(model()), max_tokens: 2)

    work = fn tokens, _ ->
      assert {:ok, _} = Context.complete(other, tokens, max_tokens: 1)
      %{}
    end

    assert tokens(context, max_tokens: 2, on_logits: work) == plain
  end

  test "a process that is killed while it decides ends the generation", %{context: context} do
    me = self()

    wait = fn _, _ ->
      send(me, :asked)
      Process.sleep(:infinity)
    end

    pid = spawn(fn -> Context.complete(context, "Once", max_tokens: 400, on_logits: wait) end)
    assert_receive :asked, 10_000
    assert {:ok, %{"generating" => true}} = Context.info(context)
    Process.exit(pid, :kill)
    assert until(fn -> match?({:ok, %{"generating" => false}}, Context.info(context)) end)
    assert {:ok, _} = Context.complete(context, "Once", max_tokens: 2)
  end

  test "a context that is cancelled or freed while it decides ends", %{context: context} do
    cancel = fn _, _ -> Context.cancel(context) && %{} end
    assert {:ok, %{finish: :canceled}} = Context.complete(context, "Once", on_logits: cancel)
    free = fn _, _ -> Context.free(context) && %{} end
    assert {:error, %Error{status: status}} = Context.complete(context, "Once", on_logits: free)
    assert status in [:ecanceled, :ehandle]
  end

  # More than the workers of the NIF, each of whose functions needs one.
  test "hundreds of processes decide at the same time" do
    model = model()

    1..100
    |> Task.async_stream(
      fn _ ->
        context = Context.create!(model)
        ask = fn _, _ -> CowMLX.Model.tokenize!(model, "fox") && %{} end
        assert {:ok, _} = Context.complete(context, "Once", max_tokens: 2, on_logits: ask)
        Context.free(context)
      end,
      max_concurrency: 100,
      timeout: 120_000
    )
    |> Stream.run()
  end
end
