defmodule CowMLX.NIF do
  @moduledoc false
  # The functions of c_src/nif.c. None of them waits, except open/1, which has a dirty scheduler.

  @on_load :load

  @doc false
  def load do
    path = :filename.join(:code.priv_dir(:cowmlx), ~c"cow_mlx_nif")
    :erlang.load_nif(path, 0)
  end

  @spec open(String.t()) :: :ok | tuple
  def open(_path), do: :erlang.nif_error(:nif_not_loaded)

  @spec version() :: String.t() | nil
  def version, do: :erlang.nif_error(:nif_not_loaded)

  @spec kind(term) :: atom
  def kind(_term), do: :erlang.nif_error(:nif_not_loaded)

  @spec calls() :: [{atom, arity, atom}]
  def calls, do: :erlang.nif_error(:nif_not_loaded)

  @spec call(reference, atom, list) :: :ok | tuple
  def call(_ref, _name, _arguments), do: :erlang.nif_error(:nif_not_loaded)

  @spec direct(atom, list) :: term
  def direct(_name, _arguments), do: :erlang.nif_error(:nif_not_loaded)

  @spec answer(reference, [reference] | binary | {binary, binary} | nil) :: :ok
  def answer(_job, _answer), do: :erlang.nif_error(:nif_not_loaded)

  @spec follow(reference) :: {:ok, reference} | tuple
  def follow(_object), do: :erlang.nif_error(:nif_not_loaded)

  @spec take(reference, reference, :pieces | :events | :load) :: :wait | [term] | tuple
  def take(_follower, _ref, _kind), do: :erlang.nif_error(:nif_not_loaded)

  @spec leave(reference) :: :ok
  def leave(_follower), do: :erlang.nif_error(:nif_not_loaded)
end
