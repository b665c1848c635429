defmodule CowMLX.Adapter do
  @moduledoc """
  A LoRA or DoRA adapter of a model, for `CowMLX.Context.set_adapter/2`. It shares the model's
  weights: contexts of one model can use different adapters at once.
  """

  alias CowMLX.{Call, Error, Methods, Model}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference}

  @doc "Load an adapter's folder; `scale` is its strength, 1 as it was trained."
  @spec load(Model.t(), Path.t(), number) :: {:ok, t} | {:error, Error.t()}
  def load(model, path, scale \\ 1.0), do: Call.make(:adapter_load, [model, path, scale])

  @doc "The same as `load/3`; raises a `CowMLX.Error`."
  @spec load!(Model.t(), Path.t(), number) :: t
  def load!(model, path, scale \\ 1.0), do: Methods.ok!(load(model, path, scale))

  @doc "Free the adapter, which lives until no context uses it."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])
end
