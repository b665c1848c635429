defmodule CowMLX.Error do
  @moduledoc """
  A call that failed.

    * `:op` is the call, such as `:context_begin`;
    * `:reason` an atom of the library's list of reasons, such as `:out_of_range`;
    * `:details` a map by the keys that the list gives with the reason, such as `:argument`,
      `:value` and `:accepted`;
    * `:status` the status of C, such as `:einval`;
    * `:message` the same for people.

  Functions return `{:error, error}`. Their forms with `!` raise it.

      iex> {:error, error} = CowMLX.Array.new([300], dtype: :uint8)
      iex> {error.op, error.reason}
      {:array_create, :wrong_type}
  """

  alias CowMLX.Declarations

  @statuses Declarations.statuses()
  @reasons Map.new(Declarations.reasons(), &{Atom.to_string(&1), &1})
  @ops Map.new(Declarations.functions(), &{Atom.to_string(&1), &1})
  @details Map.new(Declarations.details(), &{Atom.to_string(&1), &1})

  defexception [:op, :reason, :status, :message, details: %{}]

  @type t :: %__MODULE__{
          op: atom,
          reason: atom,
          status: atom,
          message: String.t(),
          details: %{optional(atom | String.t()) => term}
        }

  @doc false
  # What a call in C has reported.
  @spec of_status(atom, integer, String.t(), String.t()) :: t
  def of_status(op, status, message, json) do
    data =
      case JSON.decode(json) do
        {:ok, %{} = data} -> data
        _ -> %{}
      end

    details = for {key, value} <- data["details"] || %{}, into: %{}, do: {key_of(key), value}

    %__MODULE__{
      op: Map.get(@ops, data["operation"], op),
      reason: Map.get(@reasons, data["reason"], :internal),
      status: Map.get(@statuses, status, :unknown),
      message: message,
      details: details
    }
  end

  @doc false
  # What the binding itself refuses, as the library would.
  @spec refused(atom, String.t() | atom, term, String.t(), atom) :: t
  def refused(op, argument, value, accepted, reason \\ :wrong_type) do
    shown = inspect(value, limit: 5, printable_limit: 60)

    %__MODULE__{
      op: op,
      reason: reason,
      status: :einval,
      message: "#{op}: #{argument} is #{shown}, must be #{accepted}",
      details: %{argument: to_string(argument), value: shown, accepted: accepted}
    }
  end

  @problems %{
    not_running: :estate,
    no_memory: :enomem,
    no_threads: :enomem,
    no_descriptors: :eio,
    library_mismatch: :eunsupported,
    file_not_found: :enoent,
    context_busy: :estate
  }

  @doc false
  @spec problem(atom, atom, String.t()) :: t
  def problem(op, reason, message) do
    %__MODULE__{
      op: op,
      reason: reason,
      status: Map.get(@problems, reason, :einternal),
      message: "#{op}: #{message}"
    }
  end

  defp key_of(key), do: Map.get(@details, key, key)
end
