defmodule CowMLX.LoadTest do
  @moduledoc "What takes many processes: `mix test --only long`."
  use CowMLX.Case, async: false
  @moduletag :long
  @moduletag timeout: 300_000

  # What the library holds, and the node: none of it may grow with the processes that have ended.
  defp held do
    :erlang.garbage_collect()
    {open(:context), open(:array), length(File.ls!("/proc/self/fd"))}
  end

  defp memory do
    [_, pages | _] = String.split(File.read!("/proc/self/statm"))
    div(String.to_integer(pages), 256)
  end

  defp processes(count, function) do
    1..count
    |> Task.async_stream(fn n -> in_process(fn -> function.(n) end) end,
      max_concurrency: 50,
      ordered: false,
      timeout: 120_000
    )
    |> Enum.each(fn {:ok, reason} -> assert reason in [:normal, :killed] end)
  end

  test "10,000 short-lived processes, each with a context" do
    model = model()

    short = fn n ->
      context = Context.create!(model)
      if rem(n, 100) == 0, do: Context.complete!(context, "Once", max_tokens: 1)
      if rem(n, 3) == 0, do: Process.exit(self(), :kill)
    end

    processes(1000, short)
    before = held()
    megabytes = memory()
    processes(10_000, short)
    assert until(fn -> held() <= before end)
    # A context that stays is more than 10 kilobytes.
    assert memory() - megabytes < 100
  end

  test "processes that are killed in the middle of generations" do
    model = model()
    before = held()
    :rand.seed(:exsss, {1, 2, 3})

    processes(120, fn n ->
      context = Context.create!(model)

      stream =
        case rem(n, 3) do
          0 -> Context.generate(context, "Once", max_tokens: 400)
          1 -> Chat.stream(context, question(), max_tokens: 400)
          2 -> Context.generate(context, String.duplicate("A fox. ", 40), max_tokens: 400)
        end

      last = rem(n, 7)
      if last == 6, do: kill_from_outside()

      for {_, at} <- Stream.with_index(stream),
          at == last,
          do: Process.exit(self(), :kill)
    end)

    assert until(fn -> held() <= before end)
    assert {:ok, %{text: "3 + 4 = 7."}} = Chat.answer(Context.create!(model), question())
  end

  # At some point of the scheduler's choice.
  defp kill_from_outside do
    victim = self()

    spawn(fn ->
      for _ <- 1..:rand.uniform(2000), do: :erlang.yield()
      Process.exit(victim, :kill)
    end)
  end

  test "garbage collection under load" do
    model = model()
    before = held()
    program = Program.build!(y: Op.multiply(Program.input("x", :float32, ["n"]), 2))

    processes(8, fn n ->
      collector = collect_always(self())
      numbers = Enum.map(1..3000, &(&1 * n))
      context = Context.create!(model)

      for _ <- 1..40 do
        binary = numbers |> Array.new!() |> Op.add(1) |> Array.to_binary!()
        %{y: y} = Program.run!(program, x: numbers)
        assert Array.to_list!(y) == Enum.map(numbers, &(&1 * 2.0))
        assert binary == for(i <- numbers, into: <<>>, do: <<i + 1::native-signed-32>>)
      end

      assert Chat.answer!(context, question()).text == "3 + 4 = 7."
      Process.exit(collector, :kill)
    end)

    assert until(fn -> held() <= before end)
  end

  defp collect_always(pid) do
    spawn(fn ->
      monitor = Process.monitor(pid)

      Enum.find(Stream.repeatedly(fn -> :erlang.garbage_collect(pid) end), fn _ ->
        receive do
          {:DOWN, ^monitor, _, _, _} -> true
        after
          0 -> false
        end
      end)
    end)
  end
end
