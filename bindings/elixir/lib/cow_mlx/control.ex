defmodule CowMLX.Control do
  @moduledoc """
  Control flow of programs. Bodies are functions, which may use any value around them.

      iex> alias CowMLX.{Array, Control, Op, Program}
      iex> a = Program.input("a", :float32, [])
      iex> [x, n] =
      ...>   Control.while([a, Program.constant(0)],
      ...>     fn [x, _] -> Op.greater(x, 1) end,
      ...>     fn [x, n] -> [Op.divide(x, 2), Op.add(n, 1)] end,
      ...>     max_iterations: 100)
      iex> results = Program.build!(x: x, n: n) |> Program.run!(a: 40)
      iex> {Array.to_list!(results.x), Array.to_list!(results.n)}
      {0.625, 6}
  """

  alias CowMLX.{Error, Graph, Value}

  @type body :: ([Value.t()] -> Value.t() | [Value.t()])

  @doc """
  The results of one of two functions, which give the same dtypes and shapes.

  Each is given the list `inputs`.
  """
  @spec cond(Value.t(), body, body, [Value.t()]) :: [Value.t()]
  def cond(predicate, on_true, on_false, inputs \\ []) do
    count = length(inputs)
    first = Graph.function(:cond, count, on_true)
    second = Graph.function(:cond, count, on_false)
    captured = together([first, second])
    functions = [then: place(first, captured), else: place(second, captured)]
    node(:cond, [predicate | inputs] ++ captured, %{}, length(first.outputs), functions)
  end

  @doc """
  The first state for which the condition is false: a list of values.

  Options: `:max_iterations`, 1,000,000 by default; a run that needs more fails.
  """
  @spec while([Value.t()], ([Value.t()] -> Value.t()), body, keyword) :: [Value.t()]
  def while(state, condition, body, options \\ []) do
    count = length(state)
    tests = Graph.function(:while, count, condition)
    next = Graph.function(:while, count, body)

    unless length(next.outputs) == count do
      raise Error.refused(:while, "the next state", length(next.outputs), "#{count} values")
    end

    captured = together([tests, next])
    functions = [condition: place(tests, captured), body: place(next, captured, captured)]
    attributes = %{max_iterations: Keyword.get(options, :max_iterations, 1_000_000)}
    total = count + length(captured)
    :while |> node(state ++ captured, attributes, total, functions) |> Enum.take(count)
  end

  @doc """
  A function of each element of sequences in turn, which hands carries on.

  `body` is given two lists, the carries and an element of each sequence, and gives `{carries,
  results}`. The result is `{carries, stacked}`. Options: `:reverse`.
  """
  @spec scan([Value.t()], [Value.t()], ([Value.t()], [Value.t()] -> {list, list}), keyword) ::
          {[Value.t()], [Value.t()]}
  def scan(carries, sequences, body, options \\ []) do
    count = length(carries)

    function =
      Graph.function(:scan, count + length(sequences), fn values ->
        {given, elements} = Enum.split(values, count)
        {next, results} = body.(given, elements)
        next ++ results
      end)

    attributes = %{
      carries: count,
      sequences: length(sequences),
      reverse: Keyword.get(options, :reverse, false)
    }

    operands = carries ++ sequences ++ function.captured
    functions = [body: place(function, function.captured)]
    outputs = node(:scan, operands, attributes, length(function.outputs), functions)
    Enum.split(outputs, count)
  end

  defp together(functions),
    do: functions |> Enum.flat_map(& &1.captured) |> Enum.uniq_by(&{&1.id, &1.index})

  defp place(function, captured, keeps \\ []),
    do: %{function: function, captured: captured, keeps: keeps}

  defp node(operation, operands, attributes, count, functions),
    do: Value.results({:node, operation, operands, attributes, count, functions}, count)
end
