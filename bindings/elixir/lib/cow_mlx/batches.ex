defmodule CowMLX.Serving.Batches do
  @moduledoc false
  # Rows of several callers as one run of a program.

  alias CowMLX.{Array, Call, Declarations, Error, Program}

  @bytes Map.new(Declarations.dtypes(), fn {_, {number, bytes}} -> {number, bytes} end)

  @enforce_keys [:program, :size, :timeout]
  defstruct [:program, :size, :timeout, :types, callers: [], rows: 0, timer: nil]

  @doc "No callers yet."
  @spec new(keyword) :: struct
  def new(options) do
    %__MODULE__{
      program: Keyword.fetch!(options, :program),
      size: Keyword.get(options, :batch_size, 32),
      timeout: Keyword.get(options, :batch_timeout, 5)
    }
  end

  @doc "The inputs and parameters of the program, for `rows/2`."
  @spec declared(struct) :: list
  def declared(batches), do: batches.program.inputs ++ batches.program.parameters

  @doc "Every input as memory, and the number of rows. The caller's process makes them."
  @spec rows(list, keyword | map) :: {:ok, {list, non_neg_integer}} | {:error, Error.t()}
  def rows(declared, inputs) do
    with {:ok, values} <- Program.values(:serving, declared, inputs),
         {:ok, tensors} <- tensors(declared, values) do
      case tensors |> Enum.map(fn {_, shape, _} -> List.first(shape) end) |> Enum.uniq() do
        [count] when is_integer(count) ->
          {:ok, {tensors, count}}

        others ->
          accepted = "the same number of rows in every input"
          {:error, Error.refused(:serving, "rows", others, accepted, :shape_mismatch)}
      end
    end
  end

  defp tensors(declared, values) do
    declared
    |> Enum.zip(values)
    |> Enum.reduce_while({:ok, []}, fn {{name, _, _}, value}, {:ok, done} ->
      with {:ok, tensor} <- tensor(value), :ok <- whole(name, tensor) do
        {:cont, {:ok, done ++ [tensor]}}
      else
        failed -> {:halt, failed}
      end
    end)
  end

  defp tensor({_, _, _} = tensor), do: {:ok, tensor}

  defp tensor(ref) do
    with {:ok, {number, shape}} <- Call.direct(:array_type, [ref]),
         {:ok, binary} <- Call.wait(:array_binary, [ref]),
         do: {:ok, {number, shape, binary}}
  end

  # Memory of another size would shift the rows of other callers.
  defp whole(name, {number, shape, binary}) do
    if sizes?(shape) and byte_size(binary) == Enum.product(shape) * @bytes[number] do
      :ok
    else
      accepted = "a shape of #{byte_size(binary)} bytes"
      {:error, Error.refused(:serving, name, shape, accepted, :shape_mismatch)}
    end
  end

  defp sizes?(shape) do
    is_list(shape) and not List.improper?(shape) and
      Enum.all?(shape, &(is_integer(&1) and &1 >= 0))
  end

  @doc "Add the rows of a caller, who is answered when the batch has run."
  @spec add(struct, {list, non_neg_integer}, GenServer.from()) :: struct
  def add(batches, {tensors, count}, from) do
    types = for {number, [_ | row], _} <- tensors, do: {number, row}
    fits = types == batches.types and batches.rows + count <= batches.size
    batches = if batches.callers == [] or fits, do: batches, else: run(batches)
    timer = batches.timer || Process.send_after(self(), :run_batch, batches.timeout)
    callers = [{from, tensors, count} | batches.callers]
    rows = batches.rows + count
    batches = %{batches | callers: callers, rows: rows, types: types, timer: timer}
    if rows >= batches.size, do: run(batches), else: batches
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
  rescue
    problem -> {:error, Error.problem(:serving, :internal, Exception.message(problem))}
  end

  defp run_all(program, joined) do
    Call.make(:program_run, [program, joined, length(program.outputs), []])
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
