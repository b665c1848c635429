defmodule CowMLX.Serving do
  @moduledoc """
  A supervised process that serves many callers with one model or program.

  With a model it holds contexts, which generate at the same time and share the model's batches; a
  caller that comes while all are busy waits for one:

      children = [{CowMLX.Serving, name: MyApp.Chat, model: model, contexts: 8}]

      {:ok, answer} = CowMLX.Serving.answer(MyApp.Chat, messages)
      for event <- CowMLX.Serving.stream(MyApp.Chat, messages), do: ...

  With a program it joins the rows of callers that come within a time to one run. Rows of other
  dtypes or shapes are another run:

      children = [{CowMLX.Serving, name: MyApp.Net, program: program, batch_size: 64,
                   batch_timeout: 5}]

      {:ok, outputs} = CowMLX.Serving.run(MyApp.Net, x: rows)

      iex> alias CowMLX.{Op, Program, Serving}
      iex> x = Program.input("x", :float32, ["rows", 2])
      iex> program = Program.build!(sum: Op.sum(x, axis: 1))
      iex> {:ok, server} = Serving.start_link(program: program)
      iex> Serving.run(server, x: [[1, 2], [3, 4]])
      {:ok, %{sum: [3.0, 7.0]}}

  A caller that ends while it waits, or generates, gives its place up.
  """

  use GenServer

  alias CowMLX.{Chat, Context, Error, Model, Program}
  alias CowMLX.Serving.Batches

  @type server :: GenServer.server()

  @doc """
  Start a serving. Options: `:name`; with `:model`, `:contexts` (4) and `:context`, options of
  `CowMLX.Context.create/2`; with `:program`, `:batch_size` rows (32) and `:batch_timeout`
  milliseconds (5), for which the first caller of a batch waits at most.
  """
  @spec start_link(keyword) :: GenServer.on_start()
  def start_link(options) do
    GenServer.start_link(__MODULE__, options, Keyword.take(options, [:name]))
  end

  @doc "Answer a conversation: see `CowMLX.Chat.answer/3`."
  @spec answer(server, Chat.messages(), keyword) :: {:ok, map} | {:error, Error.t()}
  def answer(server, messages, options \\ []) do
    with_context(server, &Chat.answer(&1, messages, options))
  end

  @doc "Complete a text: see `CowMLX.Context.complete/3`."
  @spec complete(server, Context.prompt(), keyword) :: {:ok, map} | {:error, Error.t()}
  def complete(server, prompt, options \\ []) do
    with_context(server, &Context.complete(&1, prompt, options))
  end

  @doc "A stream of events of an answer: see `CowMLX.Chat.stream/3`. Raises a `CowMLX.Error`."
  @spec stream(server, Chat.messages(), keyword) :: Enumerable.t()
  def stream(server, messages, options \\ []) do
    Stream.resource(
      fn -> take!(server) end,
      fn
        {:ended, context} ->
          {:halt, {:ended, context}}

        context ->
          {Chat.stream(context, messages, options), {:ended, context}}
      end,
      fn
        {:ended, context} -> give(server, context)
        context -> give(server, context)
      end
    )
  end

  defp with_context(server, work) do
    case GenServer.call(server, :take, :infinity) do
      {:ok, context} ->
        try do
          work.(context)
        after
          give(server, context)
        end

      failed ->
        failed
    end
  end

  defp take!(server) do
    case GenServer.call(server, :take, :infinity) do
      {:ok, context} -> context
      {:error, error} -> raise error
    end
  end

  defp give(server, context), do: GenServer.cast(server, {:give, self(), context})

  @doc """
  Run the program on rows: arrays, or lists, by the names of inputs, whose first axis is the rows.
  Gives the results for these rows as lists by the names of outputs.
  """
  @spec run(server, keyword | map) :: {:ok, map} | {:error, Error.t()}
  def run(server, inputs) do
    with {:ok, declared} <- GenServer.call(server, :declared, :infinity),
         {:ok, rows} <- Batches.rows(declared, inputs),
         do: GenServer.call(server, {:run, rows}, :infinity)
  end

  # ------------------------------------------------------------------------------ The server

  @impl true
  def init(options) do
    case Enum.find(options, fn {name, value} -> not fits?(name, value) end) do
      nil -> serving(options[:model], options[:program], options)
      {name, value} -> {:stop, Error.refused(:serving, name, value, accepted(name))}
    end
  end

  @counts "an integer, 1 or more"
  @options [model: "a CowMLX.Model", program: "a CowMLX.Program", contexts: @counts] ++
             [batch_size: @counts, batch_timeout: "milliseconds, 0 or more"] ++
             [context: "a keyword list of options", name: "a name"]

  defp accepted(name) do
    Keyword.get(@options, name, "one of #{Enum.map_join(@options, ", ", &inspect(elem(&1, 0)))}")
  end

  defp fits?(:model, value), do: is_struct(value, Model)
  defp fits?(:program, value), do: is_struct(value, Program)

  defp fits?(name, value) when name in [:contexts, :batch_size],
    do: is_integer(value) and value > 0

  defp fits?(:batch_timeout, value), do: is_integer(value) and value >= 0
  defp fits?(name, _value), do: name in [:name, :context]

  defp serving(nil, nil, _options),
    do: {:stop, Error.refused(:serving, "model", nil, "a model, or a program")}

  defp serving(nil, _program, options), do: {:ok, Batches.new(options)}
  defp serving(model, _program, options), do: contexts(model, options)

  defp contexts(model, options) do
    count = Keyword.get(options, :contexts, 4)

    Enum.reduce_while(1..count, {:ok, []}, fn _, {:ok, made} ->
      case Context.create(model, Keyword.get(options, :context, [])) do
        {:ok, context} -> {:cont, {:ok, [context | made]}}
        {:error, error} -> {:halt, {:stop, error}}
      end
    end)
    |> case do
      {:ok, free} ->
        new = fn -> Context.create(model, Keyword.get(options, :context, [])) end
        {:ok, %{free: free, waiting: :queue.new(), busy: %{}, new: new}}

      failed ->
        failed
    end
  end

  @impl true
  def handle_call(:take, {pid, _} = from, %{free: _} = state) do
    monitor = Process.monitor(pid)
    {:noreply, serve(%{state | waiting: :queue.in({monitor, from}, state.waiting)})}
  end

  def handle_call(:declared, _from, %Batches{} = batches),
    do: {:reply, {:ok, Batches.declared(batches)}, batches}

  def handle_call({:run, rows}, from, %Batches{} = batches),
    do: {:noreply, Batches.add(batches, rows, from)}

  def handle_call(_other, _from, state) do
    accepted = if is_struct(state, Batches), do: "run/2", else: "answer/3, complete/3 or stream/3"
    {:reply, {:error, Error.refused(:serving, "call", "another one", accepted)}, state}
  end

  @impl true
  def handle_cast({:give, pid, context}, state) do
    {monitor, busy} = pop_busy(state.busy, pid, context)
    if monitor, do: Process.demonitor(monitor, [:flush])
    {:noreply, serve(%{state | busy: busy, free: freed(state.free, context, monitor)})}
  end

  defp pop_busy(busy, pid, context) do
    case Enum.find(busy, fn {_, {owner, held}} -> owner == pid and held.ref == context.ref end) do
      {monitor, _} -> {monitor, Map.delete(busy, monitor)}
      nil -> {nil, busy}
    end
  end

  defp freed(free, _context, nil), do: free
  defp freed(free, context, _monitor), do: free ++ [context]

  @impl true
  def handle_info({:DOWN, monitor, _, _, _}, %{free: _} = state) do
    {gone, busy} = Map.pop(state.busy, monitor)
    waiting = :queue.filter(fn {other, _} -> other != monitor end, state.waiting)
    free = if gone, do: state.free ++ [instead(elem(gone, 1), state.new)], else: state.free
    {:noreply, serve(%{state | busy: busy, waiting: waiting, free: free})}
  end

  def handle_info(:run_batch, %Batches{} = batches), do: {:noreply, Batches.run(batches)}

  def handle_info({ref, _done}, %Batches{} = batches) when is_reference(ref),
    do: {:noreply, batches}

  def handle_info(_, state), do: {:noreply, state}

  # A context is busy until the call of a caller that has ended does: another takes its place.
  defp instead(context, new) do
    case new.() do
      {:ok, fresh} ->
        spawn(fn -> Context.free(context) end)
        fresh

      {:error, _} ->
        context
    end
  end

  # Give free contexts to who waits: the one that has been free for longest.
  defp serve(%{free: [context | free], waiting: waiting} = state) do
    case :queue.out(waiting) do
      {{:value, {monitor, {pid, _} = from}}, waiting} ->
        GenServer.reply(from, {:ok, context})
        busy = Map.put(state.busy, monitor, {pid, context})
        serve(%{state | free: free, waiting: waiting, busy: busy})

      {:empty, _} ->
        state
    end
  end

  defp serve(state), do: state
end
