defmodule CowMLX.Graph do
  @moduledoc false
  # Writes a program's JSON from its outputs: values point at what they are computed from.

  alias CowMLX.{Call, Error, Operations, Value}

  defmodule Function do
    @moduledoc false
    # A body of control flow: what it takes, what of its surroundings it uses, what it gives.
    @enforce_keys [:arguments, :captured, :outputs]
    defstruct [:arguments, :captured, :outputs]
  end

  # names: of values by {id, index}; types: {dtype, shape} by name; wanted: names of outputs;
  # around: in a body, the declarations of the program, whose dimensions have values.
  defstruct around: nil,
            inputs: [],
            parameters: [],
            constants: [],
            functions: [],
            nodes: [],
            names: %{},
            types: %{},
            wanted: %{},
            count: 0

  @doc "A function of control flow, of so many arguments."
  @spec function(atom, pos_integer, ([Value.t()] -> term)) :: struct
  def function(operation, arity, body) do
    born = Value.fresh()
    arguments = for _ <- 1..arity//1, do: Value.new({:argument})
    outputs = arguments |> body.() |> List.wrap()

    unless Enum.all?(outputs, &is_struct(&1, Value)) do
      raise Error.refused(operation, "what a function gives", outputs, "values")
    end

    captured = captured(outputs, born, arguments)
    %Function{arguments: arguments, captured: captured, outputs: outputs}
  end

  # The values from before the function that it depends on.
  defp captured(outputs, born, arguments) do
    own = MapSet.new(arguments, &key/1)
    {_, found} = Enum.reduce(outputs, {own, []}, &reach(&1, &2, born))
    Enum.reverse(found)
  end

  defp reach(%Value{} = value, {seen, found}, born) do
    cond do
      key(value) in seen ->
        {seen, found}

      value.id < born and constant?(value) ->
        {MapSet.put(seen, key(value)), found}

      value.id < born or elem(value.source, 0) in [:input, :parameter] ->
        {MapSet.put(seen, key(value)), [value | found]}

      true ->
        value
        |> operands()
        |> Enum.reduce({MapSet.put(seen, key(value)), found}, &reach(&1, &2, born))
    end
  end

  defp reach(_number, acc, _born), do: acc

  defp constant?(value), do: elem(value.source, 0) == :constant

  defp operands(%{source: {:node, _, operands, _, _, _}}), do: operands
  defp operands(_), do: []

  defp key(value), do: {value.id, value.index}

  # ------------------------------------------------------------------------------- Programs

  @doc "The JSON of a program with outputs, as a map."
  @spec lower([{String.t(), Value.t()}]) :: map
  def lower(outputs) do
    outputs = Enum.map(outputs, fn {name, value} -> {name, named(value, outputs, name)} end)
    wanted = Map.new(outputs, fn {name, value} -> {key(value), name} end)
    graph = %__MODULE__{wanted: wanted} |> declare(outputs)

    {names, graph} =
      Enum.map_reduce(outputs, graph, fn {_, value}, graph -> add(value, graph) end)

    json(graph, names)
  end

  # A value that is no result of a node, or has two names, gets a node for its name.
  defp named(value, outputs, name) do
    first = Enum.find(outputs, fn {_, other} -> key(other) == key(value) end)

    if match?({:node, _, _, _, _, _}, value.source) and elem(first, 0) == name,
      do: value,
      else: Operations.one(:contiguous, [value], [])
  end

  # Inputs and parameters come in the order in which they were made.
  defp declare(graph, outputs) do
    values = Enum.map(outputs, &elem(&1, 1))
    {_, leaves} = Enum.reduce(values, {MapSet.new(), []}, &leaves/2)
    leaves |> Enum.sort_by(& &1.id) |> Enum.reduce(graph, &(&1 |> add(&2) |> elem(1)))
  end

  defp leaves(%Value{} = value, {seen, found}) do
    cond do
      key(value) in seen ->
        {seen, found}

      elem(value.source, 0) in [:input, :parameter] ->
        {MapSet.put(seen, key(value)), [value | found]}

      true ->
        value |> operands() |> Enum.reduce({MapSet.put(seen, key(value)), found}, &leaves/2)
    end
  end

  defp leaves(_number, acc), do: acc

  defp json(graph, outputs) do
    %{
      inputs: Enum.reverse(graph.inputs),
      parameters: Enum.reverse(graph.parameters),
      constants: Enum.reverse(graph.constants),
      functions: Enum.reverse(graph.functions),
      nodes: Enum.reverse(graph.nodes),
      outputs: outputs
    }
  end

  defp fresh(graph), do: {"%#{graph.count}", %{graph | count: graph.count + 1}}

  # ---------------------------------------------------------------------------------- Values

  # The name of a value, which the graph has then.
  defp add(value, graph) do
    case Map.fetch(graph.names, key(value)) do
      {:ok, name} -> {name, graph}
      :error -> make(value, graph)
    end
  end

  defp make(%{source: {kind, name, dtype, shape, options}} = value, graph)
       when kind in [:input, :parameter] do
    list = if kind == :input, do: :inputs, else: :parameters
    entry = Map.merge(%{name: name, dtype: dtype, shape: shape}, Map.new(options))
    graph = Map.update!(graph, list, &[entry | &1])
    {name, know(graph, value, name, {dtype, shape})}
  end

  defp make(%{source: {:constant, number, dtype}} = value, graph) do
    {name, graph} = constant(graph, number, dtype)
    {name, %{graph | names: Map.put(graph.names, key(value), name)}}
  end

  defp make(%{source: {:argument}}, _graph) do
    raise Error.refused(:program_create, "value", :argument, "a value of this program")
  end

  defp make(%{source: {:node, operation, operands, attributes, count, functions}} = value, graph) do
    {names, graph} = operands(operation, operands, graph)
    {attributes, graph} = functions(operation, functions, attributes, names, graph)
    {results, graph} = Enum.map_reduce(0..(count - 1), graph, &result(value.id, &1, &2))
    node = %{op: operation, inputs: names, attributes: attributes, outputs: results}

    graph =
      %{graph | nodes: [node | graph.nodes]} |> infer_plain(operation, attributes, names, results)

    {Enum.at(results, value.index), graph}
  end

  defp result(id, index, graph) do
    {name, graph} =
      case graph.wanted do
        %{{^id, ^index} => name} -> {name, graph}
        _ -> fresh(graph)
      end

    {name, %{graph | names: Map.put(graph.names, {id, index}, name)}}
  end

  defp know(graph, value, name, type) do
    %{
      graph
      | names: Map.put(graph.names, key(value), name),
        types: Map.put(graph.types, name, type)
    }
  end

  defp constant(graph, number, dtype) do
    {name, graph} = fresh(graph)
    entry = %{name: name, dtype: dtype, value: number}
    type = {dtype, shape_of(number)}

    {name,
     %{graph | constants: [entry | graph.constants], types: Map.put(graph.types, name, type)}}
  end

  defp shape_of([first | _] = list), do: [length(list) | shape_of(first)]
  defp shape_of([]), do: [0]
  defp shape_of(_), do: []

  # A number takes the dtype of the last value beside it.
  defp operands(operation, operands, graph) do
    {names, graph} =
      Enum.map_reduce(operands, graph, fn
        %Value{} = value, graph -> add(value, graph)
        other, graph -> {other, graph}
      end)

    beside = names |> Enum.reverse() |> Enum.find(&is_binary/1)
    Enum.map_reduce(names, graph, &operand(operation, &1, &2, beside))
  end

  defp operand(_operation, name, graph, _beside) when is_binary(name) or is_nil(name),
    do: {name, graph}

  defp operand(_operation, number, graph, beside) do
    {{dtype, _}, graph} = type(graph, beside)
    constant(graph, number, Operations.fitting(number, dtype))
  end

  # ------------------------------------------------------------------------------- Functions

  # Each function takes its arguments, then what it has captured: the inputs of the node.
  defp functions(_operation, [], attributes, _names, graph), do: {attributes, graph}

  defp functions(operation, functions, attributes, names, graph) do
    {types, graph} = argument_types(operation, attributes, names, graph)

    Enum.reduce(functions, {attributes, graph}, fn {attribute, function}, {attributes, graph} ->
      {name, graph} = lift(function, types, graph)
      {Map.put(attributes, attribute, name), graph}
    end)
  end

  defp argument_types(operation, attributes, names, graph) do
    names = if operation == :cond, do: tl(names), else: names
    {types, graph} = Enum.map_reduce(names, graph, &full_type(&2, &1))
    {element_types(operation, attributes, types), graph}
  end

  # The body of a scan takes an element of each sequence.
  defp element_types(:scan, attributes, types) do
    carries = Map.get(attributes, :carries, 0)
    sequences = Map.get(attributes, :sequences, 1)

    for {{dtype, shape}, at} <- Enum.with_index(types) do
      if at >= carries and at < carries + sequences, do: {dtype, tl(shape)}, else: {dtype, shape}
    end
  end

  defp element_types(_operation, _attributes, types), do: types

  defp lift(function, types, graph) do
    %{function: function, captured: captured, keeps: keeps} = function
    values = function.arguments ++ captured
    inner = %__MODULE__{functions: graph.functions, count: graph.count, around: around(graph)}

    inner =
      Enum.zip_reduce(values, types, inner, fn value, {dtype, shape}, inner ->
        {name, inner} = fresh(inner)
        inner = %{inner | inputs: [%{name: name, dtype: dtype, shape: shape} | inner.inputs]}
        know(inner, value, name, {dtype, shape})
      end)

    {outputs, inner} = Enum.map_reduce(function.outputs ++ keeps, inner, &add/2)
    {name, inner} = fresh(inner)
    body = inner |> json(outputs) |> Map.drop([:parameters, :functions]) |> Map.put(:name, name)
    {name, %{graph | functions: [body | inner.functions], count: inner.count}}
  end

  defp around(%{around: nil} = graph),
    do: Enum.map(graph.inputs ++ graph.parameters, &Map.take(&1, [:name, :dtype, :shape]))

  defp around(inner), do: inner.around

  # ----------------------------------------------------------------------------------- Types

  @same ~w(add subtract multiply negative square abs maximum minimum reshape transpose)a ++
          ~w(broadcast_to squeeze expand_dims flatten contiguous flip concatenate stack slice)a ++
          ~w(max min sign floor ceil)a
  @floating ~w(divide exp log sqrt rsqrt tanh sin cos sigmoid erf matmul mean sum prod einsum)a
  @logical ~w(equal not_equal less less_equal greater greater_equal logical_and logical_or)a ++
             ~w(logical_not isnan isinf isfinite)a
  @floats [:float16, :bfloat16, :float32, :float64]

  # What is plain without the library: it saves asking.
  defp infer_plain(graph, :astype, %{dtype: dtype}, _names, [result]) when is_atom(dtype),
    do: %{graph | types: Map.put(graph.types, result, {dtype, nil})}

  defp infer_plain(graph, :where, _, [_ | names], results),
    do: infer_plain(graph, :add, nil, names, results)

  defp infer_plain(graph, operation, _attributes, names, [result]) do
    dtypes = for name <- names, name, do: graph.types |> Map.get(name) |> dtype_of()

    dtype =
      cond do
        operation in @logical -> :bool
        Enum.uniq(dtypes) == [hd(dtypes ++ [nil])] -> same(operation, hd(dtypes ++ [nil]))
        true -> nil
      end

    if dtype, do: %{graph | types: Map.put(graph.types, result, {dtype, nil})}, else: graph
  end

  defp infer_plain(graph, _operation, _attributes, _names, _results), do: graph

  defp same(operation, dtype) do
    if operation in @same or (operation in @floating and dtype in @floats), do: dtype
  end

  defp dtype_of(nil), do: nil
  defp dtype_of({dtype, _}), do: dtype

  defp type(graph, name) do
    case graph.types do
      %{^name => type} -> {type, graph}
      _ -> full_type(graph, name)
    end
  end

  defp full_type(graph, name) do
    case graph.types do
      %{^name => {_, shape} = type} when shape != nil -> {type, graph}
      _ -> graph |> infer() |> full_type!(name)
    end
  end

  defp full_type!(graph, name), do: {Map.fetch!(graph.types, name), graph}

  # Ask the library for all types that are not known.
  defp infer(graph) do
    unknown =
      for node <- graph.nodes,
          name <- node.outputs,
          match?({_, nil}, graph.types[name] || {nil, nil}),
          do: name

    question = graph |> json(unknown) |> Map.update!(:inputs, &((graph.around || []) ++ &1))
    {:ok, program} = ok!(Call.make(:program_create, [question, []]))
    {:ok, info} = ok!(Call.make(:program_info, [program, nil]))
    Call.wait(:free, [program.ref])

    types =
      for {name, output} <- Enum.zip(unknown, info["outputs"]), into: graph.types do
        {name, {String.to_existing_atom(output["dtype"]), output["shape"]}}
      end

    %{graph | types: types}
  end

  defp ok!({:ok, _} = result), do: result
  defp ok!({:error, error}), do: raise(error)
end
