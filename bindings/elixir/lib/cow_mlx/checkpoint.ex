defmodule CowMLX.Checkpoint do
  @moduledoc """
  The state of a context at one moment: `CowMLX.Context.checkpoint/1` records it, and
  `CowMLX.Context.rewind/2` restores it, any number of times.
  """

  alias CowMLX.{Call, Error}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference}

  @doc "Free the checkpoint."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])
end
