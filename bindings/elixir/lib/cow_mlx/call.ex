defmodule CowMLX.Call do
  @moduledoc false
  # Makes calls of the NIF: lowers arguments, waits for the result, and reads it.

  alias CowMLX.{Declarations, Error, NIF, Options}

  @calls Map.new(Declarations.calls(), fn {name, inputs, results, _} ->
           {name, {inputs, results}}
         end)

  @nouns %{
    model: CowMLX.Model,
    context: CowMLX.Context,
    adapter: CowMLX.Adapter,
    checkpoint: CowMLX.Checkpoint,
    program: CowMLX.Program,
    training: CowMLX.Training,
    media: CowMLX.Media,
    array: CowMLX.Array
  }

  @doc "The module of a noun."
  @spec module(atom) :: module
  def module(noun), do: Map.fetch!(@nouns, noun)

  @doc "Make a call that is generated from the header, with arguments as users give them."
  @spec make(atom, list) :: :ok | :done | {:ok | :done, term} | {:error, Error.t()}
  def make(name, arguments) do
    {inputs, results} = Map.fetch!(@calls, name)

    with {:ok, lowered} <- lower(name, inputs, arguments) do
      name |> wait(lowered) |> read(results)
    end
  end

  @doc "Make a call on a worker, with arguments as the NIF takes them."
  @spec wait(atom, list) :: term
  def wait(name, arguments) do
    ref = make_ref()

    case NIF.call(ref, name, arguments) do
      :ok ->
        receive do
          {^ref, result} -> result(name, arguments, result)
        end

      problem ->
        result(name, arguments, problem)
    end
  end

  @doc "Make a call that never waits, here."
  @spec direct(atom, list) :: term
  def direct(name, arguments), do: result(name, arguments, NIF.direct(name, arguments))

  # What is copied on a scheduler in a fifth of a millisecond.
  @much 0x40000

  @doc "Make a call that never waits, but copies its arguments: here, or on a worker if they are long."
  @spec copying(atom, list) :: term
  def copying(name, arguments) do
    if bytes(arguments) > @much, do: wait(name, arguments), else: direct(name, arguments)
  end

  defp bytes(arguments) do
    parts = Enum.flat_map(arguments, &if(is_map(&1), do: Map.values(&1), else: [&1]))
    Enum.sum(for part <- parts, is_binary(part), do: byte_size(part))
  end

  @doc "Turn a failure into an error; other results stay as they are."
  @spec result(atom, list, term) :: term
  def result(name, _arguments, {:error, status, message, json}),
    do: {:error, Error.of_status(name, status, message, json)}

  def result(name, _arguments, {:problem, reason, message}),
    do: {:error, Error.problem(name, reason, message)}

  def result(name, arguments, {:refused, index, member, accepted}) do
    value = Enum.at(arguments, index)
    value = if member && is_map(value), do: Map.get(value, member), else: value
    {:error, Error.refused(name, member || argument_name(name, index), value, accepted)}
  end

  def result(_name, _arguments, result), do: result

  defp argument_name(name, index) do
    case @calls do
      %{^name => {inputs, _}} -> inputs |> Enum.at(index) |> elem(0)
      _ -> "argument #{index + 1}"
    end
  end

  # --------------------------------------------------------------------------- Arguments

  @doc "Lower arguments by their kinds, in order."
  @spec lower(atom, keyword, list) :: {:ok, list} | {:error, Error.t()}
  def lower(call, inputs, arguments) do
    Enum.zip_reduce(inputs, arguments, {:ok, []}, fn
      {name, kind}, value, {:ok, done} ->
        with {:ok, lowered} <- lower_one(call, name, kind, value), do: {:ok, [lowered | done]}

      _, _, failed ->
        failed
    end)
    |> case do
      {:ok, lowered} -> {:ok, Enum.reverse(lowered)}
      failed -> failed
    end
  end

  defp lower_one(_call, _name, {:optional, _kind}, nil), do: {:ok, nil}
  defp lower_one(call, name, {:optional, kind}, value), do: lower_one(call, name, kind, value)

  defp lower_one(call, _name, {:params, struct}, options),
    do: Options.lower(call, struct, options)

  defp lower_one(call, name, :json, value), do: json(call, name, value)
  defp lower_one(call, name, :tokens, value), do: tokens(call, name, value)
  defp lower_one(call, name, :flags, value), do: flags(call, name, value)

  defp lower_one(call, name, kind, values) when kind in [:arrays, :values],
    do: each(call, name, values, "a list of arrays", &reference/1)

  defp lower_one(call, name, kind, value) when kind in [:string, :text] do
    if is_binary(value), do: {:ok, value}, else: {:error, refuse(call, name, value, "a text")}
  end

  defp lower_one(call, name, kind, value) when is_map_key(@nouns, kind) do
    case value do
      %{ref: ref} when is_reference(ref) -> {:ok, ref}
      _ -> {:error, refuse(call, name, value, "a #{inspect(module(kind))}")}
    end
  end

  defp lower_one(_call, _name, _kind, value), do: {:ok, value}

  defp reference(%{ref: ref}) when is_reference(ref), do: ref
  defp reference(other), do: other

  defp each(_call, _name, values, _accepted, lower) when is_list(values) do
    {:ok, Enum.map(values, lower)}
  rescue
    # an improper list, which the NIF refuses
    FunctionClauseError -> {:ok, values}
  end

  defp each(call, name, value, accepted, _lower),
    do: {:error, refuse(call, name, value, accepted)}

  defp refuse(call, name, value, accepted), do: Error.refused(call, name, value, accepted)

  @doc "JSON of a term; a text is JSON already."
  @spec json(atom, atom, term) :: {:ok, String.t()} | {:error, Error.t()}
  def json(_call, _name, text) when is_binary(text), do: {:ok, text}

  def json(call, name, value) when is_map(value) or is_list(value) do
    {:ok, value |> plain() |> JSON.encode!()}
  rescue
    _ -> {:error, refuse(call, name, value, "a map or list of texts, numbers, maps and lists")}
  end

  def json(call, name, value), do: {:error, refuse(call, name, value, "a map, or JSON")}

  # Keyword lists are objects.
  defp plain([{key, _} | _] = list) when is_atom(key), do: list |> Map.new() |> plain()
  defp plain(list) when is_list(list), do: Enum.map(list, &plain/1)
  defp plain(%_{} = struct), do: struct |> Map.from_struct() |> plain()
  defp plain(%{} = map), do: Map.new(map, fn {key, value} -> {to_string(key), plain(value)} end)
  defp plain(other), do: other

  @doc "Tokens as a binary of int32."
  @spec tokens(atom, atom, term) :: {:ok, binary} | {:error, Error.t()}
  def tokens(call, name, tokens) when is_list(tokens) do
    {:ok, for(token <- tokens, into: <<>>, do: <<int32!(token)::native-signed-32>>)}
  rescue
    _ -> {:error, refuse(call, name, tokens, "a list of tokens")}
  end

  def tokens(call, name, value), do: {:error, refuse(call, name, value, "a list of tokens")}

  defp int32!(token) when token in -0x80000000..0x7FFFFFFF, do: token

  @flags Declarations.enumerations()[:flags]

  defp flags(_call, _name, flags) when is_integer(flags), do: {:ok, flags}

  defp flags(call, name, flags) do
    {:ok,
     Enum.reduce(flags, 0, fn flag, all -> Bitwise.bor(all, Keyword.fetch!(@flags, flag)) end)}
  rescue
    _ -> {:error, refuse(call, name, flags, "a list of #{list(Keyword.keys(@flags))}")}
  end

  defp list(names), do: Enum.map_join(names, ", ", &inspect/1)

  # ----------------------------------------------------------------------------- Results

  @doc "Read the parts of a result by their kinds."
  @spec read(term, keyword) :: term
  def read({status, part}, [{_name, kind}]) when status in [:ok, :done],
    do: {status, part(kind, part)}

  def read({status, parts}, [{_, :rows}, _]) when status in [:ok, :done] do
    {rows, columns} = parts
    {status, floats(rows) |> Enum.chunk_every(max(columns, 1))}
  end

  def read({status, parts}, kinds) when status in [:ok, :done] do
    read = Enum.zip_with(Tuple.to_list(parts), kinds, fn part, {_, kind} -> part(kind, part) end)
    {status, List.to_tuple(read)}
  end

  def read(other, _kinds), do: other

  defp part(:described, json), do: JSON.decode!(json)
  defp part(:int32s, bytes), do: for(<<token::native-signed-32 <- bytes>>, do: token)
  defp part(:float32s, bytes), do: floats(bytes)
  defp part(:arrays, refs), do: Enum.map(refs, &CowMLX.Array.of_ref/1)
  defp part(:array, ref), do: CowMLX.Array.of_ref(ref)
  defp part({:struct, struct}, map), do: Options.raise_names(struct, map)
  defp part(noun, ref) when is_map_key(@nouns, noun), do: struct!(module(noun), ref: ref)
  defp part(_kind, value), do: value

  defp floats(bytes) do
    for <<word::binary-size(4) <- bytes>>, do: float(word)
  end

  defp float(<<number::native-float-32>>), do: number

  defp float(<<bits::native-32>>) do
    case Bitwise.band(bits, 0xFFFFFFFF) do
      0x7F800000 -> :infinity
      0xFF800000 -> :neg_infinity
      _ -> :nan
    end
  end
end
