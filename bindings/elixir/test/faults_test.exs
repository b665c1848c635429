defmodule CowMLX.FaultsTest do
  use CowMLX.Case, async: false

  import Bitwise, only: [<<<: 2]
  alias CowMLX.NIF

  test "a process that is killed in the middle of a generation cancels it" do
    context = Context.create!(model())
    me = self()

    reason =
      in_process(fn ->
        for piece <- Context.generate(context, "Once", max_tokens: 400) do
          send(me, piece)
          if piece.finish == :none, do: Process.exit(self(), :kill)
        end
      end)

    assert reason == :killed
    assert_received %CowMLX.Piece{}
    assert until(fn -> match?({:ok, %{"generating" => false}}, Context.info(context)) end)
    assert {:ok, _} = Context.complete(context, "Once", max_tokens: 2)
  end

  test "a process that is killed while it waits for the first piece cancels it" do
    context = Context.create!(model())
    text = String.duplicate("A fox and a calf. ", 80)
    pid = spawn(fn -> Context.complete(context, text, max_tokens: 400) end)
    until(fn -> Process.info(pid, :status) == {:status, :waiting} end)
    Process.exit(pid, :kill)
    assert until(fn -> match?({:ok, _}, Context.complete(context, "Once", max_tokens: 1)) end)
  end

  test "a process that is killed while it asks about a context leaves its generation alone" do
    context = Context.create!(model())
    task = Task.async(fn -> Context.complete(context, "Once", max_tokens: 60) end)
    until(fn -> match?({:ok, %{"generating" => true}}, Context.info(context)) end)
    ask = fn -> NIF.call(make_ref(), :context_info, [context.ref]) end
    # Each ends before it has its result.
    for _ <- 1..50, do: in_process(ask)
    assert {:ok, %{finish: finish}} = Task.await(task, 60_000)
    assert finish in [:length, :stop]
  end

  test "freeing a context ends the generation that another process reads" do
    context = Context.create!(model())
    task = Task.async(fn -> Context.complete(context, "Once", max_tokens: 400) end)
    until(fn -> match?({:ok, %{"generating" => true}}, Context.info(context)) end)
    Context.free(context)
    assert {:error, %Error{status: status}} = Task.await(task, 20_000)
    assert status in [:ecanceled, :ehandle]
  end

  test "processes that end leave no context behind" do
    before = open(:context)
    model = model()

    1..300
    |> Task.async_stream(
      fn _ ->
        context = Context.create!(model)
        Context.reset(context)
      end,
      max_concurrency: 20,
      timeout: 60_000
    )
    |> Stream.run()

    :erlang.garbage_collect()
    assert until(fn -> open(:context) <= before end)
  end

  test "arrays are freed by the collector" do
    before = open(:array)
    in_process(fn -> for n <- 1..2000, do: Array.new!([n, n]) end)
    assert until(fn -> open(:array) <= before end)
  end

  # Terms of every type, in the place of every argument of every call. Half of the calls get an object
  # first, so that the other arguments are read, too.
  test "wrong terms are refused by every call", do: wrong_terms(40, {1, 2, 3})

  @tag :long
  test "more wrong terms are refused by every call", do: wrong_terms(400, {4, 5, 6})

  defp wrong_terms(rounds, seed) do
    folder = Path.join(System.tmp_dir!(), "cowmlx-#{System.unique_integer([:positive])}")
    File.mkdir!(folder)
    context = Context.create!(model())
    array = Array.new!([1.0])
    program = Program.build!(loss: Op.mean(Program.parameter("w", :float32, [2], init: "zeros")))
    objects = [context, array, program, Training.create!(program), Context.checkpoint!(context)]
    objects = Enum.map([model() | objects], & &1.ref)
    fun = fn -> 1 end

    terms = [
      nil,
      true,
      :atom,
      0,
      -1,
      1.5,
      1 <<< 70,
      "",
      "text",
      <<0, 255>>,
      <<1::3>>,
      [],
      [1, 2],
      [1 | 2],
      ["a", :b],
      [[[]]],
      {},
      {1, [1], "abcd"},
      {12, [1], <<0, 0, 0, 0>>},
      %{},
      %{a: 1},
      self(),
      hd(Port.list()),
      make_ref(),
      fun,
      context.ref,
      array.ref,
      [array.ref],
      [nil],
      %{max_tokens: 1}
    ]

    # What stops the runtime, or would read for ever, is none of these.
    left_out = [:runtime_stop, :runtime_start, :free]
    :rand.seed(:exsss, seed)

    # Some name files.
    File.cd!(folder, fn ->
      for {name, arity, way} <- NIF.calls(), name not in left_out, round <- 1..rounds do
        arguments = for _ <- 1..arity//1, do: term(terms)
        arguments = with_object(arguments, name, if(rem(round, 2) == 0, do: objects, else: []))
        result = attempt(name, arguments, way)

        assert result == :badarg or is_atom(result) or is_tuple(result),
               inspect({name, arguments})
      end
    end)

    File.rm_rf!(folder)
    assert {:ok, _} = Runtime.info()
  end

  # One of the terms, or a list, a map or a tuple of them.
  defp term(terms) do
    case :rand.uniform(8) do
      1 -> Enum.take_random(terms, 3)
      2 -> Map.new(Enum.take_random(terms, 4), &{&1, Enum.random(terms)})
      3 -> List.to_tuple(Enum.take_random(terms, 3))
      _ -> Enum.random(terms)
    end
  end

  defp with_object(arguments, name, objects) do
    noun = name |> Atom.to_string() |> String.split("_") |> hd()

    case Enum.find(objects, &(Atom.to_string(NIF.kind(&1)) == noun)) do
      nil -> arguments
      object -> List.replace_at(arguments, 0, object)
    end
  end

  defp attempt(name, arguments, :direct), do: NIF.direct(name, arguments)

  defp attempt(name, arguments, _way) do
    ref = make_ref()

    with :ok <- NIF.call(ref, name, arguments) do
      receive do
        {^ref, result} -> result
      after
        20_000 -> flunk("#{name} does not end with #{inspect(arguments)}")
      end
    end
  end

  test "the functions of the NIF refuse wrong terms" do
    for term <- [nil, 1, "a", make_ref(), self(), [], {}] do
      assert_raise ArgumentError, fn -> NIF.follow(term) end
      assert_raise ArgumentError, fn -> NIF.take(term, make_ref(), :pieces) end
      assert_raise ArgumentError, fn -> NIF.leave(term) end
      assert_raise ArgumentError, fn -> NIF.answer(term, nil) end
      assert_raise ArgumentError, fn -> NIF.direct(term, []) end
      assert_raise ArgumentError, fn -> NIF.call(make_ref(), term, []) end
      assert NIF.kind(term) == nil
    end
  end

  test "hot code upgrade is refused, and the old code runs" do
    {module, binary, file} = :code.get_object_code(NIF)
    Process.flag(:trap_exit, true)

    ExUnit.CaptureLog.capture_log(fn ->
      assert {:error, :on_load_failure} = :code.load_binary(module, file, binary)
    end)

    assert {:ok, _} = Runtime.info()
  end

  # With one scheduler, a call that blocks it lets nothing run between its two messages.
  test "other processes run while a call waits" do
    :erlang.system_flag(:schedulers_online, 1)
    on_exit(fn -> :erlang.system_flag(:schedulers_online, System.schedulers()) end)
    text = String.duplicate("A fox and a calf. ", 40)

    calls = [
      complete: fn ->
        Context.complete!(Context.create!(model()), text, max_tokens: 40)
      end,
      chat: fn -> Context.create!(model()) |> Chat.answer!(question()) end,
      load: fn -> Model.load!(System.fetch_env!("COWMLX_TEST_MODEL")) |> Model.free() end
    ]

    for {name, call} <- calls, do: assert({name, turns(call)} == {name, true})
  end

  defp turns(call) do
    me = self()

    task =
      Task.async(fn ->
        send(me, :begins)
        call.()
        send(me, :ends)
      end)

    receive do: (:begins -> :ok)
    turns = count_turns(0)
    Task.await(task, 60_000)
    turns > 1000
  end

  defp count_turns(turns) do
    receive do
      :ends -> turns
    after
      0 ->
        :erlang.yield()
        count_turns(turns + 1)
    end
  end

  # Measured, since the system stops a scheduler at times, in any code.
  if System.get_env("COWMLX_LONG_SCHEDULE") do
    test "no scheduler is blocked for long" do
      model = model()
      assert reports(fn -> work(model) end) == []
    end

    defp reports(function) do
      me = self()
      watcher = spawn(fn -> watch(me) end)
      :erlang.system_monitor(watcher, [{:long_schedule, limit()}])
      function.()
      :erlang.system_monitor(:undefined)
      send(watcher, :end)

      receive do
        {:reports, reports} -> reports
      end
    end

    defp work(model) do
      1..8
      |> Task.async_stream(
        fn n ->
          context = Context.create!(model)
          text = String.duplicate("A fox and a calf. ", 20)
          Context.complete!(context, text <> "#{n}", max_tokens: 20)
          array = Array.new!(Enum.to_list(1..1000))
          for _ <- 1..20, do: array |> Op.add(1) |> Array.to_binary!()
        end,
        max_concurrency: 8,
        timeout: 60_000
      )
      |> Stream.run()
    end

    # Milliseconds.
    defp limit, do: String.to_integer(System.fetch_env!("COWMLX_LONG_SCHEDULE"))

    defp watch(owner, reports \\ []) do
      receive do
        {:monitor, _, :long_schedule, info} -> watch(owner, [info | reports])
        :end -> send(owner, {:reports, reports})
      end
    end
  end
end
