defmodule CowMLX.Options do
  @moduledoc false
  # Options are keyword lists or maps by the names of members of C's params.

  alias CowMLX.{Call, Declarations, Error}

  @options Map.new(Declarations.options())
  @enumerations Map.new(Declarations.enumerations())

  @doc "Lower options to a map that the NIF reads."
  @spec lower(atom, atom, keyword | map) :: {:ok, map} | {:error, Error.t()}
  def lower(call, struct, options) when is_list(options) or is_map(options) do
    known = Map.fetch!(@options, struct)

    Enum.reduce_while(options, {:ok, %{}}, fn
      {name, value}, {:ok, map} when is_atom(name) ->
        with {^name, kind, list, _} <- List.keyfind(known, name, 0),
             {:ok, lowered} <- member(call, name, kind, list, value) do
          {:cont, {:ok, Map.put(map, name, lowered)}}
        else
          nil -> {:halt, {:error, unknown(call, known, name)}}
          failed -> {:halt, failed}
        end

      other, _ ->
        {:halt, {:error, Error.refused(call, "options", other, "a keyword list")}}
    end)
  rescue
    FunctionClauseError -> {:error, Error.refused(call, "options", options, "a keyword list")}
    Protocol.UndefinedError -> {:error, Error.refused(call, "options", options, "a keyword list")}
  end

  def lower(call, _struct, options),
    do: {:error, Error.refused(call, "options", options, "a keyword list")}

  @functions [on_progress: 2, on_logits: 2]

  @doc "The functions that a generation calls, and the other options."
  @spec functions(keyword) :: {keyword, keyword}
  def functions(options), do: Keyword.split(options, Keyword.keys(@functions))

  @doc "Lower the options of a generation that calls functions."
  @spec generation(atom, keyword, keyword) :: {:ok, map} | {:error, Error.t()}
  def generation(call, options, functions) do
    with :ok <- check(call, functions),
         {:ok, params} <- lower(call, :generation_params, options) do
      flags = %{
        prompt_progress: functions[:on_progress] != nil,
        logits_fn: functions[:on_logits] != nil
      }

      {:ok, Map.merge(params, flags)}
    end
  end

  defp check(call, functions) do
    Enum.find_value(functions, :ok, fn {name, function} ->
      unless function == nil or is_function(function, @functions[name]) do
        {:error, Error.refused(call, name, function, "a function of two arguments")}
      end
    end)
  end

  defp unknown(call, known, name) do
    names = Enum.map_join(known, ", ", &to_string(elem(&1, 0)))
    accepted = "one of #{names}"

    %Error{
      op: call,
      reason: :unknown_option,
      status: :einval,
      message: "#{call}: there is no option #{inspect(name)}; there are #{names}",
      details: %{argument: to_string(name), accepted: accepted}
    }
  end

  defp member(_call, _name, _kind, _list, nil), do: {:ok, nil}

  defp member(call, name, _kind, list, value) when is_atom(value) and list != nil do
    case Keyword.fetch(@enumerations[list], value) do
      {:ok, number} -> {:ok, number}
      :error -> {:error, Error.refused(call, name, value, one_of(list), :out_of_range)}
    end
  end

  defp member(call, name, :string, _list, value) when is_map(value) or is_list(value),
    do: Call.json(call, name, value)

  defp member(call, name, :int32s, _list, value), do: Call.tokens(call, name, value)

  defp member(call, name, :float32s, _list, values) do
    {:ok, for(value <- values, into: <<>>, do: float(value))}
  rescue
    _ -> {:error, Error.refused(call, name, values, "a list of numbers")}
  end

  defp member(_call, _name, :arrays, _list, values) when is_list(values),
    do: {:ok, Enum.map(values, &reference/1)}

  defp member(_call, _name, _kind, _list, value), do: {:ok, reference(value)}

  defp reference(%{ref: ref}) when is_reference(ref), do: ref
  defp reference(other), do: other

  defp float(:neg_infinity), do: <<0xFF800000::native-32>>
  defp float(:infinity), do: <<0x7F800000::native-32>>
  defp float(number), do: <<number::native-float-32>>

  defp one_of(list), do: Enum.map_join(Keyword.keys(@enumerations[list]), ", ", &inspect/1)

  @doc "A struct that a call has filled, with names for constants; nil for a number that is not there."
  @spec raise_names(atom, map) :: map
  def raise_names(struct, map) do
    lists = for {name, _, list, _} <- Map.fetch!(@options, struct), list, do: {name, list}

    named =
      Enum.reduce(lists, map, fn {name, list}, map -> Map.update!(map, name, &name(list, &1)) end)

    Map.new(named, fn {key, value} -> {key, if(value == :nan, do: nil, else: value)} end)
  end

  @doc "The name of a constant."
  @spec name(atom, integer) :: atom | integer
  def name(list, number) do
    case List.keyfind(@enumerations[list], number, 1) do
      {name, _} -> name
      nil -> number
    end
  end

  @doc "Documentation of options, as a list."
  @spec documented(atom) :: String.t()
  def documented(struct) do
    Enum.map_join(Map.fetch!(@options, struct), "\n", fn {name, kind, _, about} ->
      "  * `:#{name}` (#{kind}): #{about}"
    end)
  end
end
