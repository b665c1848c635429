defmodule CowMLX.Array do
  @moduledoc """
  An array of numbers in the library: a value, which nothing changes.

      iex> a = CowMLX.Array.new!([[1, 2], [3, 4]], dtype: :float32)
      #CowMLX.Array<float32 [2, 2]>
      iex> CowMLX.Op.sum(a, axis: 1) |> CowMLX.Array.to_list!()
      [3.0, 7.0]

  Dtypes are atoms: `:bool`, `:int32`, `:float32`, `:bfloat16`, ... Elements that are no finite
  numbers are `:nan`, `:infinity` and `:neg_infinity`; complex numbers are `{real, imaginary}`.
  """

  import Kernel, except: [apply: 3]

  alias CowMLX.{Call, Declarations, Elements, Error, Methods}

  @enforce_keys [:ref, :dtype, :shape]
  defstruct [:ref, :dtype, :shape]
  @type dtype :: atom
  @type t :: %__MODULE__{ref: reference, dtype: dtype, shape: [non_neg_integer]}

  @dtypes Declarations.dtypes()
  @numbers Map.new(@dtypes, fn {name, {number, _}} -> {number, name} end)
  # Bytes that are copied on the scheduler, in some microseconds.
  @small 65_536

  use CowMLX.Methods, noun: :array, except: [:apply]

  @doc "The dtypes, and the bytes of an element."
  @spec dtypes() :: [{dtype, pos_integer}]
  def dtypes, do: Enum.map(@dtypes, fn {name, {_, bytes}} -> {name, bytes} end)

  @doc """
  Create an array from a number or nested lists of numbers.

  Options: `:dtype`; by default `:float32`, or `:int32` if all are whole, or `:bool`.
  """
  @spec new(term, keyword) :: {:ok, t} | {:error, Error.t()}
  def new(data, options \\ []) do
    case Elements.encode(data, options[:dtype]) do
      {:ok, binary, dtype, shape} -> from_binary(binary, dtype, shape)
      {:error, said} -> {:error, Error.refused(:array_create, "data", data, said)}
    end
  end

  @doc "The same as `new/2`; raises a `CowMLX.Error`."
  @spec new!(term, keyword) :: t
  def new!(data, options \\ []), do: Methods.ok!(new(data, options))

  @doc "Create an array from its elements in the memory's order, row-major."
  @spec from_binary(binary, dtype, [non_neg_integer]) :: {:ok, t} | {:error, Error.t()}
  def from_binary(binary, dtype, shape) do
    with {:ok, tensor} <- tensor(binary, dtype, shape),
         {:ok, ref} <- create(tensor, byte_size(binary)) do
      {:ok, %__MODULE__{ref: ref, dtype: dtype, shape: shape}}
    end
  end

  @doc "The same as `from_binary/3`; raises a `CowMLX.Error`."
  @spec from_binary!(binary, dtype, [non_neg_integer]) :: t
  def from_binary!(binary, dtype, shape), do: Methods.ok!(from_binary(binary, dtype, shape))

  @doc false
  # Memory of the node, as calls take it.
  @spec tensor(term, term, term) :: {:ok, tuple} | {:error, Error.t()}
  def tensor(binary, dtype, shape) do
    case Keyword.fetch(@dtypes, dtype) do
      {:ok, {number, _}} when is_binary(binary) ->
        {:ok, {number, shape, binary}}

      {:ok, _} ->
        {:error, Error.refused(:array_create, "binary", binary, "a binary")}

      :error ->
        {:error, Error.refused(:array_create, "dtype", dtype, known_dtypes(), :out_of_range)}
    end
  rescue
    FunctionClauseError ->
      {:error, Error.refused(:array_create, "dtype", dtype, known_dtypes())}
  end

  defp known_dtypes, do: "one of " <> Enum.map_join(Keyword.keys(@dtypes), ", ", &inspect/1)

  defp create(tensor, bytes) when bytes <= @small, do: Call.direct(:small_array_create, [tensor])
  defp create(tensor, _bytes), do: Call.wait(:array_create, [tensor])

  @doc false
  @spec of_ref(reference) :: t
  def of_ref(ref) do
    {:ok, {number, shape}} = Call.direct(:array_type, [ref])
    %__MODULE__{ref: ref, dtype: Map.fetch!(@numbers, number), shape: shape}
  end

  @doc """
  The elements in row-major order, once they are computed. A large binary is the array's own
  memory, which lives as long as the binary.
  """
  @spec to_binary(t) :: {:ok, binary} | {:error, Error.t()}
  def to_binary(%__MODULE__{ref: ref}), do: Call.wait(:array_binary, [ref])

  @doc "The same as `to_binary/1`; raises a `CowMLX.Error`."
  @spec to_binary!(t) :: binary
  def to_binary!(array), do: Methods.ok!(to_binary(array))

  @doc "The elements as nested lists; a number for an array of no dimensions."
  @spec to_list(t) :: {:ok, term} | {:error, Error.t()}
  def to_list(%__MODULE__{dtype: dtype, shape: shape} = array) do
    with {:ok, binary} <- to_binary(array), do: {:ok, Elements.decode(binary, dtype, shape)}
  end

  @doc "The same as `to_list/1`; raises a `CowMLX.Error`."
  @spec to_list!(t) :: term
  def to_list!(array), do: Methods.ok!(to_list(array))

  @doc """
  Apply an operation by its name: `{:ok, arrays}`. Values are computed when they are needed.

  `inputs` are arrays, or nil for an optional one. `CowMLX.Op` has a function for each operation.
  """
  @spec apply(atom | String.t(), [t | nil], keyword | map) :: {:ok, [t]} | {:error, Error.t()}
  def apply(operation, inputs, attributes \\ []) do
    json = if Enum.empty?(attributes), do: nil, else: Map.new(attributes)
    Call.make(:array_apply, [to_string(operation), inputs, json])
  end

  @doc "The same as `apply/3`; raises a `CowMLX.Error`."
  @spec apply!(atom | String.t(), [t | nil], keyword | map) :: [t]
  def apply!(operation, inputs, attributes \\ []),
    do: Methods.ok!(apply(operation, inputs, attributes))

  @doc "Load named arrays of a safetensors file, all or none."
  @spec load(Path.t(), [String.t()]) :: {:ok, %{String.t() => t}} | {:error, Error.t()}
  def load(path, names) do
    with {:ok, arrays} <- Call.make(:arrays_load, [path, names]) do
      {:ok, names |> Enum.zip(arrays) |> Map.new()}
    end
  end

  @doc "Save arrays by their names as a safetensors file, completely or not at all."
  @spec save(Path.t(), %{String.t() => t}) :: :ok | {:error, Error.t()}
  def save(path, arrays) do
    {names, values} = Enum.unzip(arrays)
    Call.make(:arrays_save, [path, Enum.map(names, &to_string/1), values])
  end

  @doc "Describe a safetensors file: its tensors by name, and its metadata."
  @spec info(Path.t()) :: {:ok, map} | {:error, Error.t()}
  def info(path), do: Call.make(:arrays_info, [path])

  @doc "Free the array; arrays that were made from it stay."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])

  defimpl Inspect do
    def inspect(%{dtype: dtype, shape: shape}, _options),
      do: "#CowMLX.Array<#{dtype} #{Kernel.inspect(shape, charlists: :as_lists)}>"
  end
end
