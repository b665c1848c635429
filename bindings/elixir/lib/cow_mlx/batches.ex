defmodule CowMLX.Serving.Batches do
  @moduledoc false
  # Rows of several callers as one run of a program.

  alias CowMLX.{Array, Error, Program}

  @enforce_keys [:program, :size, :timeout]
  defstruct [:program, :size, :timeout, callers: [], rows: 0, timer: nil]

  @doc "No callers yet."
  @spec new(keyword) :: struct
  def new(options) do
    %__MODULE__{
      program: Keyword.fetch!(options, :program),
      size: Keyword.get(options, :batch_size, 32),
      timeout: Keyword.get(options, :batch_timeout, 5)
    }
  end

  @doc "Add a caller, who is answered when the batch has run."
  @spec add(struct, keyword | map, GenServer.from()) :: struct
  def add(batches, inputs, from) do
    case rows(batches.program, inputs) do
      {:ok, listed, count} when batches.rows > 0 and batches.rows + count > batches.size ->
        batches |> run() |> join(listed, count, from)

      {:ok, listed, count} ->
        join(batches, listed, count, from)

      {:error, _} = failed ->
        GenServer.reply(from, failed)
        batches
    end
  end

  defp join(batches, listed, count, from) do
    timer = batches.timer || Process.send_after(self(), :run_batch, batches.timeout)
    callers = [{from, listed, count} | batches.callers]
    batches = %{batches | callers: callers, rows: batches.rows + count, timer: timer}
    if batches.rows >= batches.size, do: run(batches), else: batches
  end

  # Every input as memory, and the number of rows.
  defp rows(program, inputs) do
    declared = program.inputs ++ program.parameters

    with {:ok, values} <- Program.values(:serving, declared, inputs),
         {:ok, tensors} <- tensors(values) do
      case tensors |> Enum.map(fn {_, shape, _} -> List.first(shape) end) |> Enum.uniq() do
        [count] when is_integer(count) ->
          {:ok, tensors, count}

        others ->
          accepted = "the same number of rows in every input"
          {:error, Error.refused(:serving, "rows", others, accepted, :shape_mismatch)}
      end
    end
  end

  defp tensors(values) do
    Enum.reduce_while(values, {:ok, []}, fn
      {_, _, _} = tensor, {:ok, done} ->
        {:cont, {:ok, done ++ [tensor]}}

      ref, {:ok, done} ->
        array = Array.of_ref(ref)

        with {:ok, binary} <- Array.to_binary(array),
             {:ok, tensor} <- Array.tensor(binary, array.dtype, array.shape) do
          {:cont, {:ok, done ++ [tensor]}}
        else
          failed -> {:halt, failed}
        end
    end)
  end

  @doc "Run what there is, in a separate process."
  @spec run(struct) :: struct
  def run(%{callers: []} = batches), do: %{batches | timer: nil}

  def run(batches) do
    if batches.timer, do: Process.cancel_timer(batches.timer)
    {program, callers} = {batches.program, Enum.reverse(batches.callers)}
    spawn(fn -> answer(program, callers) end)
    %{batches | callers: [], rows: 0, timer: nil}
  end

  # A batch that fails is run again for each caller: only those with unusable rows get an error.
  defp answer(program, callers) do
    case compute(program, callers) do
      {:ok, answers} ->
        for {{from, _, _}, answer} <- Enum.zip(callers, answers),
            do: GenServer.reply(from, {:ok, answer})

      {:error, _} = failed when length(callers) == 1 ->
        [{from, _, _}] = callers
        GenServer.reply(from, failed)

      {:error, _} ->
        for caller <- callers, do: answer(program, [caller])
    end
  end

  defp compute(program, callers) do
    joined = callers |> Enum.map(&elem(&1, 1)) |> Enum.zip_with(&joined/1)
    counts = Enum.map(callers, &elem(&1, 2))

    with {:ok, arrays} <- run_all(program, joined),
         :ok <- rows_of(program, arrays, Enum.sum(counts)),
         {:ok, lists} <- lists(arrays) do
      split = Enum.map(lists, &split(&1, counts))
      keys = program.outputs
      {:ok, split |> Enum.zip_with(& &1) |> Enum.map(&(keys |> Enum.zip(&1) |> Map.new()))}
    end
  end

  defp run_all(program, joined) do
    values = Enum.map(joined, fn {number, shape, binary} -> {number, shape, binary} end)
    CowMLX.Call.make(:program_run, [program, values, length(program.outputs), []])
  end

  defp rows_of(program, arrays, count) do
    case program.outputs
         |> Enum.zip(arrays)
         |> Enum.find(fn {_, %{shape: s}} -> hd(s ++ [nil]) != count end) do
      nil ->
        :ok

      {name, array} ->
        accepted = "of #{count} rows, as the inputs"
        {:error, Error.refused(:serving, name, array, accepted, :shape_mismatch)}
    end
  end

  defp joined([{number, [_ | rest], _} | _] = tensors) do
    rows = tensors |> Enum.map(fn {_, [count | _], _} -> count end) |> Enum.sum()
    {number, [rows | rest], tensors |> Enum.map(&elem(&1, 2)) |> IO.iodata_to_binary()}
  end

  defp lists(arrays) do
    Enum.reduce_while(arrays, {:ok, []}, fn array, {:ok, done} ->
      case Array.to_list(array) do
        {:ok, list} -> {:cont, {:ok, done ++ [list]}}
        failed -> {:halt, failed}
      end
    end)
  end

  defp split(list, counts) do
    {parts, []} = Enum.map_reduce(counts, list, fn count, rest -> Enum.split(rest, count) end)
    parts
  end
end
