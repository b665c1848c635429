defmodule CowMLX.Value do
  @moduledoc """
  A value of a program that is being written: an input, a parameter, a constant, or a result of an
  operation. `CowMLX.Program` makes the first, `CowMLX.Op` the others.
  """

  @enforce_keys [:id, :index, :source]
  defstruct [:id, :index, :source]

  @type t :: %__MODULE__{id: integer, index: non_neg_integer, source: tuple}

  @doc false
  @spec new(tuple) :: t
  def new(source), do: %__MODULE__{id: fresh(), index: 0, source: source}

  @doc false
  # The results of a node.
  @spec results(tuple, pos_integer) :: [t]
  def results(source, count) do
    id = fresh()
    for index <- 0..(count - 1), do: %__MODULE__{id: id, index: index, source: source}
  end

  @doc false
  # Numbers that rise with time: what was made before a function began is outside of it.
  @spec fresh() :: integer
  def fresh, do: System.unique_integer([:monotonic])

  defimpl Inspect do
    def inspect(%{source: source}, _options), do: "#CowMLX.Value<#{what(source)}>"

    defp what({:node, operation, _, _, _, _}), do: operation
    defp what({kind, name, dtype, _, _}), do: "#{kind} #{name} #{dtype}"
    defp what(source), do: elem(source, 0)
  end
end
