defmodule CowMLX.Methods do
  @moduledoc false
  # Functions of a noun's module for the calls of the header that the module does not write itself.
  #
  #     use CowMLX.Methods, noun: :context, except: [:create]

  alias CowMLX.{Call, Declarations, Options}

  defmacro __using__(options) do
    noun = Keyword.fetch!(options, :noun)
    except = Keyword.get(options, :except, [])

    for {call, inputs, results, about} <- Declarations.calls(),
        verb = verb(call, noun),
        verb not in except do
      function(call, verb, inputs, results, about)
    end
  end

  # "trim_end" of context_trim_end; calls of other nouns have none.
  defp verb(call, noun) do
    case String.split(Atom.to_string(call), "_", parts: 2) do
      [first, verb] -> if first == Atom.to_string(noun), do: String.to_atom(verb)
      _ -> nil
    end
  end

  defp function(call, verb, inputs, results, about) do
    names = for {name, _} <- inputs, do: name |> own() |> Macro.var(nil)

    parameters =
      for {{name, kind}, variable} <- Enum.zip(inputs, names), do: parameter(name, kind, variable)

    types = for {_, kind} <- inputs, do: type(kind)
    result = result(results)
    documentation = documentation(call, about, inputs)
    bang = :"#{verb}!"
    raised = raised(results)

    quote do
      @doc unquote(documentation)
      @spec unquote(verb)(unquote_splicing(types)) :: unquote(result) | {:error, CowMLX.Error.t()}
      def unquote(verb)(unquote_splicing(parameters)) do
        CowMLX.Methods.made(unquote(call), [unquote_splicing(names)])
      end

      @doc "The same as `#{unquote(verb)}/#{unquote(length(names))}`; raises a `CowMLX.Error`."
      @spec unquote(bang)(unquote_splicing(types)) :: unquote(raised)
      def unquote(bang)(unquote_splicing(parameters)) do
        CowMLX.Methods.ok!(unquote(verb)(unquote_splicing(names)))
      end
    end
  end

  # What is JSON in C is a term here.
  defp own(name) do
    name |> Atom.to_string() |> String.replace_suffix("_json", "") |> String.to_atom()
  end

  defp parameter(_name, {:params, _}, variable), do: quote(do: unquote(variable) \\ [])

  defp parameter(_name, {:optional, kind}, variable) when kind in [:json, :string],
    do: quote(do: unquote(variable) \\ nil)

  defp parameter(:flags, _, variable), do: quote(do: unquote(variable) \\ [])
  defp parameter(_name, _kind, variable), do: variable

  defp type({:params, _}), do: quote(do: keyword | map)
  defp type({:optional, kind}), do: quote(do: unquote(type(kind)) | nil)
  defp type(:json), do: quote(do: map | list | String.t())
  defp type(:flags), do: quote(do: [atom])
  defp type(:tokens), do: quote(do: [integer])
  defp type(kind) when kind in [:string, :text], do: quote(do: String.t())
  defp type(kind) when kind in [:texts, :strings], do: quote(do: [String.t()])
  defp type(kind) when kind in [:arrays, :values], do: quote(do: [CowMLX.Array.t()])
  defp type(:integer), do: quote(do: integer)
  defp type(:number), do: quote(do: number)
  defp type(:boolean), do: quote(do: boolean)
  defp type(:results), do: quote(do: non_neg_integer)
  defp type(noun), do: quote(do: unquote(Call.module(noun)).t())

  defp result([]), do: :ok
  defp result(parts), do: quote(do: {:ok | :done, unquote(raised(parts))})

  defp raised([]), do: :ok
  defp raised([{_, kind}]), do: given(kind)
  defp raised([{_, :rows}, _]), do: quote(do: [[float]])
  defp raised(parts), do: {:{}, [], Enum.map(parts, fn {_, kind} -> given(kind) end)}

  defp given(:described), do: quote(do: map | list)
  defp given(:int32s), do: quote(do: [integer])
  defp given(:float32s), do: quote(do: [float | atom])
  defp given(:arrays), do: quote(do: [CowMLX.Array.t()])
  defp given(:text), do: quote(do: String.t())
  defp given(:value), do: quote(do: non_neg_integer | boolean)
  defp given({:struct, _}), do: quote(do: map)
  defp given(noun), do: quote(do: unquote(Call.module(noun)).t())

  defp documentation(call, about, inputs) do
    options =
      for {_, {:params, struct}} <- inputs do
        "\n\nOptions are members of `cow_mlx_#{struct}`:\n\n" <> Options.documented(struct)
      end

    "#{about}\n\nThis is `cow_mlx_#{call}()`." <> Enum.join(options)
  end

  @doc "Make a call; what it gives keeps what the object that it is made on knows."
  @spec made(atom, list) :: term
  def made(call, arguments) do
    case {Call.make(call, arguments), arguments} do
      {{:ok, %module{} = new}, [%module{model: model} | _]} -> {:ok, %{new | model: model}}
      {result, _} -> result
    end
  end

  @doc "The result of a call that has succeeded; raises its error."
  @spec ok!(:ok | {atom, term}) :: term
  def ok!(:ok), do: :ok
  def ok!({:error, error}), do: raise(error)
  def ok!({_, result}), do: result
end
