defmodule CowMLX.Program do
  @moduledoc """
  A computation on arrays, checked once and run many times. A run is one round trip.

      iex> alias CowMLX.{Op, Program}
      iex> x = Program.input("x", :float32, ["rows", 3])
      iex> w = Program.parameter("w", :float32, [3])
      iex> y = Op.matmul(x, w)
      iex> {:ok, program} = Program.build(y: y, loss: Op.mean(y))
      iex> {:ok, results} = Program.run(program, x: [[1, 2, 3]], w: [1, 0, -1])
      iex> CowMLX.Array.to_list!(results.y)
      [-2.0]

  A dimension is a number or a name; a name has one value in a run.
  """

  alias CowMLX.{Array, Call, Elements, Error, Graph, Methods, Value}

  @enforce_keys [:ref]
  defstruct [:ref, inputs: [], parameters: [], outputs: []]

  @typedoc "`inputs` and `parameters` are `{name, dtype, shape}`; `outputs` the keys of results."
  @type t :: %__MODULE__{ref: reference, inputs: list, parameters: list, outputs: list}
  @type shape :: [non_neg_integer | String.t()]

  use CowMLX.Methods, noun: :program, except: [:create, :derive, :load, :run]

  @doc "An input of a program that is being written."
  @spec input(String.t() | atom, Array.dtype(), shape) :: Value.t()
  def input(name, dtype, shape), do: Value.new({:input, to_string(name), dtype, shape, []})

  @doc """
  A parameter, which trainings train.

  Options: `:init`, how it begins, such as `"zeros"` or `%{name: "normal", std: 0.1}`.
  """
  @spec parameter(String.t() | atom, Array.dtype(), shape, keyword) :: Value.t()
  def parameter(name, dtype, shape, options \\ []),
    do: Value.new({:parameter, to_string(name), dtype, shape, options})

  @doc "Numbers that are part of the program: one, or lists of them."
  @spec constant(term, Array.dtype() | nil) :: Value.t()
  def constant(data, dtype \\ nil) do
    case Elements.encode(data, dtype) do
      {:ok, _, dtype, _} -> Value.new({:constant, data, dtype})
      {:error, said} -> raise Error.refused(:program_create, "constant", data, said)
    end
  end

  @doc "Build the program of outputs, a keyword list or map of values by their names."
  @spec build(keyword(Value.t()) | %{(atom | String.t()) => Value.t()}) ::
          {:ok, t} | {:error, Error.t()}
  def build(outputs) do
    with {:ok, outputs} <- outputs(outputs) do
      outputs
      |> Enum.map(fn {key, value} -> {to_string(key), value} end)
      |> Graph.lower()
      |> create(Enum.map(outputs, &elem(&1, 0)))
    end
  rescue
    error in Error -> {:error, error}
  end

  @doc "The same as `build/1`; raises a `CowMLX.Error`."
  @spec build!(keyword(Value.t()) | map) :: t
  def build!(outputs), do: Methods.ok!(build(outputs))

  defp outputs(given) when (is_list(given) or is_map(given)) and not is_struct(given) do
    outputs = Enum.to_list(given)
    named? = &match?({key, %Value{}} when is_atom(key) or is_binary(key), &1)

    if outputs != [] and Enum.all?(outputs, named?),
      do: {:ok, outputs},
      else: {:error, Error.refused(:program_create, "outputs", given, "values by their names")}
  end

  defp outputs(given),
    do: {:error, Error.refused(:program_create, "outputs", given, "values by their names")}

  @doc "Create a program from JSON, or from a map that is its JSON. Results have texts as keys."
  @spec create(map | String.t()) :: {:ok, t} | {:error, Error.t()}
  def create(json), do: create(json, nil)

  @doc "The same as `create/1`; raises a `CowMLX.Error`."
  @spec create!(map | String.t()) :: t
  def create!(json), do: Methods.ok!(create(json))

  @doc """
  Load the program of a file. `fixed` has values of inputs and sizes of dimensions of an ONNX file.
  """
  @spec load(String.t(), map) :: {:ok, t} | {:error, Error.t()}
  def load(path, fixed \\ %{}) do
    with {:ok, fixed} <- Call.json(:program_load, :fixed, fixed),
         {:ok, program} <- Call.make(:program_load, [path, [fixed: fixed]]),
         do: described(program, nil)
  end

  @doc "The same as `load/2`; raises a `CowMLX.Error`."
  @spec load!(String.t(), map) :: t
  def load!(path, fixed \\ %{}), do: Methods.ok!(load(path, fixed))

  defp create(json, keys) do
    with {:ok, program} <- Call.make(:program_create, [json, []]), do: described(program, keys)
  end

  defp described(program, keys) do
    with {:ok, info} <- info(program) do
      {:ok,
       %{
         program
         | inputs: Enum.map(info["inputs"], &declared/1),
           parameters: Enum.map(info["parameters"], &declared/1),
           outputs: keys || Enum.map(info["outputs"], & &1["name"])
       }}
    end
  end

  defp declared(entry),
    do: {entry["name"], String.to_existing_atom(entry["dtype"]), entry["shape"]}

  @doc """
  Derive the gradient of an output with respect to inputs or parameters.

  The program's outputs are the gradients by the names of the inputs; with `value: true` also the
  output itself, by its name.
  """
  @spec gradient(t, String.t() | atom, [String.t() | atom], keyword) ::
          {:ok, t} | {:error, Error.t()}
  def gradient(program, output, inputs, options \\ []) do
    value = Keyword.get(options, :value, false)
    spec = %{of: output, with_respect_to: inputs, value: value}
    derive(program, %{gradient: spec}, if(value, do: [output], else: []) ++ inputs)
  end

  @doc "The same as `gradient/4`; raises a `CowMLX.Error`."
  @spec gradient!(t, String.t() | atom, [String.t() | atom], keyword) :: t
  def gradient!(program, output, inputs, options \\ []),
    do: Methods.ok!(gradient(program, output, inputs, options))

  @doc "Derive a program for rows at a time: `axes` are the axes of inputs that have rows."
  @spec vectorize(t, map | keyword, String.t() | pos_integer) :: {:ok, t} | {:error, Error.t()}
  def vectorize(program, axes, dimension \\ "rows"),
    do: derive(program, %{vectorize: Map.new(axes), dimension: dimension}, program.outputs)

  @doc "Derive a program with bound inputs: `arrays` by their names."
  @spec bind(t, map | keyword) :: {:ok, t} | {:error, Error.t()}
  def bind(program, arrays) do
    with {:ok, json} <- bound(arrays) do
      derive(program, json, program.outputs)
    end
  end

  # Handles are the library's numbers, which the NIF alone knows: see program_bind in c_src.
  defp bound(arrays) do
    if Enum.all?(arrays, fn {_, array} -> is_struct(array, Array) end),
      do: {:ok, {:bind, arrays}},
      else: {:error, Error.refused(:program_derive, "arrays", arrays, "arrays by their names")}
  end

  defp derive(program, {:bind, arrays}, keys) do
    {names, values} = Enum.unzip(arrays)
    refs = Enum.map(values, & &1.ref)

    json = Enum.map(names, &JSON.encode!(to_string(&1)))

    with {:ok, ref} <- Call.wait(:program_bind, [program.ref, json, refs]),
         do: described(%__MODULE__{ref: ref}, keys)
  end

  defp derive(program, spec, keys) do
    with {:ok, derived} <- Call.make(:program_derive, [program, spec]),
         do: described(derived, keys)
  end

  @doc """
  Run the program: upload, compute, and give arrays by the names of outputs.

  `inputs` are arrays, numbers or lists by the names of inputs and parameters, or a list in their
  order: inputs, then parameters. Options are the members of `cow_mlx_run_params`:

    * `:submit` returns once the run is accepted; other runs can take its results at once, and
      `CowMLX.Array.wait/2` returns its status;
    * `:check_finite` makes a NaN or an infinity an error, which names the node;
    * `:donate` a list of names of inputs to give up: their arrays are freed when the run begins.
  """
  @spec run(t, keyword | map | list, keyword) :: {:ok, map} | {:error, Error.t()}
  def run(%__MODULE__{} = program, inputs, options \\ []) do
    with {:ok, arrays} <- run_all(program, inputs, options) do
      {:ok, program.outputs |> Enum.zip(arrays) |> Map.new()}
    end
  end

  @doc "The same as `run/3`; raises a `CowMLX.Error`."
  @spec run!(t, keyword | map | list, keyword) :: map
  def run!(program, inputs, options \\ []), do: Methods.ok!(run(program, inputs, options))

  @doc "The same as `run/3`; gives a list of the results in their order."
  @spec run_all(t, keyword | map | list, keyword) :: {:ok, [Array.t()]} | {:error, Error.t()}
  def run_all(program, inputs, options \\ []) do
    declared = program.inputs ++ program.parameters

    with {:ok, values} <- values(:program_run, declared, inputs),
         {:ok, options} <- donated(declared, options) do
      Call.make(:program_run, [program, values, length(program.outputs), options])
    end
  end

  defp donated(declared, options) do
    case Keyword.fetch(options, :donate) do
      {:ok, names} ->
        places = Enum.map(names, &place(declared, &1))

        if Enum.all?(places),
          do: {:ok, Keyword.put(options, :donate, places)},
          else: {:error, Error.refused(:program_run, "donate", names, "names of inputs")}

      :error ->
        {:ok, options}
    end
  end

  defp place(_declared, index) when is_integer(index), do: index
  defp place(declared, name), do: Enum.find_index(declared, &(elem(&1, 0) == to_string(name)))

  @doc false
  # What a call takes as values, in the order of what is declared.
  @spec values(atom, list, term) :: {:ok, list} | {:error, Error.t()}
  def values(call, declared, given) do
    with {:ok, listed} <- in_order(call, declared, given) do
      declared
      |> Enum.zip(listed)
      |> Enum.reduce_while({:ok, []}, fn {{name, dtype, _}, value}, {:ok, done} ->
        case value(call, name, dtype, value) do
          {:ok, lowered} -> {:cont, {:ok, [lowered | done]}}
          failed -> {:halt, failed}
        end
      end)
      |> case do
        {:ok, values} -> {:ok, Enum.reverse(values)}
        failed -> failed
      end
    end
  end

  defp in_order(call, declared, given) do
    by_name? = is_map(given) or match?([{key, _} | _] when is_atom(key) or is_binary(key), given)
    names = Enum.map(declared, &elem(&1, 0))

    cond do
      is_struct(given) ->
        {:error, Error.refused(call, "inputs", given, "values by their names")}

      by_name? ->
        named(call, names, Map.new(given, fn {key, value} -> {to_string(key), value} end))

      is_list(given) and length(given) == length(names) ->
        {:ok, given}

      true ->
        {:error, Error.refused(call, "inputs", given, "values for #{inspect(names)}")}
    end
  end

  defp named(call, names, given) do
    missing = Enum.find(names, &(not is_map_key(given, &1)))
    unknown = given |> Map.keys() |> Enum.find(&(&1 not in names))

    cond do
      missing -> {:error, Error.refused(call, missing, nil, "given", :missing)}
      unknown -> {:error, unknown(call, unknown, names)}
      true -> {:ok, Enum.map(names, &Map.fetch!(given, &1))}
    end
  end

  defp unknown(call, name, names) do
    accepted = "one of #{Enum.join(names, ", ")}"
    Error.refused(call, "an input", name, accepted, :unknown_option)
  end

  defp value(_call, _name, _dtype, %Array{ref: ref}), do: {:ok, ref}

  defp value(_call, _name, _dtype, {binary, dtype, shape}) when is_binary(binary),
    do: Array.tensor(binary, dtype, shape)

  defp value(call, name, dtype, data) do
    case Elements.encode(data, dtype) do
      {:ok, binary, dtype, shape} -> Array.tensor(binary, dtype, shape)
      {:error, said} -> {:error, Error.refused(call, name, data, said)}
    end
  end

  @doc "Free the program. Its runs continue."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])
end
