defmodule CowMLX.Model do
  @moduledoc """
  A language model: weights, tokenizer and chat template of one folder.

      {:ok, model} = CowMLX.Model.load("models/calf")
      {:ok, context} = CowMLX.Context.create(model)

  Any process may use a model. It is freed behind its last term, or by `free/1`.
  """

  import Kernel, except: [inspect: 2]

  alias CowMLX.{Call, Error, Follower, Methods, Options}

  @enforce_keys [:ref]
  defstruct [:ref]
  @type t :: %__MODULE__{ref: reference}

  use CowMLX.Methods, noun: :model

  @doc """
  Load a model's folder. No thread waits; if the process ends, the load is cancelled.

  Options: `:on_progress`, a function of the fraction and the stage; and the members of
  `cow_mlx_model_params`:

  #{Options.documented(:model_params)}
  """
  @spec load(Path.t(), keyword) :: {:ok, t} | {:error, Error.t()}
  def load(path, options \\ []) do
    {on_progress, options} = Keyword.pop(options, :on_progress)

    with {:ok, params} <- Options.lower(:model_load, :model_params, options),
         params = Map.put(params, :progress, on_progress != nil),
         {:ok, ref} <- Call.direct(:model_load_async, [to_text(path), params]),
         {:ok, follower} <- Follower.follow(ref, :load) do
      loaded(follower, on_progress)
    end
  end

  @doc "The same as `load/2`; raises a `CowMLX.Error`."
  @spec load!(Path.t(), keyword) :: t
  def load!(path, options \\ []), do: Methods.ok!(load(path, options))

  defp to_text(path) when is_list(path), do: IO.chardata_to_string(path)
  defp to_text(path), do: path

  defp loaded(follower, on_progress) do
    {results, follower} = Follower.take(follower)
    for {:progress, done, _, stage} <- results, on_progress, do: on_progress.(done, stage)

    cond do
      follower.failed ->
        Follower.leave(follower)
        {:error, follower.failed}

      follower.ended ->
        Follower.leave(follower)
        {:ok, %__MODULE__{ref: follower.object}}

      true ->
        loaded(follower, on_progress)
    end
  end

  @doc "Free the model; the weights live until its last context is freed."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])
end
